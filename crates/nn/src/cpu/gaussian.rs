//! The squashed Gaussian policy head: `a = tanh(u)`, `u = mean + exp(log_std) e`, `e` standard normal.
//!
//! `log pi(a) = sum_i [-e^2/2 - log_std - ln(2 pi)/2 - 2 (ln 2 - u - softplus(-2u))]`. The last term is
//! `ln(1 - tanh(u)^2)` in a form that stays accurate where tanh rounds to 1.

use prudence_core::random::{StreamId, blocks};

use super::Cpu;
use super::vectors::vectorised;
use crate::Scalar;
use crate::work::{Drawn, LogStd, Pass, SampleBackward};

const LN_2: f64 = std::f64::consts::LN_2;
const HALF_LN_2_PI: f64 = 0.918_938_533_204_672_8;

pub(super) fn normals<T: Scalar>(addresses: &[u32], each: usize, out: &mut [T]) {
    const CHUNK: usize = 256; // a whole number of blocks
    for (address, out) in addresses.as_chunks::<6>().0.iter().zip(out.chunks_exact_mut(each)) {
        let (id, mut block) = StreamId::from_address(*address);
        vectorised(
            #[inline(always)]
            || {
                let mut numbers = [0.0; CHUNK];
                for out in out.chunks_mut(CHUNK) {
                    let numbers = &mut numbers[..out.len()];
                    id.normals(block, numbers);
                    out.iter_mut().zip(numbers).for_each(|(out, x)| *out = T::from_f32(*x));
                    block += blocks(CHUNK);
                }
            },
        );
    }
}

/// The number of rows sampled at a time. Values of one dimension are `dim` apart, so vectors run over rows.
const ROWS: usize = 16;

pub(super) fn sample<T: Scalar>(head: &[T], noise: &[T], clip: LogStd, drawn: &mut Drawn<Cpu<T>>) {
    let Drawn { action, log_prob } = drawn;
    let (rows, dim) = (log_prob.len(), action.len() / log_prob.len());
    assert!(
        head.len() == 2 * action.len() && noise.len() == action.len(),
        "{} actions from a head of {} numbers and noise of {}",
        action.len(),
        head.len(),
        noise.len()
    );
    let rows_of = RowsOf { head, noise, clip, dim };
    vectorised(
        #[inline(always)]
        || {
            for first in (0..rows).step_by(ROWS) {
                match rows - first {
                    1 => rows_of.sample::<1>(first, 1, action, log_prob),
                    left => rows_of.sample::<ROWS>(first, left.min(ROWS), action, log_prob),
                }
            }
        },
    );
}

/// A policy's head `[rows, 2 dim]` and its noise `[rows, dim]`.
struct RowsOf<'a, T> {
    head: &'a [T],
    noise: &'a [T],
    clip: LogStd,
    dim: usize,
}

impl<T: Scalar> RowsOf<'_, T> {
    /// Mean, log standard deviation (not clipped) and noise of dimension `i` of up to R rows; 0 beyond `rows`.
    #[inline(always)]
    fn dimension<const R: usize>(&self, first: usize, rows: usize, i: usize) -> [[T; R]; 3] {
        let dim = self.dim;
        let (head, noise) = (&self.head[first * 2 * dim..][..rows * 2 * dim], &self.noise[first * dim..][..rows * dim]);
        let [mut mean, mut log_std, mut e] = [[T::ZERO; R]; 3];
        for r in 0..rows {
            mean[r] = head[r * 2 * dim + i];
            log_std[r] = head[r * 2 * dim + dim + i];
            e[r] = noise[r * dim + i];
        }
        [mean, log_std, e]
    }

    /// Samples the actions of the rows `first..first + rows`, at most R.
    #[inline(always)]
    fn sample<const R: usize>(&self, first: usize, rows: usize, action: &mut [T], log_prob: &mut [T]) {
        let (min, max) = (T::of(self.clip.min), T::of(self.clip.max));
        let (two, half, constant) = (T::of(2.0), T::of(0.5), T::of(HALF_LN_2_PI + 2.0 * LN_2));
        let action = &mut action[first * self.dim..][..rows * self.dim];
        let mut sum = [T::ZERO; R];
        for i in 0..self.dim {
            let [mean, log_std, e] = self.dimension::<R>(first, rows, i);
            let mut a = [T::ZERO; R];
            for r in 0..R {
                let log_std = log_std[r].max(min).min(max);
                let u = log_std.exp().fma(e[r], mean[r]);
                a[r] = u.tanh();
                sum[r] += two * (u + (-two * u).softplus()) - half * e[r] * e[r] - log_std - constant;
            }
            for r in 0..rows {
                action[r * self.dim + i] = a[r];
            }
        }
        log_prob[first..first + rows].copy_from_slice(&sum[..rows]);
    }

    /// The head's gradient in the rows `first..first + rows`, at most R, from the gradient of the actions.
    #[inline(always)]
    fn backward<const R: usize>(
        &self,
        first: usize,
        rows: usize,
        [action, d_action]: [&[T]; 2],
        d_log_prob: T,
        d_head: &mut [T],
    ) {
        let (min, max, two, dim) = (T::of(self.clip.min), T::of(self.clip.max), T::of(2.0), self.dim);
        let rows_of = |x: &'_ [T], i: usize| {
            let mut numbers = [T::ZERO; R];
            numbers
                .iter_mut()
                .zip(x[first * dim..][..rows * dim].iter().skip(i).step_by(dim))
                .for_each(|(to, x)| *to = *x);
            numbers
        };
        let d_head = &mut d_head[first * 2 * dim..][..rows * 2 * dim];
        for i in 0..dim {
            let [_, raw, e] = self.dimension::<R>(first, rows, i);
            let (a, d_action) = (rows_of(action, i), rows_of(d_action, i));
            let [mut d_mean, mut d_log_std] = [[T::ZERO; R]; 2];
            for r in 0..R {
                // d log_prob / du = 2 tanh(u), exactly
                let du = d_action[r] * (T::ONE - a[r] * a[r]) + d_log_prob * two * a[r];
                d_mean[r] = du;
                let inside = raw[r] >= min && raw[r] <= max;
                let d = du * raw[r].max(min).min(max).exp() * e[r] - d_log_prob;
                d_log_std[r] = if inside { d } else { T::ZERO };
            }
            for r in 0..rows {
                d_head[r * 2 * dim + i] = d_mean[r];
                d_head[r * 2 * dim + dim + i] = d_log_std[r];
            }
        }
    }
}

pub(super) fn mode<T: Scalar>(pass: &Pass<Cpu<T>>, action: &mut [T]) {
    let dim = pass.outputs() / 2;
    let heads = pass.output().chunks_exact(2 * dim).take(pass.groups * pass.rows);
    for (head, action) in heads.zip(action.chunks_exact_mut(dim)) {
        for (a, mean) in action.iter_mut().zip(head) {
            *a = mean.tanh();
        }
    }
}

pub(super) fn sample_backward<T: Scalar>(pass: &mut Pass<Cpu<T>>, s: SampleBackward<'_, Cpu<T>>) {
    let (rows, width) = (pass.rows, pass.outputs());
    let dim = width / 2;
    let mean = T::of(1.0 / rows as f64);
    let last = pass.activations.len() - 1;
    let (head, d_head) = (&pass.activations[last], &mut pass.gradients[last]);
    for (p, log_temperature) in s.log_temperature.iter().enumerate() {
        let d_log_prob = log_temperature.exp() * mean;
        let (wide, narrow) = (p * rows * width..(p + 1) * rows * width, p * rows * dim..(p + 1) * rows * dim);
        let d_head = &mut d_head[wide.clone()];
        let rows_of = RowsOf { head: &head[wide], noise: &s.noise[narrow.clone()], clip: s.clip, dim };
        let actions = [&s.drawn.action[narrow.clone()], &s.action_gradient[narrow]];
        vectorised(
            #[inline(always)]
            || {
                for first in (0..rows).step_by(ROWS) {
                    rows_of.backward::<ROWS>(first, (rows - first).min(ROWS), actions, d_log_prob, d_head);
                }
            },
        );
    }
}
