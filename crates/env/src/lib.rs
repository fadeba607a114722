//! Environments: what an agent acts in, and what a rule may look at.
//!
//! The tour, in the order data flows: an [`Env`] describes itself by a [`Spec`] (boxes for observations and actions, the
//! names of its signals, the horizon), is started by a seed and stepped by actions. Signals are for rules and people; a
//! learner only ever sees observations, actions and rewards. [`conformance`] holds the promises every environment keeps;
//! [`EnvSettings`] is what a task file says of its environment.

pub mod bullet;
pub mod conformance;
pub mod engines;
mod foreign;
pub mod mujoco;
pub mod random;
pub mod rddl;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A product of closed intervals; an unbounded side is infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct BoxSpace {
    /// Lower bounds, one a dimension.
    pub low: Vec<f64>,
    /// Upper bounds, one a dimension.
    pub high: Vec<f64>,
}

impl BoxSpace {
    /// The number of dimensions.
    pub fn dim(&self) -> usize {
        self.low.len()
    }
}

/// What an environment is, fixed for its lifetime.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The space observations lie in.
    pub observation: BoxSpace,
    /// The space actions are taken from; always bounded.
    pub action: BoxSpace,
    /// Names of the signals a rule may use, in the order [`Env::signals`] gives them.
    pub signals: Vec<String>,
    /// An episode is truncated after this many steps.
    pub horizon: usize,
}

/// What one step gave, beside the observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The reward of the step.
    pub reward: f64,
    /// The task itself ended: no value beyond this step.
    pub terminated: bool,
    /// The horizon was reached: the value goes on, the episode does not.
    pub truncated: bool,
}

/// A drawing of the task's plane, for reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scene {
    /// The signals that are the position in it, across and up.
    pub axes: [String; 2],
    /// What the picture shows: left, right, bottom, top.
    pub bounds: [f64; 4],
    /// Marked areas.
    #[serde(default)]
    pub zones: Vec<Zone>,
    /// Places with a name, such as where episodes start and where they should go.
    #[serde(default)]
    pub marks: Vec<(String, [f64; 2])>,
}

/// A marked area of a [`Scene`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zone {
    /// Left, right, bottom, top.
    Rectangle([f64; 4]),
    /// Centre and radius.
    Disc([f64; 2], f64),
}

/// A part of a body, for pictures: all points no further than `radius` from the line between its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limb {
    /// Both the same for a disc.
    pub ends: [[f64; 2]; 2],
    /// Half its thickness.
    pub radius: f64,
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

    /// The named signals after the last step. What a signal is before the first one is up to the environment: rules do
    /// not judge the start.
    fn signals(&self) -> &[f64];

    /// The state as people and scripts write it (see `prudence rollout --state`).
    fn state(&self) -> Value;

    /// Replaces the state by one that [`Env::state`] could have given; the episode's clock starts anew and later draws
    /// stay those of the last reset.
    fn set_state(&mut self, state: &Value, observation: &mut [f64]) -> Result<(), Error>;

    /// Everything the next steps depend on, where the simulator can give it.
    fn snapshot(&self) -> Option<Vec<u8>>;

    /// Goes back to a snapshot of the same environment.
    fn restore(&mut self, snapshot: &[u8], observation: &mut [f64]) -> Result<(), Error>;

    /// Whether actions outside the action space act as clipped. False where the simulator that is followed takes them as
    /// they are.
    fn clips(&self) -> bool {
        true
    }

    /// Moves only the engine, where there is one, and looks at nothing; the episode is over then. `bench env` holds
    /// [`Env::step`] against it. False where nothing was moved.
    fn bare_step(&mut self, _action: &[f64]) -> bool {
        false
    }

    /// The body as it is now, for pictures: in the plane of [`Env::scene`] or, without one, seen from the side with the
    /// ground at height 0. The error says why there is no picture.
    fn limbs(&self) -> Result<Vec<Limb>, Error> {
        let Some(scene) = self.scene() else {
            return Err(Error::Simulator(
                "nothing to draw: no body, and no plane ([env.scene], docs/settings.md)".to_owned(),
            ));
        };
        let signal = |name: &String| self.spec().signals.iter().position(|signal| signal == name);
        let [Some(x), Some(y)] = scene.axes.each_ref().map(signal) else {
            return Err(Error::Simulator(format!("the scene's axes {:?} are no signals", scene.axes)));
        };
        let [left, right, ..] = scene.bounds;
        let here = [self.signals()[x], self.signals()[y]];
        Ok(vec![Limb { ends: [here; 2], radius: 0.015 * (right - left) }])
    }

    /// The plane to draw paths in, for tasks that have one.
    fn scene(&self) -> Option<Scene> {
        None
    }
}

/// Which environment, and its settings: the `[env]` table of a task file.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EnvSettings {
    /// See [`rddl`].
    Rddl(rddl::Settings),
    /// See [`mujoco`].
    Mujoco(mujoco::Settings),
    /// See [`bullet`].
    Bullet(bullet::Settings),
}

/// Makes environments: training and tests each take their own. Implement it to bring a simulator of yours.
pub trait MakeEnv: Send + Sync {
    /// A new environment, or which setting is out of range.
    fn build(&self) -> Result<Box<dyn Env>, Error>;

    /// A text that differs where the environment does; a run is resumed only under the same one.
    fn describe(&self) -> String;
}

impl EnvSettings {
    /// Reads the files that the environment is made from, and names them as they are to be called beside the settings:
    /// name and text of each.
    pub fn detach(&mut self) -> Result<Vec<(&'static str, String)>, Error> {
        match self {
            Self::Rddl(settings) => settings.detach(),
            Self::Mujoco(settings) => settings.detach(),
            Self::Bullet(_) => Ok(Vec::new()), // its models are pinned with the engine
        }
    }
}

impl MakeEnv for EnvSettings {
    fn build(&self) -> Result<Box<dyn Env>, Error> {
        match self {
            Self::Rddl(settings) => Ok(Box::new(rddl::Rddl::new(settings)?)),
            Self::Mujoco(settings) => Ok(Box::new(mujoco::Mujoco::new(settings)?)),
            Self::Bullet(settings) => Ok(Box::new(bullet::Bullet::new(settings)?)),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Rddl(settings) => settings.describe(),
            Self::Mujoco(settings) => settings.describe(),
            Self::Bullet(settings) => settings.describe(),
        }
    }
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
        /// Where in it.
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
    /// A physics engine that is not there or cannot be used; the text says which command to run.
    #[error("{0}")]
    Engine(String),
    /// A setting out of range.
    #[error("env.{key} = {value}: {expected}")]
    Setting {
        /// The key.
        key: String,
        /// The value given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
}

/// Refuses a slice of the wrong length.
fn check_length(what: &'static str, slice: &[f64], expected: usize) -> Result<(), Error> {
    if slice.len() == expected { Ok(()) } else { Err(Error::Length { what, given: slice.len(), expected }) }
}

/// Refuses a slice with a number that is not finite.
fn check_finite(what: &'static str, slice: &[f64]) -> Result<(), Error> {
    match slice.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(Error::NotFinite { what, index, value: slice[index] }),
        None => Ok(()),
    }
}
