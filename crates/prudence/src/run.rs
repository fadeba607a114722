//! A whole run: every stage in order, in rounds, in one folder that explains itself.
//!
//! Round 0 is the paper's recipe: unconstrained agents collect, the rule labels, a model is fitted, safe agents are trained
//! on the scored episodes. Each later round labels what the safe agents of the round before went through, refits on all
//! episodes so far, and trains afresh.

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

/// Final tests start here, so that they meet other starts than the tests along the way.
const FINAL_TESTS: u64 = 1 << 32;

/// One trained agent, tested.
pub(crate) struct Tested {
    pub algorithm: Algorithm,
    pub seed: u64,
    /// The step of the last record that met the constraint as the safety model judges, where one did: its policy was tested.
    pub selected_step: Option<u64>,
    /// Final test episodes, the policy's mode acting.
    pub tests: Vec<TestEpisode>,
    /// The same number with drawn actions.
    pub sampled: Vec<TestEpisode>,
}

/// One round: its safety model and the agents trained against it.
pub(crate) struct RoundResult {
    pub model: Arc<SafetyModel>,
    pub fitted: Fitted,
    pub agents: Vec<Tested>,
}

/// All that a run found.
pub(crate) struct Outcome {
    /// The unconstrained agents.
    pub collectors: Vec<Tested>,
    /// The rounds, in order.
    pub rounds: Vec<RoundResult>,
}

/// Does everything in a new folder: collects, labels, fits, trains, in rounds; then tests and reports.
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

/// What a folder's command came to.
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
    /// A run.
    Run(Evaluation),
    /// A collection.
    Collect(crate::Collected),
    /// A training.
    Train(Vec<crate::Agent>),
}

/// Continues exactly where the command that made a folder was interrupted. The task is the folder's own: [`Task::open`],
/// or the one that a program made it with.
pub fn resume(task: &Task, dir: &Path, session: &Session) -> Result<Resumed, Error> {
    let (folder, invocation) = RunFolder::open(dir)?;
    match invocation {
        Invocation::Run => Ok(Resumed::Run(run_in(task, &folder, session)?)),
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
    /// Does whatever is not done yet.
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
                "round {round}: safety model {:.1} % right on {} held-out episodes ({:.1} % of the safe called unsafe, \
                 {:.1} % of the unsafe called safe)",
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

    /// Trains and tests every algorithm and seed; returns the stores of their episodes as well.
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
                "round {round}: {:14} seed {}: return {mean:8.2}, {safe}/{n} safe ({drawn}/{n} with drawn actions)",
                agent.algorithm.name(),
                agent.seed
            ));
        }
        Ok((tested, jobs.into_iter().map(|job| job.episodes).collect()))
    }
}
