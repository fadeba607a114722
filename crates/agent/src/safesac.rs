//! SafeSAC: one update, top to bottom as in the paper's listing.
//!
//! Written once for a population of P agents that share nothing, over any device: every array has P leading, and the
//! parameters and moments of an inactive agent do not change. The update is a function of the agents' state, a batch with
//! its noise, and a few numbers per agent that control it; it draws nothing, reads nothing back and allocates nothing.

use prudence_core::random::Stream;
use prudence_nn::work::{
    AdamStep, Batch, Columns, CriticTarget, Drawn, HeadPlace, Input, LogStd, Parameters, Pass, Room, SampleBackward,
};
use prudence_nn::{AdamSettings, Bank, Device, DeviceError, Mlp};
use rand::RngExt as _;

use crate::settings::AgentSettings;

/// What a critic estimates the discounted sum of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The reward.
    Reward,
    /// How far the floored running sum of log P fell.
    Score,
}

/// A critic head: a few networks (twins) that estimate the same sum; their minimum is used, against overestimation.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// In checkpoints and records.
    pub name: &'static str,
    /// What it estimates the sum of.
    pub signal: Signal,
    /// The number of networks.
    pub networks: usize,
    /// Whether its value includes the policy's entropy.
    pub soft: bool,
    /// The range of possible values; targets are clipped to it.
    pub range: Option<[f64; 2]>,
}

impl Head {
    /// `Q_R`; SAC's includes the entropy. With a constraint it does not: where safety decides, noise would be worth more
    /// than any reward.
    pub fn reward(soft: bool) -> Self {
        Self { name: "reward", signal: Signal::Reward, networks: 2, soft, range: None }
    }

    /// `Q_psi`: a sum of floored scores lies between the floor and 0.
    pub fn safety(floor: f64) -> Self {
        Self { name: "safety", signal: Signal::Score, networks: 2, soft: false, range: Some([floor, 0.0]) }
    }
}

/// The shapes of a population's networks.
#[derive(Clone, Debug)]
pub struct Networks {
    /// P
    pub population: usize,
    /// Numbers of a state: observation and, with history, memory.
    pub state: usize,
    /// Numbers of an action.
    pub action: usize,
    /// `[P]`
    pub policy: Bank<Mlp>,
    /// `[P, all heads' networks]`
    pub critics: Bank<Mlp>,
    /// The heads, the reward's first.
    pub heads: Vec<Head>,
}

impl Networks {
    /// For a population of agents.
    pub fn new(population: usize, state: usize, action: usize, hidden: &[usize], heads: Vec<Head>) -> Self {
        let of = heads.iter().map(|head| head.networks).sum::<usize>();
        Self {
            population,
            state,
            action,
            policy: Bank::dense(Mlp::new(state, hidden, 2 * action), population),
            critics: Bank::dense(Mlp::new(state + action, hidden, 1), population * of),
            heads,
        }
    }

    /// The number of critic networks of one agent.
    pub fn critics_per_agent(&self) -> usize {
        self.critics.groups / self.population
    }

    fn place(&self, index: usize) -> HeadPlace {
        HeadPlace {
            index,
            heads: self.heads.len(),
            first: self.heads[..index].iter().map(|head| head.networks).sum(),
            networks: self.heads[index].networks,
            of: self.critics_per_agent(),
        }
    }

    /// The names and shapes under which PyTorch loads an agent's tensor of this name and length: network by network, layer
    /// by layer for policies and critics, a plain vector otherwise.
    pub fn tensors(&self, name: &str, length: usize) -> Vec<(String, Vec<usize>)> {
        match name {
            "policy" | "averaged_policy" => self.policy_tensors(name),
            "critics" | "target_critics" => {
                let of_head = |head: &Head| (0..head.networks).map(|i| format!("{name}.{}.{i}", head.name)).collect();
                let prefixes: Vec<String> = self.heads.iter().flat_map::<Vec<_>, _>(of_head).collect();
                prefixes.iter().flat_map(|prefix| prefixed(prefix, &self.critics.shape)).collect()
            }
            _ => vec![(name.to_owned(), vec![length])],
        }
    }

    /// The names and shapes under which PyTorch loads a policy that is stored under `name`.
    pub fn policy_tensors(&self, name: &str) -> Vec<(String, Vec<usize>)> {
        prefixed(name, &self.policy.shape)
    }

    /// Initial parameters of one agent: policy, then critics.
    pub fn init(&self, rng: &mut Stream) -> [Vec<f32>; 2] {
        let mut uniform = |bound: f64| rng.random_range(-bound..bound);
        let mut draw = |net: &Mlp, count: usize| {
            let mut parameters = vec![0.0; count * net.parameters()];
            parameters.chunks_exact_mut(net.parameters()).for_each(|one| net.init(one, &mut uniform));
            parameters
        };
        [draw(&self.policy.shape, 1), draw(&self.critics.shape, self.critics_per_agent())]
    }

    /// The multiply-adds that one agent's update needs at least: a lower bound on its time follows from them.
    pub fn multiply_adds(&self, batch: usize) -> usize {
        let (policy, critic) = (&self.policy.shape, &self.critics.shape);
        // Backward through the hidden layers; of the input only the action's columns need a gradient.
        let inner = |shape: &Mlp, columns: usize| {
            let first = shape.hidden_sizes()[0];
            shape.multiply_adds() - shape.inputs() * first + columns * first
        };
        let critics = 4 * critic.multiply_adds() + inner(critic, 0) + inner(critic, self.action);
        batch * (3 * policy.multiply_adds() + inner(policy, 0) + self.critics_per_agent() * critics)
    }
}

fn prefixed(prefix: &str, net: &Mlp) -> Vec<(String, Vec<usize>)> {
    net.tensors().into_iter().map(|(tensor, shape)| (format!("{prefix}.{tensor}"), shape)).collect()
}

/// Everything a population learns.
pub struct Agents<D: Device> {
    /// `[P, parameters]`
    pub policy: Parameters<D>,
    /// The running average of the policy, which is tested.
    pub average: D::Buf,
    /// `[P, networks, parameters]`
    pub critics: Parameters<D>,
    /// The critics' target networks.
    pub target_critics: D::Buf,
    /// `[P]`: the logarithm of alpha
    pub temperature: Parameters<D>,
}

/// The settings that all updates of a population share.
#[derive(Clone, Debug)]
pub struct UpdateSettings {
    /// gamma, for all critics.
    pub discount: f64,
    /// The step of target networks towards the critics, per update.
    pub polyak: f64,
    /// The step of the averaged policy towards the policy, per update.
    pub averaging: f64,
    /// The policy entropy that the temperature is adjusted for.
    pub target_entropy: f64,
    /// The bounds of the policy's log standard deviation.
    pub clip: LogStd,
}

impl UpdateSettings {
    /// For actions of `action` dimensions.
    pub fn new(settings: &AgentSettings, action: usize) -> Self {
        Self {
            discount: settings.discount,
            polyak: settings.polyak,
            averaging: settings.averaging,
            target_entropy: settings.entropy * action as f64,
            clip: settings.log_std(),
        }
    }
}

/// The numbers that control one update, per agent: learning rates, weights of the critic heads, and who is active.
pub struct Control<D: Device> {
    rate: Numbers<D>,
    correction: Numbers<D>,
    /// `[P, heads]`: 1 for the reward, lambda for safety.
    weights: Numbers<D>,
    active: Numbers<D>,
}

/// Numbers that the host sets one by one and that go to the device together.
struct Numbers<D: Device> {
    on_host: Vec<f64>,
    buffer: D::Buf,
}

impl<D: Device> Numbers<D> {
    fn new(device: &D, n: usize) -> Room<Self> {
        Ok(Self { on_host: vec![0.0; n], buffer: device.buffer(n)? })
    }
}

/// What one update does for one agent.
#[derive(Clone, Debug)]
pub struct Steering {
    /// The learning rate.
    pub rate: f64,
    /// The number of the update, from 1: Adam's step count.
    pub update: u64,
    /// The multipliers of the heads after the first.
    pub multipliers: Vec<f64>,
}

impl<D: Device> Control<D> {
    fn new(device: &D, population: usize, heads: usize) -> Room<Self> {
        Ok(Self {
            rate: Numbers::new(device, population)?,
            correction: Numbers::new(device, population)?,
            weights: Numbers::new(device, population * heads)?,
            active: Numbers::new(device, population)?,
        })
    }

    /// See [`Learner::steer`].
    fn set(&mut self, heads: usize, agent: usize, steering: Option<&Steering>) {
        self.active.on_host[agent] = f64::from(u8::from(steering.is_some()));
        let Some(steering) = steering else { return };
        let (rate, correction) = AdamSettings::default().correction(steering.rate, steering.update);
        self.rate.on_host[agent] = rate;
        self.correction.on_host[agent] = correction;
        let (reward, others) = (agent * heads, agent * heads + 1);
        self.weights.on_host[reward] = 1.0;
        self.weights.on_host[others..][..steering.multipliers.len()].copy_from_slice(&steering.multipliers);
    }

    /// Copies what was set to the device.
    fn send(&mut self, device: &D) {
        for numbers in [&mut self.rate, &mut self.correction, &mut self.weights, &mut self.active] {
            device.steer(&mut numbers.buffer, 0, &numbers.on_host);
        }
    }
}

/// The scratch buffers of an update.
struct Work<D: Device> {
    policy: Pass<D>,
    critics: Pass<D>,
    /// a' at (s', h'), then a at (s, h)
    drawn: Drawn<D>,
    /// `[P, B, A]`
    action_gradient: D::Buf,
    /// Per head `[P, B]`
    targets: Vec<D::Buf>,
}

/// What the last update measured. The numbers of inactive agents mean nothing.
pub struct Measurements<D: Device> {
    /// Per head `[P]`: mean of the smallest critic at the policy's actions.
    pub values: Vec<D::Buf>,
    /// Per head `[P]`: loss of the critics, summed over the head's networks.
    pub losses: Vec<D::Buf>,
    /// `[P]`: mean of -log pi.
    pub entropy: D::Buf,
}

/// What an agent's last update measured.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct UpdateMetrics {
    /// Per head: mean of the smallest critic at the policy's actions.
    pub values: Vec<f64>,
    /// Per head: loss of the critics, summed over the head's networks.
    pub losses: Vec<f64>,
    /// Mean of -log pi.
    pub entropy: f64,
}

/// The networks of a population, their optimisers and their scratch buffers.
pub struct Learner<D: Device> {
    device: D,
    networks: Networks,
    settings: UpdateSettings,
    /// Everything learned so far.
    pub agents: Agents<D>,
    control: Control<D>,
    measurements: Measurements<D>,
    work: Work<D>,
    program: D::Program,
}

impl<D: Device> Learner<D> {
    /// With initial parameters, each agent's drawn from its own stream.
    pub fn new(
        device: &D,
        networks: Networks,
        settings: &AgentSettings,
        streams: impl IntoIterator<Item = Stream>,
    ) -> Room<Self> {
        let (p, b, heads) = (networks.population, settings.batch, networks.heads.len());
        let (mut policy, mut critics) = (Vec::new(), Vec::new());
        for mut stream in streams {
            let [one_policy, its_critics] = networks.init(&mut stream);
            policy.extend(one_policy);
            critics.extend(its_critics);
        }
        let copy = |values: &[f32]| -> Room<D::Buf> {
            let mut buffer = device.buffer(values.len())?;
            device.write(&mut buffer, 0, values);
            Ok(buffer)
        };
        let per_head = |n: usize| (0..heads).map(|_| device.buffer(n)).collect::<Room<Vec<_>>>();
        let mut temperature = Parameters::new(device, p, &vec![0.0; p])?;
        device.steer(&mut temperature.values, 0, &vec![settings.temperature.ln(); p]);
        Ok(Self {
            agents: Agents {
                average: copy(&policy)?,
                policy: Parameters::new(device, p, &policy)?,
                target_critics: copy(&critics)?,
                critics: Parameters::new(device, p, &critics)?,
                temperature,
            },
            control: Control::new(device, p, heads)?,
            work: Work {
                policy: Pass::new(device, &networks.policy, b)?,
                critics: Pass::new(device, &networks.critics, b)?,
                drawn: Drawn::new(device, p * b, networks.action)?,
                action_gradient: device.buffer(p * b * networks.action)?,
                targets: per_head(p * b)?,
            },
            measurements: Measurements { values: per_head(p)?, losses: per_head(p)?, entropy: device.buffer(p)? },
            program: D::Program::default(),
            settings: UpdateSettings::new(settings, networks.action),
            device: device.clone(),
            networks,
        })
    }

    /// The shapes of the networks.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// Sets what the next update does for an agent; with `None`, the agent is inactive.
    pub fn steer(&mut self, agent: usize, steering: Option<&Steering>) {
        self.control.set(self.networks.heads.len(), agent, steering);
    }

    /// One update of every active agent.
    pub fn update(&mut self, batch: &Batch<D>) -> Result<(), DeviceError> {
        self.control.send(&self.device);
        let update = Update {
            d: &self.device,
            nets: &self.networks,
            settings: &self.settings,
            batch,
            control: &self.control,
            agents: &mut self.agents,
            measurements: &mut self.measurements,
            work: &mut self.work,
        };
        self.device.run(&mut self.program, || update.run())
    }

    /// Continues an agent in another unit of rewards, in which values are `factor` times as large, plus `shift`: the
    /// critics' last layers, the temperature and the optimisers' moments change so that what was learned means the same.
    pub fn change_reward_unit(&mut self, agent: usize, factor: f64, shift: f64) -> Result<(), DeviceError> {
        let Self { device: d, networks, agents, .. } = self;
        let net = &networks.critics.shape;
        let (each, of) = (net.parameters(), networks.critics_per_agent());
        let Some(last) = net.layers().last() else { return Ok(()) };
        let weights = last.offset..last.offset + last.inputs;
        for (head, Head { networks: count, .. }) in networks.heads.iter().enumerate() {
            if networks.heads[head].signal != Signal::Reward {
                continue;
            }
            for network in networks.place(head).first..networks.place(head).first + count {
                let at = (agent * of + network) * each;
                for buffer in [&mut agents.critics.values, &mut agents.target_critics] {
                    change(d, buffer, at, each, |i, x| match i {
                        i if weights.contains(&i) => x * factor,
                        i if i >= weights.end => x * factor + shift,
                        _ => x,
                    })?;
                }
                // The loss is factor^2 times as large; so are gradients, but for the last layer's, which was stretched.
                for (power, moments) in [1, 2].into_iter().zip(&mut agents.critics.moments) {
                    change(d, moments, at, each, |i, x| {
                        let gradient = if i < weights.start { factor * factor } else { factor };
                        x * gradient.powi(power)
                    })?;
                }
            }
        }
        let Parameters { each, moments, .. } = &mut agents.policy;
        for (power, moments) in [1, 2].into_iter().zip(moments) {
            change(d, moments, agent * *each, *each, |_, x| x * factor.powi(power))?;
        }
        let Parameters { values, moments, .. } = &mut agents.temperature;
        change(d, values, agent, 1, |_, x| x + factor.ln())?;
        for (power, moments) in [1, 2].into_iter().zip(moments) {
            change(d, moments, agent, 1, |_, x| x * factor.powi(power))?;
        }
        Ok(())
    }

    /// What the last update measured.
    pub fn measurements(&self) -> &Measurements<D> {
        &self.measurements
    }

    /// What the last update measured of each agent. The numbers of agents that were inactive in it mean nothing.
    pub fn metrics(&self) -> Result<Vec<UpdateMetrics>, DeviceError> {
        let all = |buffer: &D::Buf| -> Result<Vec<f64>, DeviceError> {
            let mut numbers = vec![0.0; self.networks.population];
            self.device.read(buffer, 0, &mut numbers)?;
            Ok(numbers.into_iter().map(f64::from).collect())
        };
        let Measurements { values, losses, entropy } = &self.measurements;
        let values = values.iter().map(all).collect::<Result<Vec<_>, _>>()?;
        let losses = losses.iter().map(all).collect::<Result<Vec<_>, _>>()?;
        let entropy = all(entropy)?;
        let of = |heads: &[Vec<f64>], agent: usize| heads.iter().map(|numbers| numbers[agent]).collect();
        let one =
            |agent| UpdateMetrics { values: of(&values, agent), losses: of(&losses, agent), entropy: entropy[agent] };
        Ok((0..self.networks.population).map(one).collect())
    }
}

/// Replaces `n` numbers from `at` on; `to` gets each with its place among them.
fn change<D: Device>(
    d: &D,
    buffer: &mut D::Buf,
    at: usize,
    n: usize,
    to: impl Fn(usize, f64) -> f64,
) -> Result<(), DeviceError> {
    let mut numbers = vec![0.0f32; n];
    d.read(buffer, at, &mut numbers)?;
    numbers.iter_mut().enumerate().for_each(|(i, x)| *x = to(i, f64::from(*x)) as f32);
    d.write(buffer, at, &numbers);
    Ok(())
}

/// One update, step by step as in the paper's listing.
struct Update<'a, D: Device> {
    d: &'a D,
    nets: &'a Networks,
    settings: &'a UpdateSettings,
    batch: &'a Batch<D>,
    control: &'a Control<D>,
    agents: &'a mut Agents<D>,
    measurements: &'a mut Measurements<D>,
    work: &'a mut Work<D>,
}

impl<D: Device> Update<'_, D> {
    fn run(mut self) {
        self.critic_targets();
        self.update_critics();
        self.update_policy();
        self.update_temperature();
    }

    /// `y_R = r + gamma (1 - d) (min Q_R(s', h', a') - alpha log pi(a' | s', h'))` and
    /// `y_psi = log P + gamma (1 - d) min Q_psi(s', h', a')`, with a' drawn from the policy at (s', h').
    ///
    /// The listing prints P for log P; the derivation of Q_psi has log P.
    fn critic_targets(&mut self) {
        let Self { d, nets, batch, agents, work, .. } = self;
        let next = nets.state(&batch.next_state, batch.size);
        d.forward(&nets.policy, &agents.policy.values, next.alone(), &mut work.policy);
        d.sample(&work.policy, &batch.next_noise, self.settings.clip, &mut work.drawn);
        let input = next.with(nets.action(&work.drawn.action, batch.size));
        d.forward(&nets.critics, &agents.target_critics, input, &mut work.critics);
        for (k, head) in nets.heads.iter().enumerate() {
            let target = CriticTarget {
                head: nets.place(k),
                pass: &work.critics,
                signal: match head.signal {
                    Signal::Reward => &batch.reward,
                    Signal::Score => &batch.score,
                },
                not_terminal: &batch.not_terminal,
                entropy: head.soft.then_some((&work.drawn.log_prob, &agents.temperature.values)),
                discount: self.settings.discount,
                range: head.range,
            };
            d.critic_target(target, &mut work.targets[k]);
        }
    }

    /// One step down `(Q - y)^2` for each critic, then a step of the target networks.
    fn update_critics(&mut self) {
        let Self { d, nets, batch, agents, measurements, work, .. } = self;
        let input = nets.state(&batch.state, batch.size).with(nets.action(&batch.action, batch.size));
        d.forward(&nets.critics, &agents.critics.values, input, &mut work.critics);
        for k in 0..nets.heads.len() {
            d.critic_loss(nets.place(k), &work.targets[k], &mut work.critics, &mut measurements.losses[k]);
        }
        let critics = &mut agents.critics;
        d.backward(&nets.critics, &critics.values, input, &mut work.critics, &mut critics.gradients);
        let follower = (&mut agents.target_critics, self.settings.polyak);
        d.adam(critics, &self.control.adam(), Some(follower));
    }

    /// One step UP `(min Q_R + lambda min Q_psi) / (1 + lambda) - alpha log pi` at actions drawn from the policy at (s, h).
    /// The division keeps the steps, and the temperature that a given entropy takes, at the same size whatever lambda is.
    fn update_policy(&mut self) {
        let Self { d, nets, batch, agents, measurements, work, control, .. } = self;
        let state = nets.state(&batch.state, batch.size);
        d.forward(&nets.policy, &agents.policy.values, state.alone(), &mut work.policy);
        d.sample(&work.policy, &batch.noise, self.settings.clip, &mut work.drawn);
        let input = state.with(nets.action(&work.drawn.action, batch.size));
        d.forward(&nets.critics, &agents.critics.values, input, &mut work.critics);
        for k in 0..nets.heads.len() {
            d.climb(nets.place(k), &control.weights.buffer, &mut work.critics, &mut measurements.values[k]);
        }
        let (critics, weights) = (&nets.critics, &agents.critics.values);
        let share = nets.critics_per_agent();
        d.action_gradient(critics, weights, &mut work.critics, share, nets.state, &mut work.action_gradient);
        let sampled = SampleBackward {
            noise: &batch.noise,
            clip: self.settings.clip,
            drawn: &work.drawn,
            action_gradient: &work.action_gradient,
            log_temperature: &agents.temperature.values,
        };
        d.sample_backward(&mut work.policy, sampled);
        let policy = &mut agents.policy;
        d.backward(&nets.policy, &policy.values, state.alone(), &mut work.policy, &mut policy.gradients);
        d.adam(policy, &control.adam(), Some((&mut agents.average, self.settings.averaging)));
    }

    /// One step down `-alpha (log pi + target entropy)`, on the actions the policy step drew.
    fn update_temperature(&mut self) {
        let Self { d, agents, measurements, work, .. } = self;
        let Parameters { values, gradients, .. } = &mut agents.temperature;
        let entropy = &mut measurements.entropy;
        d.temperature_gradient(values, &work.drawn, self.settings.target_entropy, gradients, entropy);
        d.adam(&mut agents.temperature, &self.control.adam(), None);
    }
}

impl<D: Device> Control<D> {
    fn adam(&self) -> AdamStep<'_, D> {
        AdamStep {
            settings: AdamSettings::default(),
            rate: &self.rate.buffer,
            correction: &self.correction.buffer,
            active: &self.active.buffer,
            shrink: None,
            factor: None,
        }
    }
}

/// Columns that all critics of an agent read: its states, or its actions.
struct Shared<'a, D: Device>(Columns<'a, D>);

impl<'a, D: Device> Shared<'a, D> {
    /// The input of the policy, which is one network per agent.
    fn alone(&self) -> Input<'a, D> {
        Input { first: Columns { share: 1, ..self.0 }, second: None }
    }

    /// The input of the critics: states joined with actions.
    fn with(&self, action: Shared<'a, D>) -> Input<'a, D> {
        Input { first: self.0, second: Some(action.0) }
    }
}

impl Networks {
    fn state<'a, D: Device>(&self, state: &'a D::Buf, rows: usize) -> Shared<'a, D> {
        Shared(Columns::new(state, rows, self.state, self.critics_per_agent()))
    }

    fn action<'a, D: Device>(&self, action: &'a D::Buf, rows: usize) -> Shared<'a, D> {
        Shared(Columns::new(action, rows, self.action, self.critics_per_agent()))
    }
}
