//! Adam and AdamW as PyTorch computes them: the formula, for one weight. Devices apply it to arrays, the multiplier to itself.

use crate::Scalar;

/// Adam's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamSettings {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
}

impl Default for AdamSettings {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

impl AdamSettings {
    /// What step number `t` (from 1) multiplies with: the rate over `1 - beta1^t`, and one over the root of `1 - beta2^t`.
    pub fn correction(&self, rate: f64, t: u64) -> (f64, f64) {
        let t = t as f64;
        (rate / (1.0 - self.beta1.powf(t)), (1.0 - self.beta2.powf(t)).sqrt().recip())
    }
}

/// The numbers of one step.
#[derive(Clone, Copy, Debug)]
pub struct AdamNumbers<T> {
    /// The gradient's share in the first moment, `1 - beta1`.
    gain1: T,
    beta2: T,
    /// The square's share in the second moment, `1 - beta2`: in f32 that difference is wrong in its fifth digit.
    gain2: T,
    epsilon: T,
    rate: T,
    correction: T,
    /// What the weight is multiplied with first (AdamW).
    pub shrink: T,
    /// What the gradient is multiplied with first (clipping).
    pub factor: T,
}

impl<T: Scalar> AdamNumbers<T> {
    /// From the two numbers of [`AdamSettings::correction`].
    pub fn new(settings: AdamSettings, rate: T, correction: T) -> Self {
        Self {
            gain1: T::of(1.0 - settings.beta1),
            beta2: T::of(settings.beta2),
            gain2: T::of(1.0 - settings.beta2),
            epsilon: T::of(settings.epsilon),
            rate,
            correction,
            shrink: T::ONE,
            factor: T::ONE,
        }
    }

    /// One step down the gradient, for one weight and its moments.
    #[inline(always)]
    pub fn step(&self, weight: &mut T, gradient: T, first: &mut T, second: &mut T) {
        let gradient = (gradient * self.factor).flush(T::NEGLIGIBLE);
        *first = self.gain1.fma(gradient - *first, *first).flush(T::NEGLIGIBLE);
        *second = self.beta2.fma(*second, self.gain2 * gradient * gradient).flush(T::NEGLIGIBLE * T::NEGLIGIBLE);
        *weight = *weight * self.shrink - self.rate * *first / second.sqrt().fma(self.correction, self.epsilon);
    }
}
