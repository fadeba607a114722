//! Fits a safety model to labelled stores and writes it together with its quality on held-out episodes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prudence_core::clock::Stopwatch;
use prudence_data::files::{create_dir, lock, read_json, read_limited, write_atomic, write_json};
use prudence_data::{Dataset, Segments, Store};
use prudence_nn::{Cpu, Device};
use prudence_safety::quality::predictions;
use prudence_safety::{Fit, FitData, FitState, Quality, SafetyModel, Scorer};
use serde::{Deserialize, Serialize};

use crate::error::InFile as _;
use crate::folder::{RunFolder, lock_around, model_file, quality_file};
use crate::footprint::Memory;
use crate::session::Session;
use crate::{Error, SafetyError, Task, fit_checkpoint, footprint};

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
    if RunFolder::at(out).is_created() || out.join("store.json").is_file() {
        return Err(Error::content(out, "the folder of a run, a collection or a store; a model needs another one"));
    }
    let _locks = lock_around(out)?;
    create_dir(out)?;
    let _lock = lock(&out.join(".prudence-fit.lock"))?;
    let data = Dataset::decode(stores, out, session.stop_flag())?;
    let job = [FitJob { task, data: &data, out: out.to_owned(), seed, session }];
    let fitted = match session.card() {
        None => fit_all(&Cpu::<f32>::new(), &job, session)?,
        Some(card) => fit_all(card, &job, session)?,
    };
    fitted.into_iter().next().unwrap_or(Err(Error::Stopped))
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

/// A model to fit, of one replica.
pub(crate) struct FitJob<'a> {
    pub task: &'a Task,
    pub data: &'a Dataset,
    /// The folder of the model.
    pub out: PathBuf,
    pub seed: u64,
    /// Where its warnings are reported.
    pub session: &'a Session,
}

/// A fitted model with its quality, or why there is none.
pub(crate) type FitOutcome = Result<(SafetyModel, Fitted), Error>;

/// A fit that has not been completed yet.
struct Open<'a> {
    job: &'a FitJob<'a>,
    segments: Segments,
    setup: String,
    /// What an interrupted fit left behind.
    state: Option<FitState>,
}

/// Fits models to the labels of decoded stores, those of all replicas together, and returns each with its quality.
/// Interrupted fits continue from their states.
pub(crate) fn fit_all<D: Device>(device: &D, jobs: &[FitJob<'_>], session: &Session) -> Result<Vec<FitOutcome>, Error> {
    // They are fitted together.
    let memory = session.memory()?.divided_by(jobs.len());
    let mut results: Vec<Option<FitOutcome>> = Vec::with_capacity(jobs.len());
    let mut open = Vec::new();
    for job in jobs {
        results.push(match Started::of(job, &memory) {
            Ok(Started::Completed(model, fitted)) => Some(Ok((model, *fitted))),
            Ok(Started::Open(one)) => {
                open.push(one);
                None
            }
            Err(error) => Some(Err(error)),
        });
    }
    let mut models = fit_open(device, &open, session)?.into_iter();
    let mut open = open.iter();
    let mut finish = || -> FitOutcome {
        match (open.next(), models.next()) {
            (Some(open), Some(model)) => open.finish(device, model?),
            _ => Err(Error::Stopped),
        }
    };
    Ok(results.into_iter().map(|result| result.unwrap_or_else(&mut finish)).collect())
}

/// Fits the models.
fn fit_open<D: Device>(
    device: &D,
    open: &[Open<'_>],
    session: &Session,
) -> Result<Vec<Result<SafetyModel, Error>>, Error> {
    let Some(first) = open.first() else { return Ok(Vec::new()) };
    let task = first.job.task;
    let data = open.iter().map(|Open { job, segments, .. }| FitData {
        episodes: &job.data.episodes,
        training: &segments.training,
        seed: job.seed,
    });
    let data = data.collect();
    let states: Vec<(&str, &Path)> = open.iter().map(|one| (one.setup.as_str(), one.job.out.as_path())).collect();
    let device = &device.fork().map_err(prudence_agent::Error::from)?;
    session.pool().install(|| {
        let mut fit = Fit::new(device, data, task.spec().horizon, &task.settings().safety)?;
        fit_checkpoint::restore(&mut fit, open.iter().map(|one| one.state.clone()))?;
        let label = if open.len() == 1 { "safety model".to_owned() } else { format!("{} safety models", open.len()) };
        let bar = session.progress().begin(&label, task.settings().safety.steps as u64);
        let watch = Stopwatch::start();
        let mut saved = 0.0;
        while !fit.done() {
            if session.stopping() || watch.seconds() - saved > SAVE_EVERY {
                fit_checkpoint::save(&fit, &states)?;
                saved = watch.seconds();
            }
            if session.stopping() {
                return Err(Error::Stopped);
            }
            match fit.step() {
                Ok(()) => {}
                // All of these have diverged, and each says so below. Other replicas may have been fitted earlier.
                Err(SafetyError::Diverged { .. }) => break,
                Err(error) => {
                    let error = Error::from(error);
                    if error.is_stop() {
                        fit_checkpoint::save(&fit, &states)?;
                    }
                    return Err(error);
                }
            }
            bar.set(fit.steps() as u64);
            bar.message(&format!("loss {:.4}", fit.loss()));
        }
        Ok((0..open.len()).map(|replica| Ok(fit.model(replica)?)).collect())
    })
}

/// A fit that was completed earlier, or that is still to be done.
enum Started<'a> {
    Completed(SafetyModel, Box<Fitted>),
    Open(Open<'a>),
}

impl<'a> Started<'a> {
    fn of(job: &'a FitJob<'a>, memory: &Memory) -> Result<Self, Error> {
        let FitJob { task, data, out, seed, .. } = job;
        let segments = data.segments(task.settings().safety.held_out)?;
        let setup = setup_hash(task, data, &segments, *seed);
        if let Some((model, fitted)) = read_fit(out, &setup)? {
            return Ok(Self::Completed(model, Box::new(fitted)));
        }
        FitData { episodes: &data.episodes, training: &segments.training, seed: *seed }.check()?;
        let longest = segments.training.iter().map(|segment| segment.end - segment.start).max();
        footprint::fit(task, longest.unwrap_or(0), memory)?;
        create_dir(out)?;
        let state = fit_checkpoint::load(&setup, out)?;
        Ok(Self::Open(Open { job, segments, setup, state }))
    }
}

impl Open<'_> {
    /// Measures the model's quality on held-out episodes, and writes both.
    fn finish<D: Device>(&self, device: &D, model: SafetyModel) -> FitOutcome {
        let Self { job: FitJob { task, data, out, session, .. }, segments, setup, .. } = self;
        let model = Arc::new(model);
        let scorer = Scorer::new(device, std::slice::from_ref(&model), task.settings().agent.score_floor)?;
        let predictions = predictions(&scorer, &data.episodes, &segments.held_out)?;
        if predictions.is_empty() {
            session.progress().say(
                "warning: no labelled episode is held out, so the model's accuracy is unknown; label more episodes",
            );
        }
        let all = segments.training.iter().chain(&segments.held_out);
        let fitted = Fitted {
            data_episodes: all.clone().map(|segment| segment.episode).collect::<HashSet<_>>().len() as u64,
            data_segments: all.count() as u64,
            held_out: Quality::of(&predictions),
            predictions,
            setup: setup.clone(),
        };
        write_json(&quality_file(out), &fitted)?;
        write_atomic(&model_file(out), &model.to_bytes()?)?;
        fit_checkpoint::remove(out)?;
        drop(scorer);
        Ok((Arc::unwrap_or_clone(model), fitted))
    }
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
///
/// ```
/// use prudence::{Schema, Store, Task};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("episodes");
/// let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
/// Store::create(&path, schema)?;
/// let error = prudence::check_stores(&Task::named("navigation")?, &[path]).unwrap_err();
/// assert!(error.to_string().contains("have 1 and 1 dimensions"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
