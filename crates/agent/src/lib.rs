//! The agent: replay, the SafeSAC family, training, and tests judged by the true rule. It opens no file.
//!
//! The tour, in the order data flows: a [`recorder::Recorder`] is an environment with its running episode; an
//! [`actor::Actor`] chooses actions; a [`replay::Replay`] stores episodes with the safety model's memory and scores; a
//! [`safesac::Learner`] updates networks on batches of them; a [`multiplier::Multiplier`] weighs safety against reward; a
//! [`population::Population`] is the training loop around them, for P agents in lockstep; an [`evaluate::Player`] tests
//! policies by the true rule, which no learner reads.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod actor;
pub mod evaluate;
pub mod multiplier;
pub mod population;
pub mod recorder;
pub mod records;
pub mod replay;
pub mod safesac;
pub mod settings;
mod threads;
pub mod units;

pub use settings::{AgentSettings, Algorithm, MultiplierSettings, TrainSettings};
pub use threads::Threads;
pub use units::{AgentUnits, Scaling};

/// What can go wrong while training.
///
/// ```
/// use prudence_agent::{Algorithm, Error};
///
/// let error = Error::NoSafetyModel { algorithm: Algorithm::SafesacH };
/// assert_eq!(error.to_string(), "safesac-h needs a safety model");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment failed.
    #[error(transparent)]
    Env(#[from] prudence_env::Error),
    /// The safety model cannot be used.
    #[error(transparent)]
    Safety(#[from] prudence_safety::Error),
    /// The device is out of memory, or failed.
    #[error(transparent)]
    Device(#[from] prudence_nn::DeviceError),
    /// Episodes cannot be read.
    #[error(transparent)]
    Episodes(#[from] prudence_data::Error),
    /// An algorithm with a constraint, but no safety model.
    #[error("{} needs a safety model", .algorithm.name())]
    NoSafetyModel {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// Agents that cannot be divided evenly among replicas (safety models, or sets of stored episodes).
    #[error("{agents} agents cannot be divided evenly among {replicas} replicas")]
    Replicas {
        /// The number of agents.
        agents: usize,
        /// The number of replicas.
        replicas: usize,
    },
    /// Stored episodes that were not scored by the safety models of the population.
    #[error(
        "the stored episodes have the scores of {replicas} safety models with memories of {width} numbers; \
         the population has other safety models"
    )]
    StoredScores {
        /// Replicas of the stored episodes.
        replicas: usize,
        /// Numbers of the memory in each of their rows; 0 without a model.
        width: usize,
    },
    /// A replay buffer with more rows than can be counted.
    #[error("a replay buffer of {rows} rows is too large: at most {} are possible", u32::MAX)]
    TooManyRows {
        /// The number of rows.
        rows: usize,
    },
    /// Episodes other than those that belong to the state of training.
    #[error("these are not the episodes of this training")]
    OtherEpisodes,
    /// A safety model whose shape differs from that of the model in whose place it is used.
    #[error("the safety model's shape differs from that of the model in use")]
    ModelShape,
    /// A state that was made with a safety model other than the population's.
    #[error("the agent's state was saved with another safety model")]
    OtherModel,
    /// A state of networks other than the population's.
    #[error("the agent's state is of networks of other shapes")]
    OtherNetworks,
    /// Training produced a number that is not finite.
    #[error("training diverged: {what} is {value} at step {step}")]
    Diverged {
        /// Environment steps of the agent so far.
        step: u64,
        /// What the number is.
        what: String,
        /// The number.
        value: f64,
    },
}
