//! The stages of the way data goes: collect or train, label, fit. Each can be done again on the same folder and then only
//! does what is missing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use prudence_agent::player::Player;
use prudence_agent::run::{Event, Folders};
use prudence_agent::trainer::{Setup, Trainer};
use prudence_agent::{Algorithm, Scaling, clock, run};
use prudence_data::files::{read_limited, write_atomic};
use prudence_data::{Dataset, Episode, LabelLog, Rule, Store, label_by_rule, label_path, latest};
use prudence_env::MakeEnv as _;
use prudence_env::random::{stream, subseed};
use prudence_nn::Mlp;
use prudence_nn::weights::Reader;
use prudence_safety::quality::{Quality, predictions};
use prudence_safety::{SafetyModel, fit};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::folder::AgentFolder;
use crate::progress::Progress;

/// Set when the user pressed Ctrl-C: training stops at the next episode's end.
static STOP: AtomicBool = AtomicBool::new(false);

/// From now on the first Ctrl-C lets training reach a checkpoint, and the second ends at once.
pub fn stop_at_checkpoint() -> anyhow::Result<()> {
    Ok(ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("stopping at the next checkpoint; press Ctrl-C again to stop at once");
    })?)
}

/// One agent to train.
pub struct Job<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// Which algorithm.
    pub algorithm: Algorithm,
    /// Its seed.
    pub seed: u64,
    /// The round: each has its own draws.
    pub round: u64,
    /// Environment steps.
    pub steps: u64,
    /// The safety model.
    pub safety: Option<Arc<SafetyModel>>,
    /// Episodes to start from.
    pub stored: Arc<Vec<Episode>>,
    /// Where records go.
    pub run: PathBuf,
    /// Where its episodes go.
    pub episodes: PathBuf,
}

impl Job<'_> {
    fn setup(&self) -> anyhow::Result<Setup> {
        let mut settings = self.config.training();
        settings.train.steps = self.steps;
        Ok(Setup {
            algorithm: self.algorithm,
            settings,
            env: Arc::new(self.config.env.clone()),
            rule: self.config.parsed_rule()?,
            safety: self.safety.clone(),
            stored: self.stored.clone(),
            seed: subseed(self.seed, "round", self.round),
        })
    }

    /// Trains, or goes on training.
    pub fn train(&self, progress: &Progress) -> anyhow::Result<Trainer> {
        let label = format!("{} seed {}", self.algorithm.name(), self.seed);
        let bar = progress.bar(&label, self.steps);
        let folders =
            Folders { run: self.run.clone(), episodes: self.episodes.clone(), task: self.config.name.clone() };
        let trainer = run::train(self.setup()?, &folders, &STOP, &|event| match event {
            Event::Step(step) => bar.set(step),
            Event::Record(record) => bar.message(format!(
                "return {:.1}  safe {:.0} %  lambda {:.2}",
                record.return_mean,
                100.0 * record.safe_share,
                record.multiplier
            )),
            Event::Warning(text) => progress.say(&format!("warning: {label}: {text}")),
        });
        trainer.with_context(|| label)
    }
}

/// Labels every episode of a store that has no label yet; returns how many episodes were labelled.
pub fn label(store: &Path, rule: &Rule, extra_starts: usize, seed: u64) -> anyhow::Result<u64> {
    let episodes = Store::open(store)?;
    let mut log = LabelLog::open(&label_path(store))?;
    let by = format!("rule: {}", rule.text());
    let known: HashSet<u64> =
        latest(log.labels()).into_iter().filter(|l| l.by == by && l.start == 0).map(|l| l.episode).collect();
    let when = clock::timestamp();
    let mut labelled = 0;
    for shard in episodes.shards().collect::<Vec<_>>() {
        let mut labels = Vec::new();
        for (id, episode) in shard.clone().zip(episodes.read(shard)?) {
            if !known.contains(&id) {
                let rng = &mut stream(seed, "segments", id);
                // The whole episode's label comes last: once it is in the log, so are those of the segments.
                labels.extend(label_by_rule(rule, id, &episode, extra_starts, rng, &when).into_iter().rev());
                labelled += 1;
            }
        }
        log.append(&labels)?;
    }
    Ok(labelled)
}

/// What is known of a fitted model; `quality.json` beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fitted {
    /// Labelled episodes, held-out ones included.
    pub data_episodes: u64,
    /// Labelled segments of them.
    pub data_segments: u64,
    /// On held-out whole episodes.
    pub held_out: Quality,
    /// Log P and truth of each of them.
    pub predictions: Vec<(f64, bool)>,
}

/// Fits a safety model on the labelled episodes of these stores and writes it with its quality; does nothing if both are
/// there already.
pub fn fit_model(
    config: &Config,
    stores: &[PathBuf],
    out: &Path,
    seed: u64,
    progress: &Progress,
) -> anyhow::Result<(SafetyModel, Fitted)> {
    let (model_path, quality_path) = (out.join("model.safetensors"), out.join("quality.json"));
    if model_path.is_file() && quality_path.is_file() {
        let quality = serde_json::from_slice(&read_limited(&quality_path, 1 << 30)?)
            .with_context(|| quality_path.display().to_string())?;
        return Ok((load_model(&model_path)?, quality));
    }
    check_stores(config, stores)?;
    let data = Dataset::load(stores, config.safety.held_out, seed)?;
    let horizon = config.env.build()?.spec().horizon;
    let bar = progress.bar("safety model", config.safety.steps as u64);
    let mut average = f32::NAN;
    let model = fit(&data.episodes, &data.training, horizon, &config.safety, seed, |step, loss| {
        average = if average.is_nan() { loss } else { 0.99 * average + 0.01 * loss };
        if step % 20 == 0 {
            bar.set(step as u64);
            bar.message(format!("loss {average:.4}"));
        }
    })?;
    let predictions = predictions(&model, &data.episodes, &data.held_out);
    if predictions.is_empty() {
        progress.say("warning: no labelled episode is held out, so nothing says how good the model is: label more");
    }
    let labelled: HashSet<usize> = data.training.iter().chain(&data.held_out).map(|segment| segment.episode).collect();
    let fitted = Fitted {
        data_episodes: labelled.len() as u64,
        data_segments: data.labels as u64,
        held_out: Quality::of(&predictions),
        predictions,
    };
    std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    write_atomic(&quality_path, &serde_json::to_vec(&fitted)?)?;
    write_atomic(&model_path, &model.to_bytes()?)?;
    Ok((model, fitted))
}

/// Reads a safety model: the file, or the folder that `prudence fit` made.
pub fn load_model(path: &Path) -> anyhow::Result<SafetyModel> {
    let file = if path.is_dir() { path.join("model.safetensors") } else { path.to_path_buf() };
    let bytes = read_limited(&file, 1 << 30).with_context(|| "the safety model (made by `prudence fit`)")?;
    SafetyModel::from_bytes(&bytes).with_context(|| file.display().to_string())
}

/// Refuses stores whose episodes have other sizes than the task's.
pub fn check_stores(config: &Config, stores: &[PathBuf]) -> anyhow::Result<()> {
    let env = config.env.build()?;
    let (s, a) = (env.spec().observation.dim(), env.spec().action.dim());
    for dir in stores {
        let store = Store::open(dir)?;
        let schema = store.schema();
        if (schema.observation_dim, schema.action_dim) != (s, a) {
            anyhow::bail!(
                "{}: its observations and actions have {} and {} numbers; task `{}` has {s} and {a}",
                dir.display(),
                schema.observation_dim,
                schema.action_dim,
                config.name
            );
        }
    }
    Ok(())
}

/// All episodes of these stores, as learners see them.
pub fn load_episodes(stores: &[PathBuf]) -> anyhow::Result<Vec<Episode>> {
    let mut all = Vec::new();
    for dir in stores {
        let store = Store::open(dir)?;
        all.extend(store.read_without_signals(0..store.len())?);
    }
    Ok(all)
}

/// A trained agent, ready to play, and the parameters of its policy.
pub fn load_agent(config: &Config, run: &Path, agent: &AgentFolder) -> anyhow::Result<(Player, Vec<f32>)> {
    let constrained = agent.algorithm.constraint().is_some();
    let safety: Option<Arc<SafetyModel>> = match constrained {
        true => Some(Arc::new(load_model(&run.join(format!("round-{}/safety", agent.round)))?)),
        false => None,
    };
    let env = config.env.build()?;
    let (s, a) = Scaling::new(env.spec()).sizes();
    if let Some(model) = &safety {
        model.check(s, a)?;
    }
    let history = agent.algorithm.history();
    let memory = safety.as_ref().filter(|_| history).map_or(0, |model| model.memory());
    let shape = Mlp::new(s + memory, &config.agent.hidden, 2 * a);
    let path = agent.dir.join("policy.safetensors");
    let bytes = read_limited(&path, 1 << 32)
        .with_context(|| format!("{} seed {} is not trained to its end", agent.algorithm.name(), agent.seed))?;
    let policy: Vec<f32> = Reader::new(&bytes)
        .and_then(|file| file.network("policy.", &shape.tensors()))
        .with_context(|| path.display().to_string())?;
    let floor = config.agent.score_floor;
    Ok((Player::new(env, shape, config.agent.log_std(), safety, history, floor), policy))
}
