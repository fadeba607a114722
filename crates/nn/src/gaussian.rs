//! The squashed Gaussian policy head: `a = tanh(u)`, `u = mean + exp(log_std) e`, `e` standard normal.
//!
//! `log pi(a) = sum_i [-e^2/2 - log_std - ln(2 pi)/2 - 2 (ln 2 - u - softplus(-2u))]`, the last term being
//! `ln(1 - tanh(u)^2)` in the form that stays exact where tanh has rounded to 1.

use crate::Scalar;
use crate::kernels::vectorised;

/// The range log standard deviations are clipped to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogStd {
    /// Lower end.
    pub min: f64,
    /// Upper end.
    pub max: f64,
}

const LN_2: f64 = std::f64::consts::LN_2;
const HALF_LN_2_PI: f64 = 0.918_938_533_204_672_8;

/// Actions and their log-probabilities from the network's `head [B, 2A]` (means, then log-stds) and `noise [B, A]`.
pub fn sample<T: Scalar>(head: &[T], noise: &[T], clip: LogStd, actions: &mut [T], log_prob: &mut [T]) {
    let dim = actions.len() / log_prob.len();
    assert!(head.len() == 2 * actions.len() && noise.len() == actions.len(), "gaussian shapes");
    let (min, max, constant) = (T::of(clip.min), T::of(clip.max), T::of(HALF_LN_2_PI + 2.0 * LN_2));
    let two = T::of(2.0);
    let half = T::of(0.5);
    vectorised(
        #[inline(always)]
        || {
            let rows = head.chunks_exact(2 * dim).zip(noise.chunks_exact(dim)).zip(actions.chunks_exact_mut(dim));
            for (((head, noise), action), log_prob) in rows.zip(log_prob) {
                let (mean, log_std) = head.split_at(dim);
                let mut sum = T::ZERO;
                for i in 0..dim {
                    let log_std = log_std[i].max(min).min(max);
                    let e = noise[i];
                    let u = log_std.exp().fma(e, mean[i]);
                    action[i] = u.tanh();
                    sum += two * (u + (-two * u).softplus()) - half * e * e - log_std - constant;
                }
                *log_prob = sum;
            }
        },
    );
}

/// The most likely squashed action: `tanh(mean)`.
pub fn mode<T: Scalar>(head: &[T], action: &mut [T]) {
    for (a, mean) in action.iter_mut().zip(head) {
        *a = mean.tanh();
    }
}

/// The way back of [`sample`]: from `d_action [B, A]` and one `d_log_prob` for all rows to `d_head [B, 2A]`.
pub fn sample_backward<T: Scalar>(
    head: &[T],
    noise: &[T],
    clip: LogStd,
    actions: &[T],
    d_action: &[T],
    d_log_prob: T,
    dim: usize,
    d_head: &mut [T],
) {
    let (min, max, two) = (T::of(clip.min), T::of(clip.max), T::of(2.0));
    vectorised(
        #[inline(always)]
        || {
            let rows = head.chunks_exact(2 * dim).zip(noise.chunks_exact(dim)).zip(actions.chunks_exact(dim));
            let rows = rows.zip(d_action.chunks_exact(dim)).zip(d_head.chunks_exact_mut(2 * dim));
            for ((((head, noise), action), d_action), d_head) in rows {
                let (d_mean, d_log_std) = d_head.split_at_mut(dim);
                for i in 0..dim {
                    let raw = head[dim + i];
                    let a = action[i];
                    // d log_prob / du = 2 tanh(u), exactly
                    let du = d_action[i] * (T::ONE - a * a) + d_log_prob * two * a;
                    d_mean[i] = du;
                    let inside = raw >= min && raw <= max;
                    let d = du * raw.max(min).min(max).exp() * noise[i] - d_log_prob;
                    d_log_std[i] = if inside { d } else { T::ZERO };
                }
            }
        },
    );
}
