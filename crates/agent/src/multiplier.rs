//! The multiplier lambda, which moves with the violation of the constraint.

use prudence_nn::{AdamNumbers, AdamSettings};
use serde::{Deserialize, Serialize};

use crate::settings::{Constraint, MultiplierSettings};

/// lambda >= 0 and its optimiser: gradient descent on the dual, `d L / d lambda = estimate - threshold`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Multiplier {
    value: f64,
    moments: [f64; 2],
    moves: u64,
    updates: u64,
}

/// The two sides of the constraint, `estimate >= threshold`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConstraintEstimate {
    /// The estimated left side.
    pub estimate: f64,
    /// The right side: log d, or d.
    pub threshold: f64,
}

impl Multiplier {
    /// The multiplier at the start of training.
    pub fn new(settings: &MultiplierSettings) -> Self {
        Self { value: settings.fixed.unwrap_or(settings.initial), ..Self::off() }
    }

    /// The multiplier of an agent without a constraint: always 0.
    pub fn off() -> Self {
        Self { value: 0.0, moments: [0.0; 2], moves: 0, updates: 0 }
    }

    /// The current value of lambda.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Whether lambda is at its upper limit: the constraint demands more than the agent achieves.
    pub fn at_limit(&self, settings: &MultiplierSettings) -> bool {
        settings.fixed.is_none() && self.value >= settings.max
    }

    /// Whether the first episodes, during which lambda does not move, are over. Always true for a fixed lambda.
    pub fn is_free(&self, settings: &MultiplierSettings) -> bool {
        settings.fixed.is_some() || self.updates > settings.freeze
    }

    /// The right side of the constraint on whole trajectories: log d for the lower bound, d for the original.
    pub fn threshold(constraint: Constraint, settings: &MultiplierSettings) -> f64 {
        match constraint {
            Constraint::LowerBound => settings.target.ln(),
            Constraint::Original => settings.target,
        }
    }

    /// One step of Adam: lambda increases while the constraint is violated and decreases while it is met, within
    /// `0..=settings.max`.
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
