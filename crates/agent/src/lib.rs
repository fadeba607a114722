//! The agent: replay, the SafeSAC family, training, tests judged by the true rule. It opens no file.
//!
//! The tour, in the order data flows: a [`recorder::Recorder`] is an environment and the episode in it; an
//! [`actor::Actor`] chooses its actions; a [`replay::Replay`] keeps episodes with what the safety model says of them; a
//! [`safesac::Learner`] updates networks from batches of it; a [`multiplier::Multiplier`] weighs safety against reward; a
//! [`population::Population`] is the loop around them, for P agents in lockstep; a [`evaluate::Player`] tests policies on
//! the true rule, which no learner ever sees.

pub mod actor;
pub mod evaluate;
pub mod multiplier;
pub mod population;
pub mod recorder;
pub mod records;
pub mod replay;
pub mod safesac;
mod scaling;
pub mod settings;

pub use scaling::Scaling;
pub use settings::{AgentSettings, Algorithm, MultiplierSettings, TrainSettings};

/// What can go wrong while training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment failed.
    #[error(transparent)]
    Env(#[from] prudence_env::Error),
    /// The safety model does not fit.
    #[error(transparent)]
    Safety(#[from] prudence_safety::Error),
    /// The device has no room, or failed.
    #[error(transparent)]
    Device(#[from] prudence_nn::DeviceError),
    /// An algorithm with a constraint was given no safety model.
    #[error("{} needs a safety model", .algorithm.name())]
    NoSafetyModel {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// Agents cannot be divided evenly among the safety models.
    #[error("{agents} agents cannot be divided among {models} safety models")]
    Replicas {
        /// How many agents.
        agents: usize,
        /// How many models.
        models: usize,
    },
    /// A replay with more rows than can be counted.
    #[error("a replay of {rows} rows is too large: at most {} are possible", u32::MAX)]
    TooManyRows {
        /// How many were asked for.
        rows: usize,
    },
    /// Other episodes, or a model of another shape, in place of those that a training started from.
    #[error("a model can only be replaced by one of the same shape, with the same stored episodes")]
    OtherEpisodes,
    /// Numbers are no longer finite.
    #[error("training diverged: {what} is {value} at step {step}")]
    Diverged {
        /// Environment steps so far.
        step: u64,
        /// Which number.
        what: String,
        /// The number.
        value: f64,
    },
}
