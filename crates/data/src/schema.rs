//! The shapes that all episodes of a store share, and the check that an episode has them.

use serde::{Deserialize, Serialize};

use crate::Episode;

/// Limits on what a file may claim, so that a corrupt one cannot exhaust memory.
const MAX_STEPS: usize = 1 << 24;
const MAX_DIM: usize = 1 << 16;
const MAX_SIGNALS: usize = 1024;

/// The task and the shapes that all episodes of a store share.
///
/// ```
/// use prudence_data::Schema;
///
/// let schema = Schema { task: "runner".into(), observation_dim: 1, action_dim: 1, signals: vec!["speed".into()] };
/// let json = serde_json::to_value(&schema)?; // as in a store's `store.json`
/// assert_eq!(json["signals"][0], "speed");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The name of the task that the episodes are of.
    pub task: String,
    /// The number of values in an observation.
    pub observation_dim: usize,
    /// The number of values in an action.
    pub action_dim: usize,
    /// The names of the signals, in the order of [`Episode::signals`]. A name consists of letters, digits and `_`.
    pub signals: Vec<String>,
}

impl Schema {
    /// Checks that the sizes and names are within the limits.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (what, dim) in [("observation_dim", self.observation_dim), ("action_dim", self.action_dim)] {
            if !(1..=MAX_DIM).contains(&dim) {
                return Err(format!("{what} = {dim}, expected 1 to {MAX_DIM}"));
            }
        }
        if self.signals.len() > MAX_SIGNALS {
            return Err(format!("{} signals, expected at most {MAX_SIGNALS}", self.signals.len()));
        }
        for (i, name) in self.signals.iter().enumerate() {
            let word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !word || name.is_empty() || name.len() > 128 || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(format!("signal {name:?}: expected a word of at most 128 letters, digits and `_`"));
            }
            if self.signals[..i].contains(name) {
                return Err(format!("signal {name:?} appears twice"));
            }
        }
        Ok(())
    }

    /// In what the episodes of another schema differ, if they do; the task's name does not matter.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if (self.observation_dim, self.action_dim) != (other.observation_dim, other.action_dim) {
            return Some(format!(
                "observations and actions of {} and {} dimensions, expected {} and {} as in the other stores",
                other.observation_dim, other.action_dim, self.observation_dim, self.action_dim
            ));
        }
        let (names, expected) = (other.signals.join(", "), self.signals.join(", "));
        (names != expected).then(|| format!("signals {names}, expected {expected} as in the other stores"))
    }

    /// Checks the length of an episode.
    pub(crate) fn check_steps(steps: usize) -> Result<(), String> {
        if (1..=MAX_STEPS).contains(&steps) { Ok(()) } else { Err(format!("{steps} steps, expected 1 to {MAX_STEPS}")) }
    }

    /// Checks that an episode has the shapes of this schema (but `signals` signals) and only finite numbers.
    pub(crate) fn check_episode(&self, episode: &Episode, signals: usize) -> Result<(), String> {
        let steps = episode.len();
        Schema::check_steps(steps)?;
        let shapes = [
            ("observations", episode.observations.len(), steps + 1, self.observation_dim),
            ("actions", episode.actions.len(), steps, self.action_dim),
            ("signals", episode.signals.len(), steps, signals),
        ];
        for (what, given, rows, dim) in shapes {
            if given != rows * dim {
                return Err(format!("{what} has {given} numbers, expected {rows} x {dim} for {steps} steps"));
            }
        }
        finite("observations", &episode.observations, self.observation_dim)?;
        finite("actions", &episode.actions, self.action_dim)?;
        finite("rewards", &episode.rewards, 1)?;
        finite("signals", &episode.signals, signals)
    }

    /// Checks that signals are finite.
    pub(crate) fn check_signals(&self, signals: &[f64]) -> Result<(), String> {
        finite("signals", signals, self.signals.len())
    }
}

fn finite<T: Copy + Into<f64>>(what: &str, numbers: &[T], dim: usize) -> Result<(), String> {
    match numbers.iter().position(|number| !(*number).into().is_finite()) {
        None => Ok(()),
        Some(at) => {
            Err(format!("{what}[{}][{}] is {}, expected a finite number", at / dim, at % dim, numbers[at].into()))
        }
    }
}
