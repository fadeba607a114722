//! What a learner asks of the machine it runs on.
//!
//! An operation is a line of the paper's listing, not a matrix product: how much of it becomes one kernel is the device's
//! business. An update is a sequence of these operations without reads by the host, without shapes that depend on data and
//! without host numbers that change from update to update (rates, multipliers and masks lie in buffers), so that a GPU can
//! record it once and replay it. Every array has the population P, or the G networks of a bank, leading.
//!
//! A device's errors are for allocation and for reading back. Shapes are the caller's promise: an operation panics where
//! they disagree.

use crate::shapes::{Bank, Gru, Mlp};
use crate::{Scalar, work::*};

/// A device could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has no room for a buffer.
    #[error("no room for {bytes} bytes on the device: {reason}")]
    Memory {
        /// The size asked for.
        bytes: usize,
        /// What the driver says.
        reason: String,
    },
    /// Work on the device failed.
    #[error("the device failed: {0}")]
    Failed(String),
}

/// Where the networks live and the learner's arithmetic runs.
pub trait Device: Clone + Send + Sync + 'static {
    /// The numbers of networks and batches.
    type Num: Scalar;
    /// An array of numbers.
    type Buf: Send + Sync;
    /// An array of row numbers.
    type Rows: Send + Sync;
    /// A recorded sequence of operations.
    type Program: Default + Send;

    /// A batch of a fit is cut into this many parts whose gradients are added in order, so that a device with threads can
    /// work on all of them and the sum has the same bits however many threads it has.
    const PARTS: usize;

    // Memory.

    /// An array of `n` zeros.
    fn buffer(&self, n: usize) -> Result<Self::Buf, DeviceError>;
    /// An array of `n` row numbers, all 0.
    fn rows(&self, n: usize) -> Result<Self::Rows, DeviceError>;
    /// Writes data from position `at` on.
    fn write(&self, to: &mut Self::Buf, at: usize, from: &[f32]);
    /// Writes numbers that steer an update (rates, weights, masks), rounded once to the device's precision.
    fn steer(&self, to: &mut Self::Buf, at: usize, from: &[f64]);
    /// Writes row numbers from position `at` on.
    fn write_rows(&self, to: &mut Self::Rows, at: usize, from: &[u32]);
    /// Copies `n` numbers within the device.
    fn copy(&self, from: &Self::Buf, from_at: usize, to: &mut Self::Buf, to_at: usize, n: usize);
    /// Sets `n` numbers from position `at` on.
    fn fill(&self, to: &mut Self::Buf, at: usize, n: usize, value: f32);
    /// Reads numbers back from position `at` on.
    fn read(&self, from: &Self::Buf, at: usize, to: &mut [f32]) -> Result<(), DeviceError>;

    // Programs.

    /// Runs `body`, whose operations are the same each time; a device may record them the first time and replay them after.
    fn run(&self, program: &mut Self::Program, body: impl FnOnce()) -> Result<(), DeviceError>;
    /// Works on the parts of a batch, at the same time where the device has threads.
    fn each_part<T: Send>(&self, parts: &mut [T], work: impl Fn(&mut T) + Send + Sync);

    /// Standard normal numbers: for each owner, `each` numbers from its address on (see `StreamId::address`), six words per
    /// owner.
    fn normals(&self, addresses: &Self::Rows, each: usize, out: &mut Self::Buf);

    // Dense networks.

    /// Runs a bank on its rows; outputs and activations are left in `pass`.
    fn forward(&self, net: &Bank<Mlp>, weights: &Self::Buf, input: Input<'_, Self>, pass: &mut Pass<Self>);
    /// From the output gradient in `pass` to the gradients of the parameters, overwritten, in `gradients` laid out as the
    /// weights are. Follows a [`Device::forward`] with the same arguments; the output gradient stays as it was.
    fn backward(
        &self,
        net: &Bank<Mlp>,
        weights: &Self::Buf,
        input: Input<'_, Self>,
        pass: &mut Pass<Self>,
        gradients: &mut Self::Buf,
    );
    /// After [`Device::backward`]: the gradient of the inputs from column `first` on, `[G, rows, in - first]`, with `stride`
    /// numbers from one network's to the next one's.
    fn input_gradient(
        &self,
        net: &Bank<Mlp>,
        weights: &Self::Buf,
        pass: &Pass<Self>,
        first: usize,
        out: &mut Self::Buf,
        stride: usize,
    );
    /// From the output gradient in `pass` straight to the gradient of the inputs from column `first` on, summed over each
    /// run of `share` networks: `[G / share, rows, in - first]`. The way back through an agent's critics to its action.
    fn action_gradient(
        &self,
        net: &Bank<Mlp>,
        weights: &Self::Buf,
        pass: &mut Pass<Self>,
        share: usize,
        first: usize,
        out: &mut Self::Buf,
    );

    // The policy's head: a squashed Gaussian.

    /// Draws actions and their log-probabilities from the head in `pass` (means, then log-stds) and standard normal noise.
    fn sample(&self, pass: &Pass<Self>, noise: &Self::Buf, clip: LogStd, drawn: &mut Drawn<Self>);
    /// The most likely action, `tanh(mean)`.
    fn mode(&self, pass: &Pass<Self>, action: &mut Self::Buf);
    /// Backward pass of [`Device::sample`] for the loss `alpha log pi / (sum of the heads' weights) + (what the critics say)`:
    /// writes the head's gradient into `pass`.
    fn sample_backward(&self, pass: &mut Pass<Self>, s: SampleBackward<'_, Self>);

    // One update of SafeSAC.

    /// `y = signal + gamma (1 - d) (min Q - alpha log pi)`; the last term for soft heads only, clipped to the head's range.
    fn critic_target(&self, t: CriticTarget<'_, Self>, target: &mut Self::Buf);
    /// `(Q - y)^2`, averaged over the batch and summed over the head's networks, into `loss [P]`; its gradient into `pass`.
    fn critic_loss(&self, head: HeadPlace, target: &Self::Buf, pass: &mut Pass<Self>, loss: &mut Self::Buf);
    /// The gradient of minus the head's share of the policy objective, `w min Q / (sum of weights)`, into `pass`; the mean
    /// of `min Q` into `value [P]`.
    fn climb(&self, head: HeadPlace, weights: &Self::Buf, pass: &mut Pass<Self>, value: &mut Self::Buf);
    /// The gradient of `-alpha (log pi + target entropy)` by `log alpha` into `gradient [P]`; mean entropy into `entropy`.
    fn temperature_gradient(
        &self,
        log_temperature: &Self::Buf,
        drawn: &Drawn<Self>,
        target_entropy: f64,
        gradient: &mut Self::Buf,
        entropy: &mut Self::Buf,
    );
    /// One step of Adam (AdamW where `step` shrinks weights) for each active owner of parameters; `follower`, where given,
    /// then moves a share of the way to the new weights.
    fn adam(&self, p: &mut Parameters<Self>, step: &AdamStep<'_, Self>, follower: Option<(&mut Self::Buf, f64)>);

    // Replay.

    /// Fills a batch with the transitions at `rows`.
    fn gather(&self, replay: &Tables<'_, Self>, rows: &Self::Rows, batch: &mut Batch<Self>);
    /// The states at `rows` as networks see them, and what a safety model reads of them.
    fn recall(&self, replay: &Tables<'_, Self>, rows: &Self::Rows, recalled: &mut Recalled<Self>);

    // Safety models.

    /// What networks see of raw observations and memories: scaled observations, then memory where there is one.
    fn see(&self, units: &Units<Self>, observation: &Self::Buf, memory: Option<(&Self::Buf, usize)>, state: &mut Self::Buf);
    /// Actions in the environment's units from the policy's.
    fn to_env(&self, units: &Units<Self>, action: &Self::Buf, out: &mut Self::Buf);
    /// `((s, a) - centre) * scale`, `[R, rows, s + a]`.
    fn normalise(&self, n: Normalise<'_, Self>, out: &mut Self::Buf);
    /// Runs a bank of GRUs over sequences from h = 0; memories and gates are left in `pass`.
    fn gru_forward(&self, net: &Bank<Gru>, weights: &Self::Buf, input: Columns<'_, Self>, pass: &mut GruPass<Self>);
    /// Back through time. `dh [G, T + 1, N, H]` holds the gradient of every h. Writes the parameters' gradients and, where
    /// wanted, that of the inputs, `[G, T, N, in]`.
    fn gru_backward(
        &self,
        net: &Bank<Gru>,
        weights: &Self::Buf,
        input: Columns<'_, Self>,
        dh: &Self::Buf,
        pass: &mut GruPass<Self>,
        gradients: &mut Self::Buf,
        dx: Option<&mut Self::Buf>,
    );
    /// One step of `rows` sequences per network: `hidden [G, rows, H]` becomes the memory after the step.
    fn gru_step(
        &self,
        net: &Bank<Gru>,
        weights: &Self::Buf,
        input: Columns<'_, Self>,
        hidden: &mut Self::Buf,
        pass: &mut GruPass<Self>,
    );
    /// `ln sigmoid(logit)` of each member's logits, then their minimum: `[R, members, rows]` to `[R, rows]`.
    fn log_prob(&self, pass: &Pass<Self>, members: usize, out: &mut Self::Buf);
    /// The loss of labelled prefixes; see [`TrajectoryLoss`].
    fn trajectory_loss(&self, t: TrajectoryLoss<'_, Self>, pass: &mut Pass<Self>, loss: &mut Self::Buf);
    /// Adds the gradients of the later parts of a batch to the first part's.
    fn add_gradients(&self, sum: &mut Self::Buf, other: &Self::Buf);
    /// For each of `groups` owners of gradients, the factor that brings their norm down to `limit`, or 1.
    fn clip(&self, gradients: &Self::Buf, groups: usize, limit: f64, factor: &mut Self::Buf);
    /// Adds `log_prob [N]` to running sums kept at or above `floor`; `score` is how far each fell. Inactive rows stay.
    fn floor(&self, log_prob: &Self::Buf, floor: f64, active: &Self::Buf, sum: &mut Self::Buf, score: &mut Self::Buf);
    /// What joins the observation: the members' memories side by side, then the used share of the floor.
    /// `hidden [R, members, N / R, H]`, `sum [N]`, `memory [N, members H + 1]`.
    fn memory(&self, m: MemoryRows<'_, Self>, memory: &mut Self::Buf);
    /// The members' memories out of such rows: `memory [N, members H + 1]` to `hidden [R, members, N / R, H]`.
    fn hidden(
        &self,
        memory: &Self::Buf,
        replicas: usize,
        members: usize,
        width: usize,
        rows: usize,
        hidden: &mut Self::Buf,
    );
}
