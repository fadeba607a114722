//! Environments: what an agent acts in, and what a rule may look at.
//!
//! The tour, in the order data flows: an [`Env`] describes itself by a [`Spec`], is started by a seed and stepped by
//! actions. Three methods make one; everything else it can do (signals for rules, states that can be set, snapshots,
//! pictures, the bare engine for benchmarks) is optional. Signals are for rules and people: a learner sees observations,
//! actions and rewards only. [`conformance`] tests what every environment promises; [`rddl`] makes environments from RDDL
//! texts; a [`MakeEnv`] makes as many of one kind as a run needs.

mod check;
pub mod conformance;
pub mod rddl;

pub use check::{check_finite, check_length};
pub use prudence_core::{BoxSpace, Limb, Scene, Spec, Zone};

use prudence_core::SettingError;
use serde_json::Value;

/// What one step gave, beside the observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The reward of the step.
    pub reward: f64,
    /// The task itself ended: no value beyond this step.
    pub terminated: bool,
    /// The horizon was reached: the episode ends here, the value beyond it counts.
    pub truncated: bool,
}

/// A simulator with a seeded start.
///
/// Observations are written into the caller's slice, so that stepping need not allocate. The same seed and the same
/// actions give the same bits.
pub trait Env: Send {
    /// The fixed description.
    fn spec(&self) -> &Spec;

    /// Starts an episode: every draw of the episode follows from `seed`.
    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), Error>;

    /// Takes one step; `action` is in the environment's units and is clipped to the action space (see [`Env::clips`]).
    ///
    /// An action of the wrong length, one that is not finite, and a step after the episode's end are errors.
    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error>;

    /// The signals named in the spec, after the last step. Before the first step they may hold anything: rules do not
    /// judge the start.
    fn signals(&self) -> &[f64] {
        &[]
    }

    /// Whether actions outside the action space act as clipped. False where the simulator being followed takes them as
    /// they are.
    fn clips(&self) -> bool {
        true
    }

    /// Access to the state as people and scripts write it.
    fn settable(&mut self) -> Option<&mut dyn Settable> {
        None
    }

    /// Access to everything that the next steps depend on.
    fn snapshots(&mut self) -> Option<&mut dyn Snapshots> {
        None
    }

    /// What pictures are drawn from.
    fn drawable(&self) -> Option<&dyn Drawable> {
        None
    }

    /// The engine without what we add to it, for benchmarks.
    fn bare_engine(&mut self) -> Option<&mut dyn BareEngine> {
        None
    }
}

/// An environment whose state people can read and set (see `prudence rollout --state`).
pub trait Settable {
    /// The state as people and scripts write it.
    fn state(&self) -> Value;

    /// Replaces the state by one that [`Settable::state`] could have given; the episode's clock restarts and later draws
    /// stay those of the last reset. An invalid state is rejected and changes nothing.
    fn set_state(&mut self, state: &Value, observation: &mut [f64]) -> Result<(), Error>;
}

/// An environment that can be copied in the middle of an episode.
pub trait Snapshots {
    /// Everything the next steps depend on.
    fn snapshot(&self) -> Vec<u8>;

    /// Returns to a snapshot of the same kind of environment. An invalid one is rejected and changes nothing.
    fn restore(&mut self, snapshot: &[u8], observation: &mut [f64]) -> Result<(), Error>;
}

/// An environment that can be drawn.
pub trait Drawable {
    /// The plane that paths are drawn in, for tasks that have one.
    fn scene(&self) -> Option<Scene> {
        None
    }

    /// The body as it is now: in the plane of the scene or, without one, seen from the side with the ground at height 0.
    /// The error says why there is no picture.
    fn limbs(&self) -> Result<Vec<Limb>, Error>;
}

/// An environment around an engine that can be stepped alone.
pub trait BareEngine {
    /// Steps the engine and reads nothing back; the episode is over then. False where nothing moved.
    fn bare_step(&mut self, action: &[f64]) -> bool;
}

/// Makes environments of one kind: training and tests each take their own.
///
/// Every function that gives an environment is one: `|| MyEnv::new()`.
pub trait MakeEnv: Send + Sync {
    /// A new environment.
    fn make(&self) -> Result<Box<dyn Env>, Error>;

    /// A text that differs where the environment does; a run is resumed only under the same one.
    fn describe(&self) -> String;
}

impl<E: Env + 'static, F: Fn() -> E + Send + Sync> MakeEnv for F {
    fn make(&self) -> Result<Box<dyn Env>, Error> {
        Ok(Box::new(self()))
    }

    fn describe(&self) -> String {
        let env = self();
        format!("{} {:?}", std::any::type_name::<E>(), env.spec())
    }
}

/// A file that the settings of an environment name.
#[derive(Debug)]
pub struct FileSetting<'a> {
    /// The key in the section `[env]`.
    pub key: &'static str,
    /// The name of its copy in a run's folder.
    pub copy: &'static str,
    /// The path given; whoever copies the file puts the copy's name here.
    pub path: &'a mut String,
}

/// What can go wrong with an environment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An action or observation slice of the wrong length.
    #[error("{what} has {given} numbers, expected {expected}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Its length.
        given: usize,
        /// The length it must have.
        expected: usize,
    },
    /// A number that is not finite.
    #[error("{what}[{index}] is {value}; it must be a finite number")]
    NotFinite {
        /// Which slice.
        what: &'static str,
        /// Its index.
        index: usize,
        /// The number.
        value: f64,
    },
    /// A step after the end of the episode or before the first reset.
    #[error("the episode is over; reset before stepping on")]
    Over,
    /// A state that this environment cannot take.
    #[error("state: {0}")]
    State(String),
    /// What the simulator itself refuses, with the place in its text.
    #[error("{0}")]
    Simulator(String),
    /// A simulator whose program or library is missing or cannot be used.
    #[error("{0}")]
    Missing(String),
    /// A setting out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
}
