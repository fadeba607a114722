//! The multiplier lambda, which moves with the violation of the constraint.
//!
//! It moves in log space, by the share of episodes that are unsafe too many, so that neither its size nor the length of
//! episodes matters. Rewards are in units of their discounted sums ([`crate::units`]), and so is lambda.

use serde::{Deserialize, Serialize};

use crate::settings::{Constraint, MultiplierSettings};

/// The number of updates between two moves.
pub const UPDATES_PER_MOVE: u64 = 64;
/// The largest lambda: a violation then costs 70 times the deviation of discounted returns, and more would only make the
/// reward invisible.
const MAX: f64 = 10.0;
/// The smallest, as a share of the start. A violation then costs 3.5 times the deviation of discounted returns, which is about
/// what breaking a rule can earn; were it to cost less, an agent that keeps the rule would soon find that out.
const LEAST: f64 = 0.5;
/// The weight of the latest error in the average that lambda also follows, beside the sum.
const NEWEST: f64 = 0.1;
/// The weight of that average.
const PROPORTIONAL: f64 = 0.5;
/// Episodes of each kind that a model's sums are averaged over.
const LATEST: usize = 20;
/// The most doubt about its safe episodes that a model is granted, and the least certainty about unsafe ones that is
/// believed: a model that recognises none of them must not make lambda infinite.
const MOST_DOUBT: f64 = -0.2;
const LEAST_CERTAINTY: f64 = -1.0;

/// lambda and its optimiser: gradient ascent on the dual in log space, with a proportional part against oscillation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Multiplier {
    value: f64,
    log: f64,
    error: f64,
    moves: u64,
}

/// The two sides of the constraint, `estimate >= threshold`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConstraintEstimate {
    /// The estimated left side: `E[sum log P]` for the lower bound, `E[P]` for the original.
    pub estimate: f64,
    /// The right side.
    pub threshold: f64,
}

/// What the constraint is compared with.
///
/// Of the `1 - target` of episodes that may be unsafe, one half is left to the errors of the safety model. The mean sum of
/// log-probabilities lies between its means over safe and over unsafe episodes; so the lower bound is a share of unsafe
/// episodes, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// The share of unsafe episodes that the multiplier allows.
    pub share: f64,
    /// The mean floored sum of log P of safe episodes.
    pub safe: f64,
    /// That of unsafe ones.
    pub broken: f64,
}

/// The floored sums of log P that a model gave to an agent's latest labelled episodes before it was fitted to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SumsByLabel {
    /// Of safe episodes.
    pub safe: Vec<f32>,
    /// Of unsafe episodes.
    pub broken: Vec<f32>,
}

impl SumsByLabel {
    /// Adds an episode, and forgets the oldest of its kind.
    pub fn add(&mut self, sum: f32, is_safe: bool) {
        let sums = if is_safe { &mut self.safe } else { &mut self.broken };
        sums.push(sum);
        sums.drain(..sums.len().saturating_sub(LATEST));
    }
}

impl Allowance {
    /// For a share `target` of safe episodes; `sums` are what the model gave to labelled safe and unsafe episodes of the
    /// agent. Without any, a model is taken to be certain.
    pub fn new(target: f64, floor: f64, sums: &SumsByLabel) -> Self {
        let mean = |sums: &[f32]| {
            (!sums.is_empty()).then(|| sums.iter().map(|sum| f64::from(*sum)).sum::<f64>() / sums.len() as f64)
        };
        Self {
            share: (1.0 - target) / 2.0,
            safe: mean(&sums.safe).unwrap_or(0.0).clamp(MOST_DOUBT.max(0.1 * floor), 0.0),
            broken: mean(&sums.broken).unwrap_or(floor).clamp(floor, LEAST_CERTAINTY.max(floor)),
        }
    }

    /// The right side of the constraint.
    pub fn threshold(&self, constraint: Constraint) -> f64 {
        match constraint {
            Constraint::LowerBound => self.safe + self.share * (self.broken - self.safe),
            Constraint::Original => 1.0 - self.share,
        }
    }

    /// How far the share of unsafe episodes is from the allowed one, in multiples of it: -1 if there are none, at most 1.
    fn error(&self, constraint: Constraint, estimate: f64) -> f64 {
        let broken = match constraint {
            Constraint::LowerBound => (self.safe - estimate) / (self.safe - self.broken),
            Constraint::Original => 1.0 - estimate,
        };
        ((broken.clamp(0.0, 1.0) - self.share) / self.share).clamp(-1.0, 1.0)
    }
}

impl Multiplier {
    /// The multiplier at the start of training.
    pub fn new(settings: &MultiplierSettings) -> Self {
        let start = settings.fixed.unwrap_or(settings.initial);
        Self { value: start, log: settings.initial.ln(), ..Self::default() }
    }

    /// The multiplier of an agent without a constraint: always 0.
    pub fn off() -> Self {
        Self::default()
    }

    /// The current value of lambda.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Whether lambda is at its upper limit: the constraint demands more than the agent achieves.
    pub fn at_limit(&self, settings: &MultiplierSettings) -> bool {
        settings.fixed.is_none() && self.log >= MAX.max(settings.initial).ln()
    }

    /// Whether lambda has begun to move. Always true for a fixed lambda.
    pub fn is_free(&self, settings: &MultiplierSettings) -> bool {
        settings.fixed.is_some() || self.moves > 0
    }

    /// One move: lambda increases while the constraint is violated and decreases while it is met. At a steady error of 1
    /// it is multiplied by e in `time` updates.
    pub fn update(
        &mut self,
        constraint: Constraint,
        estimate: f64,
        allowance: &Allowance,
        time: f64,
        settings: &MultiplierSettings,
    ) {
        if settings.fixed.is_some() || !estimate.is_finite() {
            return;
        }
        let error = allowance.error(constraint, estimate);
        self.moves += 1;
        self.error += NEWEST * (error - self.error);
        let (low, high) = ((LEAST * settings.initial).ln(), MAX.max(settings.initial).ln());
        self.log = (self.log + error * UPDATES_PER_MOVE as f64 / time).clamp(low, high);
        self.value = (self.log + PROPORTIONAL * self.error).clamp(low, high).exp();
    }
}
