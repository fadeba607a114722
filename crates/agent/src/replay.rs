//! Replay: whole episodes, the running one included, with the safety model's memory and score of each step.
//!
//! An episode of T steps is T + 1 rows; s' is the next row. Episodes from elsewhere ([`Stored`]) are scored once per model
//! and shared by all agents that use that model; each agent's own episodes are in a ring buffer. When a model is replaced,
//! both are scored again, so that no row carries the score of another model; stored episodes that others share, too, are
//! copied first.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use prudence_core::random::{StreamId, blocks};
use prudence_data::{Episode, Episodes};
use prudence_nn::Device;
use prudence_nn::work::{Appended, Room, Scored, Table, Tables, Units};
use prudence_safety::{EpisodeScores, Scorer, Tracker};

use crate::Error;
use crate::units::{AgentUnits, Meter, Scaling, set_units};

/// Episodes scored together: as many as a scorer processes in one pass.
const CHUNK: usize = 64;

/// Episodes on a device with the scores of one model per replica.
pub struct Stored<D: Device> {
    table: Table<D>,
    /// Per replica: first row and number of steps of each episode.
    replicas: Vec<Vec<(u32, u32)>>,
    /// Numbers of an observation, a memory and an action.
    widths: [usize; 3],
    /// What each replica's episodes were measured by.
    meters: Vec<Meter>,
}

/// The episodes that the agents of one replica learn from.
pub struct ReplicaEpisodes<'a, D: Device, E: ?Sized> {
    /// The replica's safety model.
    pub scorer: Option<&'a Scorer<D>>,
    /// The episodes it scores.
    pub episodes: &'a E,
}

impl<D: Device> Stored<D> {
    /// No episodes.
    pub fn empty(device: &D, scaling: &Scaling, scorer: Option<&Scorer<D>>) -> Result<Self, Error> {
        Self::new::<[Episode]>(device, scaling, scorer, &[])
    }

    /// Episodes for agents that use one safety model, or none.
    pub fn new<E: Episodes + ?Sized>(
        device: &D,
        scaling: &Scaling,
        scorer: Option<&Scorer<D>>,
        episodes: &E,
    ) -> Result<Self, Error> {
        Self::of_replicas(device, scaling, &[ReplicaEpisodes { scorer, episodes }])
    }

    /// Episodes for agents that are divided among replicas, each with its own safety model.
    pub fn of_replicas<E: Episodes + ?Sized>(
        device: &D,
        scaling: &Scaling,
        replicas: &[ReplicaEpisodes<'_, D, E>],
    ) -> Result<Self, Error> {
        let rows_of = |episodes: &E| (0..episodes.count()).map(|e| episodes.steps(e) + 1).sum::<usize>();
        let rows = replicas.iter().map(|replica| rows_of(replica.episodes)).sum();
        if rows > u32::MAX as usize {
            return Err(Error::TooManyRows { rows });
        }
        let width = |replica: &ReplicaEpisodes<'_, D, E>| replica.scorer.map_or(0, Scorer::memory_width);
        let memory_width = replicas.first().map_or(0, width);
        if replicas.iter().any(|replica| width(replica) != memory_width) {
            return Err(Error::ModelShape);
        }
        let (s, a) = (scaling.observation_width(), scaling.action_width());
        let mut table = Table::new(device, rows, s, memory_width, a)?;
        let mut row = 0;
        let mut places = Vec::with_capacity(replicas.len());
        let mut meters = Vec::with_capacity(replicas.len());
        for ReplicaEpisodes { scorer, episodes } in replicas {
            let (mut of_replica, mut meter) = (Vec::with_capacity(episodes.count()), Meter::new(s));
            for first in (0..episodes.count()).step_by(CHUNK) {
                let chunk = first..episodes.count().min(first + CHUNK);
                let chunk: Vec<_> = chunk.map(|index| episodes.episode(index)).collect::<Result<_, _>>()?;
                for (episode, scores) in chunk.iter().zip(&score(*scorer, &chunk)?) {
                    meter.add(episode);
                    write_episode(device, &mut table, row, episode);
                    device.write(&mut table.memory, row * memory_width, &scores.memory);
                    device.write(&mut table.score, row, &scores.score);
                    of_replica.push((row as u32, episode.len() as u32));
                    row += episode.len() + 1;
                }
            }
            places.push(of_replica);
            meters.push(meter);
        }
        // Writing reports no failure; reading does.
        device.read(&table.reward, 0, &mut [0.0; 1][..rows.min(1)])?;
        Ok(Self { table, replicas: places, widths: [s, memory_width, a], meters })
    }

    /// A copy that is not shared.
    fn copy(&self, device: &D) -> Room<Self> {
        let [s, m, a] = self.widths;
        Ok(Self {
            table: self.table.copy(device, s, m, a)?,
            replicas: self.replicas.clone(),
            widths: self.widths,
            meters: self.meters.clone(),
        })
    }

    /// Replaces the memories and scores of a replica's episodes by those of another model.
    fn score_again(&mut self, device: &D, replica: usize, scorer: &Scorer<D>) -> Result<(), Error> {
        let [s, m, a] = self.widths;
        for chunk in self.replicas[replica].chunks(CHUNK) {
            let read = |(first, steps): &(u32, u32)| {
                let (first, mut episode) = (*first as usize, empty_rows(s, a, *steps as usize));
                device.read(&self.table.observation, first * s, &mut episode.observations)?;
                device.read(&self.table.action, first * a, &mut episode.actions)?;
                Ok(episode)
            };
            let episodes = chunk.iter().map(read).collect::<Room<Vec<Episode>>>()?;
            for ((first, _), scores) in chunk.iter().zip(&score(Some(scorer), &episodes)?) {
                device.write(&mut self.table.memory, *first as usize * m, &scores.memory);
                device.write(&mut self.table.score, *first as usize, &scores.score);
            }
        }
        Ok(())
    }

    /// The number of replicas.
    pub fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// Numbers of the memory in each row; 0 without safety models.
    pub fn memory_width(&self) -> usize {
        self.widths[1]
    }

    /// The number of steps of each of a replica's episodes.
    pub fn lengths(&self, replica: usize) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.replicas[replica].iter().map(|(_, steps)| u64::from(*steps))
    }

    /// The units of a replica's episodes; `discount` is that of returns.
    pub fn units(&self, replica: usize, discount: f64) -> AgentUnits {
        self.meters[replica].units(discount)
    }

    /// Whether a replica has no episodes.
    pub fn is_empty(&self, replica: usize) -> bool {
        self.replicas[replica].is_empty()
    }
}

/// Stored episodes that others may share.
enum Shared<D: Device> {
    Lent(Arc<Stored<D>>),
    Owned(Stored<D>),
}

impl<D: Device> std::ops::Deref for Shared<D> {
    type Target = Stored<D>;

    fn deref(&self) -> &Stored<D> {
        match self {
            Self::Lent(stored) => stored,
            Self::Owned(stored) => stored,
        }
    }
}

impl<D: Device> Shared<D> {
    /// For changes, which nobody else sees.
    fn to_mut(&mut self, device: &D) -> Room<&mut Stored<D>> {
        if let Self::Lent(stored) = self {
            *self = Self::Owned(stored.copy(device)?);
        }
        match self {
            Self::Owned(stored) => Ok(stored),
            Self::Lent(_) => unreachable!("it was copied above"),
        }
    }
}

/// An episode of this length to read observations and actions into.
fn empty_rows(observation: usize, action: usize, steps: usize) -> Episode {
    Episode {
        observations: vec![0.0; (steps + 1) * observation],
        actions: vec![0.0; steps * action],
        rewards: vec![0.0; steps],
        ..Episode::new(observation, action)
    }
}

/// The scores of episodes; empty without a scorer.
fn score<D: Device>(
    scorer: Option<&Scorer<D>>,
    episodes: &[impl Borrow<Episode>],
) -> Result<Vec<EpisodeScores>, Error> {
    match scorer {
        Some(scorer) => Ok(scorer.score(&episodes.iter().map(Borrow::borrow).collect::<Vec<_>>())?),
        None => Ok(vec![EpisodeScores::default(); episodes.len()]),
    }
}

/// Writes the columns that do not depend on a model.
fn write_episode<D: Device>(d: &D, table: &mut Table<D>, row: usize, episode: &Episode) {
    d.write(&mut table.observation, row * episode.observation_width, &episode.observations);
    d.write(&mut table.action, row * episode.action_width, &episode.actions);
    d.write(&mut table.reward, row, &episode.rewards);
    d.fill(&mut table.not_terminal, row, episode.len(), 1.0);
    if let (true, Some(last)) = (episode.terminated, episode.len().checked_sub(1)) {
        d.fill(&mut table.not_terminal, row + last, 1, 0.0);
    }
}

/// What one agent draws from.
struct Own {
    /// Rows of the shared table where a transition begins: of the episodes chosen for this agent, in order.
    shared: VecDeque<u32>,
    /// The number of steps of those episodes, in order.
    shared_episodes: VecDeque<u32>,
    /// Rows of the agent's ring where a transition begins, in order.
    transitions: VecDeque<u32>,
    /// The agent's episodes, the running one last.
    episodes: VecDeque<OwnEpisode>,
    /// The ring's row of the latest observation.
    row: usize,
}

/// Consecutive rows of an agent's ring, which begins again after its last row.
struct Place {
    /// The first row of the ring.
    ring: usize,
    /// The number of its rows.
    rows: usize,
    /// The first of the consecutive rows.
    first: usize,
}

impl Place {
    fn write<D: Device>(&self, d: &D, column: &mut D::Buf, width: usize, numbers: &[f32]) {
        let (before, after) = numbers.split_at(numbers.len().min((self.rows - self.first) * width));
        d.write(column, (self.ring + self.first) * width, before);
        d.write(column, self.ring * width, after);
    }

    fn read<D: Device>(&self, d: &D, column: &D::Buf, width: usize, numbers: &mut [f32]) -> Room<()> {
        let (before, after) = numbers.split_at_mut(numbers.len().min((self.rows - self.first) * width));
        d.read(column, (self.ring + self.first) * width, before)?;
        d.read(column, self.ring * width, after)
    }
}

struct OwnEpisode {
    first: usize,
    steps: usize,
    /// Whether the constraint is estimated on it.
    counts: bool,
    /// The floored sum of log P at its end.
    sum: f32,
}

/// The replay buffers of P agents.
pub struct Replay<D: Device> {
    device: D,
    shared: Shared<D>,
    table: Table<D>,
    /// Rows of each agent's ring.
    ring: usize,
    capacity: usize,
    units: Units<D>,
    memory_width: usize,
    history: bool,
    own: Vec<Own>,
    /// One step of every agent, on its way to the device.
    appended: Appended<D>,
    on_host: OnHost,
}

/// What goes to the device with each step, all agents at once.
struct OnHost {
    /// `[P, 2]`
    rows: Vec<u32>,
    /// `[P, A]`
    action: Vec<f32>,
    /// `[P]`
    reward: Vec<f32>,
    not_terminal: Vec<f32>,
    /// `[P, S]`
    next_observation: Vec<f32>,
}

impl OnHost {
    /// Sets an agent's step, and the rows of its observation and of the next one; no step writes nothing.
    fn set(&mut self, agent: usize, step: Option<&NewStep<'_>>, rows: [usize; 2]) {
        let Some(NewStep { action, reward, terminated, next }) = step else {
            return self.rows[2 * agent..][..2].fill(u32::MAX);
        };
        self.action[agent * action.len()..][..action.len()].copy_from_slice(action);
        self.reward[agent] = *reward;
        self.not_terminal[agent] = if *terminated { 0.0 } else { 1.0 };
        self.next_observation[agent * next.len()..][..next.len()].copy_from_slice(next);
        self.rows[2 * agent..][..2].copy_from_slice(&rows.map(|row| row as u32));
    }
}

/// The place of a step in an agent's own stored episodes.
#[derive(Clone, Copy, Debug)]
pub struct OwnStep {
    /// The index of the episode.
    pub episode: usize,
    /// The index of the step in it.
    pub t: usize,
}

/// A step of a running episode: the action at the latest observation, and its outcome.
pub struct NewStep<'a> {
    /// In the environment's units.
    pub action: &'a [f32],
    /// In the environment's units.
    pub reward: f32,
    /// Whether the episode terminated.
    pub terminated: bool,
    /// The next observation.
    pub next: &'a [f32],
}

/// The sizes of replay buffers, and what they hold.
pub struct ReplaySettings {
    /// Transitions per agent, the shared ones included.
    pub capacity: usize,
    /// The most steps that an agent will add.
    pub own_steps: usize,
    /// The longest episode, which is stored whole whatever the capacity.
    pub horizon: usize,
    /// Whether networks read the memory.
    pub history: bool,
}

/// The shared episodes that one agent draws from.
pub struct Chosen {
    /// Its replica.
    pub replica: usize,
    /// Indices of that replica's episodes.
    pub episodes: Vec<usize>,
}

impl<D: Device> Replay<D> {
    /// For one agent per entry of `chosen`.
    pub fn new(
        device: &D,
        scaling: &Scaling,
        shared: Arc<Stored<D>>,
        settings: &ReplaySettings,
        chosen: &[Chosen],
    ) -> Result<Self, Error> {
        let memory_width = shared.memory_width();
        // An episode may be a single step, which takes two rows.
        let ring = 2 * settings.own_steps.min(settings.capacity.max(settings.horizon)) + 4;
        let population = chosen.len();
        let rows = (shared.table.capacity + ring).max(population.saturating_mul(ring));
        if rows >= u32::MAX as usize {
            return Err(Error::TooManyRows { rows });
        }
        let (s, a) = (scaling.observation_width(), scaling.action_width());
        let own = chosen.iter().map(|Chosen { replica, episodes }| {
            let episodes = episodes.iter().map(|index| shared.replicas[*replica][*index]);
            Own {
                shared: episodes.clone().flat_map(|(first, steps)| first..first + steps).collect(),
                shared_episodes: episodes.map(|(_, steps)| steps).collect(),
                transitions: VecDeque::new(),
                episodes: VecDeque::new(),
                row: 0,
            }
        });
        Ok(Self {
            table: Table::new(device, chosen.len() * ring, s, memory_width, a)?,
            ring,
            capacity: settings.capacity,
            units: scaling.units(device, population)?,
            memory_width,
            history: settings.history,
            own: own.collect(),
            appended: Appended::new(device, population, s, a)?,
            on_host: OnHost {
                rows: vec![u32::MAX; 2 * population],
                action: vec![0.0; population * a],
                reward: vec![0.0; population],
                not_terminal: vec![0.0; population],
                next_observation: vec![0.0; population * s],
            },
            device: device.clone(),
            shared: Shared::Lent(shared),
        })
    }

    /// Transitions that an agent draws from.
    pub fn len(&self, agent: usize) -> usize {
        self.own[agent].shared.len() + self.own[agent].transitions.len()
    }

    /// Whether an agent has no transition to draw.
    pub fn is_empty(&self, agent: usize) -> bool {
        self.len(agent) == 0
    }

    /// Episodes of an agent's own that are stored, the running one included.
    pub fn own_episodes(&self, agent: usize) -> usize {
        self.own[agent].episodes.len()
    }

    /// Numbers of a state as networks read it.
    pub fn state_width(&self) -> usize {
        self.units.observation_width + if self.history { self.memory_width } else { 0 }
    }

    /// Numbers of the memory in each row.
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
        }
    }

    /// Between the environment's units and the networks'.
    pub fn units(&self) -> &Units<D> {
        &self.units
    }

    /// Sets the units in which an agent's networks see what it draws, which are those of the environment at first.
    pub fn set_units(&mut self, agent: usize, units: &AgentUnits) {
        set_units(&self.device, &mut self.units, agent, units);
    }

    /// Measures the units of an agent's own episodes; `discount` is that of returns.
    pub fn own_units(&self, agent: usize, discount: f64) -> Result<AgentUnits, Error> {
        let mut meter = Meter::new(self.units.observation_width);
        for index in 0..self.own[agent].episodes.len() {
            meter.add(&self.own_episode(agent, index)?);
        }
        Ok(meter.units(discount))
    }

    /// Starts an episode of an agent; `tracker` has the memory at its start, where there is a safety model.
    pub fn start(&mut self, agent: usize, observation: &[f32], tracker: Option<&Tracker<D>>) {
        self.begin(agent);
        let (d, s, m) = (&self.device, self.units.observation_width, self.memory_width);
        let row = self.latest(agent);
        d.write(&mut self.table.observation, row * s, observation);
        if let Some(tracker) = tracker {
            d.copy(&tracker.memory, agent * m, &mut self.table.memory, row * m, m);
        }
    }

    /// Adds a step to the running episodes of the agents that took one. Forgets the oldest episodes where the capacity is
    /// exceeded.
    pub fn step(&mut self, steps: &[Option<NewStep<'_>>], tracker: Option<&Tracker<D>>) {
        for (agent, step) in steps.iter().enumerate() {
            let row = self.latest(agent);
            if step.is_some() {
                self.advance(agent);
            }
            let next = self.latest(agent);
            self.on_host.set(agent, step.as_ref(), [row, next]);
        }
        self.send(tracker);
    }

    /// Writes the memory at the start of one of an agent's own episodes again.
    pub fn start_again(&mut self, agent: usize, episode: usize, tracker: &Tracker<D>) {
        let row = agent * self.ring + self.own[agent].episodes[episode].first;
        let m = self.memory_width;
        self.device.copy(&tracker.memory, agent * m, &mut self.table.memory, row * m, m);
    }

    /// Writes a step of one of an agent's own episodes again, with its score and the memory after it.
    pub fn write_again(&mut self, steps: &[Option<(OwnStep, NewStep<'_>)>], tracker: &Tracker<D>) {
        for (agent, step) in steps.iter().enumerate() {
            let Some((OwnStep { episode, t }, step)) = step else {
                self.on_host.set(agent, None, [0; 2]);
                continue;
            };
            let first = self.own[agent].episodes[*episode].first;
            let rows = [t, &(t + 1)].map(|t| agent * self.ring + (first + t) % self.ring);
            self.on_host.set(agent, Some(step), rows);
        }
        self.send(Some(tracker));
    }

    /// Sets the floored sum of log P of one of an agent's own episodes.
    pub fn set_sum(&mut self, agent: usize, episode: usize, sum: f32) {
        self.own[agent].episodes[episode].sum = sum;
    }

    /// Writes what was set for every agent to the device.
    fn send(&mut self, tracker: Option<&Tracker<D>>) {
        let (d, from, to) = (&self.device, &self.on_host, &mut self.appended);
        d.write_rows(&mut to.rows, 0, &from.rows);
        d.write(&mut to.action, 0, &from.action);
        d.write(&mut to.reward, 0, &from.reward);
        d.write(&mut to.not_terminal, 0, &from.not_terminal);
        d.write(&mut to.next_observation, 0, &from.next_observation);
        let scores = tracker.map(|tracker| Scored { score: &tracker.score, memory: &tracker.memory });
        d.append(to, scores, &mut self.table);
    }

    /// The table's row of an agent's latest observation.
    fn latest(&self, agent: usize) -> usize {
        agent * self.ring + self.own[agent].row
    }

    /// Begins an episode at the row after the last one's.
    fn begin(&mut self, agent: usize) {
        let own = &mut self.own[agent];
        if let Some(last) = own.episodes.back() {
            own.row = (last.first + last.steps + 1) % self.ring;
        }
        own.episodes.push_back(OwnEpisode { first: own.row, steps: 0, sum: 0.0, counts: true });
    }

    /// Counts a step of the running episode, whose latest observation is now in the next row.
    fn advance(&mut self, agent: usize) {
        let own = &mut self.own[agent];
        own.transitions.push_back(own.row as u32);
        own.row = (own.row + 1) % self.ring;
        if let Some(episode) = own.episodes.back_mut() {
            episode.steps += 1;
        }
        if self.len(agent) > self.capacity {
            self.forget(agent);
        }
    }

    /// Ends the running episode of an agent; `sum` is its floored sum of log P.
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

    /// Draws transitions: row numbers for [`Device::gather`]. The first `own_share` of them are uniform over the agent's
    /// own, if it has any; the others are uniform over all if that share is 0, otherwise over the shared ones, if there
    /// are any. Element i of the stream is the index of draw i: shared transitions first, then the agent's own, each in
    /// order; the second of two parts begins at a new block.
    pub fn draw(&self, agent: usize, rows: &mut [u32], own_share: f64, stream: StreamId) {
        let own = &self.own[agent];
        let (shared, all) = (own.shared.len(), own.shared.len() + own.transitions.len());
        let share = match (own_share > 0.0, shared, own.transitions.len()) {
            (true, 1.., 1..) => (own_share * rows.len() as f64).round() as usize,
            _ => 0,
        };
        let (first, second) = rows.split_at_mut(share);
        let from = if share > 0 { shared } else { all };
        stream.below(0, (all - shared) as u32, first);
        first.iter_mut().for_each(|row| *row += shared as u32);
        stream.below(blocks(share), from as u32, second);
        for row in rows {
            let index = *row as usize;
            *row = match index.checked_sub(own.shared.len()) {
                None => own.shared[index],
                Some(index) => self.shared.table.capacity as u32 + own.transitions[index],
            };
        }
    }

    /// Says whether the constraint is estimated on the latest of an agent's own episodes, as it is if nothing is said.
    pub fn set_counts(&mut self, agent: usize, episode: usize, counts: bool) {
        self.own[agent].episodes[episode].counts = counts;
    }

    /// The floored sums of log P of an agent's most recent episodes.
    pub fn recent_sums(&self, agent: usize, window: usize) -> Vec<f32> {
        let episodes = &self.own[agent].episodes;
        episodes.iter().skip(episodes.len().saturating_sub(window)).map(|episode| episode.sum).collect()
    }

    /// The floored sums of log P of an agent's most recent completed episodes of those that count.
    pub fn completed_sums(&self, agent: usize, window: usize) -> Vec<f32> {
        self.completed(agent, window).map(|episode| episode.sum).collect()
    }

    /// The episodes before the last one, which is running, of those that count.
    fn completed(&self, agent: usize, window: usize) -> impl Iterator<Item = &OwnEpisode> {
        self.own[agent].episodes.iter().rev().skip(1).filter(|episode| episode.counts).take(window)
    }

    /// Restores training episodes of an agent on resume, in order.
    pub fn restore(&mut self, agent: usize, episodes: &[Episode], scorer: Option<&Scorer<D>>) -> Result<(), Error> {
        for chunk in episodes.chunks(CHUNK) {
            for (episode, scores) in chunk.iter().zip(&score(scorer, chunk)?) {
                self.begin(agent);
                self.write_own(agent, episode);
                for _ in 0..episode.len() {
                    self.advance(agent);
                }
                self.write_own_scores(agent, self.own[agent].episodes.len() - 1, scores);
            }
        }
        Ok(())
    }

    fn place(&self, agent: usize, first: usize) -> Place {
        Place { ring: agent * self.ring, rows: self.ring, first }
    }

    /// Writes an episode from the latest row on.
    fn write_own(&mut self, agent: usize, episode: &Episode) {
        let (d, s, a) = (&self.device, episode.observation_width, episode.action_width);
        let (place, table) = (self.place(agent, self.own[agent].row), &mut self.table);
        let not_terminal: Vec<f32> =
            (1..=episode.len()).map(|t| if episode.terminated && t == episode.len() { 0.0 } else { 1.0 }).collect();
        place.write(d, &mut table.observation, s, &episode.observations);
        place.write(d, &mut table.action, a, &episode.actions);
        place.write(d, &mut table.reward, 1, &episode.rewards);
        place.write(d, &mut table.not_terminal, 1, &not_terminal);
    }

    /// Replaces the memories and scores of a replica's stored episodes by those of another model.
    pub fn score_stored_again(&mut self, replica: usize, scorer: &Scorer<D>) -> Result<(), Error> {
        self.check_width(scorer)?;
        self.shared.to_mut(&self.device)?.score_again(&self.device, replica, scorer)
    }

    /// Replaces the memories and scores of these of an agent's own episodes by those of another model.
    pub fn score_own_again(&mut self, agent: usize, scorer: &Scorer<D>, which: Range<usize>) -> Result<(), Error> {
        self.check_width(scorer)?;
        let episodes = self.own[agent].episodes.iter().enumerate().take(which.end).skip(which.start);
        let with_steps: Vec<usize> = episodes.filter(|(_, e)| e.steps > 0).map(|(index, _)| index).collect();
        for chunk in with_steps.chunks(CHUNK) {
            let episodes: Vec<Episode> =
                chunk.iter().map(|index| self.own_episode(agent, *index)).collect::<Result<_, _>>()?;
            for (index, scores) in chunk.iter().zip(&score(Some(scorer), &episodes)?) {
                self.write_own_scores(agent, *index, scores);
            }
        }
        Ok(())
    }

    fn check_width(&self, scorer: &Scorer<D>) -> Result<(), Error> {
        if scorer.memory_width() == self.memory_width { Ok(()) } else { Err(Error::ModelShape) }
    }

    /// One of an agent's own episodes, without its signals.
    fn own_episode(&self, agent: usize, index: usize) -> Room<Episode> {
        let (s, a) = (self.units.observation_width, self.units.action_width);
        let OwnEpisode { first, steps, .. } = self.own[agent].episodes[index];
        let mut episode = empty_rows(s, a, steps);
        let (d, place) = (&self.device, self.place(agent, first));
        place.read(d, &self.table.observation, s, &mut episode.observations)?;
        place.read(d, &self.table.action, a, &mut episode.actions)?;
        place.read(d, &self.table.reward, 1, &mut episode.rewards)?;
        let mut not_terminal = vec![1.0; steps];
        place.read(d, &self.table.not_terminal, 1, &mut not_terminal)?;
        episode.terminated = not_terminal.last() == Some(&0.0);
        Ok(episode)
    }

    /// Writes a model's memories and scores of one of an agent's own episodes; nothing where they are empty.
    fn write_own_scores(&mut self, agent: usize, index: usize, scores: &EpisodeScores) {
        let episode = &mut self.own[agent].episodes[index];
        episode.sum = scores.sum;
        let place = self.place(agent, self.own[agent].episodes[index].first);
        place.write(&self.device, &mut self.table.memory, self.memory_width, &scores.memory);
        place.write(&self.device, &mut self.table.score, 1, &scores.score);
    }
}
