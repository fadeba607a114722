//! The CPU as a device: every operation runs immediately, on the caller's thread, over arrays in memory.
//!
//! Kernels are generic over [`Scalar`], allocate nothing during an update, and use the widest vectors of the CPU
//! (chosen at run time, so that one binary runs on all machines).

mod adam;
mod buffer;
mod critic;
mod dense;
mod gaussian;
mod gru;
mod loss;
pub mod matrix;
mod pointwise;
mod replay;
mod scoring;
mod vectors;

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use rayon::iter::{IntoParallelRefMutIterator as _, ParallelIterator as _};

pub use buffer::Buffer;
pub use loss::trajectory_cross_entropy;
pub use vectors::Vectors;

use crate::Scalar;
use crate::device::{Device, DeviceError};
use crate::shapes::{Bank, Gru, Mlp};
use crate::work::*;

/// The CPU, in f32 (for use) or f64 (for gradient checks and golden tests).
#[derive(Clone, Debug, Default)]
pub struct Cpu<T> {
    /// The folder of temporary files with the columns of replay tables; without one, they are in memory.
    columns: Option<Arc<Path>>,
    numbers: PhantomData<T>,
}

impl<T> Cpu<T> {
    /// Creates the device.
    pub const fn new() -> Self {
        Self { columns: None, numbers: PhantomData }
    }

    /// The CPU, with the columns of replay tables in temporary files in `folder`.
    pub fn with_columns_in(folder: &Path) -> Self {
        Self { columns: Some(folder.into()), numbers: PhantomData }
    }
}

impl<T: Scalar> Device for Cpu<T> {
    type Num = T;
    type Buf = Buffer<T>;
    type Rows = Vec<u32>;
    type Program = ();

    const PARTS: usize = 2;

    fn buffer(&self, n: usize) -> Room<Buffer<T>> {
        Ok(Buffer::zeros(n))
    }

    fn column(&self, n: usize) -> Room<Buffer<T>> {
        let Some(folder) = &self.columns else { return self.buffer(n) };
        let refused = |e: std::io::Error| DeviceError::Memory {
            bytes: n * size_of::<T>(),
            reason: format!("temporary file in {}: {e}", folder.display()),
        };
        Buffer::zeros_in_file(n, folder).map_err(refused)
    }

    fn rows(&self, n: usize) -> Room<Vec<u32>> {
        Ok(vec![0; n])
    }

    fn write(&self, to: &mut Buffer<T>, at: usize, from: &[f32]) {
        to[at..at + from.len()].iter_mut().zip(from).for_each(|(to, from)| *to = T::from_f32(*from));
    }

    fn steer(&self, to: &mut Buffer<T>, at: usize, from: &[f64]) {
        to[at..at + from.len()].iter_mut().zip(from).for_each(|(to, from)| *to = T::of(*from));
    }

    fn write_rows(&self, to: &mut Vec<u32>, at: usize, from: &[u32]) {
        to[at..at + from.len()].copy_from_slice(from);
    }

    fn copy(&self, from: &Buffer<T>, from_at: usize, to: &mut Buffer<T>, to_at: usize, n: usize) {
        to[to_at..to_at + n].copy_from_slice(&from[from_at..from_at + n]);
    }

    fn fill(&self, to: &mut Buffer<T>, at: usize, n: usize, value: f32) {
        to[at..at + n].fill(T::from_f32(value));
    }

    fn read(&self, from: &Buffer<T>, at: usize, to: &mut [f32]) -> Result<(), DeviceError> {
        to.iter_mut().zip(&from[at..]).for_each(|(to, from)| *to = from.to_f32());
        Ok(())
    }

    fn run(&self, (): &mut (), body: impl FnOnce()) -> Result<(), DeviceError> {
        body();
        Ok(())
    }

    fn each_part<P: Send>(&self, parts: &mut [P], work: impl Fn(&mut P) + Send + Sync) {
        parts.par_iter_mut().for_each(work);
    }

    fn normals(&self, addresses: &Vec<u32>, each: usize, out: &mut Buffer<T>) {
        gaussian::normals(addresses, each, out);
    }

    fn forward(&self, net: &Bank<Mlp>, weights: &Buffer<T>, input: Input<'_, Self>, pass: &mut Pass<Self>) {
        dense::forward(net, weights, input, pass);
    }

    fn backward(
        &self,
        net: &Bank<Mlp>,
        weights: &Buffer<T>,
        input: Input<'_, Self>,
        pass: &mut Pass<Self>,
        gradients: &mut Buffer<T>,
    ) {
        dense::backward(net, weights, input, pass, gradients);
    }

    fn input_gradient(
        &self,
        net: &Bank<Mlp>,
        weights: &Buffer<T>,
        pass: &Pass<Self>,
        first: usize,
        out: &mut Buffer<T>,
        stride: usize,
    ) {
        dense::input_gradient(net, weights, pass, first, out, stride);
    }

    fn action_gradient(
        &self,
        net: &Bank<Mlp>,
        weights: &Buffer<T>,
        pass: &mut Pass<Self>,
        share: usize,
        first: usize,
        out: &mut Buffer<T>,
    ) {
        dense::action_gradient(net, weights, pass, share, first, out);
    }

    fn sample(&self, pass: &Pass<Self>, noise: &Buffer<T>, clip: LogStd, drawn: &mut Drawn<Self>) {
        let head = &pass.output()[..pass.groups * pass.rows * pass.outputs()];
        gaussian::sample(head, noise, clip, drawn);
    }

    fn mode(&self, pass: &Pass<Self>, action: &mut Buffer<T>) {
        gaussian::mode(pass, action);
    }

    fn sample_backward(&self, pass: &mut Pass<Self>, s: SampleBackward<'_, Self>) {
        gaussian::sample_backward(pass, s);
    }

    fn critic_target(&self, t: CriticTarget<'_, Self>, target: &mut Buffer<T>) {
        critic::target(t, target);
    }

    fn critic_loss(&self, head: HeadPlace, target: &Buffer<T>, pass: &mut Pass<Self>, loss: &mut Buffer<T>) {
        critic::loss(head, target, pass, loss);
    }

    fn climb(&self, head: HeadPlace, weights: &Buffer<T>, pass: &mut Pass<Self>, value: &mut Buffer<T>) {
        critic::climb(head, weights, pass, value);
    }

    fn temperature_gradient(
        &self,
        log_temperature: &Buffer<T>,
        drawn: &Drawn<Self>,
        target_entropy: f64,
        gradient: &mut Buffer<T>,
        entropy: &mut Buffer<T>,
    ) {
        critic::temperature(log_temperature, drawn, target_entropy, gradient, entropy);
    }

    fn adam(&self, p: &mut Parameters<Self>, step: &AdamStep<'_, Self>, follower: Option<(&mut Buffer<T>, f64)>) {
        adam::adam(p, step, follower);
    }

    fn gather(&self, replay: &Tables<'_, Self>, rows: &Vec<u32>, batch: &mut Batch<Self>) {
        replay::gather(replay, rows, batch);
    }

    fn append(&self, steps: &Appended<Self>, scores: Option<Scored<'_, Self>>, own: &mut Table<Self>) {
        replay::append(steps, scores, own);
    }

    fn see(
        &self,
        units: &Units<Self>,
        observation: &Buffer<T>,
        memory: Option<(&Buffer<T>, usize)>,
        state: &mut Buffer<T>,
    ) {
        scoring::states(units, observation, memory, state);
    }

    fn to_env(&self, units: &Units<Self>, action: &Buffer<T>, out: &mut Buffer<T>) {
        scoring::to_env(units, action, out);
    }

    fn spans(&self, column: &Buffer<T>, width: usize, places: &Vec<u32>, sizes: [usize; 2], out: &mut Buffer<T>) {
        scoring::spans(column, width, places, sizes, out);
    }

    fn normalise(&self, n: Normalise<'_, Self>, out: &mut Buffer<T>) {
        scoring::normalise(&n, out);
    }

    fn gru_forward(&self, net: &Bank<Gru>, weights: &Buffer<T>, input: Columns<'_, Self>, pass: &mut GruPass<Self>) {
        gru::forward(net, weights, input, pass);
    }

    fn gru_backward(
        &self,
        net: &Bank<Gru>,
        weights: &Buffer<T>,
        input: Columns<'_, Self>,
        dh: &Buffer<T>,
        pass: &mut GruPass<Self>,
        gradients: &mut Buffer<T>,
        dx: Option<&mut Buffer<T>>,
    ) {
        gru::backward(net, weights, input, dh, pass, gradients, dx);
    }

    fn gru_step(
        &self,
        net: &Bank<Gru>,
        weights: &Buffer<T>,
        input: Columns<'_, Self>,
        hidden: &mut Buffer<T>,
        pass: &mut GruPass<Self>,
    ) {
        gru::step(net, weights, input, hidden, pass);
    }

    fn log_prob(&self, pass: &Pass<Self>, members: usize, out: &mut Buffer<T>) {
        scoring::log_prob(pass, members, out);
    }

    fn trajectory_loss(&self, t: TrajectoryLoss<'_, Self>, pass: &mut Pass<Self>, loss: &mut Buffer<T>) {
        loss::trajectory(&t, pass, loss);
    }

    fn sum(&self, values: &Buffer<T>, sum: &mut Buffer<T>) {
        let each = values.len() / sum.len();
        for (values, sum) in values.chunks_exact(each).zip(sum) {
            *sum = pointwise::sum(values);
        }
    }

    fn add_gradients(&self, sum: &mut Buffer<T>, other: &Buffer<T>) {
        sum.iter_mut().zip(other).for_each(|(sum, x)| *sum += *x);
    }

    fn clip(&self, gradients: &Buffer<T>, groups: usize, limit: f64, factor: &mut Buffer<T>) {
        let each = gradients.len() / groups;
        for (gradients, factor) in gradients.chunks_exact(each).zip(factor) {
            let norm = pointwise::sum_squares(gradients).f64().sqrt();
            *factor = T::of(if norm > limit { limit / norm } else { 1.0 });
        }
    }

    fn floor(&self, log_prob: &Buffer<T>, floor: f64, active: &Buffer<T>, sum: &mut Buffer<T>, score: &mut Buffer<T>) {
        scoring::floor(log_prob, floor, active, sum, score);
    }

    fn memory(&self, m: MemoryRows<'_, Self>, memory: &mut Buffer<T>) {
        scoring::memory(&m, memory);
    }
}
