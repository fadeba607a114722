//! Safe reinforcement learning when nobody can write the safety cost down.
//!
//! prudence takes trajectories with a bit (safe / unsafe), learns a recurrent safety model that spreads the blame over
//! single steps, and trains an agent that earns as much reward as it can while at least a chosen share of its trajectories
//! is safe (SafeSAC-H, Low & Kumar, ICML 2024). This crate is the front door: the command line is a thin client of it.
//!
//! A [`Task`] says what to do and what is unsafe. [`run()`] does everything; or go step by step, in the order data flows:
//! [`collect`] stores episodes, [`label`] labels them, [`fit()`] makes a [`SafetyModel`], [`train`] an [`Agent`],
//! [`evaluate`] tests it on the true rule; [`resume`] continues whatever was interrupted. A [`Session`] says how: with how
//! many threads, and who hears of it. An environment of your own is an [`Env`] with three methods; `examples/custom_env.rs`
//! brings one all the way.
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
//! assert_eq!(labelled.labels, 40, "each episode, and three segments of it");
//! assert_eq!(Store::open(&collected.stores[0])?.steps(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod agent;
pub mod bench;
mod checkpoint;
mod collecting;
mod environment;
mod error;
mod evaluation;
mod fitting;
mod folder;
mod labelling;
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
pub use environment::EnvSettings;
pub use error::{Error, ErrorKind};
pub use evaluation::{TestSettings, evaluate};
pub use fitting::{Fitted, check_stores, fit, load_model};
pub use folder::{AgentFolder, Invocation, RunFolder};
pub use labelling::{Labelled, Labeller, label, stores};
pub use reporting::{CurveKind, plot};
pub use rollout::{Rollout, RolloutStep};
pub use run::{Resumed, resume, run};
pub use session::{Bar, Progress, Session, Silent};
pub use settings::{CollectSettings, LabelSettings, RunSettings, TaskSettings};
pub use task::Task;

// What a program that brings its own environment, episodes or rules needs of the crates below.
pub use prudence_agent::evaluate::TestEpisode;
pub use prudence_agent::settings::Constraint;
pub use prudence_agent::{AgentSettings, Algorithm, Error as AgentError, MultiplierSettings, TrainSettings};
pub use prudence_core::{SettingError, random};
pub use prudence_data::{Episode, Error as DataError, Label, LabelLog, Rule, RuleError, Schema, Store, files};
pub use prudence_env::{
    BareEngine, BoxSpace, Drawable, Env, Error as EnvError, Limb, MakeEnv, Scene, Settable, Snapshots, Spec, Step,
    Zone, conformance,
};
pub use prudence_report::records::{AlgoResult, Evaluation};
pub use prudence_safety::{Error as SafetyError, FitSettings, Quality, SafetyModel};
