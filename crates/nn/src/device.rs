//! The operations that a learner needs from the machine it runs on.
//!
//! An operation is a line of the paper's algorithm, not a matrix product: the device decides what to fuse into one kernel.
//! An update is a sequence of these operations. The host reads nothing in between, no shape depends on the data, and no host
//! number changes from update to update (learning rates, multipliers and masks are in buffers), so a GPU can record the
//! sequence once and replay it. The leading axis of every array is the population P, or the G networks of a bank.
//!
//! Allocation and reading back return errors. Shapes are the caller's responsibility: operations panic where they
//! disagree.

use crate::shapes::{Bank, Gru, Mlp};
use crate::{Scalar, work::*};

/// A failure of the device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A buffer could not be allocated.
    #[error("cannot allocate {bytes} bytes on the device: {reason}")]
    Memory {
        /// The requested size.
        bytes: usize,
        /// The driver's message.
        reason: String,
    },
    /// Work on the device failed.
    #[error("the device failed: {0}")]
    Failed(String),
}

/// The precision of large products on a device that has a choice.
///
/// ```
/// use prudence_nn::Precision;
///
/// let precision: Precision = serde_json::from_str("\"tf32\"")?; // as the setting `train.precision` spells it
/// assert_eq!(precision, Precision::Tf32);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// As accurate as f32.
    #[default]
    Fp32,
    /// Factors rounded to 11 bits, sums in f32.
    Tf32,
}

/// The machine that holds the networks and does the learner's arithmetic.
pub trait Device: Clone + Send + Sync + 'static {
    /// The number type of networks and batches.
    type Num: Scalar;
    /// An array of numbers.
    type Buf: Send + Sync;
    /// An array of row indices.
    type Rows: Send + Sync;
    /// A recorded sequence of operations.
    type Program: Default + Send;

    /// The number of parts that a batch of a fit is split into. Their gradients are added in order, so the parts can run on
    /// several threads and the sum has the same bits for any number of threads.
    const PARTS: usize;

    /// Whether a fit copies all episodes to the device before it starts, because reading each step's segments from the host
    /// would take longer than the step.
    const HOLDS_EPISODES: bool = false;

    /// Whether scoring an episode in one pass gives the bits that scoring its steps gives.
    const PASSES_EQUAL_STEPS: bool = true;

    /// The same device with a separate queue, for a population that runs beside others. Everything written before is visible
    /// to it.
    fn fork(&self) -> Result<Self, DeviceError> {
        Ok(self.clone())
    }

    /// The same device with this precision of products, where it has a choice. Updates tolerate rounding that scores, fits
    /// and actions should not have.
    fn with_precision(&self, precision: Precision) -> Self {
        let _ = precision;
        self.clone()
    }

    // Memory.

    /// An array of `n` zeros.
    fn buffer(&self, n: usize) -> Result<Self::Buf, DeviceError>;
    /// An array of `n` zeros for a column of a replay table, which may be too large for the fastest memory.
    fn column(&self, n: usize) -> Result<Self::Buf, DeviceError> {
        self.buffer(n)
    }
    /// An array of `n` row indices, all 0.
    fn rows(&self, n: usize) -> Result<Self::Rows, DeviceError>;
    /// Writes data, starting at position `at`.
    fn write(&self, to: &mut Self::Buf, at: usize, from: &[f32]);
    /// Writes numbers that control an update (learning rates, weights, masks), rounded once to the device's precision.
    fn steer(&self, to: &mut Self::Buf, at: usize, from: &[f64]);
    /// Writes row indices, starting at position `at`.
    fn write_rows(&self, to: &mut Self::Rows, at: usize, from: &[u32]);
    /// Copies `n` numbers within the device.
    fn copy(&self, from: &Self::Buf, from_at: usize, to: &mut Self::Buf, to_at: usize, n: usize);
    /// Sets `n` numbers, starting at position `at`.
    fn fill(&self, to: &mut Self::Buf, at: usize, n: usize, value: f32);
    /// Reads numbers back, starting at position `at`.
    fn read(&self, from: &Self::Buf, at: usize, to: &mut [f32]) -> Result<(), DeviceError>;

    // Programs.

    /// Runs `body`, whose operations are the same in every call; a device may record them in the first call and replay them
    /// in later ones.
    fn run(&self, program: &mut Self::Program, body: impl FnOnce()) -> Result<(), DeviceError>;
    /// Runs `work` on each part of a batch, in parallel where the device has threads.
    fn each_part<T: Send>(&self, parts: &mut [T], work: impl Fn(&mut T) + Send + Sync);

    /// Draws standard normal numbers: `each` of them per owner, starting at the owner's address (six words, see
    /// `StreamId::address`).
    fn normals(&self, addresses: &Self::Rows, each: usize, out: &mut Self::Buf);

    // Dense networks.

    /// Forward pass of a bank; `pass` keeps the outputs and activations.
    fn forward(&self, net: &Bank<Mlp>, weights: &Self::Buf, input: Input<'_, Self>, pass: &mut Pass<Self>);
    /// Backward pass: turns the output gradient in `pass` into the parameters' gradients, which overwrite `gradients` in the
    /// layout of the weights. Call it after [`Device::forward`] with the same arguments. The output gradient is unchanged.
    fn backward(
        &self,
        net: &Bank<Mlp>,
        weights: &Self::Buf,
        input: Input<'_, Self>,
        pass: &mut Pass<Self>,
        gradients: &mut Self::Buf,
    );
    /// After [`Device::backward`]: the gradient with respect to the input columns `first..`, `[G, rows, in - first]`, with
    /// `stride` numbers from the start of one network's gradient to the start of the next one's.
    fn input_gradient(
        &self,
        net: &Bank<Mlp>,
        weights: &Self::Buf,
        pass: &Pass<Self>,
        first: usize,
        out: &mut Self::Buf,
        stride: usize,
    );
    /// The gradient with respect to the input columns `first..`, summed over each group of `share` consecutive networks:
    /// `[G / share, rows, in - first]`. It is the backward pass through an agent's critics to its action: parameters get no
    /// gradients, and the output gradient in `pass` is used up.
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

    /// Samples actions and their log-probabilities from the head in `pass` (means, then log standard deviations) and
    /// standard normal noise.
    fn sample(&self, pass: &Pass<Self>, noise: &Self::Buf, clip: LogStd, drawn: &mut Drawn<Self>);
    /// The most likely action, `tanh(mean)`.
    fn mode(&self, pass: &Pass<Self>, action: &mut Self::Buf);
    /// Backward pass of [`Device::sample`] for the loss `alpha log pi / (sum of the heads' weights)` plus the critics' part,
    /// which arrives as the gradient of the actions. Writes the head's gradient into `pass`.
    fn sample_backward(&self, pass: &mut Pass<Self>, s: SampleBackward<'_, Self>);

    // One update of SafeSAC.

    /// `y = signal + gamma (1 - d) (min Q - alpha log pi)`, clipped to the head's range; the entropy term is for soft heads
    /// only.
    fn critic_target(&self, t: CriticTarget<'_, Self>, target: &mut Self::Buf);
    /// Writes `(Q - y)^2`, averaged over the batch and summed over the head's networks, to `loss [P]` and its gradient to
    /// `pass`.
    fn critic_loss(&self, head: HeadPlace, target: &Self::Buf, pass: &mut Pass<Self>, loss: &mut Self::Buf);
    /// Writes the gradient of the head's part of the policy loss, `-w min Q / (sum of weights)`, to `pass`, and the mean of
    /// `min Q` to `value [P]`.
    fn climb(&self, head: HeadPlace, weights: &Self::Buf, pass: &mut Pass<Self>, value: &mut Self::Buf);
    /// Writes the derivative of `-alpha (log pi + target entropy)` with respect to `log alpha` to `gradient [P]`, and the mean
    /// entropy to `entropy [P]`.
    fn temperature_gradient(
        &self,
        log_temperature: &Self::Buf,
        drawn: &Drawn<Self>,
        target_entropy: f64,
        gradient: &mut Self::Buf,
        entropy: &mut Self::Buf,
    );
    /// One step of Adam (AdamW if `step` shrinks weights) for each active owner. A follower, such as a target network, then
    /// moves the given fraction of the way to the new weights.
    fn adam(&self, p: &mut Parameters<Self>, step: &AdamStep<'_, Self>, follower: Option<(&mut Self::Buf, f64)>);

    // Replay.

    /// Fills a batch with the transitions that start at `rows`.
    fn gather(&self, replay: &Tables<'_, Self>, rows: &Self::Rows, batch: &mut Batch<Self>);
    /// Writes one step of every active agent to the agents' own tables; see [`Appended`].
    fn append(&self, steps: &Appended<Self>, scores: Option<Scored<'_, Self>>, own: &mut Table<Self>);

    // Safety models.

    /// Writes the states that networks see: observations in the networks' units, followed by the memory if there is one.
    /// The rows are divided evenly among the agents of the units, in order.
    fn see(
        &self,
        units: &Units<Self>,
        observation: &Self::Buf,
        memory: Option<(&Self::Buf, usize)>,
        state: &mut Self::Buf,
    );
    /// Converts actions from the policy's units, [-1, 1], to the environment's.
    fn to_env(&self, units: &Units<Self>, action: &Self::Buf, out: &mut Self::Buf);
    /// Copies spans of a column of episodes, one row per step: `places [G, N, 2]` are the first row and the number of steps
    /// of each span, `sizes` are T and N. `out [G, T, N, width]` is 0 after the end of a span.
    fn spans(&self, column: &Self::Buf, width: usize, places: &Self::Rows, sizes: [usize; 2], out: &mut Self::Buf);
    /// `((s, a) - centre) * scale`, `[R, rows, s + a]`.
    fn normalise(&self, n: Normalise<'_, Self>, out: &mut Self::Buf);
    /// Runs a bank of GRUs over sequences, starting from h = 0; `pass` keeps the memories and gates.
    fn gru_forward(&self, net: &Bank<Gru>, weights: &Self::Buf, input: Columns<'_, Self>, pass: &mut GruPass<Self>);
    /// Backpropagation through time. `dh [G, T + 1, N, H]` holds the gradient of every h. Writes the gradients of the
    /// parameters and, if `dx` is given, of the inputs, `[G, T, N, in]`.
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
    /// A single step of all sequences: `hidden [G, rows, H]` becomes the memory after the step.
    fn gru_step(
        &self,
        net: &Bank<Gru>,
        weights: &Self::Buf,
        input: Columns<'_, Self>,
        hidden: &mut Self::Buf,
        pass: &mut GruPass<Self>,
    );
    /// The minimum over the members of `ln sigmoid(logit)`: `[R, members, rows]` to `[R, rows]`.
    fn log_prob(&self, pass: &Pass<Self>, members: usize, out: &mut Self::Buf);
    /// Writes the loss of labelled prefixes to `loss [G]` and its gradient to `pass`; see [`TrajectoryLoss`].
    fn trajectory_loss(&self, t: TrajectoryLoss<'_, Self>, pass: &mut Pass<Self>, loss: &mut Self::Buf);
    /// The sum of each owner's numbers: `values [P, each]` to `sum [P]`. It is finite only if all of them are.
    fn sum(&self, values: &Self::Buf, sum: &mut Self::Buf);
    /// Adds the gradients of one part of a batch to those of another.
    fn add_gradients(&self, sum: &mut Self::Buf, other: &Self::Buf);
    /// For each of `groups` owners, the factor that scales the norm of its gradients down to `limit`, or 1 if it is smaller.
    fn clip(&self, gradients: &Self::Buf, groups: usize, limit: f64, factor: &mut Self::Buf);
    /// Adds `log_prob [N]` to running sums that never fall below `floor`; `score` is the change of each sum. Inactive rows
    /// keep their sum and score.
    fn floor(&self, log_prob: &Self::Buf, floor: f64, active: &Self::Buf, sum: &mut Self::Buf, score: &mut Self::Buf);
    /// Writes the memory that agents see in addition to the observation: the memories of all members, then the fraction
    /// `sum / floor`. `hidden [R, members, N / R, H]`, `sum [N]`, `memory [N, members H + 1]`.
    fn memory(&self, m: MemoryRows<'_, Self>, memory: &mut Self::Buf);
}
