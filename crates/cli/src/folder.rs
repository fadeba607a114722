//! What a run's folder holds beside its rounds, and how it is found again.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use prudence_agent::Algorithm;
use prudence_agent::records::Record;
use prudence_data::files::{read_json_lines, read_limited, write_atomic};
use prudence_safety::SafetyModel;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// The command that made a folder, so that `resume` can go on with it: `command.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Invocation {
    /// `prudence run`
    Run,
    /// `prudence collect`
    Collect,
    /// `prudence train`
    Train {
        /// Stores of the episodes it started from.
        data: Vec<PathBuf>,
        /// Whether there is a safety model, in `round-0/safety`.
        safety: bool,
    },
}

/// Makes a new run's folder with its configuration, the texts of its environment and the model it starts from; refuses one
/// that is there. Gives the configuration that uses the folder's own texts.
///
/// `command.json` comes last: a folder that has it can be resumed.
pub fn create(
    dir: &Path,
    mut config: Config,
    invocation: &Invocation,
    model: Option<&SafetyModel>,
) -> anyhow::Result<Config> {
    let texts = config.env.detach()?;
    prudence_data::files::create_fresh_dir(dir)?;
    for (name, text) in texts {
        write_atomic(&dir.join(name), text.as_bytes())?;
    }
    write_atomic(&dir.join("config.toml"), config.to_toml()?.as_bytes())?;
    if let Some(model) = model {
        let place = dir.join("round-0/safety");
        std::fs::create_dir_all(&place)?;
        write_atomic(&place.join("model.safetensors"), &model.to_bytes()?)?;
    }
    write_atomic(&dir.join("command.json"), &serde_json::to_vec_pretty(invocation)?)?;
    Ok(open(dir)?.0)
}

/// Refuses an `--out` that is there already.
pub fn refuse_existing(out: &Path) -> anyhow::Result<()> {
    refuse_existing_for("--out", out)
}

/// The same for another option.
pub fn refuse_existing_for(option: &str, out: &Path) -> anyhow::Result<()> {
    match out.exists() {
        true => {
            let remedy = if out.is_dir() { "folder, or go on with `prudence resume` if it is a run's" } else { "name" };
            bail!("{option} {}: exists already; choose another {remedy}", out.display())
        }
        false => Ok(()),
    }
}

/// Opens a run's folder.
pub fn open(dir: &Path) -> anyhow::Result<(Config, Invocation)> {
    let command = dir.join("command.json");
    if !dir.exists() {
        bail!("{}: no such folder", dir.display());
    }
    if !command.is_file() {
        if let Ok((run, _)) = AgentFolder::at(dir) {
            bail!("{}: an agent's folder; give its run's, {}", dir.display(), run.display());
        }
        bail!("{}: not a run's folder (no command.json in it)", dir.display());
    }
    let invocation =
        serde_json::from_slice(&read_limited(&command, 1 << 20)?).with_context(|| command.display().to_string())?;
    Ok((Config::from_file(&dir.join("config.toml"))?, invocation))
}

/// The next free `runs/<task>-<n>`; in a task's name, what cannot stand in a file's becomes `-`.
pub fn next_free(task: &str) -> PathBuf {
    let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let stem: String = task.chars().map(plain).collect();
    (1u64..).map(|n| PathBuf::from(format!("runs/{stem}-{n}"))).find(|p| !p.exists()).unwrap_or_default()
}

/// One trained agent in a run's folder.
pub struct AgentFolder {
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Its seed.
    pub seed: u64,
    /// The round it was trained in.
    pub round: usize,
    /// Its folder.
    pub dir: PathBuf,
}

impl AgentFolder {
    /// The agent whose folder this is, `RUN/round-R/ALGO/seed-S`, and its run.
    pub fn at(dir: &Path) -> anyhow::Result<(PathBuf, Self)> {
        let whole = dir.canonicalize().with_context(|| dir.display().to_string())?;
        let number = |name: &str, prefix: &str| name.strip_prefix(prefix)?.parse::<u64>().ok();
        let parse = || {
            let name = |up: usize| whole.ancestors().nth(up)?.file_name()?.to_str();
            let algorithm = Algorithm::ALL.into_iter().find(|a| name(1) == Some(a.name()))?;
            let (seed, round) = (number(name(0)?, "seed-")?, number(name(2)?, "round-")? as usize);
            Some((whole.ancestors().nth(3)?.to_owned(), Self { algorithm, seed, round, dir: whole.clone() }))
        };
        parse().ok_or_else(|| anyhow!("{}: not an agent's folder, RUN/round-R/ALGO/seed-S", dir.display()))
    }

    /// Its records.
    pub fn records(&self) -> anyhow::Result<Vec<Record>> {
        Ok(read_json_lines(&self.dir.join("metrics.jsonl"), 1 << 30)?)
    }
}

/// The agents of a folder, by algorithm and seed, each from the last round that has it.
pub fn agents(dir: &Path) -> anyhow::Result<Vec<AgentFolder>> {
    let mut rounds = Vec::new();
    for round in 0.. {
        let place = dir.join(format!("round-{round}"));
        if !place.is_dir() {
            break;
        }
        rounds.push((round, place));
    }
    let mut found = Vec::new();
    for algorithm in Algorithm::ALL {
        let last = rounds.iter().rev().find(|(_, place)| place.join(algorithm.name()).is_dir());
        let Some((round, place)) = last else { continue };
        let place = place.join(algorithm.name());
        let names = std::fs::read_dir(&place).with_context(|| place.display().to_string())?;
        let mut seeds: Vec<u64> =
            names.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("seed-")?.parse().ok()).collect();
        seeds.sort_unstable();
        found.extend(seeds.into_iter().map(|seed| AgentFolder {
            algorithm,
            seed,
            round: *round,
            dir: place.join(format!("seed-{seed}")),
        }));
    }
    match found.is_empty() {
        true => Err(anyhow!("{}: no trained agent in it", dir.display())),
        false => Ok(found),
    }
}
