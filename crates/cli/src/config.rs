//! The configuration of a run: defaults, then the task's file, then `--config`, then `--set`, each over the one before.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use prudence_agent::settings::Settings as TrainingSettings;
use prudence_agent::{AgentSettings, Algorithm, MultiplierSettings, TrainSettings};
use prudence_data::Rule;
use prudence_env::rddl::BUILTIN;
use prudence_env::{EnvSettings, MakeEnv as _};
use prudence_report::records::Reference;
use prudence_safety::FitSettings;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// The tasks that come with the program.
pub const TASKS: &[(&str, &str)] = &[
    ("navigation", include_str!("../../../tasks/navigation.toml")),
    ("hvac", include_str!("../../../tasks/hvac.toml")),
    ("hopper", include_str!("../../../tasks/hopper.toml")),
    ("walker2d", include_str!("../../../tasks/walker2d.toml")),
    ("half-cheetah", include_str!("../../../tasks/half-cheetah.toml")),
    ("ball-circle", include_str!("../../../tasks/ball-circle.toml")),
    ("ball-run", include_str!("../../../tasks/ball-run.toml")),
    ("car-circle", include_str!("../../../tasks/car-circle.toml")),
    ("car-run", include_str!("../../../tasks/car-run.toml")),
];

/// Everything a command can be told, resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The task's name.
    pub name: String,
    /// What it is about, in a line.
    pub summary: String,
    /// The true rule: it labels and tests, no learner sees it.
    pub rule: String,
    /// The share of episodes that shall be safe, in truth.
    pub target: f64,
    /// The environment.
    pub env: EnvSettings,
    /// What `run` does.
    #[serde(default)]
    pub run: RunSettings,
    /// How episodes are collected.
    #[serde(default)]
    pub collect: CollectSettings,
    /// How the rule labels them.
    #[serde(default)]
    pub label: LabelSettings,
    /// The safety model.
    #[serde(default)]
    pub safety: FitSettings,
    /// Networks and their learning.
    #[serde(default)]
    pub agent: AgentSettings,
    /// The multiplier.
    #[serde(default)]
    pub multiplier: MultiplierSettings,
    /// The training loop.
    #[serde(default)]
    pub train: TrainSettings,
    /// What results can be held against.
    #[serde(default)]
    pub reference: Vec<Reference>,
}

/// Section `[run]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// Algorithms to train and test.
    pub algo: Vec<Algorithm>,
    /// Seeds an algorithm.
    pub seeds: u64,
    /// The first seed.
    pub seed: u64,
    /// Test episodes a seed.
    pub episodes: u64,
    /// Repetitions of collect, label, fit, train with the safe agents' own episodes. 0: the paper's recipe.
    pub rounds: usize,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self { algo: vec![Algorithm::Sac, Algorithm::SafesacH], seeds: 3, seed: 0, episodes: 100, rounds: 2 }
    }
}

/// Section `[collect]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectSettings {
    /// Environment steps of the unconstrained agent, a seed.
    pub steps: u64,
}

impl Default for CollectSettings {
    fn default() -> Self {
        Self { steps: 1_000_000 }
    }
}

/// Section `[label]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelSettings {
    /// Segments that start later, an episode, labelled by the rule beside the whole.
    pub extra_starts: usize,
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self { extra_starts: 3 }
    }
}

impl Config {
    /// The settings of one agent's training.
    pub fn training(&self) -> TrainingSettings {
        TrainingSettings { agent: self.agent.clone(), multiplier: self.multiplier.clone(), train: self.train.clone() }
    }

    /// The rule, its names resolved against the environment's signals.
    pub fn parsed_rule(&self) -> anyhow::Result<Rule> {
        let env = self.env.build()?;
        Rule::parse(&self.rule, &env.spec().signals).map_err(|e| anyhow!("rule = {:?}\n{e}", self.rule))
    }

    /// The file's text.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// From a run's `config.toml`.
    pub fn from_file(path: &Path) -> anyhow::Result<Self> {
        let table = read_table(path)?;
        table.try_into().map_err(|e| anyhow!("{}: {}", path.display(), one_line(&e)))
    }

    /// Refuses an agent without stored episodes that would act at random and never learn; `steps` is the setting `key`.
    pub fn check_warm_up(&self, key: &str, steps: u64) -> anyhow::Result<()> {
        let random = self.train.random_steps;
        let horizon = self.env.build()?.spec().horizon as u64; // an episode that begins with random actions ends with them
        match random.div_ceil(horizon).saturating_mul(horizon) < steps {
            true => Ok(()),
            false => Err(anyhow!(
                "train.random_steps = {random}: must be below {key} = {steps} by an episode ({horizon} steps), or nothing is learned"
            )),
        }
    }

    /// Refuses values no command can work with.
    pub fn check(&self) -> anyhow::Result<()> {
        let range = |key: &str, ok: bool, value: String, expected: &str| match ok {
            true => Ok(()),
            false => Err(anyhow!("{key} = {value}: {expected}")),
        };
        let share = |x: f64| x > 0.0 && x < 1.0;
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let (a, m, t, s) = (&self.agent, &self.multiplier, &self.train, &self.safety);
        range("target", share(self.target), self.target.to_string(), "must be above 0 and below 1")?;
        range("multiplier.target", share(m.target), m.target.to_string(), "must be above 0 and below 1")?;
        range("multiplier.max", positive(m.max), m.max.to_string(), "must be above 0")?;
        range("multiplier.initial", m.initial >= 0.0, m.initial.to_string(), "must be 0 or more")?;
        range("multiplier.fixed", m.fixed.is_none_or(|x| x >= 0.0), format!("{:?}", m.fixed), "must be 0 or more")?;
        range("multiplier.window", m.window > 0, m.window.to_string(), "must be 1 or more")?;
        range("multiplier.batch", m.batch > 0, m.batch.to_string(), "must be 1 or more")?;
        let layers = |l: &[usize]| !l.is_empty() && l.iter().all(|n| (1..=8192).contains(n));
        range("agent.hidden", layers(&a.hidden), format!("{:?}", a.hidden), "must be layers of 1 to 8192 units")?;
        range("safety.decoder", layers(&s.decoder), format!("{:?}", s.decoder), "must be layers of 1 to 8192 units")?;
        let encoder = s.encoder.is_empty() || layers(&s.encoder);
        range("safety.encoder", encoder, format!("{:?}", s.encoder), "must be layers of 1 to 8192 units, or empty")?;
        range("safety.hidden", (1..=1024).contains(&s.hidden), s.hidden.to_string(), "must be 1 to 1024")?;
        range("safety.batch", s.batch > 0, s.batch.to_string(), "must be 1 or more")?;
        range("safety.prefix_every", s.prefix_every > 0, s.prefix_every.to_string(), "must be 1 or more")?;
        range("safety.held_out", share(s.held_out), s.held_out.to_string(), "must be above 0 and below 1")?;
        range("safety.learning_rate", positive(s.learning_rate), s.learning_rate.to_string(), "must be above 0")?;
        range("agent.learning_rate", positive(a.learning_rate), a.learning_rate.to_string(), "must be above 0")?;
        range("agent.temperature", positive(a.temperature), a.temperature.to_string(), "must be above 0")?;
        range("agent.score_floor", a.score_floor < 0.0, a.score_floor.to_string(), "must be below 0")?;
        range("agent.batch", a.batch > 0, a.batch.to_string(), "must be 1 or more")?;
        range("agent.discount", (0.0..=1.0).contains(&a.discount), a.discount.to_string(), "must lie in [0, 1]")?;
        for (key, x) in
            [("agent.polyak", a.polyak), ("agent.averaging", a.averaging), ("agent.final_rate", a.final_rate)]
        {
            range(key, (0.0..=1.0).contains(&x), x.to_string(), "must lie in [0, 1]")?;
        }
        range(
            "agent.log_std_min",
            a.log_std_min <= a.log_std_max,
            a.log_std_min.to_string(),
            "must not pass agent.log_std_max",
        )?;
        range(
            "train.updates_per_step",
            t.updates_per_step >= 0.0 && t.updates_per_step <= 1000.0,
            t.updates_per_step.to_string(),
            "must lie in [0, 1000]",
        )?;
        for (key, n) in [
            ("train.steps", t.steps),
            ("train.record_every", t.record_every),
            ("train.checkpoint_every", t.checkpoint_every),
            ("train.test_episodes", t.test_episodes),
            ("train.capacity", t.capacity as u64),
            ("collect.steps", self.collect.steps),
            ("run.seeds", self.run.seeds),
            ("run.episodes", self.run.episodes),
        ] {
            range(key, n > 0, n.to_string(), "must be 1 or more")?;
        }
        for (key, x) in [
            ("agent.reward_scale", a.reward_scale),
            ("multiplier.learning_rate", m.learning_rate),
            ("safety.clip", s.clip),
        ] {
            range(key, positive(x), x.to_string(), "must be above 0")?;
        }
        let finite = [
            ("agent.entropy", a.entropy),
            ("agent.score_floor", a.score_floor),
            ("multiplier.initial", m.initial),
            ("multiplier.fixed", m.fixed.unwrap_or(0.0)),
            ("safety.weight_decay", s.weight_decay),
        ];
        for (key, x) in finite {
            range(key, x.is_finite(), x.to_string(), "must be finite")?;
        }
        let seeds = self.run.seed.checked_add(self.run.seeds).is_some_and(|last| last <= i64::MAX as u64);
        range("run.seed", seeds, self.run.seed.to_string(), "must stay below 2^63 for all seeds")?;
        self.parsed_rule()?;
        Ok(())
    }
}

/// Resolves a task, a built-in name or the path of a task file, to settings that every command can work with.
pub fn resolve(task: &str, files: &[std::path::PathBuf], sets: &[String]) -> anyhow::Result<Config> {
    let config = read(task, files, sets)?;
    config.check()?;
    Ok(config)
}

/// The same without a check, which builds the environment and so wants its engine.
pub fn read(task: &str, files: &[std::path::PathBuf], sets: &[String]) -> anyhow::Result<Config> {
    let names = || TASKS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let (mut table, origin) = match TASKS.iter().find(|(name, _)| *name == task) {
        Some((_, text)) => (text.parse::<Table>()?, format!("task {task}")),
        None if Path::new(task).is_file() => (read_table(Path::new(task))?, task.to_owned()),
        None if task.ends_with(".toml") => bail!("{task}: no such file"),
        None => bail!("unknown task `{task}`: expected one of {}, or the path of a task file", names()),
    };
    let mut config: Config = table.clone().try_into().map_err(|e| anyhow!("{origin}: {}", one_line(&e)))?;
    let (rule, env) = (config.rule.clone(), config.env.clone());
    for path in files {
        merge(&mut table, read_table(path)?);
        config = table.clone().try_into().map_err(|e| anyhow!("{}: {}", path.display(), one_line(&e)))?;
    }
    for set in sets {
        apply(&mut table, set)?;
        anchor(&mut table, &std::env::current_dir()?);
        config = table.clone().try_into().map_err(|e| anyhow!("--set {set}: {}", one_line(&e)))?;
    }
    if config.rule != rule || config.env != env {
        config.reference.clear(); // they were the task's own
    }
    Ok(config)
}

/// A text of serde's, key and all, on one line and with types in plain words.
fn one_line(error: &toml::de::Error) -> String {
    let words = [("u64", "a whole number, 0 or more"), ("usize", "a whole number, 0 or more"), ("f64", "a number")];
    let message = error.to_string().trim().replace('\n', " ");
    words.iter().fold(message, |message, (kind, word)| {
        message.replace(&format!("expected {kind}"), &format!("expected {word}"))
    })
}

/// `section.key=value` into the table; a value that is no TOML is taken as text.
fn apply(table: &mut Table, set: &str) -> anyhow::Result<()> {
    let (path, text) = set
        .split_once('=')
        .ok_or_else(|| anyhow!("--set {set}: expected section.key=value, such as train.steps=1000"))?;
    let value = format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
    let value = value.unwrap_or_else(|| Value::String(text.into()));
    let mut keys: Vec<&str> = path.trim().split('.').collect();
    let last = keys.pop().filter(|k| !k.is_empty()).ok_or_else(|| anyhow!("--set {set}: the key is empty"))?;
    let mut place = table;
    for key in keys {
        place = match place.entry(key).or_insert_with(|| Value::Table(Table::new())) {
            Value::Table(inner) => inner,
            _ => bail!("--set {set}: `{key}` is a value, not a section"),
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

/// A file's table; files that it names are relative to its folder.
fn read_table(path: &Path) -> anyhow::Result<Table> {
    let bytes = prudence_data::files::read_limited(path, 1 << 20)?;
    let text = String::from_utf8(bytes).with_context(|| format!("{}: not UTF-8 text", path.display()))?;
    let mut table = text.parse::<Table>().map_err(|e| anyhow!("{}: {e}", path.display()))?;
    let place = std::path::absolute(path).with_context(|| path.display().to_string())?;
    anchor(&mut table, place.parent().unwrap_or(Path::new("/")));
    Ok(table)
}

/// Makes paths in `[env]` absolute that are relative to a folder.
fn anchor(table: &mut Table, folder: &Path) {
    let Some(Value::Table(env)) = table.get_mut("env") else { return };
    for key in ["domain", "instance", "xml_file"] {
        if let Some(Value::String(file)) = env.get_mut(key)
            && !file.starts_with(BUILTIN)
            && let Some(place) = folder.join(&*file).to_str()
        {
            *file = place.to_owned();
        }
    }
}
