//! Acting: policies choose actions for N environments at once; the scorer follows each episode.

use prudence_core::random::{StreamId, blocks};
use prudence_nn::work::{Columns, Drawn, Input, LogStd, Pass, Units};
use prudence_nn::{Bank, Device, Mlp};
use prudence_safety::{EpisodeScores, Scorer, Tracker};

use crate::Error;
use crate::units::{AgentUnits, Scaling, set_units};

/// How actions are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choose {
    /// Drawn from the policy.
    Drawn,
    /// The policy's mode.
    Mode,
}

/// Policies acting in environments: N rows, divided evenly among the policies, in order.
pub struct Actor<D: Device> {
    device: D,
    policy: Bank<Mlp>,
    clip: LogStd,
    history: bool,
    units: Units<D>,
    rows: usize,
    on_host: OnHost,
    /// `[N, S]` and `[N, A]`, in the environment's units
    observation: D::Buf,
    action: D::Buf,
    /// `[N, state]`
    state: D::Buf,
    /// `[N, 6]`: the address of each row's noise
    addresses: D::Rows,
    noise: D::Buf,
    pass: Pass<D>,
    drawn: Drawn<D>,
    active: D::Buf,
    scorer: Option<Scorer<D>>,
    /// The history of each row's episode, where there is a scorer.
    pub tracker: Option<Tracker<D>>,
    /// Recorded once per way of choosing; they hold the addresses of the weights that they were first called with.
    choosing: [D::Program; 2],
    scoring: D::Program,
}

/// What goes to the device before each step, all rows at once.
struct OnHost {
    observation: Vec<f32>,
    /// Whether the observations on the device are these.
    is_sent: bool,
    addresses: Vec<u32>,
    active: Vec<f32>,
}

impl<D: Device> Actor<D> {
    /// For a bank of policies, with `each` environments per policy.
    pub fn new(
        device: &D,
        scaling: &Scaling,
        policy: &Bank<Mlp>,
        each: usize,
        clip: LogStd,
        history: bool,
        scorer: Option<Scorer<D>>,
    ) -> Result<Self, Error> {
        let (rows, s, a) = (policy.groups * each, scaling.observation_width(), scaling.action_width());
        Ok(Self {
            units: scaling.units(device, policy.groups)?,
            on_host: OnHost {
                observation: vec![0.0; rows * s],
                is_sent: false,
                addresses: vec![0; rows * 6],
                active: vec![0.0; rows],
            },
            observation: device.buffer(rows * s)?,
            action: device.buffer(rows * a)?,
            state: device.buffer(rows * policy.shape.inputs())?,
            addresses: device.rows(rows * 6)?,
            noise: device.buffer(rows * a)?,
            pass: Pass::new(device, policy, each)?,
            drawn: Drawn::new(device, rows, a)?,
            active: device.buffer(rows)?,
            tracker: scorer.as_ref().map(|scorer| scorer.tracker(rows)).transpose()?,
            scorer,
            choosing: Default::default(),
            scoring: D::Program::default(),
            device: device.clone(),
            policy: policy.clone(),
            clip,
            history,
            rows,
        })
    }

    /// Sets the units of a policy, which are those of the environment at first.
    pub fn set_units(&mut self, policy: usize, units: &AgentUnits) {
        set_units(&self.device, &mut self.units, policy, units);
    }

    /// Continues with another scorer of the same shape. Histories are those of the old one until they are set.
    pub fn replace_scorer(&mut self, scorer: Scorer<D>) {
        self.scorer = Some(scorer);
        self.scoring = D::Program::default();
    }

    /// Clears the history of a row, at the start of an episode.
    pub fn start(&mut self, row: usize) {
        if let (Some(scorer), Some(tracker)) = (&self.scorer, &mut self.tracker) {
            scorer.reset(tracker, row);
        }
    }

    /// Sets the history of a row to that of an episode in progress, which was scored as a whole.
    pub fn continue_from(&mut self, row: usize, scores: &EpisodeScores) {
        if let (Some(scorer), Some(tracker)) = (&self.scorer, &mut self.tracker) {
            scorer.continue_from(tracker, row, scores);
        }
    }

    /// Sets a row's observation, in the environment's units.
    pub fn show(&mut self, row: usize, observation: &[f32]) {
        let s = self.units.observation_width;
        self.on_host.observation[row * s..][..s].copy_from_slice(observation);
        self.on_host.is_sent = false;
    }

    /// Sets the noise of a row's action at step `t` of its episode: the stream's normals from block `t * blocks(A)` on.
    pub fn draw_from(&mut self, row: usize, stream: StreamId, t: usize) {
        let block = t as u64 * blocks(self.units.action_width);
        self.on_host.addresses[row * 6..][..6].copy_from_slice(&stream.address(block));
    }

    /// Chooses an action for every row, in the environment's units: `[N, A]`. The weights must be the same buffer in
    /// every call.
    pub fn choose(&mut self, weights: &D::Buf, choose: Choose, actions: &mut [f32]) -> Result<(), Error> {
        self.send_observations();
        let d = &self.device;
        let program = match choose {
            Choose::Drawn => &mut self.choosing[0],
            Choose::Mode => &mut self.choosing[1],
        };
        if choose == Choose::Drawn {
            d.write_rows(&mut self.addresses, 0, &self.on_host.addresses);
        }
        d.run(program, || {
            let memory = self.tracker.as_ref().filter(|_| self.history);
            let memory = memory.map(|t| (&t.memory, self.policy.shape.inputs() - self.units.observation_width));
            d.see(&self.units, &self.observation, memory, &mut self.state);
            let each = self.rows / self.policy.groups;
            let first = Columns::new(&self.state, each, self.policy.shape.inputs(), 1);
            d.forward(&self.policy, weights, Input { first, second: None }, &mut self.pass);
            match choose {
                Choose::Drawn => {
                    d.normals(&self.addresses, self.units.action_width, &mut self.noise);
                    d.sample(&self.pass, &self.noise, self.clip, &mut self.drawn);
                }
                Choose::Mode => d.mode(&self.pass, &mut self.drawn.action),
            }
            d.to_env(&self.units, &self.drawn.action, &mut self.action);
        })?;
        Ok(d.read(&self.action, 0, actions)?)
    }

    /// Scores the step of each active row: its observation, and its action in `actions`, `[N, A]`.
    pub fn score(&mut self, actions: &[f32], active: &[bool]) -> Result<(), Error> {
        if self.scorer.is_some() {
            self.send_observations();
        }
        let (Some(scorer), Some(tracker)) = (&self.scorer, &mut self.tracker) else { return Ok(()) };
        let d = &self.device;
        for (number, active) in self.on_host.active.iter_mut().zip(active) {
            *number = if *active { 1.0 } else { 0.0 };
        }
        d.write(&mut self.action, 0, actions);
        d.write(&mut self.active, 0, &self.on_host.active);
        let step = || scorer.step(tracker, &self.observation, &self.action, &self.active);
        Ok(d.run(&mut self.scoring, step)?)
    }

    fn send_observations(&mut self) {
        if !std::mem::replace(&mut self.on_host.is_sent, true) {
            self.device.write(&mut self.observation, 0, &self.on_host.observation);
        }
    }

    /// The model's log P of each row's last step; nothing without a model.
    pub fn log_probs(&self, log_probs: &mut Vec<f32>) -> Result<(), Error> {
        self.numbers(|tracker| &tracker.log_prob, log_probs)
    }

    /// The floored sum of log P of each row's episode so far; nothing without a model.
    pub fn sums(&self, sums: &mut Vec<f32>) -> Result<(), Error> {
        self.numbers(|tracker| &tracker.sum, sums)
    }

    fn numbers(&self, of: fn(&Tracker<D>) -> &D::Buf, numbers: &mut Vec<f32>) -> Result<(), Error> {
        numbers.clear();
        let Some(tracker) = &self.tracker else { return Ok(()) };
        numbers.resize(self.rows, 0.0);
        Ok(self.device.read(of(tracker), 0, numbers)?)
    }
}
