//! Adam and AdamW, as PyTorch computes them.

use crate::Scalar;
use crate::kernels::{AdamStep, adam, adam_polyak};

/// What is fixed of an optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamSettings {
    /// First moment's decay.
    pub beta1: f64,
    /// Second moment's decay.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay (AdamW); 0 is plain Adam.
    pub weight_decay: f64,
}

impl Default for AdamSettings {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }
}

/// The moments of one parameter slice.
#[derive(Clone, Debug)]
pub struct Adam<T> {
    settings: AdamSettings,
    /// First and second moments, as long as the parameters.
    pub moments: [Vec<T>; 2],
    /// Steps taken.
    pub steps: u64,
}

impl<T: Scalar> Adam<T> {
    /// For this many parameters.
    pub fn new(parameters: usize, settings: AdamSettings) -> Self {
        Self { settings, moments: [vec![T::ZERO; parameters], vec![T::ZERO; parameters]], steps: 0 }
    }

    fn next(&mut self, rate: f64, scale: f64) -> AdamStep<T> {
        self.steps += 1;
        let s = self.settings;
        let t = self.steps as f64;
        AdamStep {
            gain1: T::of(1.0 - s.beta1),
            beta2: T::of(s.beta2),
            gain2: T::of(1.0 - s.beta2),
            rate: T::of(rate / (1.0 - s.beta1.powf(t))),
            correction: T::of((1.0 - s.beta2.powf(t)).sqrt().recip()),
            epsilon: T::of(s.epsilon),
            shrink: T::of(1.0 - rate * s.weight_decay),
            scale: T::of(scale),
        }
    }

    /// One step down the gradient, which is multiplied by `scale` first (1, or less to clip).
    pub fn step(&mut self, w: &mut [T], g: &[T], rate: f64, scale: f64) {
        let step = self.next(rate, scale);
        let [m, v] = &mut self.moments;
        adam(w, g, m, v, step);
    }

    /// One step, and the target network after it, in one walk over the arrays.
    pub fn step_polyak(&mut self, w: &mut [T], g: &[T], rate: f64, target: &mut [T], polyak: f64) {
        let step = self.next(rate, 1.0);
        let [m, v] = &mut self.moments;
        adam_polyak(w, g, m, v, step, target, T::of(polyak));
    }
}
