//! Safe reinforcement learning when nobody can write the safety cost down.
//!
//! prudence learns a recurrent safety model from trajectories that are labelled safe or unsafe as a whole. The model
//! attributes the label to single steps. With it, prudence trains agents that maximise the return while a required
//! share of their trajectories is safe (SafeSAC-H, Low & Kumar, ICML 2024). This crate is the main API; the command
//! line is a thin layer on top of it.
//!
//! A [`Task`] is an environment, the rule that makes an episode safe, and all settings. [`run()`] does everything. The
//! stages, in the order in which data flows: [`collect`] stores episodes, [`label`] labels them, [`fit()`] fits a
//! [`SafetyModel`], [`train`] trains [`Agent`]s, and [`evaluate`] tests them on the true rule. [`resume`] continues
//! whatever was interrupted. A [`Session`] holds the threads, reports progress and stops the work on request. Your own
//! environment implements [`Env`]; `examples/custom_env.rs` shows all steps from its definition to a trained agent.
//!
//! ```
//! use prudence::{Labeller, Session, Store, Task};
//!
//! let dir = tempfile::tempdir()?;
//! let session = Session::new(1)?;
//! let task = Task::named("navigation")?.with(&["run.seeds=1", "collect.steps=200", "train.random_steps=100"])?;
//! let collected = prudence::collect(&task, &dir.path().join("episodes"), &session)?;
//! assert_eq!(collected.episodes, 10);
//!
//! let rule = Labeller::Rule { rule: "count(in_danger) <= 1".into(), extra_starts: 3, seed: 0 };
//! let labelled = prudence::label(&dir.path().join("episodes"), &rule)?;
//! assert_eq!(labelled.labels, 40, "one per episode and three for segments of it");
//! assert_eq!(Store::open(&collected.stores[0])?.steps(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The whole procedure with one seed, which takes minutes (the example of `docs/safesac.md`):
//!
//! ```no_run
//! use std::path::Path;
//!
//! use prudence::{Labeller, Session, Task};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let session = Session::new(0)?; // as many threads as there are cores
//!     let task = Task::named("navigation")?.with(&["run.seeds=1", "run.algo=[\"safesac-h\"]"])?;
//!
//!     let collected = prudence::collect(&task, Path::new("episodes"), &session)?;
//!     let rule = Labeller::Rule { rule: task.settings().rule.clone(), extra_starts: 3, seed: 0 };
//!     prudence::label(Path::new("episodes"), &rule)?;
//!     let (model, fitted) = prudence::fit(&task, &collected.stores, Path::new("model"), 0, &session)?;
//!     println!("the safety model is right on {:.1} % of held-out episodes", 100.0 * fitted.held_out.accuracy);
//!
//!     let agents = prudence::train(&task, Some(&model), &collected.stores, Path::new("agent"), &session)?;
//!     let tests = agents[0].test(&task, 0..100, None)?; // None: the policy's mode
//!     println!("{} of {} test episodes are safe", tests.iter().filter(|test| test.safe).count(), tests.len());
//!     Ok(())
//! }
//! ```
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod agent;
pub mod bench;
mod checkpoint;
mod collecting;
mod device;
mod environment;
mod error;
mod estimate;
mod evaluation;
mod fit_checkpoint;
mod fitting;
mod folder;
mod footprint;
mod inspect;
mod labelling;
mod provenance;
mod replicas;
mod reporting;
mod rollout;
mod run;
mod session;
mod settings;
mod task;
pub mod tasks;
mod tensorboard;
mod training;

pub use agent::{Agent, Pilot};
pub use collecting::{Collected, collect, train};
pub use device::{CardInfo, DeviceName, Devices};
pub use environment::EnvSettings;
pub use error::{Error, ErrorKind};
pub use estimate::Estimate;
pub use evaluation::{TestSettings, evaluate};
pub use fitting::{Fitted, check_stores, fit, load_model};
pub use folder::{AgentFolder, Invocation, RunFolder};
pub use inspect::{FileCheck, StoreInfo, StoredEpisode, Summary, check_files};
pub use labelling::{Labelled, Labeller, label, stores};
pub use provenance::{duration, version};
pub use reporting::{CurveKind, percent, plot};
pub use rollout::{Actions, Rollout, RolloutStep};
pub use run::{Resumed, resume, run};
pub use session::{Bar, Progress, Session, Silent};
pub use settings::{CollectSettings, LabelSettings, RefitSettings, RunSettings, TaskSettings};
pub use task::Task;

// What programs with their own environments, episodes or rules need from the other crates.
pub use prudence_agent::evaluate::TestEpisode;
pub use prudence_agent::settings::Constraint;
pub use prudence_agent::{AgentSettings, Algorithm, Error as AgentError, MultiplierSettings, TrainSettings};
pub use prudence_core::clock::Stopwatch;
pub use prudence_core::{SettingError, nearest, random};
pub use prudence_data::{Episode, Error as DataError, Label, LabelLog, Rule, RuleError, Schema, Store, files};
pub use prudence_env::{
    BareEngine, BoxSpace, Drawable, Env, Error as EnvError, Limb, MakeEnv, Scene, Settable, Snapshots, Spec, Step,
    Zone, conformance,
};
pub use prudence_nn::Precision;
pub use prudence_report::records::{AlgoResult, Evaluation, ReplicaSummary};
pub use prudence_safety::{Error as SafetyError, FitSettings, Quality, SafetyModel};
