//! Between the environment's units and the networks'.
//!
//! Actions are in [-1, 1] for the policy; the scaling lies outside its log-probability. An observation whose box is bounded
//! on both sides is mapped to [-1, 1]; an unbounded one passes as it is.

use prudence_core::{BoxSpace, Spec};
use prudence_nn::Device;
use prudence_nn::work::{Room, Units};

/// Affine maps, one per dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    observation: Vec<(f32, f32)>,
    action: Vec<(f32, f32)>,
    reward_scale: f64,
}

impl Scaling {
    /// From an environment's boxes; rewards are multiplied with `reward_scale` for learning.
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

    /// Numbers of an observation.
    pub fn observation_width(&self) -> usize {
        self.observation.len()
    }

    /// Numbers of an action.
    pub fn action_width(&self) -> usize {
        self.action.len()
    }

    /// The maps on a device.
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

    /// A policy's action in the environment's units.
    pub fn to_env(&self, unit: &[f32], out: &mut [f32]) {
        for ((out, u), (middle, half)) in out.iter_mut().zip(unit).zip(&self.action) {
            *out = middle + half * u;
        }
    }
}
