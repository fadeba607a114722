//! A whole run: all stages in order, in rounds, in one folder.
//!
//! Round 0 is the paper's recipe: unconstrained agents collect episodes, the rule labels them, a safety model is
//! fitted, and safe agents are trained on the scored episodes. Each later round labels the episodes of the previous
//! round's safe agents, refits the model on all episodes so far, and trains new agents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_agent::population::Population;
use prudence_core::random::subseed;
use prudence_data::{Dataset, LabelLog, Rule, label_path, latest};
use prudence_nn::Cpu;
use prudence_report::records::Evaluation;
use prudence_safety::{Quality, SafetyModel};

use crate::collecting::{collect_in, model_of, train_in};
use crate::fitting::{Fitted, fit_to};
use crate::folder::{Invocation, RunFolder};
use crate::labelling::OfStore;
use crate::provenance::Working;
use crate::reporting::{own_predictions, percent};
use crate::session::Session;
use crate::settings::RunSettings;
use crate::training::{Data, Job, jobs, train_all};
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
    let estimate = session.progress().is_watched().then(|| Estimate::of(task, session)).transpose()?;
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
    let collectors = at_a_time(1);
    footprint::training(task, &[Algorithm::Sac], collectors, settings.collect.steps, 0)?;
    // Those of the last round learn from all episodes before it; replicas that run at the same time have their own.
    let safe = algo.iter().filter(|algorithm| algorithm.constraint().is_some()).count() as u64;
    let per_seed =
        u128::from(settings.collect.steps) + *rounds as u128 * u128::from(safe) * u128::from(settings.train.steps);
    let stored = per_seed * u128::from(*seeds) * session.agents(*replicas) as u128;
    footprint::training(task, algo, at_a_time(safe), settings.train.steps, stored)?;
    footprint::fit(task, task.spec().horizon)
}

/// Runs what has not been done yet, in a folder that is locked.
pub(crate) fn run_in(task: &Task, folder: &RunFolder, session: &Session) -> Result<Evaluation, Error> {
    let working = Working::on(folder, session);
    if task.settings().run.replicas > 1 {
        return replicas::run(task, folder, session, &working);
    }
    let outcome = Rounds { task, folder, session }.run()?;
    reporting::write(task, folder, &outcome, &working)
}

struct Rounds<'a> {
    task: &'a Task,
    folder: &'a RunFolder,
    session: &'a Session,
}

impl Rounds<'_> {
    /// Runs the stages that have not been completed yet.
    fn run(&self) -> Result<Outcome, Error> {
        let settings = self.task.settings();
        let algorithms = settings.run.algo.iter().copied();
        let safe_algorithms: Vec<_> = algorithms.filter(|a| a.constraint().is_some()).collect();
        let none = Data::new(self.task, None, None, self.folder.root())?;
        let (collectors, mut new_stores) = self.train(0, &[Algorithm::Sac], settings.collect.steps, &none)?;
        let mut data = Dataset::decode(&new_stores, self.folder.root())?;
        let mut rounds = Vec::new();
        let last = if safe_algorithms.is_empty() { 0 } else { settings.run.rounds };
        for round in 0..=last {
            if round > 0 {
                new_stores.iter().try_for_each(|store| data.add(store))?;
            }
            self.label(&data, round)?;
            let seed = subseed(settings.run.seed, "fit", round as u64);
            let (model, fitted) = fit_to(self.task, &data, &self.folder.safety(round), seed, self.session)?;
            let quality = &fitted.held_out;
            self.session.progress().say(&format!(
                "round {round}: the safety model is right on {} of {} held-out episodes ({} of the safe ones called \
                 unsafe, {} of the unsafe ones called safe)",
                percent(quality.accuracy),
                quality.episodes,
                percent(quality.safe_called_unsafe),
                percent(quality.unsafe_called_safe)
            ));
            let model = Arc::new(model);
            let scored = Data::new(self.task, Some(&data), Some(model.clone()), self.folder.root())?;
            let agents;
            (agents, new_stores) = self.train(round, &safe_algorithms, settings.train.steps, &scored)?;
            rounds.push(RoundResult { model, fitted, agents });
        }
        Ok(Outcome { collectors, rounds })
    }

    /// Labels the episodes that the rule has not labelled yet.
    fn label(&self, data: &Dataset, round: usize) -> Result<(), Error> {
        let settings = self.task.settings();
        let (mut episodes, mut safe) = (0, 0);
        for (store, indices) in data.stores() {
            let of_store = OfStore { episodes: &data.episodes, indices };
            let mut log = LabelLog::open(&label_path(store))?;
            if let Some(path) = log.torn() {
                let text = "the last line was incomplete, as after a crash; its episode is labelled again";
                self.session.progress().say(&format!("warning: {}: {text}", path.display()));
            }
            labelling::by_rule(&of_store, &mut log, self.task.rule(), settings.label.extra_starts, settings.run.seed)?;
            let labels = latest(log.labels());
            let whole = labels.iter().filter(|label| label.start == 0);
            episodes += whole.clone().count() as u64;
            safe += whole.filter(|label| label.safe).count() as u64;
            if self.session.stopping() {
                return Err(Error::Stopped);
            }
        }
        if let Some(problem) = labelling::one_sided(episodes, safe) {
            self.session.progress().say(&format!("round {round}: warning: {problem}"));
        }
        Ok(())
    }

    /// Trains and tests every algorithm and seed; also returns the stores of their training episodes.
    fn train(
        &self,
        round: usize,
        algorithms: &[Algorithm],
        steps: u64,
        data: &Data,
    ) -> Result<(Vec<Tested>, Vec<PathBuf>), Error> {
        let run = &self.task.settings().run;
        let place =
            |algorithm, seed| (self.folder.agent(round, algorithm, seed), self.folder.episodes(round, algorithm, seed));
        let jobs = jobs(self.task, data, algorithms, steps, place);
        let test = |job: &Job<'_>, mut population: Population<Cpu<f32>>| {
            let episodes = FINAL_TESTS..FINAL_TESTS + run.episodes;
            Ok(Tested {
                algorithm: job.folder.algorithm,
                seed: job.folder.seed,
                selected_step: population.selected_step(0),
                tests: self.play(&mut population, episodes.clone(), false)?,
                sampled: self.play(&mut population, episodes, true)?,
            })
        };
        let tested = train_all(&jobs, self.session, test)?;
        for agent in &tested {
            let n = agent.tests.len();
            let safe = agent.tests.iter().filter(|t| t.safe).count();
            let mean = agent.tests.iter().map(|t| t.total_reward).sum::<f64>() / n as f64;
            let drawn = agent.sampled.iter().filter(|t| t.safe).count();
            let own = Quality::of(&own_predictions(&[agent]));
            let model =
                if own.episodes == 0 { String::new() } else { format!("; model right on {}", percent(own.accuracy)) };
            self.session.progress().say(&format!(
                "round {round}: {:13} seed {}: return {mean:8.2}, {safe}/{n} safe ({drawn}/{n} sampled){model}",
                agent.algorithm.name(),
                agent.seed
            ));
        }
        Ok((tested, jobs.into_iter().map(|job| job.episodes).collect()))
    }

    /// Plays the final test episodes, until a stop is requested.
    fn play(
        &self,
        population: &mut Population<Cpu<f32>>,
        episodes: std::ops::Range<u64>,
        sampled: bool,
    ) -> Result<Vec<TestEpisode>, Error> {
        let mut tests = Vec::new();
        for episode in episodes {
            if self.session.stopping() {
                return Err(Error::Stopped);
            }
            tests.extend(population.test(0, episode..episode + 1, sampled)?);
        }
        Ok(tests)
    }
}
