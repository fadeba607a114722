//! The loss of a safety model: cross-entropy of labelled prefixes of trajectories.

use super::Cpu;
use super::vectors::vectorised;
use crate::Scalar;
use crate::work::{Pass, TrajectoryLoss};

/// Cross-entropy of the statement "the (sub)trajectory is safe" with log-probability `log_prob <= 0`, and its
/// derivative.
///
/// Safe: `-L`. Unsafe: `-ln(1 - e^L)`, by `expm1` near 0 and by `log1p` elsewhere. At L = 0 the unsafe loss would be
/// infinite; 0 is replaced by the smallest normal number, so that the product with the decoder's derivative (about -L)
/// is finite.
pub fn trajectory_cross_entropy<T: Scalar>(log_prob: T, safe: bool) -> (T, T) {
    let l = log_prob.f64().min(-T::TINY.f64());
    let (loss, derivative) = if safe {
        (-l, -1.0)
    } else {
        let log_unsafe = if l > -std::f64::consts::LN_2 { (-l.exp_m1()).ln() } else { (-l.exp()).ln_1p() };
        (-log_unsafe, 1.0 / (-l).exp_m1())
    };
    (T::of(loss), T::of(derivative))
}

/// Replaces logits by `ln sigmoid(logit)`.
pub(super) fn log_sigmoid<T: Scalar>(logits: &mut [T]) {
    vectorised(
        #[inline(always)]
        || {
            for x in logits {
                *x = -(-certain(*x)).softplus();
            }
        },
    );
}

/// Limits a logit, so that its log-probability (about -1e-20 at the limit) and the derivative stay normal numbers.
#[inline(always)]
fn certain<T: Scalar>(logit: T) -> T {
    logit.min(T::of(46.0))
}

/// Backward pass of [`log_sigmoid`]: turns the gradient with respect to the output into that of the logit.
fn log_sigmoid_backward<T: Scalar>(logits: &[T], gradient: &mut [T]) {
    vectorised(
        #[inline(always)]
        || {
            for (x, g) in logits.iter().zip(gradient) {
                *g = (*g * (-certain(*x)).sigmoid()).flush(T::NEGLIGIBLE);
            }
        },
    );
}

pub(super) fn trajectory<T: Scalar>(t: &TrajectoryLoss<'_, Cpu<T>>, pass: &mut Pass<Cpu<T>>, loss: &mut [T]) {
    let (steps, rows) = (t.steps, t.rows);
    let last = pass.activations.len() - 1;
    for (group, loss) in loss.iter_mut().enumerate() {
        let range = group * steps * rows..(group + 1) * steps * rows;
        let (labels, scale) = (&t.labels[range.clone()], t.scale[group]);
        let logits = &pass.activations[last][range.clone()];
        let gradient = &mut pass.gradients[last][range];
        *loss = T::ZERO;
        gradient.copy_from_slice(logits);
        log_sigmoid(gradient); // log P of each step, later replaced by the derivative of the step's prefix
        for row in 0..rows {
            let mut sum = T::ZERO;
            for step in 0..steps {
                let at = step * rows + row;
                sum += gradient[at];
                gradient[at] = T::ZERO;
                if labels[at] != T::ZERO {
                    let (term, derivative) = trajectory_cross_entropy(sum, labels[at] > T::ZERO);
                    *loss += term * scale;
                    gradient[at] = derivative.flush(T::NEGLIGIBLE);
                }
            }
        }
        // Scaled before the addition, because a model that is sure and wrong makes each close to the largest f32.
        for row in 0..rows {
            let mut carried = T::ZERO;
            for step in (0..steps).rev() {
                let at = step * rows + row;
                carried += gradient[at] * scale;
                gradient[at] = carried;
            }
        }
        log_sigmoid_backward(logits, gradient);
    }
}
