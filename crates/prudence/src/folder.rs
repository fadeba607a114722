//! A run's folder: the one place that spells its paths.
//!
//! | file | holds |
//! |---|---|
//! | `command.json` | which command made it; written last, so a folder that has it can be resumed |
//! | `config.toml` | the task and every setting, resolved; the files it names lie beside it |
//! | `round-R/data/ALGO-seed-S/` | the store of an agent's episodes |
//! | `round-R/safety/` | the round's safety model and its quality |
//! | `round-R/ALGO/seed-S/` | an agent: records, checkpoint and, at the end, its policy |
//! | `evaluation.json`, `report.html`, `figures/` | what a run found |

use std::path::{Path, PathBuf};

use prudence_agent::records::Record;
use prudence_data::files::{self, create_fresh_dir, read_json_lines, read_limited, write_atomic};
use prudence_safety::SafetyModel;
use serde::{Deserialize, Serialize};

use crate::{Algorithm, Error, Task};

/// The command that made a folder, so that `resume` can continue it.
///
/// ```no_run
/// let (_, invocation) = prudence::RunFolder::open(std::path::Path::new("runs/navigation-1"))?;
/// assert_eq!(invocation, prudence::Invocation::Run);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Invocation {
    /// Everything.
    Run,
    /// Collecting episodes.
    Collect,
    /// Training.
    Train {
        /// Stores of the episodes it started from.
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
    /// The folder at a path; nothing is looked at.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// A new folder with a task's settings, the files they name and the model to start from; one that exists and is not
    /// empty is refused. Gives the task as the folder has it, with the folder's own files.
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

    /// An existing folder and the command that made it.
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
                Err(_) => Error::content(root, "not a run's folder (no command.json in it)"),
            });
        }
        let command = folder.command();
        let invocation = serde_json::from_slice(&read_limited(&command, 1 << 20)?)
            .map_err(|e| Error::content(&command, e.to_string()))?;
        Ok((folder, invocation))
    }

    /// The next free `runs/<task>-<n>`; in a task's name, characters that file names should not have become `-`.
    pub fn next_free(task: &str) -> PathBuf {
        let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let stem: String = task.chars().map(plain).collect();
        (1u64..).map(|n| PathBuf::from(format!("runs/{stem}-{n}"))).find(|p| !p.exists()).unwrap_or_default()
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Task and settings.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    fn command(&self) -> PathBuf {
        self.root.join("command.json")
    }

    /// The numbers that a run found.
    pub fn evaluation(&self) -> PathBuf {
        self.root.join("evaluation.json")
    }

    /// The page about them.
    pub fn report(&self) -> PathBuf {
        self.root.join("report.html")
    }

    /// The pictures on it.
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

    /// The store of an agent's episodes.
    pub fn episodes(&self, round: usize, algorithm: Algorithm, seed: u64) -> PathBuf {
        self.round(round).join("data").join(format!("{}-seed-{seed}", algorithm.name()))
    }

    /// The store of a collector's episodes, where a folder holds nothing but a collection.
    pub fn collection(&self, seed: u64) -> PathBuf {
        self.root.join(format!("episodes-seed-{seed}"))
    }

    /// An agent's folder.
    pub fn agent(&self, round: usize, algorithm: Algorithm, seed: u64) -> AgentFolder {
        let dir = self.round(round).join(algorithm.name()).join(format!("seed-{seed}"));
        AgentFolder { algorithm, seed, round, dir }
    }

    /// The agents in it, by algorithm and seed, each from the last round that has it.
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
        if found.is_empty() { Err(Error::content(&self.root, "no trained agent in it")) } else { Ok(found) }
    }
}

/// The file of a safety model in its folder.
pub(crate) fn model_file(folder: &Path) -> PathBuf {
    folder.join("model.safetensors")
}

/// What is known of the model's quality, beside it.
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
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Its seed.
    pub seed: u64,
    /// The round it was trained in.
    pub round: usize,
    /// The folder.
    pub dir: PathBuf,
}

impl AgentFolder {
    /// The agent whose folder this is, `RUN/round-R/ALGO/seed-S`, and its run.
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
        parse().ok_or_else(|| Error::content(dir, "not an agent's folder, RUN/round-R/ALGO/seed-S"))
    }

    /// What training said of itself, one record per line.
    pub fn metrics(&self) -> PathBuf {
        self.dir.join("metrics.jsonl")
    }

    /// How fast it was.
    pub fn timing(&self) -> PathBuf {
        self.dir.join("timing.jsonl")
    }

    /// The same for TensorBoard.
    pub fn events(&self) -> PathBuf {
        self.dir.join("events.out.tfevents.prudence")
    }

    /// Where training can be continued from.
    pub fn checkpoint(&self) -> PathBuf {
        self.dir.join("checkpoint.safetensors")
    }

    /// What training left behind: the policy with its safety model.
    pub fn policy(&self) -> PathBuf {
        self.dir.join("policy.safetensors")
    }

    /// Its records.
    pub fn records(&self) -> Result<Vec<Record>, Error> {
        Ok(read_json_lines(&self.metrics(), 1 << 30)?)
    }
}
