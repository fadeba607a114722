//! Adam and AdamW as PyTorch computes them, for a single weight. Devices apply the formula to arrays; the multiplier's
//! optimiser applies it to one number.

use crate::Scalar;

/// Adam's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamSettings {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the square root of the second moment.
    pub epsilon: f64,
}

impl Default for AdamSettings {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

impl AdamSettings {
    /// The bias corrections of step `t` (from 1): the learning rate divided by `1 - beta1^t`, and `1 / sqrt(1 - beta2^t)`.
    pub fn correction(&self, rate: f64, t: u64) -> (f64, f64) {
        let t = t as f64;
        (rate / (1.0 - self.beta1.powf(t)), (1.0 - self.beta2.powf(t)).sqrt().recip())
    }
}

/// The constants of one step, in the device's precision.
#[derive(Clone, Copy, Debug)]
pub struct AdamNumbers<T> {
    /// The weight of the gradient in the first moment, `1 - beta1`.
    gain1: T,
    beta2: T,
    /// The weight of the squared gradient in the second moment, `1 - beta2`, computed in f64: in f32 the difference is
    /// already wrong in its fifth digit.
    gain2: T,
    epsilon: T,
    rate: T,
    correction: T,
    /// The factor applied to the weight before the step (AdamW's weight decay).
    pub shrink: T,
    /// The factor applied to the gradient before the step (gradient clipping).
    pub factor: T,
}

impl<T: Scalar> AdamNumbers<T> {
    /// `rate` and `correction` are the two numbers of [`AdamSettings::correction`].
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

    /// One gradient descent step for one weight and its moments.
    #[inline(always)]
    pub fn step(&self, weight: &mut T, gradient: T, first: &mut T, second: &mut T) {
        let gradient = (gradient * self.factor).flush(T::NEGLIGIBLE);
        *first = self.gain1.fma(gradient - *first, *first).flush(T::NEGLIGIBLE);
        *second = self.beta2.fma(*second, self.gain2 * gradient * gradient).flush(T::NEGLIGIBLE * T::NEGLIGIBLE);
        *weight = *weight * self.shrink - self.rate * *first / second.sqrt().fma(self.correction, self.epsilon);
    }
}
