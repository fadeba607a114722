//! Converts between the environment's units and those of the networks.
//!
//! The policy's actions are in [-1, 1]; its log-probability does not include the scaling. A dimension of the
//! observation that is bounded on both sides is mapped to [-1, 1]; others are unchanged.

use prudence_core::{BoxSpace, Spec};
use prudence_nn::Device;
use prudence_nn::work::{Room, Units};

/// An affine map for each dimension of observation and action, and the factor of rewards.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    observation: Vec<(f32, f32)>,
    action: Vec<(f32, f32)>,
    reward_scale: f64,
}

impl Scaling {
    /// For the spaces of an environment; rewards are multiplied by `reward_scale` for learning.
    pub fn new(spec: &Spec, reward_scale: f64) -> Self {
        let middle_and_half = |low: f64, high: f64| {
            if low.is_finite() && high.is_finite() && low < high {
                (((low + high) / 2.0) as f32, ((high - low) / 2.0) as f32)
            } else {
                (0.0, 1.0)
            }
        };
        let boxes = |space: &BoxSpace| {
            space.low.iter().zip(&space.high).map(|(low, high)| middle_and_half(*low, *high)).collect()
        };
        Self { observation: boxes(&spec.observation), action: boxes(&spec.action), reward_scale }
    }

    /// The dimension of observations.
    pub fn observation_width(&self) -> usize {
        self.observation.len()
    }

    /// The dimension of actions.
    pub fn action_width(&self) -> usize {
        self.action.len()
    }

    /// Copies the maps to a device.
    pub fn units<D: Device>(&self, device: &D) -> Room<Units<D>> {
        let put = |pairs: &[(f32, f32)], pick: fn(&(f32, f32)) -> f32| -> Room<D::Buf> {
            let numbers: Vec<f32> = pairs.iter().map(pick).collect();
            let mut buffer = device.buffer(numbers.len())?;
            device.write(&mut buffer, 0, &numbers);
            Ok(buffer)
        };
        Ok(Units {
            observation_middle: put(&self.observation, |pair| pair.0)?,
            observation_half: put(&self.observation, |pair| pair.1)?,
            action_middle: put(&self.action, |pair| pair.0)?,
            action_half: put(&self.action, |pair| pair.1)?,
            observation_width: self.observation.len(),
            action_width: self.action.len(),
            reward_scale: self.reward_scale,
        })
    }

    /// Converts a policy's action to the environment's units.
    pub fn to_env(&self, unit: &[f32], out: &mut [f32]) {
        for ((out, u), (middle, half)) in out.iter_mut().zip(unit).zip(&self.action) {
            *out = middle + half * u;
        }
    }
}
