//! Training in folders, with records, timing, TensorBoard events and checkpoints. A resumed training gives the same
//! bits as an uninterrupted one.
//!
//! Each agent of a population has its own folder and its own store of episodes. Every checkpoint appends a shard to the
//! store, so store and checkpoint always agree. An agent that fails does not stop the others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_agent::population::{Accepted, Ended, Judged, Parallel, Population, Refits, Setup};
use prudence_agent::records::{Record, Timing};
use prudence_agent::replay::{ReplicaEpisodes, Stored};
use prudence_core::clock::{Stopwatch, unix_seconds};
use prudence_core::random::subseed;
use prudence_data::files::{self, Lines, append_json_lines, read_json_lines, write_json_lines};
use prudence_data::{Dataset, Episode, LabelLog, Schema, Segment, Store, label_path};
use prudence_nn::{Cpu, Device};
use prudence_safety::{SafetyModel, Scorer};

use crate::agent::Agent;
use crate::folder::{AgentFolder, MAX_RECORD_BYTES};
use crate::session::{Bar, Session};
use crate::tensorboard::EventFile;
use crate::{Algorithm, Error, SafetyError, Task, TaskSettings, checkpoint};

mod refits;
#[cfg(test)]
mod tests;

use self::refits::{OwnEpisodes, RefitJob};

/// The CPU as a device; the files of replay buffers, if the task wants them in files, are in `folder`.
pub(crate) fn cpu(task: &Task, folder: &Path) -> Cpu<f32> {
    if task.settings().train.replay.in_file() { Cpu::with_columns_in(folder) } else { Cpu::new() }
}

/// What the agents of a replica start from.
pub(crate) struct Source<'a> {
    /// Stored episodes to learn from.
    pub data: Option<&'a Dataset>,
    /// The safety model, which all replicas have or none.
    pub model: Option<Arc<SafetyModel>>,
}

/// The sources of all replicas on a device, shared by all agents that start from them.
pub(crate) struct Data<D: Device> {
    device: D,
    stored: Arc<Stored<D>>,
    /// One per replica, or none.
    models: Vec<Arc<SafetyModel>>,
    /// A hash of each replica's episodes, for [`setup_hash`].
    hashes: Vec<String>,
}

impl<D: Device> Data<D> {
    /// Scores the episodes of each replica, if there are any, once for all agents that use its model. `copies` is 1, or
    /// the number of a replica's agents that train together, where each needs its own because its model will be refitted.
    pub(crate) fn new(device: &D, task: &Task, sources: &[Source<'_>], copies: usize) -> Result<Self, Error> {
        let hashes = sources.iter().map(|source| source.data.map(|data| data.episodes.fingerprint()));
        let hashes = hashes.map(Option::unwrap_or_default).collect();
        let sources: Vec<&Source<'_>> = sources.iter().flat_map(|source| std::iter::repeat_n(source, copies)).collect();
        let floor = task.settings().agent.score_floor;
        let scorer = |source: &&Source<'_>| {
            source.model.as_ref().map(|model| Scorer::new(device, std::slice::from_ref(model), floor)).transpose()
        };
        let scorers = sources.iter().map(scorer).collect::<Result<Vec<_>, _>>()?;
        let datasets: Vec<&Dataset> = sources.iter().filter_map(|source| source.data).collect();
        let stored = if datasets.len() == sources.len() {
            let episodes = datasets.iter().map(|data| &data.episodes);
            Stored::of_replicas(device, &task.scaling(), &scored(&scorers, episodes))?
        } else {
            let episodes = sources.iter().map(|_| -> &[Episode] { &[] });
            Stored::of_replicas(device, &task.scaling(), &scored(&scorers, episodes))?
        };
        Ok(Self {
            stored: Arc::new(stored),
            models: sources.iter().filter_map(|source| source.model.clone()).collect(),
            hashes,
            device: device.clone(),
        })
    }
}

/// The copies of each source that [`Data::new`] makes.
pub(crate) fn copies(task: &Task, algorithms: &[Algorithm], session: &Session) -> usize {
    let refitted = task.settings().refit.every > 0 && algorithms.iter().any(|a| a.constraint().is_some());
    // On a card the agents of all seeds train together, on a CPU each by itself.
    if refitted && session.card().is_some() { task.settings().run.seeds as usize } else { 1 }
}

fn scored<'a, D: Device, E: ?Sized>(
    scorers: &'a [Option<Scorer<D>>],
    episodes: impl Iterator<Item = &'a E>,
) -> Vec<ReplicaEpisodes<'a, D, E>> {
    let one = |(scorer, episodes): (&'a Option<_>, _)| ReplicaEpisodes { scorer: scorer.as_ref(), episodes };
    scorers.iter().zip(episodes).map(one).collect()
}

/// An agent to train.
pub(crate) struct Job {
    /// Its replica.
    pub replica: usize,
    pub folder: AgentFolder,
    /// The store of its training episodes.
    pub episodes: PathBuf,
    /// The seed of the segments that the rule labels.
    pub label_seed: u64,
}

/// What is common to agents to train.
pub(crate) struct Plan<'a, D: Device> {
    pub task: &'a Task,
    pub data: &'a Data<D>,
    /// What `data` was made of.
    pub sources: &'a [Source<'a>],
    /// The number of environment steps of each agent.
    pub steps: u64,
}

/// Agents that were trained together, in the order of their jobs.
pub(crate) struct Trained<'a, D: Device> {
    pub jobs: &'a [Job],
    pub population: Population<D>,
    /// Indices of the agents whose training succeeded.
    pub agents: Vec<usize>,
    /// The outcome of each job.
    outcomes: Vec<Result<(), Error>>,
}

impl<D: Device> Plan<'_, D> {
    /// Trains agents of one algorithm in lockstep, each from the start or from its checkpoint.
    fn train<'a>(&self, jobs: &'a [Job], session: &Session) -> Result<Trained<'a, D>, Error> {
        let [first, ..] = jobs else { return Err(Error::content(Path::new(""), "no agents to train")) };
        let mut settings = self.task.settings().training();
        settings.train.steps = self.steps;
        let threads = session.threads();
        let tests = if threads.is_some() { settings.train.test_episodes.min(MOST_TESTS) as usize } else { 1 };
        let setup = Setup {
            algorithm: first.folder.algorithm,
            settings,
            env: self.task.env().clone(),
            spec: self.task.spec().clone(),
            rule: self.task.rule().clone(),
            models: self.data.models.clone(),
            stored: self.data.stored.clone(),
            parallel: Parallel { threads: threads.unwrap_or_default(), tests },
        };
        let seeds: Vec<u64> =
            jobs.iter().map(|job| subseed(job.folder.seed, "round", job.folder.round as u64)).collect();
        let device = self.data.device.fork().map_err(prudence_agent::Error::from)?;
        let mut population = Population::new(&device, setup, &seeds)?;
        let segments = self.segments(jobs)?;
        let mut runs = Vec::with_capacity(jobs.len());
        for (agent, (job, seed)) in jobs.iter().zip(&seeds).enumerate() {
            let AgentFolder { algorithm, seed: of_folder, .. } = &job.folder;
            let bar = session.progress().begin(&format!("{} seed {of_folder}", algorithm.name()), self.steps);
            let open = |population: &mut Population<D>| {
                let hash = setup_hash(
                    population,
                    agent,
                    self.task.settings(),
                    &self.data.hashes[job.replica],
                    &segments[job.replica],
                    *seed,
                )?;
                OpenRun::open(population, agent, job, self.task, hash, bar, session)
            };
            runs.push(open(&mut population));
        }
        let trainer = Trainer { device: &device, plan: self, jobs, seeds, segments };
        let outcomes = trainer.train(&mut population, runs, session)?;
        let of_job = |(job, outcome): (&Job, Result<(), Error>)| {
            outcome.map_err(|source| match source {
                Error::Stopped => Error::Stopped,
                source => {
                    let AgentFolder { algorithm, seed, .. } = job.folder;
                    Error::Training { algorithm, seed, source: Box::new(source) }
                }
            })
        };
        let outcomes: Vec<_> = jobs.iter().zip(outcomes).map(of_job).collect();
        let agents = (0..jobs.len()).filter(|agent| outcomes[*agent].is_ok()).collect();
        Ok(Trained { jobs, population, agents, outcomes })
    }
}

impl<D: Device> Plan<'_, D> {
    /// For refits, the labelled segments of each source's stored episodes to train on.
    fn segments(&self, jobs: &[Job]) -> Result<Vec<Vec<Segment>>, Error> {
        let constrained = jobs.iter().any(|job| job.folder.algorithm.constraint().is_some());
        let of_source = |source: &Source<'_>| match source.data {
            Some(data) if constrained && self.task.settings().refit.every > 0 => {
                Ok(data.segments(self.task.settings().safety.held_out)?.training)
            }
            _ => Ok(Vec::new()),
        };
        self.sources.iter().map(of_source).collect()
    }
}

/// The most test episodes of an agent that are played at the same time.
const MOST_TESTS: u64 = 32;

/// A hash of everything that an agent depends on, except the code and the device.
fn setup_hash<D: Device>(
    population: &Population<D>,
    agent: usize,
    task: &TaskSettings,
    data: &str,
    segments: &[Segment],
    seed: u64,
) -> Result<String, Error> {
    let mut hash = blake3::Hasher::new();
    let Setup { algorithm, settings, env, rule, .. } = population.setup();
    hash.update(format!("{algorithm:?} {settings:?} {} {} {seed} {data}", env.describe(), rule.text()).as_bytes());
    if let Some(model) = population.model(agent) {
        hash.update(&model.to_bytes()?);
    }
    if task.refit.every > 0 {
        hash.update(format!("{:?} {:?} {:?} {segments:?}", task.refit, task.safety, task.label).as_bytes());
    }
    Ok(hash.finalize().to_hex().to_string())
}

/// Trains the agents of a population, with what their refits need.
struct Trainer<'a, D: Device> {
    device: &'a D,
    plan: &'a Plan<'a, D>,
    jobs: &'a [Job],
    /// The agents' seeds.
    seeds: Vec<u64>,
    /// Per source.
    segments: Vec<Vec<Segment>>,
}

impl<D: Device> Trainer<'_, D> {
    /// Trains all agents of a population to the end, each in its folder, and returns the outcome of each. An agent whose
    /// files could not be opened is not trained.
    ///
    /// Tests and refits take as long for one agent as for all, so an agent that is due for either waits until every other
    /// one is.
    fn train(
        &self,
        population: &mut Population<D>,
        runs: Vec<Result<OpenRun, Error>>,
        session: &Session,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let mut agents: Vec<Training> = runs.into_iter().map(Training::new).collect();
        for (agent, training) in agents.iter_mut().enumerate() {
            training.is_running = training.outcome.is_ok() && !population.done(agent);
            if !training.is_running {
                population.stop(agent);
            }
        }
        // A stop before a refit leaves it to the process that resumes.
        let resumed: Vec<usize> = (0..agents.len()).filter(|agent| agents[*agent].is_running).collect();
        population.score_restored()?;
        let mut stopping = self.refit(&mut agents, population, &resumed, session)?;
        if stopping {
            agents.iter_mut().for_each(|training| training.then(|_| Err(Error::Stopped)));
            return Ok(agents.into_iter().map(|training| training.outcome).collect());
        }
        while agents.iter().any(|training| training.is_running) {
            let ended = population.lockstep()?;
            if ended.is_empty() && !agents.iter().all(Training::waits_or_has_ended) {
                continue;
            }
            stopping |= session.stopping();
            let mut complete = Vec::new();
            for Ended { agent, episode } in ended {
                let training = &mut agents[agent];
                match episode {
                    Ok(episode) => {
                        training.then(|run| run.add(population, agent, self, episode));
                        training.is_waiting =
                            self.record_is_due(training, population, agent) || self.refit_is_due(population, agent);
                        population.pause(agent, training.is_waiting);
                        if !training.is_waiting {
                            complete.push(agent);
                        }
                    }
                    Err(error) => training.fail(error.into()),
                }
            }
            if stopping || agents.iter().all(Training::waits_or_has_ended) {
                let waiting: Vec<usize> = (0..agents.len()).filter(|agent| agents[*agent].is_waiting).collect();
                let is_due = |agent: &usize| self.record_is_due(&agents[*agent], population, *agent);
                let tested: Vec<usize> = waiting.iter().copied().filter(is_due).collect();
                for (agent, record) in tested.iter().zip(population.record(&tested)?) {
                    agents[*agent].then(|run| run.record(&record?, population, *agent, session));
                }
                if !stopping {
                    stopping = self.refit(&mut agents, population, &waiting, session)?;
                }
                for agent in &waiting {
                    agents[*agent].is_waiting = false;
                    population.pause(*agent, false);
                }
                complete.extend(waiting);
            }
            for agent in complete {
                let (training, done) = (&mut agents[agent], population.done(agent));
                training.then(|run| run.checkpoint_if_due(population, agent, stopping));
                if stopping && !done {
                    training.then(|_| Err(Error::Stopped));
                }
                training.is_running &= !done;
            }
            for (agent, _) in agents.iter().enumerate().filter(|(_, training)| !training.is_running) {
                population.stop(agent);
            }
        }
        if session.stopping() {
            // The process that resumes accepts their policies.
            agents.iter_mut().for_each(|training| training.then(|_| Err(Error::Stopped)));
        }
        let complete: Vec<usize> = (0..agents.len()).filter(|agent| agents[*agent].outcome.is_ok()).collect();
        for (agent, outcome) in complete.iter().zip(population.accept(&complete)?) {
            agents[*agent].then(|_| Ok(outcome?));
        }
        for (agent, training) in agents.iter_mut().enumerate() {
            training.then(|run| run.end(population, agent, session));
        }
        Ok(agents.into_iter().map(|training| training.outcome).collect())
    }

    fn record_is_due(&self, training: &Training, population: &Population<D>, agent: usize) -> bool {
        let every = population.setup().settings.train.record_every;
        training.run.as_ref().is_some_and(|run| run.passed(every) || population.done(agent))
    }

    fn refit_is_due(&self, population: &Population<D>, agent: usize) -> bool {
        refits::is_due(population, agent, &self.plan.task.settings().refit)
    }

    /// Refits the models of those of these agents that are due. Returns whether a stop was requested before the end, so
    /// that nothing has changed.
    fn refit(
        &self,
        agents: &mut [Training],
        population: &mut Population<D>,
        which: &[usize],
        session: &Session,
    ) -> Result<bool, Error> {
        let mut jobs: Vec<RefitJob<'_>> = Vec::new();
        for (agent, training) in agents.iter_mut().enumerate() {
            let is_due = which.contains(&agent) && training.outcome.is_ok() && self.refit_is_due(population, agent);
            let replica = self.jobs[agent].replica;
            let (seed, segments) = (self.seeds[agent], &self.segments[replica][..]);
            let stored = self.plan.sources[replica].data.map(|data| &data.episodes);
            if let Some(own) = training.run.as_mut().and_then(|run| run.own.as_mut()).filter(|_| is_due) {
                jobs.push(RefitJob { agent, seed, stored, segments, own });
            }
        }
        if jobs.is_empty() {
            return Ok(false);
        }
        let refitted: Vec<usize> = jobs.iter().map(|job| job.agent).collect();
        match refits::refit(self.device, self.plan.task, population, &mut jobs, session) {
            Err(error) if error.is_stop() => Ok(true),
            Err(error) => {
                for agent in refitted {
                    let problem = format!("refitting the safety model failed: {error}");
                    agents[agent].then(|_| Err(SafetyError::Data(problem).into()));
                }
                Ok(false)
            }
            Ok(outcomes) => {
                for (agent, outcome) in refitted.into_iter().zip(outcomes) {
                    agents[agent].then(|_| outcome);
                }
                Ok(false)
            }
        }
    }
}

/// How far an agent of a population is.
struct Training {
    run: Option<OpenRun>,
    outcome: Result<(), Error>,
    is_running: bool,
    /// Whether a record or a refit is due.
    is_waiting: bool,
}

impl Training {
    fn new(run: Result<OpenRun, Error>) -> Self {
        let (run, outcome) = match run {
            Ok(run) => (Some(run), Ok(())),
            Err(error) => (None, Err(error)),
        };
        Self { run, outcome, is_running: false, is_waiting: false }
    }

    fn waits_or_has_ended(&self) -> bool {
        self.is_waiting || !self.is_running
    }

    fn fail(&mut self, error: Error) {
        self.outcome = Err(error);
        self.is_running = false;
    }

    /// Does some work, unless the agent has failed.
    fn then(&mut self, work: impl FnOnce(&mut OpenRun) -> Result<(), Error>) {
        if let (Some(run), Ok(())) = (&mut self.run, &self.outcome)
            && let Err(error) = work(run)
        {
            self.fail(error);
        }
    }
}

/// One agent's training with its open files.
struct OpenRun {
    folder: AgentFolder,
    store: Store,
    hash: String,
    pending: Vec<Episode>,
    /// The labels of all of its episodes, and these episodes, where the safety model is refitted.
    labels: LabelLog,
    own: Option<OwnEpisodes>,
    records: usize,
    events: EventFile,
    watch: Stopwatch,
    /// Seconds, environment steps and updates at the last record.
    last: (f64, u64, u64),
    /// Environment steps at the end of the last episode, and of the one before.
    step: u64,
    step_before: u64,
    warned: bool,
    bar: Box<dyn Bar>,
}

impl OpenRun {
    /// Opens an agent's folder, and restores the agent if there is a checkpoint.
    fn open<D: Device>(
        population: &mut Population<D>,
        agent: usize,
        Job { folder, episodes, label_seed, .. }: &Job,
        task: &Task,
        hash: String,
        bar: Box<dyn Bar>,
        session: &Session,
    ) -> Result<Self, Error> {
        files::create_dir(&folder.dir)?;
        let refitted = task.settings().refit.every > 0 && population.setup().algorithm.constraint().is_some();
        let own = || OwnEpisodes::create(&folder.dir, &schema(population, task.name()), session);
        let mut own = refitted.then(own).transpose()?;
        let (store, records) = if folder.checkpoint().exists() {
            let sizes = population.tensor_sizes();
            let (state, records) = checkpoint::load(population.networks(), &sizes, &hash, &folder.checkpoint())?;
            let mut store = Store::open(episodes)?;
            if store.len() < state.counters.episode {
                let problem = format!(
                    "it has {} episodes, but the checkpoint was made after {}; restore it from a backup, or start a new run",
                    store.len(),
                    state.counters.episode
                );
                return Err(Error::content(&episodes.join("index.jsonl"), problem));
            }
            store.truncate(state.counters.episode)?;
            LabelLog::open(&label_path(episodes))?.truncate(state.counters.episode)?;
            if let Some(own) = &mut own {
                own.restore(task, *label_seed, store.read(0..store.len())?, state.counters.refits.episode)?;
            }
            let played = store.read_without_signals(0..store.len())?;
            if let Some(model) = state.model.clone().filter(|model| population.model(agent) != Some(model)) {
                population.replace_models(&[(agent, model)])?;
            }
            population.restore(agent, state, &played)?;
            (store, records)
        } else {
            // Without a checkpoint, existing files are from a run that was killed before its first checkpoint.
            // The first checkpoint follows the first shard.
            let shards = Store::open(episodes).map_or(0, |store| store.shards().count());
            if shards > 1 {
                return Err(Error::content(&folder.checkpoint(), "missing, but there are episodes from after it"));
            }
            files::remove(episodes)?;
            (Store::create(episodes, schema(population, task.name()))?, 0)
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
            step_before: counters.step,
            folder: folder.clone(),
            store,
            hash,
            pending: Vec::new(),
            labels: LabelLog::open(&label_path(episodes))?,
            own,
            records,
            events,
            watch: Stopwatch::start(),
            warned: false,
            bar,
        })
    }

    /// Takes a completed episode of the agent.
    fn add<D: Device>(
        &mut self,
        population: &Population<D>,
        agent: usize,
        trainer: &Trainer<'_, D>,
        episode: Episode,
    ) -> Result<(), Error> {
        if let Some(own) = &mut self.own {
            own.add(trainer.plan.task, trainer.jobs[agent].label_seed, episode.clone())?;
        }
        self.pending.push(episode);
        (self.step_before, self.step) = (self.step, population.counters(agent).step);
        self.bar.set(self.step);
        Ok(())
    }

    /// Whether the last episode took the training past a multiple of `every` steps.
    fn passed(&self, every: u64) -> bool {
        self.step_before / every != self.step / every
    }

    fn record<D: Device>(
        &mut self,
        record: &Record,
        population: &Population<D>,
        agent: usize,
        session: &Session,
    ) -> Result<(), Error> {
        self.write(record)?;
        self.bar.message(&format!(
            "return {:.1}  safe {:.0} %  lambda {:.2}",
            record.return_mean,
            100.0 * record.safe_share,
            record.multiplier
        ));
        if population.multiplier_at_limit(agent) && !std::mem::replace(&mut self.warned, true) {
            let text = "lambda reached its upper limit: the constraint demands more than the agent achieves";
            self.warn(session, text);
        }
        Ok(())
    }

    fn checkpoint_if_due<D: Device>(
        &mut self,
        population: &Population<D>,
        agent: usize,
        stopping: bool,
    ) -> Result<(), Error> {
        let due = self.passed(population.setup().settings.train.checkpoint_every) || population.done(agent);
        if due || stopping { self.checkpoint(population, agent) } else { Ok(()) }
    }

    fn warn(&self, session: &Session, text: &str) {
        let AgentFolder { algorithm, seed, .. } = self.folder;
        session.progress().say(&format!("warning: {}, seed {seed}: {text}", algorithm.name()));
    }

    fn say(&self, session: &Session, text: &str) {
        let AgentFolder { algorithm, seed, .. } = self.folder;
        session.progress().say(&format!("{}, seed {seed}: {text}", algorithm.name()));
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
        if let Some(own) = &mut self.own {
            self.labels.append(&own.unwritten)?;
            own.unwritten.clear();
        }
        let state = population.state(agent)?;
        checkpoint::save(&state, population.networks(), &self.hash, self.records, &self.folder.checkpoint())
    }

    /// What an agent that misses the constraint looks like, and what may help.
    fn reason<D: Device>(&self, population: &Population<D>, agent: usize) -> Option<String> {
        let own = self.own.as_ref()?;
        let (episodes, safe) = own.verdicts();
        let Refits { count, judged: Judged { not_safe, unsafe_called_safe, .. }, .. } =
            &population.counters(agent).refits;
        Some(if *count == 0 {
            "the safety model was never refitted to its episodes: train for longer than refit.every, or lower refit.every"
                .to_owned()
        } else if safe == 0 {
            format!(
                "none of its {episodes} labelled episodes was safe, so it has not found out how: collect more safe \
                 episodes, or train for longer"
            )
        } else if 2 * unsafe_called_safe > *not_safe {
            format!(
                "the safety model calls {unsafe_called_safe} of its {not_safe} latest unsafe episodes safe: refit more \
                 often (refit.every) or longer (refit.steps)"
            )
        } else if population.multiplier_at_limit(agent) {
            "lambda is at its limit, so the reward does not hold it back: look at the episodes that the safety model \
             calls unsafe"
                .to_owned()
        } else {
            format!("{safe} of its {episodes} labelled training episodes were safe: train for longer (train.steps)")
        })
    }

    /// Saves the policy of an agent that has taken all its steps.
    fn end<D: Device>(&self, population: &Population<D>, agent: usize, session: &Session) -> Result<(), Error> {
        let last = population.counters(agent).step;
        if population.setup().algorithm.constraint().is_some() {
            let accepted = population.accepted(agent);
            match (population.selected_step(agent), accepted) {
                (None, _) => {
                    let text = "no policy met the constraint according to the safety model; the last one is saved";
                    self.warn(session, text);
                }
                (Some(step), Some(Accepted { episodes, broken, is_met: true, .. })) => self.say(
                    session,
                    &format!("{broken} of {episodes} fresh labelled episodes of the policy of step {step} are unsafe: accepted"),
                ),
                (Some(step), Some(Accepted { episodes, broken, .. })) => self.warn(
                    session,
                    &format!(
                        "no policy was accepted; that of step {step} is saved, which broke the rule in the fewest of \
                         {episodes} fresh labelled episodes, {broken}"
                    ),
                ),
                (Some(step), None) if step == last => {}
                (Some(step), None) => self.warn(
                    session,
                    &format!(
                        "policies after step {step} miss the constraint according to the safety model; the policy of \
                         that step is saved"
                    ),
                ),
            }
            if (population.selected_step(agent).is_none() || accepted.is_some_and(|accepted| !accepted.is_met))
                && let Some(reason) = self.reason(population, agent)
            {
                self.warn(session, &reason);
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

/// Trains agents and calls `then` with those that were trained together; returns its results and the errors by job. On
/// the CPU each agent trains by itself, as many at a time as the session has threads. On a graphics card the agents of
/// an algorithm train in lockstep, and the algorithms side by side.
pub(crate) fn train_all<D: Device, R: Send>(
    plan: &Plan<'_, D>,
    jobs: &[Job],
    session: &Session,
    then: impl Fn(&mut Trained<'_, D>) -> Result<Vec<Result<R, Error>>, Error> + Sync,
) -> Result<Vec<Result<R, Error>>, Error> {
    use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
    let together = |jobs: &[Job]| -> Result<Vec<Result<R, Error>>, Error> {
        let mut trained = plan.train(jobs, session)?;
        let outcomes = std::mem::take(&mut trained.outcomes);
        let mut results = if trained.agents.is_empty() { Vec::new() } else { then(&mut trained)? }.into_iter();
        let missing = || Err(Error::Stopped);
        Ok(outcomes.into_iter().map(|outcome| outcome.and_then(|()| results.next().unwrap_or_else(missing))).collect())
    };
    let results: Vec<Result<Vec<Result<R, Error>>, Error>> = if session.card().is_none() {
        let groups: Vec<&[Job]> = jobs.chunks(1).collect();
        session.pool().install(|| groups.into_par_iter().map(together).collect())
    } else {
        let groups = jobs.chunk_by(|one, next| one.folder.algorithm == next.folder.algorithm);
        std::thread::scope(|scope| {
            let together = &together;
            let threads: Vec<_> = groups.map(|jobs| scope.spawn(move || together(jobs))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    };
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(results.into_iter().flatten().collect())
}

/// The jobs of replicas, ordered by algorithm, replica and seed. `place` gives an agent's folder and its store.
pub(crate) fn jobs(
    replicas: &[&Task],
    algorithms: &[Algorithm],
    place: impl Fn(usize, Algorithm, u64) -> (AgentFolder, PathBuf),
) -> Vec<Job> {
    let mut jobs = Vec::new();
    for algorithm in algorithms {
        for (replica, task) in replicas.iter().enumerate() {
            for seed in task.settings().seeds() {
                let (folder, episodes) = place(replica, *algorithm, seed);
                jobs.push(Job { replica, folder, episodes, label_seed: task.settings().run.seed });
            }
        }
    }
    jobs
}
