//! The multiplier lambda: its own small object, moved by how far the constraint is kept or missed.

use prudence_nn::{AdamNumbers, AdamSettings};
use serde::{Deserialize, Serialize};

use crate::settings::{Constraint, MultiplierSettings};

/// lambda >= 0 and its optimiser: descent on the dual, `d L / d lambda = estimate - threshold`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Multiplier {
    value: f64,
    moments: [f64; 2],
    moves: u64,
    updates: u64,
}

/// What the constraint compares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The left side.
    pub estimate: f64,
    /// The right side: log d, or d.
    pub threshold: f64,
}

impl Multiplier {
    /// At its start.
    pub fn new(settings: &MultiplierSettings) -> Self {
        Self { value: settings.fixed.unwrap_or(settings.initial), ..Self::off() }
    }

    /// For an agent without a constraint: 0, whatever the settings say.
    pub fn off() -> Self {
        Self { value: 0.0, moments: [0.0; 2], moves: 0, updates: 0 }
    }

    /// lambda.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Whether it is at its upper limit: the constraint asks for more than the agent can do.
    pub fn at_limit(&self, settings: &MultiplierSettings) -> bool {
        settings.fixed.is_none() && self.value >= settings.max
    }

    /// Whether it may move, or never will: the first episodes are over.
    pub fn is_free(&self, settings: &MultiplierSettings) -> bool {
        settings.fixed.is_some() || self.updates > settings.freeze
    }

    /// The right side of the constraint, on the scale of whole trajectories: log d for the lower bound, d for the original.
    pub fn threshold(constraint: Constraint, settings: &MultiplierSettings) -> f64 {
        match constraint {
            Constraint::LowerBound => settings.target.ln(),
            Constraint::Original => settings.target,
        }
    }

    /// One step of Adam: up while the constraint is missed, down while it is kept, never below 0 or above the limit.
    pub fn update(&mut self, estimate: f64, threshold: f64, settings: &MultiplierSettings) {
        self.updates += 1;
        if settings.fixed.is_some() || self.updates <= settings.freeze || !estimate.is_finite() {
            return;
        }
        self.moves += 1;
        let adam = AdamSettings::default();
        let (rate, correction) = adam.correction(settings.learning_rate, self.moves);
        let [first, second] = &mut self.moments;
        AdamNumbers::new(adam, rate, correction).step(&mut self.value, estimate - threshold, first, second);
        self.value = self.value.clamp(0.0, settings.max);
    }
}
