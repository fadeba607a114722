//! Tests trained agents on the true rule.

use std::path::Path;

use prudence_report::records::AlgoResult;
use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};

use crate::agent::Agent;
use crate::folder::{AgentFolder, RunFolder};
use crate::run::Tested;
use crate::session::Session;
use crate::{Algorithm, Error, Task, reporting};

/// The test episodes of [`evaluate`].
///
/// ```
/// let tests = prudence::TestSettings { episodes: 100, first: 0, sampled: false };
/// assert_eq!(tests, prudence::TestSettings::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestSettings {
    /// The number of test episodes per seed.
    pub episodes: u64,
    /// The number of the first test episode, which determines the starts.
    pub first: u64,
    /// Whether actions are sampled from the policy; otherwise they are its mode.
    pub sampled: bool,
}

impl Default for TestSettings {
    fn default() -> Self {
        Self { episodes: 100, first: 0, sampled: false }
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
/// let results = prudence::evaluate(&task, &run, TestSettings { episodes: 5, ..TestSettings::default() }, &session)?;
/// assert_eq!((results[0].algo.as_str(), results[0].episodes), ("sac", 5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn evaluate(task: &Task, dir: &Path, settings: TestSettings, session: &Session) -> Result<Vec<AlgoResult>, Error> {
    let (folder, _) = RunFolder::open(dir)?;
    let agents = folder.agents()?;
    let bar = session.progress().begin("testing", agents.len() as u64);
    let done = std::sync::atomic::AtomicU64::new(0);
    let one = |agent: &AgentFolder| -> Result<Tested, Error> {
        let tested = test(task, agent, settings)?;
        bar.set(1 + done.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        Ok(tested)
    };
    let tested: Vec<Tested> = session.pool().install(|| agents.par_iter().map(one).collect::<Result<_, _>>())?;
    let mut results = Vec::new();
    for algorithm in Algorithm::ALL {
        let of: Vec<&Tested> = tested.iter().filter(|t| t.algorithm == algorithm).collect();
        if !of.is_empty() {
            let first = agents.iter().find(|agent| agent.algorithm == algorithm);
            let records = first.map(AgentFolder::records).transpose()?.unwrap_or_default();
            let steps = records.last().map_or(0, |record| record.step);
            results.push(reporting::result(algorithm, steps, &of));
        }
    }
    Ok(results)
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

fn test(task: &Task, folder: &AgentFolder, settings: TestSettings) -> Result<Tested, Error> {
    let agent = load(folder)?;
    let first = FIRST + settings.first;
    let tests = agent.test(task, first..first + settings.episodes, folder.seed, settings.sampled)?;
    Ok(Tested {
        algorithm: folder.algorithm,
        seed: folder.seed,
        selected_step: agent.selected_step(),
        tests,
        sampled: Vec::new(),
    })
}
