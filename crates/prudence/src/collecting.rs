//! Collecting episodes, and training on stored ones: single stages, each in its own folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_data::{Dataset, LabelLog, Store, label_path, latest};
use prudence_nn::Device;
use prudence_safety::SafetyModel;
use serde::Serialize;

use crate::agent::Agent;
use crate::fitting::{check_stores, load_model};
use crate::folder::{Invocation, RunFolder};
use crate::session::Session;
use crate::training::{Data, Plan, Source, Trained, copies, cpu, jobs, train_all};
use crate::{Algorithm, Error, Task, footprint};

/// The result of [`collect`].
///
/// ```
/// let collected = prudence::Collected { episodes: 10, steps: 200, stores: vec!["episodes/episodes-seed-0".into()] };
/// assert_eq!(collected.stores.len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Collected {
    /// The number of episodes.
    pub episodes: u64,
    /// The total number of their steps.
    pub steps: u64,
    /// The stores of the episodes, one per collector.
    #[serde(skip)]
    pub stores: Vec<PathBuf>,
}

/// Trains unconstrained SAC in a new folder and stores all of its episodes: `collect.steps` steps for each of the
/// `run.seeds` seeds.
///
/// ```
/// use prudence::{Session, Task};
///
/// # let dir = tempfile::tempdir()?;
/// # let small = ["run.seeds=1", "collect.steps=200", "train.steps=200", "train.random_steps=100", "train.test_episodes=2"];
/// let task = Task::named("navigation")?.with(&small)?;
/// let collected = prudence::collect(&task, &dir.path().join("episodes"), &Session::new(1)?)?;
/// assert_eq!((collected.episodes, collected.steps), (10, 200));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn collect(task: &Task, dir: &Path, session: &Session) -> Result<Collected, Error> {
    task.check_warm_up("collect.steps", task.settings().collect.steps)?;
    let settings = task.settings();
    let agents = session.agents(settings.run.seeds);
    footprint::training(task, &[Algorithm::Sac], agents, settings.collect.steps, 0, &session.memory()?)?;
    let (folder, task, _lock) = RunFolder::create(dir, task, &Invocation::Collect, None)?;
    collect_in(&task, &folder, session)
}

pub(crate) fn collect_in(task: &Task, folder: &RunFolder, session: &Session) -> Result<Collected, Error> {
    match session.card() {
        None => collect_on(&cpu(task, folder.root()), task, folder, session),
        Some(card) => collect_on(card, task, folder, session),
    }
}

fn collect_on<D: Device>(device: &D, task: &Task, folder: &RunFolder, session: &Session) -> Result<Collected, Error> {
    let sources = [Source { data: None, model: None }];
    let data = Data::new(device, task, &sources, 1)?;
    let place = |_, algorithm, seed| (folder.agent(0, algorithm, seed), folder.collection(seed));
    let jobs = jobs(&[task], &[Algorithm::Sac], place);
    let plan = Plan { task, data: &data, sources: &sources, steps: task.settings().collect.steps };
    let done = |trained: &mut Trained<'_, D>| Ok(trained.agents.iter().map(|_| Ok(())).collect());
    train_all(&plan, &jobs, session, done)?.into_iter().collect::<Result<Vec<()>, _>>()?;
    let stores: Vec<PathBuf> = jobs.iter().map(|job| job.episodes.clone()).collect();
    let open = stores.iter().map(|path| Store::open(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(Collected { episodes: open.iter().map(Store::len).sum(), steps: open.iter().map(Store::steps).sum(), stores })
}

/// Trains `run.seeds` agents of each algorithm in `run.algo` in a new folder and returns them in this order.
///
/// Replay buffers start with the episodes in `stores`, scored by the safety model. All algorithms but SAC need a model.
///
/// ```
/// use prudence::{Session, Task};
///
/// # let dir = tempfile::tempdir()?;
/// # let small = ["run.seeds=1", "collect.steps=200", "train.steps=200", "train.random_steps=100", "train.test_episodes=2"];
/// let task = Task::named("navigation")?.with(&small)?.with(&["run.algo=[\"sac\"]", "agent.hidden=[8,8]"])?;
/// let agents = prudence::train(&task, None, &[], &dir.path().join("run"), &Session::new(1)?)?;
/// assert_eq!(agents[0].algorithm(), prudence::Algorithm::Sac);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn train(
    task: &Task,
    model: Option<&SafetyModel>,
    stores: &[PathBuf],
    dir: &Path,
    session: &Session,
) -> Result<Vec<Agent>, Error> {
    check_stores(task, stores)?;
    let spec = task.spec();
    match model {
        Some(model) => model.check(spec.observation.dim(), spec.action.dim())?,
        None => {
            let needs = task.settings().run.algo.iter().find(|algorithm| algorithm.constraint().is_some());
            if let Some(algorithm) = needs {
                return Err(prudence_agent::Error::NoSafetyModel { algorithm: *algorithm }.into());
            }
        }
    }
    if stores.is_empty() {
        task.check_warm_up("train.steps", task.settings().train.steps)?;
    }
    let whole = |path: &PathBuf| path.canonicalize().map_err(Error::io(path, "open"));
    let invocation =
        Invocation::Train { data: stores.iter().map(whole).collect::<Result<_, _>>()?, safety: model.is_some() };
    let without = if labelled_by_others(task, stores)? { without_own_labels(task, session)? } else { None };
    let task = without.as_ref().unwrap_or(task);
    let algorithms = &task.settings().run.algo;
    let agents = session.agents(algorithms.len() as u64 * task.settings().run.seeds);
    let stored = stores.iter().map(|path| Ok(Store::open(path)?.steps())).sum::<Result<u64, Error>>()?;
    footprint::training(task, algorithms, agents, task.settings().train.steps, stored.into(), &session.memory()?)?;
    let (folder, task, _lock) = RunFolder::create(dir, task, &invocation, model)?;
    train_in(&task, &folder, model.cloned(), stores, session)
}

/// Whether somebody or something other than the task's rule gave the latest labels of an episode.
fn labelled_by_others(task: &Task, stores: &[PathBuf]) -> Result<bool, Error> {
    let by = format!("rule: {}", task.rule().text());
    for store in stores {
        let log = LabelLog::open(&label_path(store))?;
        if latest(log.labels()).iter().any(|label| label.by != by) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The task without what would ask its rule about the agents' own episodes, if there is anything.
fn without_own_labels(task: &Task, session: &Session) -> Result<Option<Task>, Error> {
    let settings = task.settings();
    let asks = settings.refit.every > 0 || settings.train.accept_episodes > 0;
    let constrained = settings.run.algo.iter().any(|algorithm| algorithm.constraint().is_some());
    if !(asks && constrained) {
        return Ok(None);
    }
    session.progress().say(
        "warning: the labels of the stored episodes are not by the task's rule, which therefore is not asked about the \
         agents' own episodes either: safety models are not refitted, and policies are not accepted by labels",
    );
    Ok(Some(task.clone().with(&["refit.every=0", "train.accept_episodes=0"])?))
}

pub(crate) fn train_in(
    task: &Task,
    folder: &RunFolder,
    model: Option<SafetyModel>,
    stores: &[PathBuf],
    session: &Session,
) -> Result<Vec<Agent>, Error> {
    match session.card() {
        None => train_on(&cpu(task, folder.root()), task, folder, model, stores, session),
        Some(card) => train_on(card, task, folder, model, stores, session),
    }
}

fn train_on<D: Device>(
    device: &D,
    task: &Task,
    folder: &RunFolder,
    model: Option<SafetyModel>,
    stores: &[PathBuf],
    session: &Session,
) -> Result<Vec<Agent>, Error> {
    let model = model.map(Arc::new);
    let stored =
        if stores.is_empty() { None } else { Some(Dataset::decode(stores, folder.root(), session.stop_flag())?) };
    let algorithms = &task.settings().run.algo;
    let (constrained, plain): (Vec<Algorithm>, Vec<Algorithm>) =
        algorithms.iter().partition(|algorithm| algorithm.constraint().is_some());
    // SAC reads no scores, so its episodes are stored without them.
    let mut agents = Vec::new();
    for (algorithms, model) in [(plain, None), (constrained, model)] {
        if algorithms.is_empty() {
            continue;
        }
        let sources = [Source { data: stored.as_ref(), model }];
        let data = Data::new(device, task, &sources, copies(task, &algorithms, session))?;
        let place = |_, algorithm, seed| (folder.agent(0, algorithm, seed), folder.episodes(0, algorithm, seed));
        let jobs = jobs(&[task], &algorithms, place);
        let plan = Plan { task, data: &data, sources: &sources, steps: task.settings().train.steps };
        let agent = |trained: &mut Trained<'_, D>| {
            Ok(trained.agents.iter().map(|agent| Agent::of(&trained.population, *agent)).collect())
        };
        for trained in train_all(&plan, &jobs, session, agent)? {
            agents.push(trained?);
        }
    }
    Ok(agents)
}

/// Reads the safety model in the folder of a training, if it has one.
pub(crate) fn model_of(folder: &RunFolder, safety: bool) -> Result<Option<SafetyModel>, Error> {
    safety.then(|| load_model(&folder.safety(0))).transpose()
}
