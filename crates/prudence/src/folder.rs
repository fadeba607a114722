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

use std::path::{Path, PathBuf};

use prudence_agent::records::Record;
use prudence_data::files::{self, create_fresh_dir, read_json_lines, read_limited, write_atomic};
use prudence_safety::SafetyModel;
use serde::{Deserialize, Serialize};

use crate::{Algorithm, Error, Task};

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

    /// Creates a folder with a task's settings, copies of the files that they name, and the model to start from. A
    /// folder that already exists must be empty. The task that is returned uses the copies.
    pub fn create(
        root: &Path,
        task: &Task,
        invocation: &Invocation,
        model: Option<&SafetyModel>,
    ) -> Result<(Self, Task), Error> {
        let mut settings = task.settings().clone();
        let mut copies = Vec::new();
        for file in settings.env.files() {
            copies.push((file.copy, read_limited(Path::new(&*file.path), 16 << 20)?));
            *file.path = file.copy.to_owned();
        }
        create_fresh_dir(root)?;
        let folder = Self::at(root);
        for (name, bytes) in &copies {
            write_atomic(&root.join(name), bytes)?;
        }
        write_atomic(&folder.config(), settings.to_toml()?.as_bytes())?;
        if let Some(model) = model {
            folder.write_model(0, model)?;
        }
        let text = serde_json::to_vec_pretty(invocation).map_err(|e| Error::content(root, e.to_string()))?;
        write_atomic(&folder.command(), &text)?;
        let task = if copies.is_empty() { task.clone() } else { Task::open(root)? };
        Ok((folder, task))
    }

    /// Opens a folder and reads which command created it.
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
        let command = folder.command();
        let invocation = serde_json::from_slice(&read_limited(&command, 1 << 20)?)
            .map_err(|e| Error::content(&command, e.to_string()))?;
        Ok((folder, invocation))
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
        self.root.join("config.toml")
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

    /// The folder with the report's figures.
    pub fn figures(&self) -> PathBuf {
        self.root.join("figures")
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

    /// The agents in the folder, by algorithm and seed, each from the last round with its algorithm.
    pub fn agents(&self) -> Result<Vec<AgentFolder>, Error> {
        let rounds = (0..).take_while(|round| self.round(*round).is_dir()).count();
        let mut found = Vec::new();
        for algorithm in Algorithm::ALL {
            let place = |round: usize| self.round(round).join(algorithm.name());
            let Some(round) = (0..rounds).rev().find(|round| place(*round).is_dir()) else { continue };
            let place = place(round);
            let seed = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("seed-")?.parse().ok();
            let mut seeds: Vec<u64> = files::list(&place)?.iter().filter_map(seed).collect();
            seeds.sort_unstable();
            found.extend(seeds.into_iter().map(|seed| self.agent(round, algorithm, seed)));
        }
        if found.is_empty() { Err(Error::content(&self.root, "no trained agents in this folder")) } else { Ok(found) }
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
        Ok(read_json_lines(&self.metrics(), 1 << 30)?)
    }
}
