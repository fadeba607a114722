//! The folder of a run: the only module that knows its paths.
//!
//! | file | holds |
//! |---|---|
//! | `command.json` | the command that created the folder; written last, so a folder that has it can be resumed |
//! | `config.toml` | the task with every setting, resolved; the files that it names are in the same folder |
//! | `round-R/data/ALGO-seed-S/` | the store of an agent's training episodes |
//! | `round-R/safety/` | the round's safety model and its quality |
//! | `round-R/ALGO/seed-S/` | an agent: records, checkpoint and, after training, its policy |
//! | `evaluation.json`, `report.html`, `figures/` | the results of a run |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prudence_agent::records::Record;
use prudence_data::files::{self, Lines, Lock, read_json, read_json_lines, read_limited, write_atomic, write_json};
use prudence_safety::SafetyModel;
use serde::{Deserialize, Serialize};

use crate::{Algorithm, Error, Task};

const CONFIG: &str = "config.toml";
const LOCK: &str = ".prudence.lock";
const MAX_FILE_BYTES: u64 = 16 << 20;
pub(crate) const MAX_RECORD_BYTES: u64 = 1 << 30;

/// `command.json`
#[derive(Serialize, Deserialize)]
struct Command {
    #[serde(flatten)]
    invocation: Invocation,
    /// The BLAKE3 hashes of the settings and of the files that they name.
    files: BTreeMap<String, String>,
}

/// The command that created a folder, so that `resume` can continue it.
///
/// ```no_run
/// let (_, invocation) = prudence::RunFolder::open(std::path::Path::new("runs/navigation-1"))?;
/// assert_eq!(invocation, prudence::Invocation::Run);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Invocation {
    /// All stages, in rounds.
    Run,
    /// Collecting episodes with SAC.
    Collect,
    /// Training alone.
    Train {
        /// The stores of the episodes that it started from.
        data: Vec<PathBuf>,
        /// Whether there is a safety model, in `round-0/safety`.
        safety: bool,
    },
}

/// The folder of a run, a collection or a training.
///
/// ```
/// use std::path::Path;
///
/// use prudence::{Algorithm, RunFolder};
///
/// let run = RunFolder::at(Path::new("runs/navigation-1"));
/// assert_eq!(run.report(), Path::new("runs/navigation-1/report.html"));
/// assert_eq!(run.agent(2, Algorithm::SafesacH, 0).dir, Path::new("runs/navigation-1/round-2/safesac-h/seed-0"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    root: PathBuf,
}

impl RunFolder {
    /// The folder at a path, which is not accessed.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Creates a folder with a task's settings, copies of the files that they name, and the model to start from, and
    /// locks it. A folder that already exists must be empty, or left behind by a process that was killed while it
    /// created this folder. The task that is returned uses the copies.
    pub(crate) fn create(
        root: &Path,
        task: &Task,
        invocation: &Invocation,
        model: Option<&SafetyModel>,
    ) -> Result<(Self, Task, Lock), Error> {
        let mut settings = task.settings().clone();
        let mut copies = Vec::new();
        for file in settings.env.files() {
            copies.push((file.copy, read_limited(Path::new(&*file.path), MAX_FILE_BYTES)?));
            *file.path = file.copy.to_owned();
        }
        copies.push((CONFIG, settings.to_toml()?.into_bytes()));
        let folder = Self::at(root);
        let names: Vec<&str> = copies.iter().map(|(name, _)| *name).collect();
        let check_free = || Self::check_free(root, &names, model.is_some());
        files::create_dir(root)?;
        check_free()?;
        let lock = folder.lock()?;
        check_free()?; // another process may have been faster
        let mut hashes = BTreeMap::new();
        for (name, bytes) in &copies {
            write_atomic(&root.join(name), bytes)?;
            hashes.insert((*name).to_owned(), blake3::hash(bytes).to_string());
        }
        if let Some(model) = model {
            folder.write_model(0, model)?;
        }
        write_json(&folder.command(), &Command { invocation: invocation.clone(), files: hashes })?;
        let task = if copies.len() == 1 { task.clone() } else { Task::open(root)? };
        Ok((folder, task, lock))
    }

    /// Refuses a folder that is not empty, unless it holds only what a process leaves behind if it is killed while it
    /// creates this folder: the lock, which comes first, and some of these files.
    fn check_free(root: &Path, names: &[&str], model: bool) -> Result<(), Error> {
        let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
        while let Some(folder) = folders.pop() {
            for path in files::list(&folder)? {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(relative(&path));
                }
            }
        }
        let ours = |file: &String| {
            let name = file.strip_suffix(".part").unwrap_or(file);
            name == LOCK
                || names.contains(&name)
                || (model && name == "round-0/safety/model.safetensors")
                || file == "command.json.part"
        };
        if found.is_empty() || (found.iter().any(|file| file == LOCK) && found.iter().all(ours)) {
            Ok(())
        } else {
            Err(prudence_data::Error::NotFresh { path: root.to_owned() }.into())
        }
    }

    /// Opens a folder, reads which command created it, and verifies its copies of settings and files.
    pub fn open(root: &Path) -> Result<(Self, Invocation), Error> {
        let folder = Self::at(root);
        if !root.exists() {
            return Err(Error::content(root, "no such folder"));
        }
        if !folder.command().is_file() {
            return Err(match AgentFolder::open(root) {
                Ok((run, _)) => {
                    Error::content(root, format!("an agent's folder, not a run's; its run is {}", run.root.display()))
                }
                Err(_) => Error::content(root, "not a run's folder (it has no command.json)"),
            });
        }
        let Command { invocation, files } = read_json(&folder.command(), MAX_FILE_BYTES)?;
        for (name, hash) in files {
            let path = root.join(name);
            if blake3::hash(&read_limited(&path, MAX_FILE_BYTES)?).to_string() != hash {
                return Err(Error::Changed { path });
            }
        }
        Ok((folder, invocation))
    }

    /// Keeps other processes from writing the folder, until the lock is dropped or this process ends.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        Ok(files::lock(&self.root.join(LOCK))?)
    }

    /// The next free `runs/<task>-<n>`. Characters of the task's name that file names should not have become `-`.
    pub fn next_free(task: &str) -> PathBuf {
        let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let stem: String = task.chars().map(plain).collect();
        (1u64..).map(|n| PathBuf::from(format!("runs/{stem}-{n}"))).find(|p| !p.exists()).unwrap_or_default()
    }

    /// The path of the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file with the task and all settings, `config.toml`.
    pub fn config(&self) -> PathBuf {
        self.root.join(CONFIG)
    }

    /// Whether the folder was created completely.
    pub(crate) fn is_created(&self) -> bool {
        self.command().is_file()
    }

    fn command(&self) -> PathBuf {
        self.root.join("command.json")
    }

    /// The results of a run, `evaluation.json`.
    pub fn evaluation(&self) -> PathBuf {
        self.root.join("evaluation.json")
    }

    /// The report on the results, `report.html`.
    pub fn report(&self) -> PathBuf {
        self.root.join("report.html")
    }

    /// When, where and by which program the run was made, `sessions.jsonl`.
    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions.jsonl")
    }

    /// The folder with the report's figures.
    pub fn figures(&self) -> PathBuf {
        self.root.join("figures")
    }

    /// The folder of a replica, which is named after its first seed.
    pub fn replica(&self, seed: u64) -> Self {
        Self { root: self.root.join(format!("replica-{seed}")) }
    }

    /// The folders of the replicas, in the order of their seeds; none in the folder of a single run.
    pub fn replicas(&self) -> Result<Vec<Self>, Error> {
        let mut seeds: Vec<u64> = numbered(&self.root, "replica-")?;
        seeds.sort_unstable();
        Ok(seeds.into_iter().map(|seed| self.replica(seed)).collect())
    }

    fn round(&self, round: usize) -> PathBuf {
        self.root.join(format!("round-{round}"))
    }

    /// The folder of a round's safety model.
    pub fn safety(&self, round: usize) -> PathBuf {
        self.round(round).join("safety")
    }

    /// Writes a round's safety model.
    pub(crate) fn write_model(&self, round: usize, model: &SafetyModel) -> Result<(), Error> {
        let folder = self.safety(round);
        files::create_dir(&folder)?;
        Ok(write_atomic(&model_file(&folder), &model.to_bytes()?)?)
    }

    /// The store of an agent's training episodes.
    pub fn episodes(&self, round: usize, algorithm: Algorithm, seed: u64) -> PathBuf {
        self.round(round).join("data").join(format!("{}-seed-{seed}", algorithm.name()))
    }

    /// The store of a collector's episodes in the folder of `collect`.
    pub fn collection(&self, seed: u64) -> PathBuf {
        self.root.join(format!("episodes-seed-{seed}"))
    }

    /// The folder of an agent, which may not exist yet.
    pub fn agent(&self, round: usize, algorithm: Algorithm, seed: u64) -> AgentFolder {
        let dir = self.round(round).join(algorithm.name()).join(format!("seed-{seed}"));
        AgentFolder { algorithm, seed, round, dir }
    }

    /// The agents in the folder, by algorithm and seed, each from the last round with its algorithm; those of all
    /// replicas, if there are any.
    pub fn agents(&self) -> Result<Vec<AgentFolder>, Error> {
        let mut found = self.own_agents()?;
        for replica in self.replicas()? {
            found.extend(replica.own_agents()?);
        }
        found.sort_by_key(|agent| agent.algorithm);
        if found.is_empty() { Err(Error::content(&self.root, "no trained agents in this folder")) } else { Ok(found) }
    }

    fn own_agents(&self) -> Result<Vec<AgentFolder>, Error> {
        let rounds = (0..).take_while(|round| self.round(*round).is_dir()).count();
        let mut found = Vec::new();
        for algorithm in Algorithm::ALL {
            let place = |round: usize| self.round(round).join(algorithm.name());
            let Some(round) = (0..rounds).rev().find(|round| place(*round).is_dir()) else { continue };
            let mut seeds: Vec<u64> = numbered(&place(round), "seed-")?;
            seeds.sort_unstable();
            found.extend(seeds.into_iter().map(|seed| self.agent(round, algorithm, seed)));
        }
        Ok(found)
    }
}

/// Keeps other processes from writing the runs and collections that a folder belongs to; it may not exist yet.
pub(crate) fn lock_around(dir: &Path) -> Result<Vec<Lock>, Error> {
    let whole = std::path::absolute(dir).map_err(Error::io(dir, "open"))?;
    let existing = whole.ancestors().find(|folder| folder.exists()).unwrap_or(&whole);
    let whole = existing.canonicalize().map_err(Error::io(dir, "open"))?;
    whole.ancestors().map(RunFolder::at).filter(RunFolder::is_created).map(|run| run.lock()).collect()
}

/// The numbers after `prefix` in the names of the files in a folder.
fn numbered(folder: &Path, prefix: &str) -> Result<Vec<u64>, Error> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok();
    Ok(files::list(folder)?.iter().filter_map(number).collect())
}

/// The run or collection that a store of episodes belongs to, and the round and the seed of the agent that played them.
pub(crate) fn origin_of(store: &Path) -> Result<(RunFolder, u64, u64), Error> {
    let whole = store.canonicalize().map_err(Error::io(store, "open"))?;
    let name = |up: usize| whole.ancestors().nth(up).and_then(|path| path.file_name()?.to_str());
    let number = |text: Option<&str>, prefix: &str| text?.rsplit_once(prefix)?.1.parse::<u64>().ok();
    // As `RunFolder::episodes` and `RunFolder::collection` spell them.
    let place = match (name(1), number(name(2), "round-")) {
        (Some("data"), Some(round)) => whole.ancestors().nth(3).map(|run| (run, round)),
        _ => whole.parent().map(|run| (run, 0)),
    };
    let run = place.map(|(run, round)| (RunFolder::at(run), round)).filter(|(run, _)| run.is_created());
    match (run, number(name(0), "seed-")) {
        (Some((run, round)), Some(seed)) => Ok((run, round, seed)),
        _ => Err(Error::content(
            store,
            "not a store in the folder of a run or a collection, so its episodes cannot be replayed",
        )),
    }
}

/// The file of a safety model in its folder.
pub(crate) fn model_file(folder: &Path) -> PathBuf {
    folder.join("model.safetensors")
}

/// The file with the quality of a safety model, in the model's folder.
pub(crate) fn quality_file(folder: &Path) -> PathBuf {
    folder.join("quality.json")
}

/// The folder of one agent in a run.
///
/// ```no_run
/// let folder = std::path::Path::new("runs/navigation-1/round-2/safesac-h/seed-0");
/// let (_, agent) = prudence::AgentFolder::open(folder)?;
/// for record in agent.records()? {
///     println!("{} steps: return {:.1}, {:.0} % safe", record.step, record.return_mean, 100.0 * record.safe_share);
/// }
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFolder {
    /// The algorithm that trains the agent.
    pub algorithm: Algorithm,
    /// The seed of the agent.
    pub seed: u64,
    /// The round in which it is trained.
    pub round: usize,
    /// The path of the folder.
    pub dir: PathBuf,
}

impl AgentFolder {
    /// Opens the folder of an agent, `RUN/round-R/ALGO/seed-S`, and its run.
    pub fn open(dir: &Path) -> Result<(RunFolder, Self), Error> {
        let whole = dir.canonicalize().map_err(Error::io(dir, "open"))?;
        let number = |name: &str, prefix: &str| name.strip_prefix(prefix)?.parse::<u64>().ok();
        let parse = || {
            let name = |up: usize| whole.ancestors().nth(up)?.file_name()?.to_str();
            let algorithm = Algorithm::ALL.into_iter().find(|a| name(1) == Some(a.name()))?;
            let (seed, round) = (number(name(0)?, "seed-")?, number(name(2)?, "round-")? as usize);
            let run = RunFolder::at(whole.ancestors().nth(3)?);
            Some((run, Self { algorithm, seed, round, dir: whole.clone() }))
        };
        parse().ok_or_else(|| Error::content(dir, "not an agent's folder; expected RUN/round-R/ALGO/seed-S"))
    }

    /// The training records, `metrics.jsonl`: one JSON object per line.
    pub fn metrics(&self) -> PathBuf {
        self.dir.join("metrics.jsonl")
    }

    /// The speed of training, `timing.jsonl`: one JSON object per record.
    pub fn timing(&self) -> PathBuf {
        self.dir.join("timing.jsonl")
    }

    /// The records' scalars for TensorBoard.
    pub fn events(&self) -> PathBuf {
        self.dir.join("events.out.tfevents.prudence")
    }

    /// The latest checkpoint of training.
    pub fn checkpoint(&self) -> PathBuf {
        self.dir.join("checkpoint.safetensors")
    }

    /// The trained policy with its safety model; written when training ends.
    pub fn policy(&self) -> PathBuf {
        self.dir.join("policy.safetensors")
    }

    /// Reads the training records.
    pub fn records(&self) -> Result<Vec<Record>, Error> {
        let Lines { values, torn } = read_json_lines(&self.metrics(), MAX_RECORD_BYTES)?;
        if torn { Err(prudence_data::Error::Torn { path: self.metrics() }.into()) } else { Ok(values) }
    }
}
