//! What operations read and write: passes through networks, batches, replay tables, and the arguments that would be too
//! many to list.

use crate::adam::AdamSettings;
use crate::Scalar;
use crate::device::{Device, DeviceError};
use crate::shapes::{Bank, Gru, Mlp};

/// A result of asking a device for room.
pub type Room<T> = Result<T, DeviceError>;

/// Rows of a buffer that networks read: `share` networks in a row read the same rows.
pub struct Columns<'a, D: Device> {
    /// The numbers.
    pub buffer: &'a D::Buf,
    /// Numbers per row.
    pub width: usize,
    /// How many networks in a row read the same rows.
    pub share: usize,
    /// Numbers from one group of rows to the next.
    pub stride: usize,
}

impl<D: Device> Clone for Columns<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Device> Copy for Columns<'_, D> {}

impl<'a, D: Device> Columns<'a, D> {
    /// `[G / share, rows, width]`, densely.
    pub fn new(buffer: &'a D::Buf, rows: usize, width: usize, share: usize) -> Self {
        Self { buffer, width, share, stride: rows * width }
    }
}

/// What a bank of networks reads: rows of one buffer, or of two side by side.
pub struct Input<'a, D: Device> {
    /// The first columns.
    pub first: Columns<'a, D>,
    /// The columns after them.
    pub second: Option<Columns<'a, D>>,
}

impl<D: Device> Clone for Input<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Device> Copy for Input<'_, D> {}

/// The activations of a bank on a batch of rows, and room for their gradients.
pub struct Pass<D: Device> {
    pub(crate) groups: usize,
    pub(crate) rows: usize,
    capacity: usize,
    sizes: Vec<usize>,
    /// Per layer `[G, rows, out]`, after the ReLU.
    pub(crate) activations: Vec<D::Buf>,
    /// The same shapes. The last is the gradient of the loss by the output.
    pub(crate) gradients: Vec<D::Buf>,
    /// Room for the way back to an action: rows with a gradient `[rows]`, and that gradient `[rows, in]`.
    pub(crate) places: D::Rows,
    pub(crate) by_columns: D::Buf,
}

impl<D: Device> Pass<D> {
    /// Room for `rows` rows per network.
    pub fn new(device: &D, net: &Bank<Mlp>, rows: usize) -> Room<Self> {
        let sizes: Vec<usize> = net.shape.layers().map(|layer| layer.outputs).collect();
        let layers = || sizes.iter().map(|out| device.buffer(net.groups * rows * out)).collect::<Room<Vec<_>>>();
        Ok(Self {
            groups: net.groups,
            rows,
            capacity: rows,
            activations: layers()?,
            gradients: layers()?,
            places: device.rows(rows)?,
            by_columns: device.buffer(rows * net.shape.inputs())?,
            sizes,
        })
    }

    /// Changes the number of rows; only growing beyond the largest so far allocates.
    pub fn set_rows(&mut self, device: &D, net: &Bank<Mlp>, rows: usize) -> Room<()> {
        if rows > self.capacity {
            *self = Self::new(device, net, rows)?;
        }
        self.rows = rows;
        Ok(())
    }

    /// The rows in use.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// What the last forward pass gave: `[G, rows, out]`.
    pub fn output(&self) -> &D::Buf {
        &self.activations[self.sizes.len() - 1]
    }

    /// Where the gradient of the loss by the output goes before a backward pass: `[G, rows, out]`.
    pub fn output_gradient(&mut self) -> &mut D::Buf {
        let last = self.sizes.len() - 1;
        &mut self.gradients[last]
    }

    /// The output and its gradient at once.
    pub fn output_and_gradient(&mut self) -> (&D::Buf, &mut D::Buf) {
        let last = self.sizes.len() - 1;
        (&self.activations[last], &mut self.gradients[last])
    }

    /// The number of outputs of each network.
    pub(crate) fn outputs(&self) -> usize {
        self.sizes[self.sizes.len() - 1]
    }
}

/// What GRUs keep of a forward pass over `[T, N]` steps for the backward pass.
pub struct GruPass<D: Device> {
    pub(crate) groups: usize,
    pub(crate) steps: usize,
    pub(crate) rows: usize,
    capacity: usize,
    /// `[G, T + 1, N, H]`: h before each step, and after the last.
    pub(crate) hidden: D::Buf,
    /// `[G, T, N, 3H]`: r, z, n after their non-linearities.
    pub(crate) gates: D::Buf,
    /// `[G, T, N, H]`: `W_hn h + b_hn`, which r multiplies.
    pub(crate) candidate: D::Buf,
    /// `[G, T, N, 3H]`: gradients of the gates by way of the input and by way of the memory.
    pub(crate) input_side: D::Buf,
    pub(crate) memory_side: D::Buf,
    /// `[G, N, 3H]` and `[G, N, H]`
    pub(crate) row: D::Buf,
    pub(crate) carry: D::Buf,
    /// `[3H, H]`: the memory's weights, transposed.
    pub(crate) transposed: D::Buf,
}

impl<D: Device> GruPass<D> {
    /// Room for `rows` sequences of up to `steps` steps per network.
    pub fn new(device: &D, net: &Bank<Gru>, steps: usize, rows: usize) -> Room<Self> {
        let (h, n) = (net.shape.hidden, net.groups * rows);
        Ok(Self {
            groups: net.groups,
            steps,
            rows,
            capacity: steps,
            hidden: device.buffer(n * (steps + 1) * h)?,
            gates: device.buffer(n * steps * 3 * h)?,
            candidate: device.buffer(n * steps * h)?,
            input_side: device.buffer(n * steps * 3 * h)?,
            memory_side: device.buffer(n * steps * 3 * h)?,
            row: device.buffer(n * 3 * h)?,
            carry: device.buffer(n * h)?,
            transposed: device.buffer(3 * h * h)?,
        })
    }

    /// Changes the number of steps; only growing beyond the largest so far allocates.
    pub fn set_steps(&mut self, device: &D, net: &Bank<Gru>, steps: usize) -> Room<()> {
        if steps > self.capacity {
            *self = Self::new(device, net, steps, self.rows)?;
        }
        self.steps = steps;
        Ok(())
    }

    /// `[G, T + 1, N, H]`: the memory before each step (zeros first), then after the last.
    pub fn hidden(&self) -> &D::Buf {
        &self.hidden
    }
}

/// Parameters with their gradients and Adam's moments, laid out alike: `[owners, each]`.
pub struct Parameters<D: Device> {
    /// The numbers themselves.
    pub values: D::Buf,
    /// The gradients of the last backward pass.
    pub gradients: D::Buf,
    /// Adam's first and second moments.
    pub moments: [D::Buf; 2],
    /// How many owners: each has its own learning rate and may be inactive.
    pub owners: usize,
    /// Numbers per owner.
    pub each: usize,
}

impl<D: Device> Parameters<D> {
    /// With these values and no history.
    pub fn new(device: &D, owners: usize, values: &[f32]) -> Room<Self> {
        let room = || device.buffer(values.len());
        let mut this =
            Self { values: room()?, gradients: room()?, moments: [room()?, room()?], owners, each: values.len() / owners };
        device.write(&mut this.values, 0, values);
        Ok(this)
    }
}

/// The range that log standard deviations are clipped to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogStd {
    /// Lower end.
    pub min: f64,
    /// Upper end.
    pub max: f64,
}

/// Actions drawn from a policy.
pub struct Drawn<D: Device> {
    /// `[P, rows, A]`, in [-1, 1]
    pub action: D::Buf,
    /// `[P, rows]`
    pub log_prob: D::Buf,
}

impl<D: Device> Drawn<D> {
    /// Room for `rows` actions of `width` numbers, all agents together.
    pub fn new(device: &D, rows: usize, width: usize) -> Room<Self> {
        Ok(Self { action: device.buffer(rows * width)?, log_prob: device.buffer(rows)? })
    }
}

/// The arguments of [`Device::sample_backward`].
pub struct SampleBackward<'a, D: Device> {
    /// The noise that was drawn with.
    pub noise: &'a D::Buf,
    /// The clipping that was drawn with.
    pub clip: LogStd,
    /// What was drawn.
    pub drawn: &'a Drawn<D>,
    /// `[P, rows, A]`: the gradient by the actions.
    pub action_gradient: &'a D::Buf,
    /// `[P]`
    pub log_temperature: &'a D::Buf,
    /// `[P, heads]`: the critic heads' weights; the entropy's term is divided by their sum, as theirs are.
    pub weights: &'a D::Buf,
    /// Critic heads.
    pub heads: usize,
}

/// Which critics of an agent belong to a head: networks `first .. first + networks` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPlace {
    /// The head's index among the heads, and their number.
    pub index: usize,
    /// The number of heads.
    pub heads: usize,
    /// The head's first network.
    pub first: usize,
    /// Its networks.
    pub networks: usize,
    /// All networks of an agent.
    pub of: usize,
}

/// The arguments of [`Device::critic_target`].
pub struct CriticTarget<'a, D: Device> {
    /// Which critics.
    pub head: HeadPlace,
    /// Their values at the next state and the action drawn there.
    pub pass: &'a Pass<D>,
    /// `[P, B]`: reward or score.
    pub signal: &'a D::Buf,
    /// `[P, B]`: 0 where the task ended.
    pub not_terminal: &'a D::Buf,
    /// For a head whose value includes the policy's entropy: `[P, B]` log pi and `[P]` log alpha.
    pub entropy: Option<(&'a D::Buf, &'a D::Buf)>,
    /// gamma
    pub discount: f64,
    /// The range that true values lie in.
    pub range: Option<[f64; 2]>,
}

/// What steers a step of Adam, all `[owners]`.
pub struct AdamStep<'a, D: Device> {
    /// The constants.
    pub settings: AdamSettings,
    /// Learning rate over `1 - beta1^t`.
    pub rate: &'a D::Buf,
    /// One over the root of `1 - beta2^t`.
    pub correction: &'a D::Buf,
    /// 1 where the owner takes the step, 0 where it stays.
    pub active: &'a D::Buf,
    /// What weights are multiplied with first: `1 - rate * decay` (AdamW).
    pub shrink: Option<&'a D::Buf>,
    /// What gradients are multiplied with first (clipping).
    pub factor: Option<&'a D::Buf>,
}

/// Between the environment's units and the networks'.
pub struct Units<D: Device> {
    /// `[S]`: networks see `(s - middle) / half`.
    pub observation_middle: D::Buf,
    /// `[S]`
    pub observation_half: D::Buf,
    /// `[A]`: the environment gets `middle + half * a`.
    pub action_middle: D::Buf,
    /// `[A]`
    pub action_half: D::Buf,
    /// S
    pub observation_width: usize,
    /// A
    pub action_width: usize,
    /// Rewards are multiplied with this.
    pub reward_scale: f64,
}

/// Rows of episodes: T + 1 for an episode of T steps, so that s' is the next row.
pub struct Table<D: Device> {
    /// `[rows, S]`, in the environment's units
    pub observation: D::Buf,
    /// `[rows, M]`: h and the used share of the floor; empty without a safety model
    pub memory: D::Buf,
    /// `[rows, A]`, in the environment's units
    pub action: D::Buf,
    /// `[rows]`, in the environment's units
    pub reward: D::Buf,
    /// `[rows]`: how far the floored running sum of log P fell
    pub score: D::Buf,
    /// `[rows]`: 0 where the task ended
    pub not_terminal: D::Buf,
    /// Rows there is room for.
    pub capacity: usize,
}

impl<D: Device> Table<D> {
    /// Room for `capacity` rows of observations, memories and actions of these widths.
    pub fn new(device: &D, capacity: usize, observation: usize, memory: usize, action: usize) -> Room<Self> {
        let column = |width: usize| device.buffer(capacity * width);
        Ok(Self {
            observation: column(observation)?,
            memory: column(memory)?,
            action: column(action)?,
            reward: column(1)?,
            score: column(1)?,
            not_terminal: column(1)?,
            capacity,
        })
    }
}

/// The tables a population samples from. A row number below the shared table's capacity means a row of it; the others count
/// on through the agent's own rows, a ring.
pub struct Tables<'a, D: Device> {
    /// Episodes that all agents share.
    pub shared: &'a Table<D>,
    /// Their own, `[P, capacity / P]`.
    pub own: &'a Table<D>,
    /// P
    pub population: usize,
    /// Units of observations and rewards.
    pub units: &'a Units<D>,
    /// Width of the memory stored.
    pub memory_width: usize,
    /// Whether networks see it.
    pub history: bool,
    /// The floor of running sums.
    pub floor: f64,
}

/// Transitions and the noise of one update.
pub struct Batch<D: Device> {
    /// `[P, B, state]`: s, h
    pub state: D::Buf,
    /// `[P, B, A]`, in [-1, 1]
    pub action: D::Buf,
    /// `[P, B]`, scaled
    pub reward: D::Buf,
    /// `[P, B]`
    pub score: D::Buf,
    /// `[P, B, state]`: s', h'
    pub next_state: D::Buf,
    /// `[P, B]`: 0 where the task ended, 1 elsewhere (reaching the horizon does not end it)
    pub not_terminal: D::Buf,
    /// `[P, B, A]`, standard normal: for the actions at s
    pub noise: D::Buf,
    /// The same at s'.
    pub next_noise: D::Buf,
    /// B
    pub size: usize,
}

impl<D: Device> Batch<D> {
    /// Room for `size` transitions per agent.
    pub fn new(device: &D, population: usize, size: usize, state: usize, action: usize) -> Room<Self> {
        let column = |width: usize| device.buffer(population * size * width);
        Ok(Self {
            state: column(state)?,
            action: column(action)?,
            reward: column(1)?,
            score: column(1)?,
            next_state: column(state)?,
            not_terminal: column(1)?,
            noise: column(action)?,
            next_noise: column(action)?,
            size,
        })
    }
}

/// States drawn from recent episodes.
pub struct Recalled<D: Device> {
    /// `[P, N, state]`
    pub state: D::Buf,
    /// `[P, N, S]`, in the environment's units
    pub observation: D::Buf,
    /// `[P, N, M]`
    pub memory: D::Buf,
    /// `[P, N]`: the floored running sum
    pub sum: D::Buf,
    /// N
    pub size: usize,
}

impl<D: Device> Recalled<D> {
    /// Room for `size` states per agent.
    pub fn new(
        device: &D,
        population: usize,
        size: usize,
        state: usize,
        observation: usize,
        memory: usize,
    ) -> Room<Self> {
        let column = |width: usize| device.buffer(population * size * width);
        Ok(Self {
            state: column(state)?,
            observation: column(observation)?,
            memory: column(memory)?,
            sum: column(1)?,
            size,
        })
    }
}

/// The arguments of [`Device::normalise`].
pub struct Normalise<'a, D: Device> {
    /// `[R, rows, S]`
    pub observation: &'a D::Buf,
    /// `[R, rows, A]`
    pub action: &'a D::Buf,
    /// S
    pub observation_width: usize,
    /// A
    pub action_width: usize,
    /// `[R, S + A]`
    pub centre: &'a D::Buf,
    /// `[R, S + A]`
    pub scale: &'a D::Buf,
    /// R
    pub replicas: usize,
    /// Rows per replica.
    pub rows: usize,
}

/// A running sum of log-probabilities that never falls below the floor, and how far it fell: the score of a step.
#[inline(always)]
pub fn floored<T: Scalar>(sum: T, log_prob: T, floor: T) -> (T, T) {
    let after = (sum + log_prob).max(floor);
    (after, after - sum)
}

/// The arguments of [`Device::trajectory_loss`].
///
/// The log-probability of a prefix is the sum of its steps' log-probabilities. Each labelled prefix adds its cross-entropy
/// to the loss; each step gets the derivatives of all prefixes it belongs to.
pub struct TrajectoryLoss<'a, D: Device> {
    /// `[G, T, N]`: the label of the prefix that ends with the step: 1 safe, -1 unsafe, 0 none.
    pub labels: &'a D::Buf,
    /// `[G]`: what each term is multiplied with, one over the number of labelled prefixes.
    pub scale: &'a D::Buf,
    /// T
    pub steps: usize,
    /// N
    pub rows: usize,
}

/// The arguments of [`Device::memory`].
pub struct MemoryRows<'a, D: Device> {
    /// `[R, members, N / R, H]`
    pub hidden: &'a D::Buf,
    /// `[N]`
    pub sum: &'a D::Buf,
    /// The floor of the sums.
    pub floor: f64,
    /// R
    pub replicas: usize,
    /// Members of each replica's ensemble.
    pub members: usize,
    /// H
    pub width: usize,
    /// N
    pub rows: usize,
}
