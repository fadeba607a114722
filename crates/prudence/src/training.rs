//! Training in folders, with records, timing, TensorBoard events and checkpoints. A resumed training gives the same
//! bits as an uninterrupted one.
//!
//! Each agent of a population has its own folder and its own store of episodes. Every checkpoint appends a shard to the
//! store, so store and checkpoint always agree. An agent that fails does not stop the others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_agent::population::{Ended, Population, Setup};
use prudence_agent::records::{Record, Timing};
use prudence_agent::replay::Stored;
use prudence_core::clock::{Stopwatch, unix_seconds};
use prudence_core::random::subseed;
use prudence_data::files::{self, Lines, append_json_lines, read_json_lines, write_json_lines};
use prudence_data::{Dataset, Episode, Schema, Store};
use prudence_nn::{Cpu, Device};
use prudence_safety::{SafetyModel, Scorer};

use crate::agent::Agent;
use crate::folder::{AgentFolder, MAX_RECORD_BYTES};
use crate::session::{Bar, Session};
use crate::tensorboard::EventFile;
use crate::{Algorithm, Error, Task, checkpoint};

#[cfg(test)]
mod tests;

/// Stored episodes to learn from, shared by all agents that start from them.
pub(crate) struct Data {
    device: Cpu<f32>,
    stored: Arc<Stored<Cpu<f32>>>,
    model: Option<Arc<SafetyModel>>,
    /// A hash of the episodes, for [`setup_hash`].
    hash: String,
}

impl Data {
    /// Scores the episodes, if there are any, once for all agents that use this model. The files of replay buffers are
    /// in `folder`.
    pub(crate) fn new(
        task: &Task,
        data: Option<&Dataset>,
        model: Option<Arc<SafetyModel>>,
        folder: &Path,
    ) -> Result<Self, Error> {
        let settings = task.settings();
        let device = if settings.train.replay.in_file() { Cpu::with_columns_in(folder) } else { Cpu::new() };
        let scorer = |model| Scorer::new(&device, std::slice::from_ref(model), settings.agent.score_floor);
        let scorer = model.as_ref().map(scorer).transpose()?;
        let stored = match data {
            Some(data) => Stored::new(&device, &task.scaling(), scorer.as_ref(), &data.episodes)?,
            None => Stored::empty(&device, &task.scaling(), scorer.as_ref())?,
        };
        Ok(Self {
            stored: Arc::new(stored),
            model,
            hash: data.map(|data| data.episodes.fingerprint()).unwrap_or_default(),
            device,
        })
    }
}

/// An agent to train.
pub(crate) struct Job<'a> {
    pub task: &'a Task,
    pub data: &'a Data,
    /// The number of environment steps.
    pub steps: u64,
    pub folder: AgentFolder,
    /// The store of its training episodes.
    pub episodes: PathBuf,
}

impl Job<'_> {
    /// Trains the agent from the start or from its checkpoint, and returns it.
    pub(crate) fn train(&self, session: &Session) -> Result<Population<Cpu<f32>>, Error> {
        let AgentFolder { algorithm, seed, .. } = self.folder;
        let of_agent = |source: Error| match source {
            Error::Stopped => Error::Stopped,
            source => Error::Training { algorithm, seed, source: Box::new(source) },
        };
        self.run(session).map_err(of_agent)
    }

    fn run(&self, session: &Session) -> Result<Population<Cpu<f32>>, Error> {
        let AgentFolder { algorithm, seed, round, .. } = self.folder;
        let mut settings = self.task.settings().training();
        settings.train.steps = self.steps;
        let setup = Setup {
            algorithm,
            settings,
            env: self.task.env().clone(),
            spec: self.task.spec().clone(),
            rule: self.task.rule().clone(),
            models: self.data.model.iter().cloned().collect(),
            stored: self.data.stored.clone(),
        };
        let seed_of_round = subseed(seed, "round", round as u64);
        let hash = setup_hash(&setup, &self.data.hash, seed_of_round)?;
        let mut population = Population::new(&self.data.device, setup, &[seed_of_round])?;
        let label = format!("{} seed {seed}", algorithm.name());
        let bar = session.progress().begin(&label, self.steps);
        let run = OpenRun::open(&mut population, 0, &self.folder, &self.episodes, self.task.name(), hash, bar)?;
        let outcome = train(&mut population, vec![run], session)?.remove(0);
        outcome.map(|()| population)
    }
}

/// A hash of everything that an agent depends on, except the code.
fn setup_hash<D: Device>(setup: &Setup<D>, data: &str, seed: u64) -> Result<String, Error> {
    let mut hash = blake3::Hasher::new();
    let Setup { algorithm, settings, env, rule, models, .. } = setup;
    hash.update(format!("{algorithm:?} {settings:?} {} {} {seed} {data}", env.describe(), rule.text()).as_bytes());
    for model in models {
        hash.update(&model.to_bytes()?);
    }
    Ok(hash.finalize().to_hex().to_string())
}

/// Trains all agents of a population to the end, each in its folder, and returns the outcome of each.
fn train<D: Device>(
    population: &mut Population<D>,
    mut runs: Vec<OpenRun>,
    session: &Session,
) -> Result<Vec<Result<(), Error>>, Error> {
    let mut outcomes: Vec<Result<(), Error>> = runs.iter().map(|_| Ok(())).collect();
    let mut running: Vec<bool> = (0..runs.len()).map(|agent| !population.done(agent)).collect();
    while running.contains(&true) {
        for Ended { agent, episode } in population.lockstep()? {
            let stopping = session.stopping();
            let ended = match episode {
                Ok(episode) => runs[agent].episode(population, agent, episode, stopping, session),
                Err(error) => Err(error.into()),
            };
            running[agent] = ended.is_ok() && !population.done(agent) && !stopping;
            if stopping && ended.is_ok() && !population.done(agent) {
                outcomes[agent] = Err(Error::Stopped);
            }
            if let Err(error) = ended {
                outcomes[agent] = Err(error);
            }
            if !running[agent] {
                population.stop(agent);
            }
        }
    }
    for (agent, run) in runs.iter().enumerate() {
        if outcomes[agent].is_ok() {
            run.end(population, agent, session)?;
        }
    }
    Ok(outcomes)
}

/// One agent's training with its open files.
struct OpenRun {
    folder: AgentFolder,
    store: Store,
    hash: String,
    pending: Vec<Episode>,
    records: usize,
    events: EventFile,
    watch: Stopwatch,
    /// Seconds, environment steps and updates at the last record.
    last: (f64, u64, u64),
    /// Environment steps at the end of the last episode.
    step: u64,
    warned: bool,
    bar: Box<dyn Bar>,
}

impl OpenRun {
    /// Opens an agent's folder, and restores the agent if there is a checkpoint.
    fn open<D: Device>(
        population: &mut Population<D>,
        agent: usize,
        folder: &AgentFolder,
        episodes: &Path,
        task: &str,
        hash: String,
        bar: Box<dyn Bar>,
    ) -> Result<Self, Error> {
        files::create_dir(&folder.dir)?;
        let (store, records) = if folder.checkpoint().exists() {
            let sizes = population.tensor_sizes();
            let (state, records) = checkpoint::load(population.networks(), &sizes, &hash, &folder.checkpoint())?;
            let mut store = Store::open(episodes)?;
            store.truncate(state.counters.episode)?;
            let own = store.read_without_signals(0..store.len())?;
            population.restore(agent, state, &own)?;
            (store, records)
        } else {
            // Without a checkpoint, existing files are from a run that was killed before its first checkpoint.
            // The first checkpoint follows the first shard.
            let shards = Store::open(episodes).map_or(0, |store| store.shards().count());
            if shards > 1 {
                return Err(Error::content(&folder.checkpoint(), "missing, but there are episodes from after it"));
            }
            files::remove(episodes)?;
            (Store::create(episodes, schema(population, task))?, 0)
        };
        for path in [folder.metrics(), folder.timing()] {
            keep_lines(&path, records)?;
        }
        let counters = population.counters(agent);
        let last_step = if records == 0 { 0 } else { counters.step };
        let events =
            EventFile::open_append(&folder.events(), last_step).map_err(Error::io(&folder.events(), "open"))?;
        bar.set(counters.step);
        Ok(Self {
            last: (0.0, counters.step, counters.update),
            step: counters.step,
            folder: folder.clone(),
            store,
            hash,
            pending: Vec::new(),
            records,
            events,
            watch: Stopwatch::start(),
            warned: false,
            bar,
        })
    }

    /// Takes a completed episode of the agent, and writes a record and a checkpoint if they are due.
    fn episode<D: Device>(
        &mut self,
        population: &mut Population<D>,
        agent: usize,
        episode: Episode,
        stopping: bool,
        session: &Session,
    ) -> Result<(), Error> {
        self.pending.push(episode);
        let settings = population.setup().settings.train.clone();
        let (before, after) = (self.step, population.counters(agent).step);
        self.step = after;
        self.bar.set(after);
        let (passed, done) = (|every: u64| before / every != after / every, population.done(agent));
        if passed(settings.record_every) || done {
            let record = population.record(agent)?;
            self.write(&record)?;
            self.bar.message(&format!(
                "return {:.1}  safe {:.0} %  lambda {:.2}",
                record.return_mean,
                100.0 * record.safe_share,
                record.multiplier
            ));
            if population.multiplier_at_limit(agent) && !std::mem::replace(&mut self.warned, true) {
                let text = "lambda reached multiplier.max: the constraint demands more than the agent achieves";
                self.warn(session, text);
            }
        }
        if passed(settings.checkpoint_every) || done || stopping {
            self.checkpoint(population, agent)?;
        }
        Ok(())
    }

    fn warn(&self, session: &Session, text: &str) {
        let AgentFolder { algorithm, seed, .. } = self.folder;
        session.progress().say(&format!("warning: {}, seed {seed}: {text}", algorithm.name()));
    }

    fn write(&mut self, record: &Record) -> Result<(), Error> {
        let seconds = self.watch.seconds();
        let (before, step, update) = self.last;
        let per_second = |n: u64| n as f64 / (seconds - before).max(1e-9);
        let timing = Timing {
            step: record.step,
            seconds,
            updates_per_second: per_second(record.updates - update),
            steps_per_second: per_second(record.step - step),
        };
        self.last = (seconds, record.step, record.updates);
        append_json_lines(&self.folder.metrics(), std::slice::from_ref(record))?;
        append_json_lines(&self.folder.timing(), &[timing])?;
        self.records += 1;
        let events = self.folder.events();
        self.events
            .scalars(record.step, unix_seconds(), &record.scalars())
            .and_then(|()| self.events.flush())
            .map_err(Error::io(&events, "write"))
    }

    fn checkpoint<D: Device>(&mut self, population: &Population<D>, agent: usize) -> Result<(), Error> {
        if !self.pending.is_empty() {
            self.store.append(&self.pending)?;
            self.pending.clear();
        }
        let state = population.state(agent)?;
        checkpoint::save(&state, population.networks(), &self.hash, self.records, &self.folder.checkpoint())
    }

    /// Saves the policy of an agent that has taken all its steps.
    fn end<D: Device>(&self, population: &Population<D>, agent: usize, session: &Session) -> Result<(), Error> {
        let last = population.counters(agent).step;
        if population.setup().algorithm.constraint().is_some() {
            match population.selected_step(agent) {
                Some(step) if step == last => {}
                Some(step) => self.warn(
                    session,
                    &format!(
                        "policies after step {step} miss the constraint according to the safety model; \
                         the policy of that step is saved"
                    ),
                ),
                None => {
                    let text = "no policy met the constraint according to the safety model; the last one is saved";
                    self.warn(session, text);
                }
            }
        }
        Agent::of(population, agent)?.save(&self.folder.policy())
    }
}

/// Truncates a file of records to its first lines, those written before the checkpoint.
fn keep_lines(path: &Path, lines: usize) -> Result<(), Error> {
    let Lines { mut values, torn } = read_json_lines::<serde_json::Value>(path, MAX_RECORD_BYTES)?;
    if values.len() < lines {
        let problem = format!("the file has {} records, but the checkpoint was made after {lines}", values.len());
        return Err(Error::content(path, problem));
    }
    if torn || values.len() > lines || !path.exists() {
        values.truncate(lines);
        write_json_lines(path, &values)?;
    }
    Ok(())
}

fn schema<D: Device>(population: &Population<D>, task: &str) -> Schema {
    let spec = &population.setup().spec;
    Schema {
        task: task.into(),
        observation_dim: spec.observation.dim(),
        action_dim: spec.action.dim(),
        signals: spec.signals.clone(),
    }
}

/// Trains agents, as many at a time as the session has threads, and calls `then` with each trained one.
pub(crate) fn train_all<R: Send>(
    jobs: &[Job<'_>],
    session: &Session,
    then: impl Fn(&Job<'_>, Population<Cpu<f32>>) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};
    let one = |job: &Job<'_>| then(job, job.train(session)?);
    session.pool().install(|| jobs.par_iter().map(one).collect())
}

/// The jobs of a task, ordered by algorithm and then by seed.
pub(crate) fn jobs<'a>(
    task: &'a Task,
    data: &'a Data,
    algorithms: &[Algorithm],
    steps: u64,
    place: impl Fn(Algorithm, u64) -> (AgentFolder, PathBuf),
) -> Vec<Job<'a>> {
    let agents = algorithms.iter().flat_map(|algorithm| task.settings().seeds().map(move |seed| (*algorithm, seed)));
    agents
        .map(|(algorithm, seed)| {
            let (folder, episodes) = place(algorithm, seed);
            Job { task, data, steps, folder, episodes }
        })
        .collect()
}
