//! Acting: policies choose actions for N environments at once; the scorer follows each episode.

use prudence_core::random::{StreamId, blocks};
use prudence_nn::work::{Columns, Drawn, Input, LogStd, Pass, Units};
use prudence_nn::{Bank, Device, Mlp};
use prudence_safety::{EpisodeScores, Scorer, Tracker};

use crate::Error;
use crate::scaling::Scaling;

/// How actions are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choose {
    /// Drawn from the policy.
    Drawn,
    /// The policy's mode.
    Mode,
}

/// N policies acting in N environments, one row each.
pub struct Actor<D: Device> {
    device: D,
    policy: Bank<Mlp>,
    clip: LogStd,
    history: bool,
    units: Units<D>,
    rows: usize,
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
    /// The history of each row's episode, where there is a scorer.
    pub tracker: Option<Tracker<D>>,
}

impl<D: Device> Actor<D> {
    /// For a bank of policies, with one environment each.
    pub fn new(
        device: &D,
        scaling: &Scaling,
        policy: &Bank<Mlp>,
        clip: LogStd,
        history: bool,
        scorer: Option<&Scorer<D>>,
    ) -> Result<Self, Error> {
        let (rows, s, a) = (policy.groups, scaling.observation_width(), scaling.action_width());
        Ok(Self {
            units: scaling.units(device)?,
            observation: device.buffer(rows * s)?,
            action: device.buffer(rows * a)?,
            state: device.buffer(rows * policy.shape.inputs())?,
            addresses: device.rows(rows * 6)?,
            noise: device.buffer(rows * a)?,
            pass: Pass::new(device, policy, 1)?,
            drawn: Drawn::new(device, rows, a)?,
            active: device.buffer(rows)?,
            tracker: scorer.map(|scorer| scorer.tracker(rows)).transpose()?,
            device: device.clone(),
            policy: policy.clone(),
            clip,
            history,
            rows,
        })
    }

    /// Clears the history of a row, at the start of an episode.
    pub fn start(&mut self, row: usize, scorer: Option<&Scorer<D>>) {
        if let (Some(scorer), Some(tracker)) = (scorer, &mut self.tracker) {
            scorer.reset(tracker, row);
        }
    }

    /// Sets the history of a row to that of an episode in progress, which was scored as a whole.
    pub fn continue_from(&mut self, row: usize, scorer: &Scorer<D>, scores: &EpisodeScores) {
        if let Some(tracker) = &mut self.tracker {
            scorer.continue_from(tracker, row, scores);
        }
    }

    /// Sets a row's observation, in the environment's units.
    pub fn show(&mut self, row: usize, observation: &[f32]) {
        self.device.write(&mut self.observation, row * self.units.observation_width, observation);
    }

    /// Sets the noise of a row's action at step `t` of its episode: the stream's normals from block `t * blocks(A)` on.
    pub fn draw_from(&mut self, row: usize, stream: StreamId, t: usize) {
        let block = t as u64 * blocks(self.units.action_width);
        self.device.write_rows(&mut self.addresses, row * 6, &stream.address(block));
    }

    /// Chooses an action for every row, in the environment's units: `[N, A]`.
    pub fn choose(&mut self, weights: &D::Buf, choose: Choose, actions: &mut [f32]) -> Result<(), Error> {
        let d = &self.device;
        let memory = self.tracker.as_ref().filter(|_| self.history);
        let memory = memory.map(|t| (&t.memory, self.policy.shape.inputs() - self.units.observation_width));
        d.see(&self.units, &self.observation, memory, &mut self.state);
        let input = Input { first: Columns::new(&self.state, 1, self.policy.shape.inputs(), 1), second: None };
        d.forward(&self.policy, weights, input, &mut self.pass);
        match choose {
            Choose::Drawn => {
                d.normals(&self.addresses, self.units.action_width, &mut self.noise);
                d.sample(&self.pass, &self.noise, self.clip, &mut self.drawn);
            }
            Choose::Mode => d.mode(&self.pass, &mut self.drawn.action),
        }
        d.to_env(&self.units, &self.drawn.action, &mut self.action);
        Ok(d.read(&self.action, 0, actions)?)
    }

    /// Scores the step of each active row: its observation, and its action in `actions`, `[N, A]`.
    pub fn score(&mut self, scorer: Option<&Scorer<D>>, actions: &[f32], active: &[bool]) {
        let (Some(scorer), Some(tracker)) = (scorer, &mut self.tracker) else { return };
        let d = &self.device;
        d.write(&mut self.action, 0, actions);
        for (row, active) in active.iter().enumerate().take(self.rows) {
            d.fill(&mut self.active, row, 1, if *active { 1.0 } else { 0.0 });
        }
        scorer.step(tracker, &self.observation, &self.action, &self.active);
    }

    /// The model's log P of a row's last step.
    pub fn log_prob(&self, row: usize) -> Result<Option<f32>, Error> {
        self.number(row, |tracker| &tracker.log_prob)
    }

    /// The floored sum of log P of a row's episode so far.
    pub fn sum(&self, row: usize) -> Result<Option<f32>, Error> {
        self.number(row, |tracker| &tracker.sum)
    }

    fn number(&self, row: usize, of: fn(&Tracker<D>) -> &D::Buf) -> Result<Option<f32>, Error> {
        let Some(tracker) = &self.tracker else { return Ok(None) };
        let mut number = [0.0];
        self.device.read(of(tracker), row, &mut number)?;
        Ok(Some(number[0]))
    }
}
