//! Between the environment's units and the networks'.
//!
//! Actions are in [-1, 1] for the policy; the scaling lies outside its log-probability. An observation whose box is bounded
//! on both sides is mapped to [-1, 1]; an unbounded one passes as it is.

use prudence_env::Spec;

/// Affine maps, a dimension each.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    observation: Vec<(f32, f32)>,
    action: Vec<(f32, f32)>,
}

impl Scaling {
    /// From an environment's boxes.
    pub fn new(spec: &Spec) -> Self {
        let middle_and_half = |low: f64, high: f64| match low.is_finite() && high.is_finite() && low < high {
            true => (((low + high) / 2.0) as f32, ((high - low) / 2.0) as f32),
            false => (0.0, 1.0),
        };
        let boxes = |b: &prudence_env::BoxSpace| {
            b.low.iter().zip(&b.high).map(|(low, high)| middle_and_half(*low, *high)).collect()
        };
        Self { observation: boxes(&spec.observation), action: boxes(&spec.action) }
    }

    /// The sizes of observation and action.
    pub fn sizes(&self) -> (usize, usize) {
        (self.observation.len(), self.action.len())
    }

    /// An observation as the networks see it.
    pub fn observation(&self, raw: &[f32], out: &mut [f32]) {
        for ((out, x), (middle, half)) in out.iter_mut().zip(raw).zip(&self.observation) {
            *out = (x - middle) / half;
        }
    }

    /// A policy's action in the environment's units.
    pub fn to_env(&self, unit: &[f32], out: &mut [f32]) {
        for ((out, u), (middle, half)) in out.iter_mut().zip(unit).zip(&self.action) {
            *out = middle + half * u;
        }
    }

    /// An action in the environment's units as the policy would have said it.
    pub fn to_unit(&self, action: &[f32], out: &mut [f32]) {
        for ((out, a), (middle, half)) in out.iter_mut().zip(action).zip(&self.action) {
            *out = ((a - middle) / half).clamp(-1.0, 1.0);
        }
    }
}
