//! A whole run: all stages in order, in rounds, in one folder.
//!
//! Round 0 is the paper's recipe: unconstrained agents collect episodes, the rule labels them, a safety model is
//! fitted, and safe agents are trained on the scored episodes. Each later round labels the episodes of the previous
//! round's safe agents, refits the model on all episodes so far, and trains new agents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_agent::population::Population;
use prudence_core::random::subseed;
use prudence_data::{LabelLog, Store, label_path};
use prudence_nn::Cpu;
use prudence_report::records::Evaluation;
use prudence_safety::SafetyModel;

use crate::collecting::{collect_in, model_of, train_in};
use crate::fitting::{Fitted, fit, load_episodes};
use crate::folder::{Invocation, RunFolder};
use crate::session::Session;
use crate::training::{Data, Job, jobs, train_all};
use crate::{Algorithm, Error, Task, TestEpisode, labelling, reporting};

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
    let (folder, task) = RunFolder::create(dir, task, &Invocation::Run, None)?;
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
    match invocation {
        Invocation::Run => Ok(Resumed::Run(Box::new(run_in(task, &folder, session)?))),
        Invocation::Collect => Ok(Resumed::Collect(collect_in(task, &folder, session)?)),
        Invocation::Train { data, safety } => {
            let model = model_of(&folder, safety)?;
            Ok(Resumed::Train(train_in(task, &folder, model, &data, session)?))
        }
    }
}

fn run_in(task: &Task, folder: &RunFolder, session: &Session) -> Result<Evaluation, Error> {
    let outcome = Rounds { task, folder, session }.run()?;
    reporting::write(task, folder, &outcome)
}

struct Rounds<'a> {
    task: &'a Task,
    folder: &'a RunFolder,
    session: &'a Session,
}

impl Rounds<'_> {
    /// Does whatever has not been done yet.
    fn run(&self) -> Result<Outcome, Error> {
        let settings = self.task.settings();
        let algorithms = settings.run.algo.iter().copied();
        let safe_algorithms: Vec<_> = algorithms.filter(|a| a.constraint().is_some()).collect();
        let none = Data::none(self.task)?;
        let (collectors, mut new_stores) = self.train(0, &[Algorithm::Sac], settings.collect.steps, &none)?;
        let mut stores: Vec<PathBuf> = Vec::new();
        let mut rounds = Vec::new();
        let last = if safe_algorithms.is_empty() { 0 } else { settings.run.rounds };
        for round in 0..=last {
            for store in &new_stores {
                let mut log = LabelLog::open(&label_path(store))?;
                let store = Store::open(store)?;
                let extra_starts = settings.label.extra_starts;
                labelling::by_rule(&store, &mut log, self.task.rule(), extra_starts, settings.run.seed)?;
            }
            stores.append(&mut new_stores);
            let seed = subseed(settings.run.seed, "fit", round as u64);
            let (model, fitted) = fit(self.task, &stores, &self.folder.safety(round), seed, self.session)?;
            let quality = &fitted.held_out;
            self.session.progress().say(&format!(
                "round {round}: the safety model is right on {:.1} % of {} held-out episodes ({:.1} % of the safe ones \
                 called unsafe, {:.1} % of the unsafe ones called safe)",
                100.0 * quality.accuracy,
                quality.episodes,
                100.0 * quality.safe_called_unsafe,
                100.0 * quality.unsafe_called_safe
            ));
            let model = Arc::new(model);
            let data = Data::new(self.task, &load_episodes(&stores)?, Some(model.clone()))?;
            let agents;
            (agents, new_stores) = self.train(round, &safe_algorithms, settings.train.steps, &data)?;
            rounds.push(RoundResult { model, fitted, agents });
        }
        Ok(Outcome { collectors, rounds })
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
                tests: population.test(0, episodes.clone(), false)?,
                sampled: population.test(0, episodes, true)?,
            })
        };
        let tested = train_all(&jobs, self.session, test)?;
        for agent in &tested {
            let n = agent.tests.len();
            let safe = agent.tests.iter().filter(|t| t.safe).count();
            let mean = agent.tests.iter().map(|t| t.total_reward).sum::<f64>() / n as f64;
            let drawn = agent.sampled.iter().filter(|t| t.safe).count();
            self.session.progress().say(&format!(
                "round {round}: {:14} seed {}: return {mean:8.2}, {safe}/{n} safe ({drawn}/{n} with sampled actions)",
                agent.algorithm.name(),
                agent.seed
            ));
        }
        Ok((tested, jobs.into_iter().map(|job| job.episodes).collect()))
    }
}
