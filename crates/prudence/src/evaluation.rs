//! Tests trained agents on the true rule.

use std::path::Path;

use prudence_data::Rule;
use prudence_report::records::AlgoResult;
use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};

use crate::agent::Agent;
use crate::folder::{AgentFolder, Invocation, RunFolder};
use crate::run::Tested;
use crate::session::Session;
use crate::{Algorithm, Error, Task, reporting};

/// The test episodes of [`evaluate`].
///
/// ```
/// let tests = prudence::TestSettings { episodes: 100, first: 0, sampled: false, rules: Vec::new() };
/// assert_eq!(tests, prudence::TestSettings::default());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestSettings {
    /// The number of test episodes per seed.
    pub episodes: u64,
    /// The number of the first test episode, which determines the starts.
    pub first: u64,
    /// Whether actions are sampled from the policy; otherwise they are its mode.
    pub sampled: bool,
    /// Rules that judge the same episodes in addition to the task's.
    pub rules: Vec<String>,
}

impl Default for TestSettings {
    fn default() -> Self {
        Self { episodes: 100, first: 0, sampled: false, rules: Vec::new() }
    }
}

/// The number of the first test episode: its starts differ from those of tests during training and of a run's report.
const FIRST: u64 = 1 << 40;

/// Tests the agents in a folder on the task's rule, each from the last round with its algorithm.
///
/// ```
/// use prudence::{Session, Task, TestSettings};
///
/// # let dir = tempfile::tempdir()?;
/// # let small = ["run.seeds=1", "collect.steps=200", "train.steps=200", "train.random_steps=100", "train.test_episodes=2"];
/// let task = Task::named("navigation")?.with(&small)?.with(&["run.algo=[\"sac\"]", "agent.hidden=[8,8]"])?;
/// let (run, session) = (dir.path().join("run"), Session::new(1)?);
/// prudence::train(&task, None, &[], &run, &session)?;
/// let results = prudence::evaluate(&task, &run, &TestSettings { episodes: 5, ..TestSettings::default() }, &session)?;
/// assert_eq!((results[0].algo.as_str(), results[0].episodes), ("sac", 5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn evaluate(task: &Task, dir: &Path, settings: &TestSettings, session: &Session) -> Result<Vec<AlgoResult>, Error> {
    let (folder, invocation) = RunFolder::open(dir)?;
    let rule = |text: &String| {
        let rule = Rule::parse(text, &task.spec().signals);
        rule.map_err(|problem| Error::Rule { rule: text.clone(), problem })
    };
    let rules: Vec<Rule> = settings.rules.iter().map(rule).collect::<Result<_, _>>()?;
    let agents = folder.agents()?;
    let bar = session.progress().begin("testing", agents.len() as u64);
    let done = std::sync::atomic::AtomicU64::new(0);
    let one = |agent: &AgentFolder| -> Result<Tested, Error> {
        let tested = test(task, agent, settings)?;
        bar.set(1 + done.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        Ok(tested)
    };
    let tested: Vec<Tested> = session.pool().install(|| agents.par_iter().map(one).collect::<Result<_, _>>())?;
    let replicas = folder.replicas()?;
    let results = |tested: &[Tested], rule: Option<&str>| -> Vec<AlgoResult> {
        let mut results = Vec::new();
        for algorithm in Algorithm::ALL {
            let of: Vec<(&AgentFolder, &Tested)> =
                agents.iter().zip(tested).filter(|(agent, _)| agent.algorithm == algorithm).collect();
            let collects = algorithm.constraint().is_none() && !matches!(invocation, Invocation::Train { .. });
            let steps = if collects { task.settings().collect.steps } else { task.settings().train.steps };
            let result = |of: &[&Tested]| AlgoResult {
                rule: rule.map(str::to_owned),
                // The model was not fitted to another rule.
                model_accuracy: reporting::result(algorithm, steps, of).model_accuracy.filter(|_| rule.is_none()),
                ..reporting::result(algorithm, steps, of)
            };
            let of_replica = |replica: &RunFolder| -> Option<(u64, AlgoResult)> {
                let own = of.iter().filter(|(agent, _)| agent.dir.starts_with(replica.root()));
                let own: Vec<&Tested> = own.map(|(_, tested)| *tested).collect();
                Some((own.first()?.seed, result(&own)))
            };
            let by_replica: Vec<(u64, AlgoResult)> = replicas.iter().filter_map(of_replica).collect();
            let by_replica: Vec<(u64, &AlgoResult)> = by_replica.iter().map(|(seed, result)| (*seed, result)).collect();
            if !by_replica.is_empty() {
                results.push(AlgoResult {
                    rule: rule.map(str::to_owned),
                    ..AlgoResult::from_replicas(algorithm.name(), &by_replica)
                });
            } else if !of.is_empty() {
                results.push(result(&of.iter().map(|(_, tested)| *tested).collect::<Vec<_>>()));
            }
        }
        results
    };
    let mut all = results(&tested, None);
    for rule in &rules {
        let judged: Vec<Tested> = tested.iter().map(|tested| tested.judged_by(rule)).collect();
        all.extend(results(&judged, Some(rule.text())));
    }
    Ok(all)
}

/// Loads a trained agent from its folder.
pub(crate) fn load(folder: &AgentFolder) -> Result<Agent, Error> {
    let path = folder.policy();
    if !path.is_file() {
        return Err(Error::content(
            &folder.dir,
            format!("the training of {} seed {} has not finished", folder.algorithm.name(), folder.seed),
        ));
    }
    Agent::load(&path)
}

fn test(task: &Task, folder: &AgentFolder, settings: &TestSettings) -> Result<Tested, Error> {
    let agent = load(folder)?;
    let first = FIRST + settings.first;
    let noise = settings.sampled.then_some(folder.seed);
    let tests = agent.test(task, first..first + settings.episodes, noise)?;
    Ok(Tested {
        algorithm: folder.algorithm,
        seed: folder.seed,
        selected_step: agent.selected_step(),
        tests,
        sampled: Vec::new(),
    })
}
