//! Environments: what agents act in and what rules are about.
//!
//! A tour in the order in which data flows: an [`Env`] describes itself with a [`Spec`]; a reset with a seed starts an
//! episode, and actions step it. These three methods are required; everything else (signals for rules, states that can
//! be set, snapshots, drawing, the bare engine for benchmarks) is optional. Signals are for rules and people: a learner
//! sees only observations, actions and rewards. [`conformance`] tests what every environment promises, [`rddl`] turns
//! RDDL domains into environments, and a [`MakeEnv`] creates as many environments of one kind as a run needs.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod check;
pub mod conformance;
pub mod rddl;

pub use check::{check_finite, check_length};
pub use prudence_core::{BoxSpace, Limb, Scene, Spec, Zone};

use prudence_core::SettingError;
use serde_json::Value;

/// What one step returns besides the observation.
///
/// ```
/// use prudence_env::Step;
///
/// let last = Step { reward: 1.0, terminated: false, truncated: true }; // the horizon was reached
/// let discount = if last.terminated { 0.0 } else { 0.99 }; // a truncated episode has a value beyond its last step
/// assert_eq!(discount, 0.99);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The reward of the step.
    pub reward: f64,
    /// Whether the task itself ended, so that there is no value beyond this step.
    pub terminated: bool,
    /// Whether the episode was cut off, usually by the horizon; the value beyond this step counts.
    pub truncated: bool,
}

/// An environment: a simulator whose episodes are seeded.
///
/// Observations are written into a slice of the caller, so that stepping does not have to allocate. The same seed and
/// actions give the same bits.
///
/// ```
/// use prudence_env::{BoxSpace, Env, Error, Spec, Step};
///
/// /// A walk along a line, rewarded for the distance covered.
/// struct Walk {
///     spec: Spec,
///     position: f64,
///     steps: usize,
/// }
///
/// impl Env for Walk {
///     fn spec(&self) -> &Spec {
///         &self.spec
///     }
///
///     fn reset(&mut self, _seed: u64, observation: &mut [f64]) -> Result<(), Error> {
///         (self.position, self.steps) = (0.0, 0);
///         observation[0] = self.position;
///         Ok(())
///     }
///
///     fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error> {
///         let speed = action[0].clamp(0.0, 1.0);
///         self.position += speed;
///         self.steps += 1;
///         observation[0] = self.position;
///         Ok(Step { reward: speed, terminated: false, truncated: self.steps == self.spec.horizon })
///     }
/// }
///
/// let (observation, action) = (BoxSpace::unbounded(1), BoxSpace::uniform(1, 0.0, 1.0));
/// let spec = Spec { observation, action, signals: Vec::new(), horizon: 20 };
/// let (mut env, mut observation) = (Walk { spec, position: 0.0, steps: 0 }, [0.0]);
/// env.reset(0, &mut observation)?;
/// let step = env.step(&[0.5], &mut observation)?;
/// assert_eq!((step.reward, observation), (0.5, [0.5]));
/// # Ok::<(), Error>(())
/// ```
pub trait Env: Send {
    /// The spaces, the signals and the horizon; they never change.
    fn spec(&self) -> &Spec;

    /// Starts an episode. All random draws of the episode follow from `seed`.
    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), Error>;

    /// Takes one step. `action` is in the environment's units and is clipped to the action space (see [`Env::clips`]).
    ///
    /// An action that is not finite or has the wrong length is an error, and so is a step after the end of the episode.
    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error>;

    /// The signals named in the spec, after the last step. Before the first step they may have any value, because rules
    /// do not judge the initial state.
    fn signals(&self) -> &[f64] {
        &[]
    }

    /// Whether actions outside the action space are clipped to it. False if the simulator that this environment
    /// reproduces accepts them as they are.
    fn clips(&self) -> bool {
        true
    }

    /// Access to the state in readable form, if it can be set.
    fn settable(&mut self) -> Option<&mut dyn Settable> {
        None
    }

    /// Access to snapshots, if the environment can make them.
    fn snapshots(&mut self) -> Option<&mut dyn Snapshots> {
        None
    }

    /// Access to what pictures are drawn from, if the environment can be drawn.
    fn drawable(&self) -> Option<&dyn Drawable> {
        None
    }

    /// The engine without our additions, for benchmarks.
    fn bare_engine(&mut self) -> Option<&mut dyn BareEngine> {
        None
    }
}

/// An environment whose state people and scripts can read and set.
///
/// ```
/// use prudence_env::Env;
/// use prudence_env::rddl::{Rddl, RddlSettings};
///
/// let mut env = Rddl::new(&RddlSettings::builtin("navigation"))?;
/// let mut observation = [0.0; 2];
/// env.reset(0, &mut observation)?;
/// let state = serde_json::json!({ "location___x": 2.0, "location___y": 3.0 });
/// env.settable().expect("a state of RDDL can be set").set_state(&state, &mut observation)?;
/// assert_eq!(observation, [2.0, 3.0]);
/// # Ok::<(), prudence_env::Error>(())
/// ```
pub trait Settable {
    /// The state as people and scripts write it.
    fn state(&self) -> Value;

    /// Replaces the state by one in the format of [`Settable::state`]. The step count restarts; later random draws are
    /// still those of the last reset. An invalid state is rejected and changes nothing.
    fn set_state(&mut self, state: &Value, observation: &mut [f64]) -> Result<(), Error>;
}

/// An environment whose episodes can be saved and continued elsewhere.
///
/// ```
/// use prudence_env::Env;
/// use prudence_env::rddl::{Rddl, RddlSettings};
///
/// let mut env = Rddl::new(&RddlSettings::builtin("navigation"))?;
/// let mut observation = [0.0; 2];
/// env.reset(0, &mut observation)?;
/// let snapshot = env.snapshots().expect("RDDL makes snapshots").snapshot();
/// env.step(&[1.0, 0.0], &mut observation)?;
/// let first = observation;
/// env.snapshots().expect("RDDL makes snapshots").restore(&snapshot, &mut observation)?;
/// env.step(&[1.0, 0.0], &mut observation)?;
/// assert_eq!(observation, first); // the same bits, noise included
/// # Ok::<(), prudence_env::Error>(())
/// ```
pub trait Snapshots {
    /// Everything that the next steps depend on, as bytes.
    fn snapshot(&self) -> Vec<u8>;

    /// Continues from a snapshot of an environment of the same kind. An invalid one is rejected and changes nothing.
    fn restore(&mut self, snapshot: &[u8], observation: &mut [f64]) -> Result<(), Error>;
}

/// An environment that can be drawn.
///
/// ```
/// use prudence_env::rddl::{Rddl, RddlSettings};
/// use prudence_env::{Env, Scene};
///
/// let axes = ["location___x".into(), "location___y".into()];
/// let scene = Scene { axes, bounds: [0.0, 10.0, 0.0, 10.0], ..Scene::default() };
/// let mut env = Rddl::new(&RddlSettings { scene: Some(scene), ..RddlSettings::builtin("navigation") })?;
/// env.reset(0, &mut [0.0; 2])?;
/// let limbs = env.drawable().expect("it has a scene").limbs()?;
/// assert_eq!(limbs[0].ends, [[1.0, 1.0]; 2]); // a disc at the start
/// # Ok::<(), prudence_env::Error>(())
/// ```
pub trait Drawable {
    /// The plane in which paths are drawn, if the task has one.
    fn scene(&self) -> Option<Scene> {
        None
    }

    /// The current pose of the body: in the plane of the scene or, without one, seen from the side with the ground at
    /// height 0. The error says why it cannot be drawn.
    fn limbs(&self) -> Result<Vec<Limb>, Error>;
}

/// An environment whose engine can be stepped on its own.
///
/// ```
/// use prudence_env::BareEngine;
///
/// /// An engine that only counts its steps.
/// struct Counter(u64);
///
/// impl BareEngine for Counter {
///     fn bare_step(&mut self, action: &[f64]) -> bool {
///         let valid = action.iter().all(|a| a.is_finite());
///         self.0 += u64::from(valid);
///         valid
///     }
/// }
///
/// let mut engine = Counter(0);
/// assert!(engine.bare_step(&[0.5]) && !engine.bare_step(&[f64::NAN]));
/// assert_eq!(engine.0, 1);
/// ```
pub trait BareEngine {
    /// Steps only the engine and reads nothing back. This ends the episode. Returns false if the engine took no step.
    fn bare_step(&mut self, action: &[f64]) -> bool;
}

/// Creates environments of one kind; training and tests each use their own.
///
/// Every function that returns an environment is one: `|| MyEnv::new()`.
///
/// ```
/// use prudence_env::MakeEnv;
/// use prudence_env::rddl::RddlSettings;
///
/// let make: &dyn MakeEnv = &RddlSettings::builtin("navigation");
/// let (training, test) = (make.make()?, make.make()?); // independent of each other
/// assert_eq!(training.spec(), test.spec());
/// # Ok::<(), prudence_env::Error>(())
/// ```
pub trait MakeEnv: Send + Sync {
    /// Creates an environment.
    fn make(&self) -> Result<Box<dyn Env>, Error>;

    /// A text that differs if the environment does. A run is resumed only if it is unchanged.
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

/// A file that an environment's settings refer to.
#[derive(Debug)]
pub struct FileSetting<'a> {
    /// The key in the section `[env]`.
    pub key: &'static str,
    /// The name of the copy in a run's folder.
    pub copy: &'static str,
    /// The path that was given. Whoever copies the file replaces it by the name of the copy.
    pub path: &'a mut String,
}

/// An error of an environment.
///
/// ```
/// use prudence_env::rddl::{Rddl, RddlSettings};
/// use prudence_env::{Env, Error};
///
/// let mut env = Rddl::new(&RddlSettings::builtin("navigation"))?;
/// let error = env.step(&[0.0, 0.0], &mut [0.0; 2]).unwrap_err(); // without a reset
/// assert!(matches!(error, Error::Over));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An action or observation slice of the wrong length.
    #[error("{what} has {given} numbers, expected {expected}")]
    Length {
        /// The name of the slice, such as `action`.
        what: &'static str,
        /// The length of the slice.
        given: usize,
        /// The length it should have.
        expected: usize,
    },
    /// A number that is not finite.
    #[error("{what}[{index}] is {value}; expected a finite number")]
    NotFinite {
        /// The name of the slice, such as `action`.
        what: &'static str,
        /// The index of the number.
        index: usize,
        /// The number itself.
        value: f64,
    },
    /// A step after the end of the episode or before the first reset.
    #[error("the episode is over; reset the environment before the next step")]
    Over,
    /// A state or snapshot that is invalid for this environment.
    #[error("state: {0}")]
    State(String),
    /// An error of the simulator, or an RDDL text that is not an environment; names the place in the text.
    #[error("{0}")]
    Simulator(String),
    /// An RDDL action that is not real. Such domains can be simulated, but they are not environments.
    #[error("{domain}: action `{action}` is not real; only domains whose actions are all real can be environments")]
    NotReal {
        /// The name of the domain.
        domain: String,
        /// The ground name of the action.
        action: String,
    },
    /// A simulator whose program or library is missing or cannot be used.
    #[error("{0}")]
    Missing(String),
    /// A setting out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
}
