//! The agent: replay, the SafeSAC family, training, tests judged by the true rule, checkpoints.
//!
//! The tour, in the order data flows: a [`player::Player`] acts and gives episodes; a [`replay::Replay`] keeps them,
//! enriched by the safety model; a [`safesac::Learner`] updates networks from batches of it; a
//! [`multiplier::Multiplier`] weighs safety against reward; a [`trainer::Trainer`] is the loop around them;
//! [`evaluate`] tests policies on the true rule, which no learner ever sees; [`run`] writes a training run's folder and
//! resumes it.

pub mod bench;
mod checkpoint;
pub mod clock;
pub mod evaluate;
pub mod multiplier;
pub mod player;
pub mod records;
pub mod replay;
pub mod run;
pub mod safesac;
mod scaling;
pub mod settings;
pub mod tensorboard;
pub mod trainer;

pub use scaling::Scaling;
pub use settings::{AgentSettings, Algorithm, MultiplierSettings, TrainSettings};

/// What can go wrong while training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment refused.
    #[error(transparent)]
    Env(#[from] prudence_env::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    Data(#[from] prudence_data::Error),
    /// The safety model does not fit.
    #[error(transparent)]
    Safety(#[from] prudence_safety::Error),
    /// A checkpoint is damaged or from another configuration.
    #[error("{path}: {problem}")]
    Checkpoint {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The run's folder could not be written.
    #[error("{path}: {source}")]
    Io {
        /// The folder.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A setting out of range.
    #[error("{key} = {value}: {expected}")]
    Setting {
        /// The key.
        key: &'static str,
        /// The value given.
        value: String,
        /// What would be accepted.
        expected: &'static str,
    },
    /// Numbers ran away.
    #[error("training diverged at step {step}: {what} is not finite; try a smaller agent.learning_rate")]
    Diverged {
        /// Environment steps so far.
        step: u64,
        /// Which number.
        what: &'static str,
    },
    /// The user asked to stop.
    #[error("stopped at the last checkpoint; `prudence resume` goes on from there")]
    Stopped,
}
