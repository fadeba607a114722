//! All settings of a run: defaults, the task's file, further files and single settings, each of which overrides those
//! before it.

use std::path::{Path, PathBuf};

use prudence_agent::settings::TrainingSettings;
use prudence_agent::{AgentSettings, Algorithm, MultiplierSettings, TrainSettings};
use prudence_core::{SettingError, nearest};
use prudence_data::files::read_limited;
use prudence_env::rddl::BUILTIN;
use prudence_report::records::Reference;
use prudence_safety::FitSettings;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::environment::EnvSettings;
use crate::{Error, tasks};

/// A task with all its settings, resolved: the content of a task file and of a run's `config.toml`.
///
/// ```
/// use prudence::{Task, TaskSettings};
///
/// let settings = TaskSettings::resolve("navigation", &[], &["agent.batch=64".into()])?;
/// assert_eq!(settings.agent.batch, 64);
/// let task = Task::new(settings)?; // values are checked here
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSettings {
    /// The name of the task.
    pub name: String,
    /// One line about the task.
    pub summary: String,
    /// The true rule: it labels episodes and judges tests, but no learner sees it.
    pub rule: String,
    /// The share of episodes that should be safe by the true rule.
    pub target: f64,
    /// The environment.
    pub env: EnvSettings,
    /// Algorithms, seeds, tests and rounds of `run`.
    #[serde(default)]
    pub run: RunSettings,
    /// How episodes are collected.
    #[serde(default)]
    pub collect: CollectSettings,
    /// How the rule labels episodes.
    #[serde(default)]
    pub label: LabelSettings,
    /// The safety model and its fit.
    #[serde(default)]
    pub safety: FitSettings,
    /// Refits of the safety model during a training.
    #[serde(default)]
    pub refit: RefitSettings,
    /// Networks and their optimisation.
    #[serde(default)]
    pub agent: AgentSettings,
    /// The multiplier lambda.
    #[serde(default)]
    pub multiplier: MultiplierSettings,
    /// The training loop.
    #[serde(default)]
    pub train: TrainSettings,
    /// Policies to compare the results with.
    #[serde(default)]
    pub reference: Vec<Reference>,
}

/// Section `[run]` of a task file.
///
/// ```
/// assert_eq!(prudence::RunSettings::default().rounds, 0);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// The algorithms to train and test.
    pub algo: Vec<Algorithm>,
    /// The number of seeds per algorithm.
    pub seeds: u64,
    /// The first seed.
    pub seed: u64,
    /// The number of whole independent repetitions, each with its own seeds.
    pub replicas: u64,
    /// The number of final test episodes per seed.
    pub episodes: u64,
    /// How often to repeat labelling, fitting and training with the safe agents' own episodes. 0: the paper's recipe.
    pub rounds: usize,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            algo: vec![Algorithm::Sac, Algorithm::SafesacH],
            seeds: 3,
            seed: 0,
            replicas: 1,
            episodes: 100,
            rounds: 0,
        }
    }
}

/// Section `[collect]` of a task file.
///
/// ```
/// assert!(prudence::CollectSettings::default().steps == 1_000_000);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectSettings {
    /// Environment steps of unconstrained SAC, per seed.
    pub steps: u64,
}

impl Default for CollectSettings {
    fn default() -> Self {
        Self { steps: 1_000_000 }
    }
}

/// Section `[label]` of a task file.
///
/// ```
/// assert!(prudence::LabelSettings::default().extra_starts == 3);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelSettings {
    /// The number of segments per episode that start later, which the rule labels in addition to the whole episode.
    pub extra_starts: usize,
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self { extra_starts: 3 }
    }
}

/// Section `[refit]` of a task file: refits of the safety model, to the agent's own episodes too, during its training.
///
/// ```
/// let settings = prudence::RefitSettings { every: 2000, ..prudence::RefitSettings::default() };
/// assert_eq!((settings.steps, settings.learning_rate), (300, 1e-3));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefitSettings {
    /// Environment steps of the agent between two refits. 0: none.
    pub every: u64,
    /// Steps of gradient descent of a refit.
    pub steps: usize,
    /// Initial learning rate of a refit, which decreases to 0 along a cosine.
    pub learning_rate: f64,
}

impl Default for RefitSettings {
    fn default() -> Self {
        Self { every: 5000, steps: 300, learning_rate: 1e-3 }
    }
}

impl RefitSettings {
    /// Checks that all values are in range.
    pub fn check(&self) -> Result<(), SettingError> {
        let unless = SettingError::unless;
        unless(self.steps > 0, "refit.steps", &self.steps, "must be 1 or more")?;
        let rate = self.learning_rate > 0.0 && self.learning_rate.is_finite();
        unless(rate, "refit.learning_rate", &self.learning_rate, "must be above 0")
    }
}

impl TaskSettings {
    /// The settings of one agent's training.
    pub fn training(&self) -> TrainingSettings {
        TrainingSettings {
            target: self.target,
            agent: self.agent.clone(),
            multiplier: self.multiplier.clone(),
            train: self.train.clone(),
        }
    }

    /// The seeds of a run.
    pub fn seeds(&self) -> std::ops::Range<u64> {
        self.run.seed..self.run.seed + self.run.seeds
    }

    /// These settings as the text of a task file.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|e| Error::Unreadable { origin: self.name.clone(), problem: e.to_string() })
    }

    /// Checks that all values are in range. The rule and the environment are checked when they are created.
    pub fn check(&self) -> Result<(), SettingError> {
        let unless = SettingError::unless;
        let target = self.target > 0.0 && self.target < 1.0;
        unless(target, "target", &self.target, "must be above 0 and below 1")?;
        self.safety.check()?;
        self.refit.check()?;
        self.agent.check()?;
        self.multiplier.check()?;
        self.train.check()?;
        let RunSettings { seeds, seed, episodes, replicas, rounds, .. } = self.run;
        unless(self.collect.steps > 0, "collect.steps", &self.collect.steps, "must be 1 or more")?;
        for (key, n) in [("run.seeds", seeds), ("run.replicas", replicas)] {
            unless((1..=10_000).contains(&n), key, &n, "must be 1 to 10,000")?;
        }
        unless((1..=1_000_000).contains(&episodes), "run.episodes", &episodes, "must be 1 to 1,000,000")?;
        unless(rounds <= 1000, "run.rounds", &rounds, "must be 1,000 or less")?;
        let last = replicas.checked_mul(seeds).and_then(|all| seed.checked_add(all));
        let last = last.is_some_and(|last| last <= i64::MAX as u64);
        unless(last, "run.seed", &seed, "must stay below 2^63 for all seeds")
    }

    /// The settings of a built-in task or of a task file, overridden by those in `files` and then by the single
    /// settings `sets`, each `section.key=value`. Only names and types are checked.
    pub fn resolve(task: &str, files: &[PathBuf], sets: &[String]) -> Result<Self, Error> {
        let (mut table, origin) = match tasks::text(task) {
            Some(text) => (parse(text, task)?, format!("task {task}")),
            None if Path::new(task).is_file() => (read_table(Path::new(task))?, task.to_owned()),
            None if task.ends_with(".toml") => return Err(Error::content(Path::new(task), "no such file")),
            None => return Err(Error::UnknownTask { name: task.to_owned() }),
        };
        let mut settings = typed(&table, &origin)?;
        let (rule, env) = (settings.rule.clone(), settings.env.clone());
        for path in files {
            merge(&mut table, read_table(path)?);
            settings = typed(&table, &path.display().to_string())?;
        }
        for set in sets {
            apply(&mut table, set)?;
            let here = std::env::current_dir().map_err(Error::io(Path::new("."), "determine the current folder"))?;
            anchor(&mut table, &here);
            settings = typed(&table, &format!("setting {set}"))?;
        }
        if settings.rule != rule || settings.env != env {
            settings.reference.clear(); // they were for the unchanged task
        }
        Ok(settings)
    }

    /// A copy of these settings with some of them changed, each by `section.key=value`.
    pub fn with(&self, sets: &[impl AsRef<str>]) -> Result<Self, Error> {
        let mut table = parse(&self.to_toml()?, &self.name)?;
        let mut settings = self.clone();
        for set in sets.iter().map(AsRef::as_ref) {
            apply(&mut table, set)?;
            settings = typed(&table, &format!("setting {set}"))?;
        }
        Ok(settings)
    }

    /// Reads the settings in a task file.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        typed(&read_table(path)?, &path.display().to_string())
    }
}

fn parse(text: &str, origin: &str) -> Result<Table, Error> {
    text.parse::<Table>().map_err(|e| Error::Unreadable { origin: origin.to_owned(), problem: e.to_string() })
}

fn typed(table: &Table, origin: &str) -> Result<TaskSettings, Error> {
    let settings = table.clone().try_into();
    settings.map_err(|e| Error::Unreadable { origin: origin.to_owned(), problem: one_line(&e) })
}

/// The message of a serde error on one line, with types in plain words.
fn one_line(error: &toml::de::Error) -> String {
    let words = [("u64", "a whole number, 0 or more"), ("usize", "a whole number, 0 or more"), ("f64", "a number")];
    let message = error.to_string().trim().replace('\n', " ");
    let message = words.iter().fold(message, |message, (kind, word)| {
        message.replace(&format!("expected {kind}"), &format!("expected {word}"))
    });
    // "struct AgentSettings"
    let message = match message.split_once("expected struct ") {
        Some((before, after)) => {
            format!(
                "{before}expected a section{}",
                after.split_once(' ').map_or(String::new(), |(_, rest)| format!(" {rest}"))
            )
        }
        None => message,
    };
    meant(&message).unwrap_or(message)
}

/// For serde's message about an unknown field, the name that was meant in place of all that exist.
fn meant(message: &str) -> Option<String> {
    let (kind, rest) = match message.strip_prefix("unknown variant `") {
        Some(rest) => ("value", rest),
        None => ("setting", message.strip_prefix("unknown field `")?),
    };
    let (given, rest) = rest.split_once('`')?;
    let near = nearest(given, rest.split('`').skip(1).step_by(2))?;
    let section = message.rsplit_once(" in `").and_then(|(_, section)| section.split_once('`'));
    let section = section.map_or(String::new(), |(section, _)| format!(" in section `{section}`"));
    Some(format!("unknown {kind} `{given}`{section}; did you mean `{near}`?"))
}

/// Applies `section.key=value` to the table. A value that is not TOML is taken as text.
fn apply(table: &mut Table, set: &str) -> Result<(), Error> {
    let refuse = |problem: String| Error::Unreadable { origin: format!("setting {set}"), problem };
    let (path, text) =
        set.split_once('=').ok_or_else(|| refuse("expected section.key=value, such as train.steps=1000".to_owned()))?;
    let value = format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
    let value = value.unwrap_or_else(|| Value::String(text.into()));
    let mut keys: Vec<&str> = path.trim().split('.').collect();
    let last = keys.pop().filter(|k| !k.is_empty()).ok_or_else(|| refuse("the key is empty".to_owned()))?;
    let mut place = table;
    for key in keys {
        place = match place.entry(key).or_insert_with(|| Value::Table(Table::new())) {
            Value::Table(inner) => inner,
            _ => return Err(refuse(format!("`{key}` is a value, not a section"))),
        };
    }
    place.insert(last.into(), value);
    Ok(())
}

fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

/// Reads a file as a table. Paths in it are relative to its folder.
fn read_table(path: &Path) -> Result<Table, Error> {
    let bytes = read_limited(path, 1 << 20)?;
    let text = String::from_utf8(bytes).map_err(|_| Error::content(path, "not UTF-8 text"))?;
    let mut table = parse(&text, &path.display().to_string())?;
    let place = std::path::absolute(path).map_err(Error::io(path, "determine the absolute path"))?;
    anchor(&mut table, place.parent().unwrap_or(Path::new("/")));
    Ok(table)
}

/// Makes the paths in `[env]`, which are relative to a folder, absolute.
fn anchor(table: &mut Table, folder: &Path) {
    let Some(Value::Table(env)) = table.get_mut("env") else { return };
    for key in EnvSettings::FILE_KEYS {
        if let Some(Value::String(file)) = env.get_mut(key)
            && !file.starts_with(BUILTIN)
            && let Some(place) = folder.join(&*file).to_str()
        {
            *file = place.to_owned();
        }
    }
}
