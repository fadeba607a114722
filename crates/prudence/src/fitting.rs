//! Fits a safety model to labelled stores and writes it together with its quality on held-out episodes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_data::files::{create_dir, read_limited, write_atomic};
use prudence_data::{Dataset, Episode, Store};
use prudence_nn::Cpu;
use prudence_safety::quality::predictions;
use prudence_safety::{Quality, SafetyModel, Scorer};
use serde::{Deserialize, Serialize};

use crate::error::InFile as _;
use crate::folder::{model_file, quality_file};
use crate::session::Session;
use crate::{Error, Task};

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
}

/// Fits a safety model to the labelled episodes of these stores and writes it, with its quality, into the folder `out`.
/// If both files already exist, they are read instead.
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
    let (model_path, quality_path) = (model_file(out), quality_file(out));
    if model_path.is_file() && quality_path.is_file() {
        let quality = serde_json::from_slice(&read_limited(&quality_path, 1 << 30)?)
            .map_err(|e| Error::content(&quality_path, e.to_string()))?;
        return Ok((load_model(&model_path)?, quality));
    }
    check_stores(task, stores)?;
    let settings = &task.settings().safety;
    let data = Dataset::load(stores, settings.held_out, seed)?;
    let bar = session.progress().begin("safety model", settings.steps as u64);
    let device = Cpu::<f32>::new();
    let model = session.pool().install(|| {
        prudence_safety::fit(
            &device,
            &data.episodes,
            &data.training,
            task.spec().horizon,
            settings,
            seed,
            |step, loss| {
                bar.set(step as u64);
                bar.message(&format!("loss {loss:.4}"));
            },
        )
    })?;
    let model = Arc::new(model);
    let scorer = Scorer::new(&device, std::slice::from_ref(&model), task.settings().agent.score_floor)?;
    let predictions = predictions(&scorer, &data.episodes, &data.held_out)?;
    if predictions.is_empty() {
        session
            .progress()
            .say("warning: no labelled episode is held out, so the model's accuracy is unknown; label more episodes");
    }
    let labelled: HashSet<usize> = data.training.iter().chain(&data.held_out).map(|segment| segment.episode).collect();
    let fitted = Fitted {
        data_episodes: labelled.len() as u64,
        data_segments: data.labels as u64,
        held_out: Quality::of(&predictions),
        predictions,
    };
    create_dir(out)?;
    let quality = serde_json::to_vec(&fitted).map_err(|e| Error::content(&quality_path, e.to_string()))?;
    write_atomic(&quality_path, &quality)?;
    write_atomic(&model_path, &model.to_bytes()?)?;
    Ok((Arc::unwrap_or_clone(model), fitted))
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

/// Reads all episodes of these stores without their signals, as learners see them.
pub(crate) fn load_episodes(stores: &[PathBuf]) -> Result<Vec<Episode>, Error> {
    let mut all = Vec::new();
    for dir in stores {
        let store = Store::open(dir)?;
        all.extend(store.read_without_signals(0..store.len())?);
    }
    Ok(all)
}
