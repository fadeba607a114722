//! Replay: whole episodes, and the running one as far as it has come, enriched by the safety model.
//!
//! An episode of T steps is T + 1 rows; s' is the next row. Memory and score are columns that [`Replay::step`] makes with
//! the replay's one safety model, by the very step function that acting uses, so that a row never carries the opinion of
//! another model and a resumed run rebuilds the same bits from the stored episodes.

use std::sync::Arc;

use prudence_data::Episode;
use prudence_env::random::Stream;
use prudence_safety::{SafetyModel, Tracker};
use rand::RngExt as _;

use crate::safesac::Batch;
use crate::scaling::Scaling;

/// The columns, row after row.
pub struct Replay {
    scaling: Scaling,
    safety: Option<(Arc<SafetyModel>, Tracker)>,
    memory_width: usize,
    history: bool,
    reward_scale: f32,
    capacity: usize,
    /// `[rows, S]`, in the environment's units
    observations: Vec<f32>,
    /// `[rows, M]`: h and the running sum; empty without a safety model
    memory: Vec<f32>,
    /// `[rows, A]`, in [-1, 1]
    actions: Vec<f32>,
    /// `[rows]` each
    rewards: Vec<f32>,
    scores: Vec<f32>,
    goes_on: Vec<f32>,
    /// Rows that begin a step, in order.
    transitions: Vec<u32>,
    /// First row of each episode, in order.
    starts: Vec<u32>,
    /// The sum of log P at the end of each episode, floored.
    sums: Vec<f32>,
}

impl Replay {
    /// Empty. With a safety model its opinion is stored; with `history` batches show its memory.
    pub fn new(
        scaling: Scaling,
        safety: Option<Arc<SafetyModel>>,
        history: bool,
        floor: f64,
        reward_scale: f64,
        capacity: usize,
    ) -> Self {
        let safety = safety.map(|model| {
            let tracker = model.tracker(floor);
            (model, tracker)
        });
        Self {
            memory_width: safety.as_ref().map_or(0, |(model, _)| model.memory()),
            scaling,
            safety,
            history,
            reward_scale: reward_scale as f32,
            capacity,
            observations: Vec::new(),
            memory: Vec::new(),
            actions: Vec::new(),
            rewards: Vec::new(),
            scores: Vec::new(),
            goes_on: Vec::new(),
            transitions: Vec::new(),
            starts: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// Transitions held.
    pub fn len(&self) -> usize {
        self.transitions.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.transitions.is_empty()
    }

    /// Episodes held.
    pub fn episodes(&self) -> usize {
        self.starts.len()
    }

    /// Between units.
    pub fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// The width of the state a batch shows.
    pub fn state_width(&self) -> usize {
        self.scaling.sizes().0 + if self.history { self.memory_width } else { 0 }
    }

    /// Adds an episode, enriched.
    pub fn push(&mut self, episode: &Episode) {
        let (s, a) = self.scaling.sizes();
        let mut observations = episode.observations.chunks_exact(s);
        self.start(observations.next().unwrap_or_default());
        let rows = episode.actions.chunks_exact(a).zip(&episode.rewards).zip(observations);
        for (t, ((action, reward), next)) in rows.enumerate() {
            self.step(action, *reward, episode.terminated && t + 1 == episode.len(), next);
        }
    }

    /// Begins an episode.
    pub fn start(&mut self, observation: &[f32]) {
        if let Some((_, tracker)) = &mut self.safety {
            tracker.reset();
        }
        self.starts.push(self.rewards.len() as u32);
        self.sums.push(0.0);
        self.row(observation);
    }

    /// Adds a step to the episode begun last: what was done at the last row, and what came of it. Forgets the oldest
    /// episodes beyond the capacity.
    pub fn step(&mut self, action: &[f32], reward: f32, terminated: bool, next: &[f32]) {
        let (s, a) = self.scaling.sizes();
        let row = self.rewards.len() - 1;
        self.scaling.to_unit(action, &mut self.actions[row * a..]);
        self.rewards[row] = reward * self.reward_scale;
        self.goes_on[row] = if terminated { 0.0 } else { 1.0 };
        if let Some((model, tracker)) = &mut self.safety {
            let log_prob = model.step(tracker, &self.observations[row * s..], action);
            self.scores[row] = tracker.score(log_prob);
            if let Some(sum) = self.sums.last_mut() {
                *sum = tracker.sum;
            }
        }
        self.transitions.push(row as u32);
        self.row(next);
        if self.transitions.len() > self.capacity {
            self.forget();
        }
    }

    /// A row at which nothing was done yet.
    fn row(&mut self, observation: &[f32]) {
        self.observations.extend_from_slice(observation);
        self.actions.resize(self.actions.len() + self.scaling.sizes().1, 0.0);
        for column in [&mut self.rewards, &mut self.scores, &mut self.goes_on] {
            column.push(0.0);
        }
        if let Some((_, tracker)) = &self.safety {
            let at = self.memory.len();
            self.memory.resize(at + self.memory_width, 0.0);
            tracker.write_memory(&mut self.memory[at..]);
        }
    }

    /// Drops the oldest episodes until a tenth of the capacity is free, so that the move happens seldom.
    fn forget(&mut self) {
        let (s, a) = self.scaling.sizes();
        let keep = self.capacity - self.capacity / 10;
        let mut episodes = 0;
        while episodes + 1 < self.starts.len() {
            let next = self.starts[episodes + 1] as usize;
            episodes += 1;
            if self.transitions.len() + episodes <= keep + next {
                break;
            }
        }
        if episodes == 0 {
            return;
        }
        let rows = self.starts[episodes] as usize;
        self.observations.drain(..rows * s);
        self.memory.drain(..rows * self.memory_width);
        self.actions.drain(..rows * a);
        for column in [&mut self.rewards, &mut self.scores, &mut self.goes_on] {
            column.drain(..rows);
        }
        self.starts.drain(..episodes);
        self.sums.drain(..episodes);
        self.transitions.drain(..rows - episodes);
        self.starts.iter_mut().chain(&mut self.transitions).for_each(|row| *row -= rows as u32);
    }

    /// Writes the state of a row as the networks see it.
    fn state(&self, row: usize, out: &mut [f32]) {
        let s = self.scaling.sizes().0;
        let (observation, memory) = out.split_at_mut(s);
        self.scaling.observation(&self.observations[row * s..][..s], observation);
        if self.history {
            memory.copy_from_slice(&self.memory[row * self.memory_width..][..self.memory_width]);
        }
    }

    /// Fills the batch with transitions drawn uniformly.
    pub fn sample(&self, batch: &mut Batch<f32>, rng: &mut Stream) {
        let (a, width) = (self.scaling.sizes().1, self.state_width());
        for i in 0..batch.reward.len() {
            let row = self.transitions[rng.random_range(0..self.transitions.len())] as usize;
            self.state(row, &mut batch.state[i * width..][..width]);
            self.state(row + 1, &mut batch.next_state[i * width..][..width]);
            batch.action[i * a..][..a].copy_from_slice(&self.actions[row * a..][..a]);
            batch.reward[i] = self.rewards[row];
            batch.score[i] = self.scores[row];
            batch.goes_on[i] = self.goes_on[row];
        }
    }

    /// Draws rows from the most recent `window` episodes: states as the networks see them `[N, state]`, observations
    /// `[N, S]`, memory `[N, M]`.
    pub fn sample_recent(&self, window: usize, n: usize, rng: &mut Stream, out: &mut Recent) {
        let (s, m, width) = (self.scaling.sizes().0, self.memory_width, self.state_width());
        let first = self.starts[self.starts.len().saturating_sub(window)];
        let from = self.transitions.partition_point(|row| *row < first);
        out.states.resize(n * width, 0.0);
        out.observations.clear();
        out.memory.clear();
        for i in 0..n {
            let row = self.transitions[rng.random_range(from..self.transitions.len())] as usize;
            self.state(row, &mut out.states[i * width..][..width]);
            out.observations.extend_from_slice(&self.observations[row * s..][..s]);
            out.memory.extend_from_slice(&self.memory[row * m..][..m]);
        }
    }

    /// The floored sums of log P of the most recent episodes.
    pub fn recent_sums(&self, window: usize) -> &[f32] {
        &self.sums[self.sums.len().saturating_sub(window)..]
    }

    /// The score of a step that starts at running sum `used * floor` with this log-probability.
    pub fn floored(used: f32, log_prob: f32, floor: f32) -> f32 {
        let before = used * floor;
        (before + log_prob).max(floor) - before
    }
}

/// Rows drawn from recent episodes.
#[derive(Default)]
pub struct Recent {
    /// `[N, state]`
    pub states: Vec<f32>,
    /// `[N, S]`
    pub observations: Vec<f32>,
    /// `[N, M]`
    pub memory: Vec<f32>,
}
