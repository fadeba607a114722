//! Replay: whole episodes, and the running one as far as it has come, with what the safety model says of each step.
//!
//! An episode of T steps is T + 1 rows; s' is the next row. Episodes from elsewhere are scored once per model and shared by
//! all agents that use it ([`Stored`]); each agent's own episodes follow in a ring of its own. When a model is replaced,
//! both are scored again, so that no row carries the opinion of another model.

use std::collections::VecDeque;
use std::sync::Arc;

use prudence_core::random::StreamId;
use prudence_data::Episode;
use prudence_nn::Device;
use prudence_nn::work::{Room, Table, Tables, Units};
use prudence_safety::{EpisodeScores, Scorer, Tracker};

use crate::Error;
use crate::scaling::Scaling;

/// Episodes on a device, scored by one model, read-only.
pub struct Stored<D: Device> {
    table: Table<D>,
    /// First row and number of steps of each episode.
    episodes: Vec<(u32, u32)>,
    memory_width: usize,
}

impl<D: Device> Stored<D> {
    /// Puts episodes on the device; with a scorer, their memories and scores too.
    pub fn new(
        device: &D,
        scaling: &Scaling,
        scorer: Option<&Scorer<D>>,
        episodes: &[Episode],
    ) -> Result<Self, Error> {
        const CHUNK: usize = 64; // as many as a scorer takes at a time
        let rows = episodes.iter().map(|episode| episode.len() + 1).sum();
        let memory_width = scorer.map_or(0, Scorer::memory_width);
        let (s, a) = (scaling.observation_width(), scaling.action_width());
        let mut table = Table::new(device, rows, s, memory_width, a)?;
        let mut places = Vec::with_capacity(episodes.len());
        let mut row = 0;
        for chunk in episodes.chunks(CHUNK) {
            let scores = score(scorer, chunk)?;
            for (episode, scores) in chunk.iter().zip(&scores) {
                write_episode(device, &mut table, row, episode, s, a);
                write_scores(device, &mut table, row, scores, memory_width);
                places.push((row as u32, episode.len() as u32));
                row += episode.len() + 1;
            }
        }
        Ok(Self { table, episodes: places, memory_width })
    }

    /// Steps of all episodes.
    pub fn steps(&self) -> u64 {
        self.episodes.iter().map(|(_, steps)| u64::from(*steps)).sum()
    }

    /// The number of steps of each episode.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.episodes.iter().map(|(_, steps)| u64::from(*steps))
    }

    /// Whether there is no episode.
    pub fn is_empty(&self) -> bool {
        self.episodes.is_empty()
    }
}

fn score<D: Device>(scorer: Option<&Scorer<D>>, episodes: &[Episode]) -> Result<Vec<EpisodeScores>, Error> {
    match scorer {
        Some(scorer) => Ok(scorer.score(&episodes.iter().collect::<Vec<_>>())?),
        None => Ok(vec![EpisodeScores::default(); episodes.len()]),
    }
}

/// Writes all that does not depend on a model.
fn write_episode<D: Device>(d: &D, table: &mut Table<D>, row: usize, episode: &Episode, s: usize, a: usize) {
    d.write(&mut table.observation, row * s, &episode.observations);
    d.write(&mut table.action, row * a, &episode.actions);
    d.write(&mut table.reward, row, &episode.rewards);
    d.fill(&mut table.not_terminal, row, episode.len(), 1.0);
    if let (true, Some(last)) = (episode.terminated, episode.len().checked_sub(1)) {
        d.fill(&mut table.not_terminal, row + last, 1, 0.0);
    }
}

fn write_scores<D: Device>(d: &D, table: &mut Table<D>, row: usize, scores: &EpisodeScores, memory_width: usize) {
    d.write(&mut table.memory, row * memory_width, &scores.memory);
    d.write(&mut table.score, row, &scores.score);
}

/// What one agent can draw from.
struct Own {
    /// Rows of the shared table that begin a step: of the episodes chosen for this agent, in order.
    shared: VecDeque<u32>,
    /// Steps of those episodes, in order.
    shared_episodes: VecDeque<u32>,
    /// Rows of its own ring that begin a step, in order.
    transitions: VecDeque<u32>,
    /// Its own episodes, the running one last.
    episodes: VecDeque<OwnEpisode>,
    /// The row of its ring at which nothing was done yet.
    row: usize,
}

struct OwnEpisode {
    first: usize,
    steps: usize,
    /// The floored sum of log P at its end.
    sum: f32,
}

/// The replay of P agents.
pub struct Replay<D: Device> {
    device: D,
    shared: Arc<Stored<D>>,
    table: Table<D>,
    /// Rows of each agent's ring.
    ring: usize,
    capacity: usize,
    units: Units<D>,
    memory_width: usize,
    history: bool,
    floor: f64,
    own: Vec<Own>,
}

/// What a replay is made for.
pub struct ReplaySettings {
    /// Transitions it holds per agent, the shared ones included.
    pub capacity: usize,
    /// The most steps that an agent will add.
    pub own_steps: usize,
    /// The longest episode, which is kept whole whatever the capacity.
    pub horizon: usize,
    /// Whether networks see the memory.
    pub history: bool,
    /// The floor of running sums.
    pub floor: f64,
}

impl<D: Device> Replay<D> {
    /// For one agent per list in `chosen`: the shared episodes it draws from.
    pub fn new(
        device: &D,
        scaling: &Scaling,
        shared: Arc<Stored<D>>,
        settings: &ReplaySettings,
        chosen: &[Vec<usize>],
    ) -> Result<Self, Error> {
        let memory_width = shared.memory_width;
        // Every step may be an episode of its own, which takes two rows.
        let ring = 2 * settings.own_steps.min(settings.capacity.max(settings.horizon)) + 4;
        let rows = chosen.len() * ring;
        if shared.table.capacity + ring > u32::MAX as usize {
            return Err(Error::TooManyRows { rows: shared.table.capacity + ring });
        }
        let (s, a) = (scaling.observation_width(), scaling.action_width());
        let own = chosen.iter().map(|chosen| {
            let episodes = chosen.iter().map(|index| shared.episodes[*index]);
            Own {
                shared: episodes.clone().flat_map(|(first, steps)| first..first + steps).collect(),
                shared_episodes: episodes.map(|(_, steps)| steps).collect(),
                transitions: VecDeque::new(),
                episodes: VecDeque::new(),
                row: 0,
            }
        });
        Ok(Self {
            table: Table::new(device, rows, s, memory_width, a)?,
            ring,
            capacity: settings.capacity,
            units: scaling.units(device)?,
            memory_width,
            history: settings.history,
            floor: settings.floor,
            own: own.collect(),
            device: device.clone(),
            shared,
        })
    }

    /// Transitions an agent can draw.
    pub fn len(&self, agent: usize) -> usize {
        self.own[agent].shared.len() + self.own[agent].transitions.len()
    }

    /// Whether an agent can draw nothing yet.
    pub fn is_empty(&self, agent: usize) -> bool {
        self.len(agent) == 0
    }

    /// Numbers of a state as networks see it.
    pub fn state_width(&self) -> usize {
        self.units.observation_width + if self.history { self.memory_width } else { 0 }
    }

    /// Numbers of the memory stored.
    pub fn memory_width(&self) -> usize {
        self.memory_width
    }

    /// The tables to gather from.
    pub fn tables(&self) -> Tables<'_, D> {
        Tables {
            shared: &self.shared.table,
            own: &self.table,
            population: self.own.len(),
            units: &self.units,
            memory_width: self.memory_width,
            history: self.history,
            floor: self.floor,
        }
    }

    /// Between the environment's units and the networks'.
    pub fn units(&self) -> &Units<D> {
        &self.units
    }

    /// Begins an episode of an agent; with a tracker, its row at the start.
    pub fn start(&mut self, agent: usize, observation: &[f32], tracker: Option<&Tracker<D>>) {
        let own = &mut self.own[agent];
        if let Some(last) = own.episodes.back() {
            own.row = (last.first + last.steps + 1) % self.ring;
        }
        own.episodes.push_back(OwnEpisode { first: own.row, steps: 0, sum: 0.0 });
        self.write_row(agent, observation, tracker);
    }

    /// Adds a step to the episode begun last: what was done at the last row, and what came of it. Forgets the oldest
    /// episodes beyond the capacity.
    pub fn step(
        &mut self,
        agent: usize,
        action: &[f32],
        reward: f32,
        terminated: bool,
        next: &[f32],
        tracker: Option<&Tracker<D>>,
    ) {
        let (d, a) = (&self.device, self.units.action_width);
        let own = &mut self.own[agent];
        let row = agent * self.ring + own.row;
        d.write(&mut self.table.action, row * a, action);
        d.write(&mut self.table.reward, row, &[reward]);
        d.fill(&mut self.table.not_terminal, row, 1, if terminated { 0.0 } else { 1.0 });
        if let Some(tracker) = tracker {
            d.copy(&tracker.score, agent, &mut self.table.score, row, 1);
        }
        own.transitions.push_back(own.row as u32);
        own.row = (own.row + 1) % self.ring;
        if let Some(episode) = own.episodes.back_mut() {
            episode.steps += 1;
        }
        self.write_row(agent, next, tracker);
        if self.len(agent) > self.capacity {
            self.forget(agent);
        }
    }

    /// A row at which nothing was done yet.
    fn write_row(&mut self, agent: usize, observation: &[f32], tracker: Option<&Tracker<D>>) {
        let (d, s, m) = (&self.device, self.units.observation_width, self.memory_width);
        let row = agent * self.ring + self.own[agent].row;
        d.write(&mut self.table.observation, row * s, observation);
        if let Some(tracker) = tracker {
            d.copy(&tracker.memory, agent * m, &mut self.table.memory, row * m, m);
        }
    }

    /// The running episode of an agent is over; `sum` is its floored sum.
    pub fn end(&mut self, agent: usize, sum: f32) {
        if let Some(episode) = self.own[agent].episodes.back_mut() {
            episode.sum = sum;
        }
    }

    /// Drops the oldest episodes until a tenth of the capacity is free; the running one stays.
    fn forget(&mut self, agent: usize) {
        let keep = self.capacity - self.capacity / 10;
        let own = &mut self.own[agent];
        while own.shared.len() + own.transitions.len() > keep {
            if let Some(steps) = own.shared_episodes.pop_front() {
                own.shared.drain(..steps as usize);
            } else if own.episodes.len() > 1
                && let Some(oldest) = own.episodes.pop_front()
            {
                own.transitions.drain(..oldest.steps);
            } else {
                return;
            }
        }
    }

    /// Draws transitions uniformly: row numbers for [`Device::gather`].
    pub fn draw(&self, agent: usize, rows: &mut [u32], stream: StreamId) {
        let own = &self.own[agent];
        stream.below(0, (own.shared.len() + own.transitions.len()) as u32, rows);
        for row in rows {
            let at = *row as usize;
            *row = match at.checked_sub(own.shared.len()) {
                None => own.shared[at],
                Some(at) => self.shared.table.capacity as u32 + own.transitions[at],
            };
        }
    }

    /// Draws steps of the most recent `window` own episodes: row numbers for [`Device::recall`].
    pub fn draw_recent(&self, agent: usize, window: usize, rows: &mut [u32], stream: StreamId) {
        let own = &self.own[agent];
        let recent: usize = own.episodes.iter().rev().take(window).map(|episode| episode.steps).sum();
        let from = own.transitions.len() - recent;
        stream.below(0, recent as u32, rows);
        for row in rows {
            *row = self.shared.table.capacity as u32 + own.transitions[from + *row as usize];
        }
    }

    /// The floored sums of log P of an agent's most recent episodes.
    pub fn recent_sums(&self, agent: usize, window: usize) -> Vec<f32> {
        let episodes = &self.own[agent].episodes;
        episodes.iter().skip(episodes.len().saturating_sub(window)).map(|episode| episode.sum).collect()
    }

    /// Restores a stored training episode of an agent on resume.
    pub fn restore(&mut self, agent: usize, episode: &Episode, scorer: Option<&Scorer<D>>) -> Result<(), Error> {
        let scores = score(scorer, std::slice::from_ref(episode))?;
        let s = self.units.observation_width;
        let a = self.units.action_width;
        self.start(agent, &episode.observations[..s], None);
        for t in 0..episode.len() {
            let last = episode.terminated && t + 1 == episode.len();
            let next = &episode.observations[(t + 1) * s..][..s];
            self.step(agent, &episode.actions[t * a..][..a], episode.rewards[t], last, next, None);
        }
        self.write_own_scores(agent, self.own[agent].episodes.len() - 1, &scores[0]);
        Ok(())
    }

    /// Puts another model's opinion in place of the old one: of the shared episodes, and of every agent's own. Gives what
    /// the model says of each agent's running episode, which is its last.
    pub fn score_again(&mut self, shared: Arc<Stored<D>>, scorers: &[&Scorer<D>]) -> Result<Vec<EpisodeScores>, Error> {
        if shared.episodes != self.shared.episodes || shared.memory_width != self.memory_width {
            return Err(Error::OtherEpisodes);
        }
        self.shared = shared;
        let mut running = Vec::with_capacity(self.own.len());
        for agent in 0..self.own.len() {
            let mut last = EpisodeScores::default();
            for index in 0..self.own[agent].episodes.len() {
                let episode = self.own_episode(agent, index)?;
                last = score(Some(scorers[agent]), std::slice::from_ref(&episode))?.remove(0);
                self.write_own_scores(agent, index, &last);
            }
            running.push(last);
        }
        Ok(running)
    }

    /// What a model reads of an agent's own episode.
    fn own_episode(&self, agent: usize, index: usize) -> Room<Episode> {
        let (s, a) = (self.units.observation_width, self.units.action_width);
        let OwnEpisode { first, steps, .. } = self.own[agent].episodes[index];
        let mut episode = Episode {
            observations: vec![0.0; (steps + 1) * s],
            actions: vec![0.0; steps * a],
            rewards: vec![0.0; steps],
            ..Episode::default()
        };
        for t in 0..=steps {
            let row = agent * self.ring + (first + t) % self.ring;
            self.device.read(&self.table.observation, row * s, &mut episode.observations[t * s..][..s])?;
            if t < steps {
                self.device.read(&self.table.action, row * a, &mut episode.actions[t * a..][..a])?;
            }
        }
        Ok(episode)
    }

    fn write_own_scores(&mut self, agent: usize, index: usize, scores: &EpisodeScores) {
        let (d, m) = (&self.device, self.memory_width);
        let episode = &mut self.own[agent].episodes[index];
        episode.sum = scores.sum;
        for (t, memory) in scores.memory.chunks_exact(m.max(1)).enumerate() {
            let row = agent * self.ring + (episode.first + t) % self.ring;
            d.write(&mut self.table.memory, row * m, memory);
            if let Some(score) = scores.score.get(t) {
                d.write(&mut self.table.score, row, &[*score]);
            }
        }
    }
}
