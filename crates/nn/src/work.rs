//! Inputs and outputs of a device's operations: passes through networks, batches and replay tables, and structs for
//! long lists of arguments.

use crate::Scalar;
use crate::adam::AdamSettings;
use crate::device::{Device, DeviceError};
use crate::shapes::{Bank, Gru, Mlp};

/// The result of allocating memory on a device.
pub type Room<T> = Result<T, DeviceError>;

/// Rows of a buffer that networks read; `share` consecutive networks read the same rows.
pub struct Columns<'a, D: Device> {
    /// The buffer.
    pub buffer: &'a D::Buf,
    /// Numbers per row.
    pub width: usize,
    /// The number of consecutive networks that read the same rows.
    pub share: usize,
    /// Numbers from the start of one group of rows to the start of the next.
    pub stride: usize,
}

impl<D: Device> Clone for Columns<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Device> Copy for Columns<'_, D> {}

impl<'a, D: Device> Columns<'a, D> {
    /// `[G / share, rows, width]`, without gaps.
    pub fn new(buffer: &'a D::Buf, rows: usize, width: usize, share: usize) -> Self {
        Self { buffer, width, share, stride: rows * width }
    }
}

/// The input of a bank of networks: rows of one buffer, or of two buffers side by side.
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

/// The activations of a bank of networks on a batch of rows, and their gradients.
pub struct Pass<D: Device> {
    /// G, the number of networks.
    pub groups: usize,
    pub(crate) rows: usize,
    capacity: usize,
    sizes: Vec<usize>,
    /// Per layer: `[G, rows, out]`, after the ReLU
    pub activations: Vec<D::Buf>,
    /// Gradients with respect to the activations, in the same shapes; the last one is that of the output.
    pub gradients: Vec<D::Buf>,
    /// For the backward pass to an action: the rows with a gradient, `[rows]`, and their gradients, `[rows, in]`.
    pub(crate) places: D::Rows,
    pub(crate) by_columns: D::Buf,
}

impl<D: Device> Pass<D> {
    /// Allocates a pass for `rows` rows per network.
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

    /// The number of rows per network.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The output of the last forward pass, `[G, rows, out]`.
    pub fn output(&self) -> &D::Buf {
        &self.activations[self.sizes.len() - 1]
    }

    /// The gradient of the loss with respect to the output, `[G, rows, out]`; to be set before a backward pass.
    pub fn output_gradient(&mut self) -> &mut D::Buf {
        let last = self.sizes.len() - 1;
        &mut self.gradients[last]
    }

    /// The output and its gradient, borrowed together.
    pub fn output_and_gradient(&mut self) -> (&D::Buf, &mut D::Buf) {
        let last = self.sizes.len() - 1;
        (&self.activations[last], &mut self.gradients[last])
    }

    /// The number of outputs of each network.
    pub fn outputs(&self) -> usize {
        self.sizes[self.sizes.len() - 1]
    }
}

/// The intermediate results of a bank of GRUs over `[T, N]` steps, which the backward pass needs.
pub struct GruPass<D: Device> {
    /// G, the number of networks.
    pub groups: usize,
    /// T, the number of steps.
    pub steps: usize,
    /// N, the number of sequences per network.
    pub rows: usize,
    capacity: usize,
    /// `[G, T + 1, N, H]`: h before each step, and after the last.
    pub hidden: D::Buf,
    /// `[G, T, N, 3H]`: r, z, n after their activation functions.
    pub gates: D::Buf,
    /// `[G, T, N, H]`: `W_hn h + b_hn`, which r multiplies.
    pub candidate: D::Buf,
    /// `[G, T, N, 3H]`: gradients of the gates' pre-activations, on the side of the input.
    pub input_side: D::Buf,
    /// `[G, T, N, 3H]`: the same, on the side of the memory.
    pub memory_side: D::Buf,
    /// `[G, N, 3H]` and `[G, N, H]`
    pub(crate) row: D::Buf,
    pub(crate) carry: D::Buf,
    /// `[3H, H]`: the transposed weights of the memory.
    pub(crate) transposed: D::Buf,
}

impl<D: Device> GruPass<D> {
    /// Allocates a pass for `rows` sequences of up to `steps` steps per network.
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
    /// The parameters themselves.
    pub values: D::Buf,
    /// The gradients of the last backward pass.
    pub gradients: D::Buf,
    /// Adam's first and second moments.
    pub moments: [D::Buf; 2],
    /// The number of owners. Each has its own learning rate and may be inactive.
    pub owners: usize,
    /// Numbers per owner.
    pub each: usize,
}

impl<D: Device> Parameters<D> {
    /// Parameters with these values and zero moments.
    pub fn new(device: &D, owners: usize, values: &[f32]) -> Room<Self> {
        let room = || device.buffer(values.len());
        let mut this = Self {
            values: room()?,
            gradients: room()?,
            moments: [room()?, room()?],
            owners,
            each: values.len() / owners,
        };
        device.write(&mut this.values, 0, values);
        Ok(this)
    }
}

/// The range that log standard deviations are clipped to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogStd {
    /// The lower bound.
    pub min: f64,
    /// The upper bound.
    pub max: f64,
}

/// Actions sampled from a policy, and their log-probabilities.
pub struct Drawn<D: Device> {
    /// `[P, rows, A]`, in [-1, 1]
    pub action: D::Buf,
    /// `[P, rows]`
    pub log_prob: D::Buf,
}

impl<D: Device> Drawn<D> {
    /// Allocates `rows` actions of `width` dimensions, for all agents together.
    pub fn new(device: &D, rows: usize, width: usize) -> Room<Self> {
        Ok(Self { action: device.buffer(rows * width)?, log_prob: device.buffer(rows)? })
    }
}

/// The arguments of [`Device::sample_backward`].
pub struct SampleBackward<'a, D: Device> {
    /// The noise of the sample.
    pub noise: &'a D::Buf,
    /// The clipping of the sample.
    pub clip: LogStd,
    /// The sample.
    pub drawn: &'a Drawn<D>,
    /// `[P, rows, A]`: the gradient with respect to the actions.
    pub action_gradient: &'a D::Buf,
    /// `[P]`
    pub log_temperature: &'a D::Buf,
}

/// The critics of an agent that belong to a head: networks `first .. first + networks` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPlace {
    /// The index of the head.
    pub index: usize,
    /// The number of heads.
    pub heads: usize,
    /// The index of the head's first network.
    pub first: usize,
    /// The number of the head's networks.
    pub networks: usize,
    /// The number of all critic networks of an agent.
    pub of: usize,
}

/// The arguments of [`Device::critic_target`].
pub struct CriticTarget<'a, D: Device> {
    /// The head whose target is computed.
    pub head: HeadPlace,
    /// The values of the target networks at the next state and the action sampled there.
    pub pass: &'a Pass<D>,
    /// `[P, B]`: reward or score.
    pub signal: &'a D::Buf,
    /// `[P, B]`: 0 if the episode terminated, otherwise 1.
    pub not_terminal: &'a D::Buf,
    /// For a head whose value includes the policy's entropy: log pi, `[P, B]`, and log alpha, `[P]`.
    pub entropy: Option<(&'a D::Buf, &'a D::Buf)>,
    /// The discount factor gamma.
    pub discount: f64,
    /// The range of possible values, to which the target is clipped.
    pub range: Option<[f64; 2]>,
}

/// The numbers that control a step of Adam; buffers are `[owners]`.
pub struct AdamStep<'a, D: Device> {
    /// Adam's constants.
    pub settings: AdamSettings,
    /// The learning rate divided by `1 - beta1^t`.
    pub rate: &'a D::Buf,
    /// `1 / sqrt(1 - beta2^t)`.
    pub correction: &'a D::Buf,
    /// 1 if the owner takes the step, otherwise 0.
    pub active: &'a D::Buf,
    /// The factor applied to the weights before the step: `1 - rate * decay` (AdamW).
    pub shrink: Option<&'a D::Buf>,
    /// The factor applied to the gradients before the step (gradient clipping).
    pub factor: Option<&'a D::Buf>,
}

/// Converts between the environment's units and those of the networks, for P agents.
pub struct Units<D: Device> {
    /// P
    pub agents: usize,
    /// `[P, S]`: networks see `(s - centre) * scale`, clipped to [`SEEN`].
    pub observation_centre: D::Buf,
    /// `[P, S]`
    pub observation_scale: D::Buf,
    /// `[P]`: critics learn from `(r - centre) * scale`.
    pub reward_centre: D::Buf,
    /// `[P]`
    pub reward_scale: D::Buf,
    /// `[A]`: the environment gets `middle + half * a`.
    pub action_middle: D::Buf,
    /// `[A]`
    pub action_half: D::Buf,
    /// S, the dimension of observations.
    pub observation_width: usize,
    /// A, the dimension of actions.
    pub action_width: usize,
}

/// The largest number that networks see of an observation, and the smallest with a minus sign.
pub const SEEN: f64 = 10.0;

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
    /// `[rows]`: the change of the floored running sum of log P
    pub score: D::Buf,
    /// `[rows]`: 0 if the episode terminated, otherwise 1
    pub not_terminal: D::Buf,
    /// The number of rows.
    pub capacity: usize,
}

impl<D: Device> Table<D> {
    /// Allocates `capacity` rows of observations, memories and actions of these widths.
    pub fn new(device: &D, capacity: usize, observation: usize, memory: usize, action: usize) -> Room<Self> {
        let column = |width: usize| device.column(capacity * width);
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

    /// A copy of these rows, whose widths are the same as in [`Table::new`].
    pub fn copy(&self, device: &D, observation: usize, memory: usize, action: usize) -> Room<Self> {
        let mut copy = Self::new(device, self.capacity, observation, memory, action)?;
        for (from, to, width) in [
            (&self.observation, &mut copy.observation, observation),
            (&self.memory, &mut copy.memory, memory),
            (&self.action, &mut copy.action, action),
            (&self.reward, &mut copy.reward, 1),
            (&self.score, &mut copy.score, 1),
            (&self.not_terminal, &mut copy.not_terminal, 1),
        ] {
            device.copy(from, 0, to, 0, self.capacity * width);
        }
        Ok(copy)
    }
}

/// The tables that a population samples from. Row numbers below the capacity of the shared table are its rows; the
/// numbers after them are the rows of the agent's own ring buffer.
pub struct Tables<'a, D: Device> {
    /// The episodes that all agents share.
    pub shared: &'a Table<D>,
    /// The agents' own episodes, `[P, capacity / P]`.
    pub own: &'a Table<D>,
    /// P, the number of agents.
    pub population: usize,
    /// The units of observations, actions and rewards.
    pub units: &'a Units<D>,
    /// The width of the stored memory.
    pub memory_width: usize,
    /// Whether networks see the memory.
    pub history: bool,
}

/// One step of each of P agents, to be written to the agents' own tables: the action and its outcome go to the row of the
/// latest observation, the next observation to the row after it.
pub struct Appended<D: Device> {
    /// `[P, 2]`: the row of the step and the row of the next observation, in the whole table. `u32::MAX` as the first: the
    /// agent takes no step; as the second: no observation follows.
    pub rows: D::Rows,
    /// `[P, A]`, in the environment's units
    pub action: D::Buf,
    /// `[P]`, in the environment's units
    pub reward: D::Buf,
    /// `[P]`: 0 if the episode terminated, otherwise 1
    pub not_terminal: D::Buf,
    /// `[P, S]`, in the environment's units
    pub next_observation: D::Buf,
    /// P, the number of agents.
    pub population: usize,
}

impl<D: Device> Appended<D> {
    /// Allocates a step for each agent.
    pub fn new(device: &D, population: usize, observation: usize, action: usize) -> Room<Self> {
        Ok(Self {
            rows: device.rows(2 * population)?,
            action: device.buffer(population * action)?,
            reward: device.buffer(population)?,
            not_terminal: device.buffer(population)?,
            next_observation: device.buffer(population * observation)?,
            population,
        })
    }
}

/// The scores of the steps in [`Appended`], and the memories that go with the next observations.
pub struct Scored<'a, D: Device> {
    /// `[P]`
    pub score: &'a D::Buf,
    /// `[P, M]`
    pub memory: &'a D::Buf,
}

/// The transitions and the noise of one update.
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
    /// `[P, B]`: 0 if the episode terminated, otherwise 1 (also if it was truncated at the horizon)
    pub not_terminal: D::Buf,
    /// `[P, B, A]`, standard normal: for the actions at s
    pub noise: D::Buf,
    /// `[P, B, A]`, standard normal: for the actions at s'
    pub next_noise: D::Buf,
    /// B, the number of transitions per agent.
    pub size: usize,
}

impl<D: Device> Batch<D> {
    /// Allocates `size` transitions per agent.
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

/// The arguments of [`Device::normalise`].
pub struct Normalise<'a, D: Device> {
    /// `[R, rows, S]`
    pub observation: &'a D::Buf,
    /// `[R, rows, A]`
    pub action: &'a D::Buf,
    /// S, the dimension of observations.
    pub observation_width: usize,
    /// A, the dimension of actions.
    pub action_width: usize,
    /// `[R, S + A]`
    pub centre: &'a D::Buf,
    /// `[R, S + A]`
    pub scale: &'a D::Buf,
    /// R, the number of replicas.
    pub replicas: usize,
    /// Rows per replica.
    pub rows: usize,
}

/// Adds a step's log-probability to a running sum that never falls below the floor. Returns the new sum and its change,
/// which is the score of the step.
#[inline(always)]
pub fn floored<T: Scalar>(sum: T, log_prob: T, floor: T) -> (T, T) {
    let after = (sum + log_prob).max(floor);
    (after, after - sum)
}

/// The arguments of [`Device::trajectory_loss`].
///
/// The log-probability of a prefix is the sum of its steps' log-probabilities. Each labelled prefix adds its
/// cross-entropy to the loss; the gradient of a step is the sum of the derivatives of all prefixes that contain it.
pub struct TrajectoryLoss<'a, D: Device> {
    /// `[G, T, N]`: the label of the prefix that ends with the step (1: safe, -1: unsafe, 0: none).
    pub labels: &'a D::Buf,
    /// `[G]`: the factor of each term, one over the number of labelled prefixes.
    pub scale: &'a D::Buf,
    /// T, the number of steps.
    pub steps: usize,
    /// N, the number of segments.
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
    /// R, the number of replicas.
    pub replicas: usize,
    /// Members of each replica's ensemble.
    pub members: usize,
    /// H, the width of a member's memory.
    pub width: usize,
    /// N, the number of rows of all replicas.
    pub rows: usize,
}
