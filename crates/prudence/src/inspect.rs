//! Looking at stored data: summaries of stores, single episodes, and checks for damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_core::random::subseed;
use prudence_data::files::{self, read_json, read_json_lines, read_limited};
use prudence_data::{Episode, Label, LabelLog, Store, label_path, latest};
use prudence_env::Env;
use prudence_nn::Cpu;
use prudence_nn::weights::Reader;
use prudence_report::figure::{self, EpisodeSignals, Figure};
use prudence_safety::{SafetyModel, Scorer};
use serde::Serialize;
use serde_json::Value;

use crate::folder::{RunFolder, origin_of};
use crate::{Error, Task};

/// The least, the mean and the greatest of some numbers.
///
/// ```
/// use prudence::{StoreInfo, Summary};
/// # use prudence::{Episode, Schema, Store};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("episodes");
/// # let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
/// # let episode = Episode {
/// #     observations: vec![0.0, 0.5],
/// #     actions: vec![0.5],
/// #     rewards: vec![0.5],
/// #     signals: vec![0.5],
/// #     ..Episode::new(1, 1)
/// # };
/// # Store::create(&path, schema)?.append(&[episode])?;
/// let info = StoreInfo::of(&path)?; // of a store with one episode of one step
/// assert_eq!(info.lengths, Summary { min: 1.0, mean: 1.0, max: 1.0 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
}

impl Summary {
    fn of(numbers: impl Iterator<Item = f64> + Clone) -> Self {
        let n = numbers.clone().count() as f64;
        Self {
            min: numbers.clone().fold(f64::INFINITY, f64::min),
            mean: numbers.clone().sum::<f64>() / n,
            max: numbers.fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// A summary of a store.
///
/// ```
/// use prudence::{Session, StoreInfo, Task};
///
/// # let dir = tempfile::tempdir()?;
/// # let small = ["run.seeds=1", "collect.steps=200", "train.steps=200", "train.random_steps=100", "train.test_episodes=2"];
/// let task = Task::named("navigation")?.with(&small)?;
/// let collected = prudence::collect(&task, &dir.path().join("episodes"), &Session::new(1)?)?;
/// let info = StoreInfo::of(&collected.stores[0])?;
/// assert_eq!((info.episodes, info.labelled), (10, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreInfo {
    /// The folder of the store.
    pub store: PathBuf,
    /// The task of its episodes.
    pub task: String,
    /// The dimensions of observations and actions.
    pub observation: usize,
    /// See `observation`.
    pub action: usize,
    /// The names of the signals.
    pub signals: Vec<String>,
    /// The number of episodes.
    pub episodes: u64,
    /// Their steps in all.
    pub steps: u64,
    /// Their lengths.
    pub lengths: Summary,
    /// Their returns.
    pub returns: Summary,
    /// How many ended by termination and not at the horizon.
    pub terminated: u64,
    /// How many have a label as a whole.
    pub labelled: u64,
    /// How many of these are safe.
    pub safe: u64,
    /// The number of labels of segments that are not whole episodes.
    pub segments: u64,
    /// The number of labels of each annotator, overruled ones included.
    pub annotators: BTreeMap<String, u64>,
    /// Files that end with an incomplete line, which does not count.
    pub torn: Vec<PathBuf>,
}

impl StoreInfo {
    /// Reads a store and its labels.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let store = Store::open(path)?;
        let log = LabelLog::open(&label_path(path))?;
        let (mut returns, mut terminated) = (Vec::new(), 0);
        for shard in store.shards() {
            for episode in store.read_without_signals(shard)? {
                returns.push(episode.total_reward());
                terminated += u64::from(episode.terminated);
            }
        }
        let mut annotators = BTreeMap::new();
        for label in log.labels() {
            *annotators.entry(label.by.clone()).or_insert(0) += 1;
        }
        let labels = latest(log.labels());
        let whole: Vec<&&Label> = labels.iter().filter(|label| is_whole(label, &store)).collect();
        let schema = store.schema();
        Ok(Self {
            store: path.to_owned(),
            task: schema.task.clone(),
            observation: schema.observation_dim,
            action: schema.action_dim,
            signals: schema.signals.clone(),
            episodes: store.len(),
            steps: store.steps(),
            lengths: Summary::of(store.lengths().iter().map(|steps| f64::from(*steps))),
            returns: Summary::of(returns.iter().copied()),
            terminated,
            labelled: whole.len() as u64,
            safe: whole.iter().filter(|label| label.safe).count() as u64,
            segments: (labels.len() - whole.len()) as u64,
            annotators,
            torn: store.torn().into_iter().chain(log.torn()).collect(),
        })
    }
}

fn is_whole(label: &Label, store: &Store) -> bool {
    label.start == 0 && store.lengths().get(label.episode as usize) == Some(&label.end)
}

/// One stored episode with everything that is known about it.
///
/// ```
/// use prudence::{Episode, Schema, Store, StoredEpisode};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("episodes");
/// let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
/// let episode = Episode {
///     observations: vec![0.0, 0.5],
///     actions: vec![0.5],
///     rewards: vec![0.5],
///     signals: vec![0.5],
///     ..Episode::new(1, 1)
/// };
/// Store::create(&path, schema)?.append(&[episode])?;
/// let stored = StoredEpisode::read(&path, 0, None)?; // without a safety model
/// assert!(stored.label.is_none() && stored.log_probs.is_empty());
/// assert!(stored.figure().svg.contains("not labelled"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StoredEpisode {
    /// Its number in the store.
    pub number: u64,
    /// The names of its signals.
    pub signals: Vec<String>,
    /// The episode.
    pub episode: Episode,
    /// The label of the whole episode, if it has one.
    pub label: Option<Label>,
    /// The model's log P of each step; empty without a model.
    pub log_probs: Vec<f32>,
}

impl StoredEpisode {
    /// Reads an episode of a store and, with a safety model, scores it.
    pub fn read(store: &Path, number: u64, model: Option<SafetyModel>) -> Result<Self, Error> {
        let log = LabelLog::open(&label_path(store))?;
        let store = Store::open(store)?;
        let end = number.checked_add(1).unwrap_or(number);
        let mut episodes = store.read(number..end)?;
        let episode = episodes.pop().ok_or(prudence_data::Error::Range { start: number, end, len: store.len() })?;
        let label = latest(log.labels()).into_iter().find(|l| l.episode == number && is_whole(l, &store)).cloned();
        let mut log_probs = Vec::new();
        if let Some(model) = model {
            model.check(episode.observation_width, episode.action_width)?;
            let scorer = Scorer::new(&Cpu::<f32>::new(), &[Arc::new(model)], f64::from(f32::MIN))?;
            log_probs = scorer.score(&[&episode])?.remove(0).log_prob;
        }
        Ok(Self { number, signals: store.schema().signals.clone(), episode, label, log_probs })
    }

    /// Draws the signals over time, with the model's blame below.
    pub fn figure(&self) -> Figure {
        let width = self.signals.len();
        let values = |i: usize| self.episode.signals.iter().skip(i).step_by(width.max(1)).copied().collect();
        let verdict = match &self.label {
            None => "not labelled",
            Some(label) if label.safe => "labelled safe",
            Some(_) => "labelled unsafe",
        };
        let drawn = EpisodeSignals {
            signals: self.signals.iter().cloned().enumerate().map(|(i, name)| (name, values(i))).collect(),
            blame: self.log_probs.iter().map(|l| f64::from(-l)).collect(),
            breaking: self.label.as_ref().and_then(|label| label.at).map(|at| at as usize),
        };
        figure::signals(&format!("Episode {}, {verdict}", self.number), &drawn)
    }

    /// Replays the recorded actions in the environment of the run that the store belongs to, and calls `see` with the
    /// initial state and after each step. Observations that differ from the recorded ones are an error: the environment
    /// is not the one that was recorded.
    pub fn replay<E: From<Error>>(
        &self,
        store: &Path,
        mut see: impl FnMut(&dyn Env, usize) -> Result<(), E>,
    ) -> Result<Task, E> {
        let (run, round, seed) = origin_of(store)?;
        let seed = subseed(subseed(seed, "round", round), "train", self.number);
        let task = Task::open(run.root())?;
        let (mut env, mut observation) = (task.make_env()?, vec![0.0; self.episode.observation_width]);
        env.reset(seed, &mut observation).map_err(Error::from)?;
        for t in 0..=self.episode.len() {
            if observation.iter().zip(self.episode.observation(t)).any(|(now, then)| *now as f32 != *then) {
                let problem = format!("replaying episode {} gives other observations from step {t} on", self.number);
                return Err(Error::content(store, problem).into());
            }
            see(&*env, t)?;
            if t < self.episode.len() {
                let action: Vec<f64> = self.episode.action(t).iter().map(|a| f64::from(*a)).collect();
                env.step(&action, &mut observation).map_err(Error::from)?;
            }
        }
        Ok(task)
    }
}

/// The outcome of checking a file.
///
/// ```
/// # use prudence::{Episode, Schema, Store};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("episodes");
/// # let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
/// # let episode = Episode {
/// #     observations: vec![0.0, 0.5],
/// #     actions: vec![0.5],
/// #     rewards: vec![0.5],
/// #     signals: vec![0.5],
/// #     ..Episode::new(1, 1)
/// # };
/// # Store::create(&path, schema)?.append(&[episode])?;
/// std::fs::write(path.join("shard-00000.parquet"), "overwritten by mistake")?;
/// for file in prudence::check_files(&path)? {
///     println!("{}: {:?}", file.path.display(), file.problem);
///     assert!(file.problem.is_some());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileCheck {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, if anything.
    pub problem: Option<Error>,
}

/// Verifies every file below a folder whose content prudence depends on: hashes, shapes, labels, completeness.
///
/// ```
/// # use prudence::{Episode, Schema, Store};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("episodes");
/// # let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
/// # let episode = Episode {
/// #     observations: vec![0.0, 0.5],
/// #     actions: vec![0.5],
/// #     rewards: vec![0.5],
/// #     signals: vec![0.5],
/// #     ..Episode::new(1, 1)
/// # };
/// # Store::create(&path, schema)?.append(&[episode])?;
/// let checked = prudence::check_files(&path)?;
/// assert!(checked.iter().all(|file| file.problem.is_none()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_files(folder: &Path) -> Result<Vec<FileCheck>, Error> {
    let mut checked = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in files::list(&folder)? {
            if path.is_dir() {
                folders.push(path);
            } else if let Some(outcome) = check_file(&path) {
                checked.push(FileCheck { problem: outcome.err(), path });
            }
        }
    }
    checked.sort_by(|a, b| a.path.cmp(&b.path));
    if checked.is_empty() { Err(Error::content(folder, "no files of prudence in this folder")) } else { Ok(checked) }
}

const LIMIT: u64 = 4 << 30;

/// `None` for files that nothing depends on: figures, reports, TensorBoard events, locks.
fn check_file(path: &Path) -> Option<Result<(), Error>> {
    let folder = path.parent()?;
    let whole = |torn: Option<PathBuf>| torn.map_or(Ok(()), |path| Err(prudence_data::Error::Torn { path }.into()));
    let outcome = match path.file_name()?.to_str()? {
        "store.json" => Store::open(folder).map_err(Error::from).and_then(|store| {
            store.shards().try_for_each(|shard| store.read(shard).map(drop))?;
            store.check_labels(LabelLog::open(&label_path(folder))?.labels())?;
            store.check_no_others()?;
            whole(store.torn())
        }),
        "labels.jsonl" => LabelLog::open(path).map_err(Error::from).and_then(|log| whole(log.torn())),
        "command.json" => RunFolder::open(folder).map(drop),
        "quality.json" | "evaluation.json" => read_json::<Value>(path, LIMIT).map(drop).map_err(Error::from),
        "metrics.jsonl" | "timing.jsonl" | "sessions.jsonl" => read_json_lines::<Value>(path, LIMIT)
            .map_err(Error::from)
            .and_then(|lines| whole(lines.torn.then(|| path.to_owned()))),
        name if name.ends_with(".safetensors") => read_limited(path, LIMIT)
            .map_err(Error::from)
            .and_then(|bytes| Reader::new(&bytes).map(drop).map_err(|e| Error::content(path, e.to_string()))),
        _ => return None,
    };
    Some(outcome)
}
