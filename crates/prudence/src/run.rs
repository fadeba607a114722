//! A whole run: all stages in order, in rounds, in one folder.
//!
//! Round 0 is the paper's recipe: unconstrained agents collect episodes, the rule labels them, a safety model is
//! fitted, and safe agents are trained on the scored episodes. Each later round labels the episodes of the previous
//! round's safe agents, refits the model on all episodes so far, and trains new agents.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_core::random::subseed;
use prudence_data::{Dataset, LabelLog, Rule, label_path, latest};
use prudence_nn::Device;
use prudence_report::records::Evaluation;
use prudence_safety::{Quality, SafetyModel};

use crate::collecting::{collect_in, model_of, train_in};
use crate::fitting::{FitJob, Fitted, fit_all};
use crate::folder::{AgentFolder, Invocation, RunFolder};
use crate::labelling::OfStore;
use crate::provenance::Working;
use crate::reporting::{own_predictions, percent};
use crate::session::Session;
use crate::settings::RunSettings;
use crate::training::{Data, Plan, Source, Trained, copies, cpu, jobs, train_all};
use crate::{Algorithm, Error, Estimate, Task, TestEpisode, footprint, labelling, replicas, reporting};

/// The number of the first final test episode: its starts differ from those of tests during training.
const FINAL_TESTS: u64 = 1 << 32;

/// A trained agent with its final test episodes.
pub(crate) struct Tested {
    pub algorithm: Algorithm,
    pub seed: u64,
    /// The step of the last record that met the constraint according to the safety model; its policy was tested.
    pub selected_step: Option<u64>,
    /// The final test episodes, with the policy's mode as action.
    pub tests: Vec<TestEpisode>,
    /// The same number of episodes with sampled actions.
    pub sampled: Vec<TestEpisode>,
}

impl Tested {
    /// The same episodes, judged by another rule.
    pub(crate) fn judged_by(&self, rule: &Rule) -> Self {
        let judged = |tests: &[TestEpisode]| -> Vec<TestEpisode> {
            tests
                .iter()
                .map(|t| TestEpisode::new(t.episode.clone(), t.start.clone(), t.log_probs.clone(), rule))
                .collect()
        };
        Self { tests: judged(&self.tests), sampled: judged(&self.sampled), ..*self }
    }
}

/// One round: its safety model and the agents trained with it.
pub(crate) struct RoundResult {
    pub model: Arc<SafetyModel>,
    pub fitted: Fitted,
    pub agents: Vec<Tested>,
}

/// The outcome of a run.
pub(crate) struct Outcome {
    /// The unconstrained agents, which collected the first episodes.
    pub collectors: Vec<Tested>,
    /// The rounds, in order.
    pub rounds: Vec<RoundResult>,
}

/// Runs all stages in a new folder: collects, labels, fits, trains and tests, in rounds, then writes the report.
///
/// ```no_run
/// use prudence::{RunFolder, Session, Task};
///
/// let task = Task::named("navigation")?;
/// let dir = RunFolder::next_free(task.name());
/// let evaluation = prudence::run(&task, &dir, &Session::new(0)?)?;
/// for result in &evaluation.results {
///     println!("{}: {} of {} test episodes are safe", result.algo, result.safe, result.episodes);
/// }
/// # Ok::<(), prudence::Error>(())
/// ```
pub fn run(task: &Task, dir: &Path, session: &Session) -> Result<Evaluation, Error> {
    task.check_warm_up("collect.steps", task.settings().collect.steps)?;
    check_memory(task, session)?;
    // The stages are measured on the CPU.
    let measured = session.card().is_none() && session.progress().is_watched();
    let estimate = measured.then(|| Estimate::of(task, session)).transpose()?;
    let (folder, task, _lock) = RunFolder::create(dir, task, &Invocation::Run, None)?;
    if let Some(estimate) = estimate {
        session.progress().say(&format!("{}: {estimate}", dir.display()));
    }
    run_in(&task, &folder, session)
}

/// The result of the command that was resumed.
///
/// ```no_run
/// use prudence::{Resumed, Session, Task};
///
/// let dir = std::path::Path::new("runs/navigation-1");
/// match prudence::resume(&Task::open(dir)?, dir, &Session::new(0)?)? {
///     Resumed::Run(evaluation) => println!("{} algorithms were tested", evaluation.results.len()),
///     Resumed::Collect(collected) => println!("{} episodes were collected", collected.episodes),
///     Resumed::Train(agents) => println!("{} agents were trained", agents.len()),
/// }
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Debug)]
pub enum Resumed {
    /// The result of [`run()`].
    Run(Box<Evaluation>),
    /// The result of [`collect`](crate::collect).
    Collect(crate::Collected),
    /// The result of [`train`](crate::train).
    Train(Vec<crate::Agent>),
}

/// Continues exactly where the command that created a folder was interrupted. The task is the folder's: that of
/// [`Task::open`], or for a program's own environment the task that the folder was created with.
pub fn resume(task: &Task, dir: &Path, session: &Session) -> Result<Resumed, Error> {
    let (folder, invocation) = RunFolder::open(dir)?;
    let _lock = folder.lock()?;
    check_memory(task, session)?;
    match invocation {
        Invocation::Run => Ok(Resumed::Run(Box::new(run_in(task, &folder, session)?))),
        Invocation::Collect => Ok(Resumed::Collect(collect_in(task, &folder, session)?)),
        Invocation::Train { data, safety } => {
            let model = model_of(&folder, safety)?;
            Ok(Resumed::Train(train_in(task, &folder, model, &data, session)?))
        }
    }
}

/// Refuses settings under which any stage would not fit into memory.
fn check_memory(task: &Task, session: &Session) -> Result<(), Error> {
    let settings = task.settings();
    let RunSettings { replicas, seeds, rounds, algo, .. } = &settings.run;
    let at_a_time = |agents: u64| session.agents(agents.saturating_mul(*seeds).saturating_mul(*replicas));
    let (collectors, memory) = (at_a_time(1), session.memory()?);
    footprint::training(task, &[Algorithm::Sac], collectors, settings.collect.steps, 0, &memory)?;
    // Those of the last round learn from all episodes before it; replicas that run at the same time have their own.
    let safe = algo.iter().filter(|algorithm| algorithm.constraint().is_some()).count() as u64;
    let per_seed =
        u128::from(settings.collect.steps) + *rounds as u128 * u128::from(safe) * u128::from(settings.train.steps);
    let stored = per_seed * u128::from(*seeds) * session.agents(*replicas) as u128;
    footprint::training(task, algo, at_a_time(safe), settings.train.steps, stored, &memory)?;
    // On a card all replicas are fitted together, on a CPU as many as there are threads.
    footprint::fit(task, task.spec().horizon, &memory.divided_by(session.agents(*replicas)))
}

/// Runs what has not been done yet, in a folder that is locked.
pub(crate) fn run_in(task: &Task, folder: &RunFolder, session: &Session) -> Result<Evaluation, Error> {
    let working = Working::on(folder, session);
    if task.settings().run.replicas > 1 {
        return replicas::run(task, folder, session, &working);
    }
    let replica = Replica { task, folder, session: session.clone() };
    let outcome = run_stages(vec![replica], session)?.remove(0)?;
    reporting::write(task, folder, &outcome, &working)
}

/// A repetition of a run, in its own folder.
pub(crate) struct Replica<'a> {
    pub task: &'a Task,
    pub folder: &'a RunFolder,
    /// Its progress reports may have a label.
    pub session: Session,
}

/// Runs the stages that have not been completed yet: on the CPU of a single replica, on a graphics card of all replicas
/// together. Returns the outcome of each.
pub(crate) fn run_stages(replicas: Vec<Replica<'_>>, session: &Session) -> Result<Vec<Result<Outcome, Error>>, Error> {
    let Some(first) = replicas.first() else { return Ok(Vec::new()) };
    match session.card() {
        None => {
            let device = cpu(first.task, first.folder.root());
            Rounds { device, session, failed: Vec::new() }.run(replicas)
        }
        Some(card) => Rounds { device: card.clone(), session, failed: Vec::new() }.run(replicas),
    }
}

/// The stages of a run, for replicas that differ in their seeds.
struct Rounds<'a, D: Device> {
    device: D,
    session: &'a Session,
    /// Replicas that failed, by number.
    failed: Vec<(usize, Error)>,
}

/// The progress of one replica.
struct ReplicaProgress<'a> {
    number: usize,
    replica: Replica<'a>,
    outcome: Outcome,
    /// The stores of the last training, whose episodes have not been labelled yet.
    new_stores: Vec<PathBuf>,
    data: Option<Dataset>,
    /// The safety model of the round in progress.
    model: Option<(Arc<SafetyModel>, Fitted)>,
}

impl<D: Device> Rounds<'_, D> {
    fn run(mut self, replicas: Vec<Replica<'_>>) -> Result<Vec<Result<Outcome, Error>>, Error> {
        let count = replicas.len();
        let start = |(number, replica)| ReplicaProgress {
            number,
            replica,
            outcome: Outcome { collectors: Vec::new(), rounds: Vec::new() },
            new_stores: Vec::new(),
            data: None,
            model: None,
        };
        let mut all: Vec<ReplicaProgress<'_>> = replicas.into_iter().enumerate().map(start).collect();
        let Some(settings) = all.first().map(|first| first.replica.task.settings()) else { return Ok(Vec::new()) };
        let algorithms = settings.run.algo.iter().copied();
        let safe_algorithms: Vec<_> = algorithms.filter(|a| a.constraint().is_some()).collect();
        let collectors = self.train(&mut all, 0, &[Algorithm::Sac], settings.collect.steps)?;
        for (progress, collectors) in all.iter_mut().zip(collectors) {
            progress.outcome.collectors = collectors;
        }
        let last = if safe_algorithms.is_empty() { 0 } else { settings.run.rounds };
        for round in 0..=last {
            self.each(&mut all, |progress| progress.decode_and_label(round));
            self.fit(&mut all, round)?;
            let agents = self.train(&mut all, round, &safe_algorithms, settings.train.steps)?;
            for (progress, agents) in all.iter_mut().zip(agents) {
                if let Some((model, fitted)) = progress.model.take() {
                    progress.outcome.rounds.push(RoundResult { model, fitted, agents });
                }
            }
        }
        let mut outcomes: Vec<(usize, Result<Outcome, Error>)> =
            all.into_iter().map(|progress| (progress.number, Ok(progress.outcome))).collect();
        outcomes.extend(self.failed.into_iter().map(|(number, error)| (number, Err(error))));
        outcomes.sort_by_key(|(number, _)| *number);
        debug_assert_eq!(outcomes.len(), count);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }

    /// Does some work for each replica. One that fails does not stop the others, but goes no further itself.
    fn each(
        &mut self,
        all: &mut Vec<ReplicaProgress<'_>>,
        mut work: impl FnMut(&mut ReplicaProgress<'_>) -> Result<(), Error>,
    ) {
        all.retain_mut(|progress| match work(progress) {
            Ok(()) => true,
            Err(error) => {
                if self.session.card().is_some() {
                    replicas::say_failed(&progress.replica.session, &error);
                }
                self.failed.push((progress.number, error));
                false
            }
        });
    }

    /// Fits the round's safety model of each replica.
    fn fit(&mut self, all: &mut Vec<ReplicaProgress<'_>>, round: usize) -> Result<(), Error> {
        let jobs: Vec<FitJob<'_>> = all.iter().filter_map(|progress| progress.fit_job(round)).collect();
        let mut fitted = fit_all(&self.device, &jobs, self.session)?.into_iter();
        self.each(all, |progress| {
            let Some(fitted) = fitted.next() else { return Ok(()) };
            let (model, fitted) = fitted?;
            let quality = &fitted.held_out;
            progress.replica.session.progress().say(&format!(
                "round {round}: the safety model is right on {} of {} held-out episodes ({} of the safe ones called \
                 unsafe, {} of the unsafe ones called safe)",
                percent(quality.accuracy),
                quality.episodes,
                percent(quality.safe_called_unsafe),
                percent(quality.unsafe_called_safe)
            ));
            progress.model = Some((Arc::new(model), fitted));
            Ok(())
        });
        Ok(())
    }

    /// Trains and tests every algorithm and seed of each replica; returns the agents of each that did not fail.
    fn train(
        &mut self,
        all: &mut Vec<ReplicaProgress<'_>>,
        round: usize,
        algorithms: &[Algorithm],
        steps: u64,
    ) -> Result<Vec<Vec<Tested>>, Error> {
        let Some(first) = all.first() else { return Ok(Vec::new()) };
        let task = first.replica.task;
        let sources: Vec<Source<'_>> = all.iter().map(ReplicaProgress::source).collect();
        let copies = copies(task, algorithms, self.session);
        let data = Data::new(&self.device, task, &sources, copies)?;
        let folders: Vec<&RunFolder> = all.iter().map(|progress| progress.replica.folder).collect();
        let place = |replica: usize, algorithm, seed| {
            (folders[replica].agent(round, algorithm, seed), folders[replica].episodes(round, algorithm, seed))
        };
        let tasks: Vec<&Task> = all.iter().map(|progress| progress.replica.task).collect();
        let jobs = jobs(&tasks, algorithms, place);
        let tests = task.settings().run.episodes;
        let test = |trained: &mut Trained<'_, D>| {
            let episodes = FINAL_TESTS..FINAL_TESTS + tests;
            let modes = self.play(trained, episodes.clone(), false)?;
            let sampled = self.play(trained, episodes, true)?;
            let one = |((agent, tests), sampled): ((&usize, Result<_, _>), Result<_, _>)| {
                let AgentFolder { algorithm, seed, .. } = trained.jobs[*agent].folder;
                let selected_step = trained.population.selected_step(*agent);
                Ok(Tested { algorithm, seed, selected_step, tests: tests?, sampled: sampled? })
            };
            Ok(trained.agents.iter().zip(modes).zip(sampled).map(one).collect())
        };
        let plan = Plan { task, data: &data, sources: &sources, steps };
        let tested = train_all(&plan, &jobs, self.session, test)?;
        let mut of_replicas: Vec<Result<Vec<Tested>, Error>> = all.iter().map(|_| Ok(Vec::new())).collect();
        for (job, tested) in jobs.iter().zip(tested) {
            if let Ok(agents) = &mut of_replicas[job.replica] {
                match tested {
                    Ok(tested) => agents.push(tested),
                    Err(error) => of_replicas[job.replica] = Err(error),
                }
            }
        }
        let mut stores: Vec<Vec<PathBuf>> = all.iter().map(|_| Vec::new()).collect();
        jobs.into_iter().for_each(|job| stores[job.replica].push(job.episodes));
        let (mut results, mut agents) = (of_replicas.into_iter().zip(stores), Vec::new());
        self.each(all, |progress| {
            let Some((tested, stores)) = results.next() else { return Ok(()) };
            let tested = tested?;
            tested.iter().for_each(|agent| progress.say(round, agent));
            progress.new_stores = stores;
            agents.push(tested);
            Ok(())
        });
        Ok(agents)
    }

    /// Plays final test episodes, a few at a time, until a stop is requested.
    fn play(
        &self,
        Trained { population, agents, .. }: &mut Trained<'_, D>,
        episodes: Range<u64>,
        sampled: bool,
    ) -> Result<Vec<Result<Vec<TestEpisode>, Error>>, Error> {
        let mut tests: Vec<Result<Vec<TestEpisode>, Error>> = agents.iter().map(|_| Ok(Vec::new())).collect();
        let at_a_time = population.setup().parallel.tests as u64;
        for first in episodes.clone().step_by(at_a_time as usize) {
            if self.session.stopping() {
                return Ok(agents.iter().map(|_| Err(Error::Stopped)).collect());
            }
            let some = population.test(agents, first..episodes.end.min(first + at_a_time), sampled)?;
            for (tests, some) in tests.iter_mut().zip(some) {
                match (tests, some) {
                    (Ok(tests), Ok(some)) => tests.extend(some),
                    (tests, Err(error)) => *tests = Err(error.into()),
                    (Err(_), _) => {}
                }
            }
        }
        Ok(tests)
    }
}

impl ReplicaProgress<'_> {
    /// What the agents of the next training start from.
    fn source(&self) -> Source<'_> {
        Source { data: self.data.as_ref(), model: self.model.as_ref().map(|(model, _)| model.clone()) }
    }

    /// The fit of a round's model.
    fn fit_job(&self, round: usize) -> Option<FitJob<'_>> {
        let Replica { task, folder, session } = &self.replica;
        let seed = subseed(task.settings().run.seed, "fit", round as u64);
        Some(FitJob { task, data: self.data.as_ref()?, out: folder.safety(round), seed, session })
    }

    /// Adds the episodes of the last training to the data, and labels those that the rule has not labelled yet.
    fn decode_and_label(&mut self, round: usize) -> Result<(), Error> {
        let data = match self.data.take() {
            None => {
                let Replica { folder, session, .. } = &self.replica;
                Dataset::decode(&self.new_stores, folder.root(), session.stop_flag())?
            }
            Some(mut data) => {
                self.new_stores.iter().try_for_each(|store| data.add(store))?;
                data
            }
        };
        self.label(&data, round)?;
        self.data = Some(data);
        Ok(())
    }

    fn label(&self, data: &Dataset, round: usize) -> Result<(), Error> {
        let Replica { task, session, .. } = &self.replica;
        let settings = task.settings();
        let (mut episodes, mut safe) = (0, 0);
        for (store, indices) in data.stores() {
            let of_store = OfStore { episodes: &data.episodes, indices };
            let mut log = LabelLog::open(&label_path(store))?;
            if let Some(path) = log.torn() {
                let text = "the last line was incomplete, as after a crash; its episode is labelled again";
                session.progress().say(&format!("warning: {}: {text}", path.display()));
            }
            labelling::by_rule(&of_store, &mut log, task.rule(), settings.label.extra_starts, settings.run.seed)?;
            let labels = latest(log.labels());
            let whole = labels.iter().filter(|label| label.start == 0);
            episodes += whole.clone().count() as u64;
            safe += whole.filter(|label| label.safe).count() as u64;
            if session.stopping() {
                return Err(Error::Stopped);
            }
        }
        if let Some(problem) = labelling::one_sided(episodes, safe) {
            session.progress().say(&format!("round {round}: warning: {problem}"));
        }
        Ok(())
    }

    /// Reports the tests of an agent.
    fn say(&self, round: usize, agent: &Tested) {
        let n = agent.tests.len();
        let safe = agent.tests.iter().filter(|t| t.safe).count();
        let mean = agent.tests.iter().map(|t| t.total_reward).sum::<f64>() / n as f64;
        let drawn = agent.sampled.iter().filter(|t| t.safe).count();
        let own = Quality::of(&own_predictions(&[agent]));
        let model =
            if own.episodes == 0 { String::new() } else { format!("; model right on {}", percent(own.accuracy)) };
        self.replica.session.progress().say(&format!(
            "round {round}: {:13} seed {}: return {mean:8.2}, {safe}/{n} safe ({drawn}/{n} sampled){model}",
            agent.algorithm.name(),
            agent.seed
        ));
    }
}
