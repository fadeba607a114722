//! Fits a safety model to labelled stores and writes it together with its quality on held-out episodes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_core::clock::Stopwatch;
use prudence_data::files::{create_dir, lock, read_json, read_limited, write_atomic, write_json};
use prudence_data::{Dataset, Segments, Store};
use prudence_nn::Cpu;
use prudence_safety::quality::predictions;
use prudence_safety::{Fit, Quality, SafetyModel, Scorer};
use serde::{Deserialize, Serialize};

use crate::error::InFile as _;
use crate::folder::{model_file, quality_file};
use crate::session::Session;
use crate::{Error, Task, fit_checkpoint, footprint};

const MAX_QUALITY_BYTES: u64 = 1 << 30;
/// Seconds between two saved states of a fit.
const SAVE_EVERY: f64 = 30.0;

/// The data of a fitted model, and its quality.
///
/// ```
/// fn report(fitted: &prudence::Fitted) {
///     println!("right on {:.1} % of {} held-out episodes", 100.0 * fitted.held_out.accuracy, fitted.held_out.episodes);
/// }
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fitted {
    /// The number of labelled episodes, including held-out ones.
    pub data_episodes: u64,
    /// The number of labelled segments of these episodes.
    pub data_segments: u64,
    /// The quality on held-out whole episodes.
    pub held_out: Quality,
    /// The predicted log P(safe) and the label of each held-out episode.
    pub predictions: Vec<(f64, bool)>,
    /// A hash of everything that the fit depended on.
    pub setup: String,
}

/// Fits a safety model to the labelled episodes of these stores and writes it, with its quality, into the folder `out`.
/// If this fit has already written both files, they are read instead.
///
/// ```
/// use prudence::{Labeller, Session, Task};
///
/// # let dir = tempfile::tempdir()?;
/// # let small = ["run.seeds=1", "collect.steps=200", "train.steps=200", "train.random_steps=100", "train.test_episodes=2"];
/// let task = Task::named("navigation")?.with(&small)?.with(&["safety.steps=20", "rule=\"distance > 8\""])?;
/// let (episodes, session) = (dir.path().join("episodes"), Session::new(1)?);
/// let collected = prudence::collect(&task, &episodes, &session)?;
/// prudence::label(&episodes, &Labeller::of(&task))?;
/// let (model, fitted) = prudence::fit(&task, &collected.stores, &dir.path().join("model"), 0, &session)?;
/// assert_eq!((model.memory_width(), fitted.data_episodes), (17, 10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fit(
    task: &Task,
    stores: &[PathBuf],
    out: &Path,
    seed: u64,
    session: &Session,
) -> Result<(SafetyModel, Fitted), Error> {
    check_stores(task, stores)?;
    create_dir(out)?;
    let _lock = lock(&out.join(".prudence-fit.lock"))?;
    let data = Dataset::decode(stores, out)?;
    fit_to(task, &data, out, seed, session)
}

/// The model and its quality, if this fit has written both.
fn read_fit(out: &Path, setup: &str) -> Result<Option<(SafetyModel, Fitted)>, Error> {
    let (model, quality) = (model_file(out), quality_file(out));
    if !(model.is_file() && quality.is_file()) {
        return Ok(None);
    }
    let fitted: Fitted = read_json(&quality, MAX_QUALITY_BYTES)?;
    if fitted.setup != setup {
        return Err(Error::content(
            &model,
            "this model was fitted to other episodes or labels, or with other settings",
        ));
    }
    fit_checkpoint::remove(out)?;
    Ok(Some((load_model(&model)?, fitted)))
}

/// Fits a model to the labels of decoded stores. An interrupted fit continues from its state in `out`.
pub(crate) fn fit_to(
    task: &Task,
    data: &Dataset,
    out: &Path,
    seed: u64,
    session: &Session,
) -> Result<(SafetyModel, Fitted), Error> {
    let settings = &task.settings().safety;
    let segments = data.segments(settings.held_out)?;
    let setup = setup_hash(task, data, &segments, seed);
    if let Some(fitted) = read_fit(out, &setup)? {
        return Ok(fitted);
    }
    let longest = segments.training.iter().map(|segment| segment.end - segment.start).max();
    footprint::fit(task, longest.unwrap_or(0))?;
    create_dir(out)?;
    let device = Cpu::<f32>::new();
    let model = session.pool().install(|| -> Result<SafetyModel, Error> {
        let horizon = task.spec().horizon;
        let mut fit = Fit::new(&device, &data.episodes, &segments.training, horizon, settings, seed)?;
        fit_checkpoint::restore(&mut fit, &setup, out)?;
        let bar = session.progress().begin("safety model", settings.steps as u64);
        let watch = Stopwatch::start();
        let mut saved = 0.0;
        while !fit.done() {
            if session.stopping() || watch.seconds() - saved > SAVE_EVERY {
                fit_checkpoint::save(&fit, &setup, out)?;
                saved = watch.seconds();
            }
            if session.stopping() {
                return Err(Error::Stopped);
            }
            fit.step()?;
            bar.set(fit.steps() as u64);
            bar.message(&format!("loss {:.4}", fit.loss()));
        }
        Ok(fit.model()?)
    })?;
    let model = Arc::new(model);
    let scorer = Scorer::new(&device, std::slice::from_ref(&model), task.settings().agent.score_floor)?;
    let predictions = predictions(&scorer, &data.episodes, &segments.held_out)?;
    if predictions.is_empty() {
        session
            .progress()
            .say("warning: no labelled episode is held out, so the model's accuracy is unknown; label more episodes");
    }
    let all = segments.training.iter().chain(&segments.held_out);
    let fitted = Fitted {
        data_episodes: all.clone().map(|segment| segment.episode).collect::<HashSet<_>>().len() as u64,
        data_segments: all.count() as u64,
        held_out: Quality::of(&predictions),
        predictions,
        setup,
    };
    write_json(&quality_file(out), &fitted)?;
    write_atomic(&model_file(out), &model.to_bytes()?)?;
    fit_checkpoint::remove(out)?;
    Ok((Arc::unwrap_or_clone(model), fitted))
}

/// A hash of everything that a fit depends on, except the code.
fn setup_hash(task: &Task, data: &Dataset, segments: &Segments, seed: u64) -> String {
    let mut hash = blake3::Hasher::new();
    let settings = &task.settings().safety;
    hash.update(format!("{settings:?} {} {seed} {}", task.spec().horizon, data.episodes.fingerprint()).as_bytes());
    hash.update(format!("{:?} {:?}", segments.training, segments.held_out).as_bytes());
    hash.finalize().to_hex().to_string()
}

/// Reads a safety model from its file, or from the folder that [`fit`] wrote.
///
/// ```no_run
/// let model = prudence::load_model(std::path::Path::new("model"))?;
/// # Ok::<(), prudence::Error>(())
/// ```
pub fn load_model(path: &Path) -> Result<SafetyModel, Error> {
    let file = if path.is_dir() { model_file(path) } else { path.to_path_buf() };
    SafetyModel::from_bytes(&read_limited(&file, 1 << 30)?).in_file(&file)
}

/// Checks that the observations and actions of these stores have the dimensions of the task's.
pub fn check_stores(task: &Task, stores: &[PathBuf]) -> Result<(), Error> {
    let (s, a) = (task.spec().observation.dim(), task.spec().action.dim());
    for dir in stores {
        let store = Store::open(dir)?;
        let schema = store.schema();
        if (schema.observation_dim, schema.action_dim) != (s, a) {
            return Err(Error::content(
                dir,
                format!(
                    "its observations and actions have {} and {} dimensions; those of task `{}` have {s} and {a}",
                    schema.observation_dim,
                    schema.action_dim,
                    task.name()
                ),
            ));
        }
    }
    Ok(())
}
