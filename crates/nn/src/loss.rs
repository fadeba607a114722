//! The losses: squared error, the twins' minimum, and the cross-entropy of whole trajectories.

use crate::Scalar;

/// Mean squared error of one prediction column against its target; writes the gradient, returns the loss.
pub fn mse<T: Scalar>(prediction: &[T], target: &[T], gradient: &mut [T]) -> T {
    let scale = T::of(1.0 / prediction.len() as f64);
    let mut sum = T::ZERO;
    for ((p, y), g) in prediction.iter().zip(target).zip(gradient) {
        let error = *p - *y;
        sum += error * error;
        *g = T::of(2.0) * scale * error;
    }
    sum * scale
}

/// The smaller of two critics' values, row by row.
pub fn twin_min<T: Scalar>(a: &[T], b: &[T], out: &mut [T]) {
    for ((a, b), out) in a.iter().zip(b).zip(out) {
        *out = a.min(*b);
    }
}

/// The way back of [`twin_min`]: the gradient goes to the smaller one alone (the first, where they are equal).
pub fn twin_min_backward<T: Scalar>(a: &[T], b: &[T], gradient: T, da: &mut [T], db: &mut [T]) {
    for (((a, b), da), db) in a.iter().zip(b).zip(da).zip(db) {
        let first = *a <= *b;
        *da = if first { gradient } else { T::ZERO };
        *db = if first { T::ZERO } else { gradient };
    }
}

/// Cross-entropy of "the (sub)trajectory is safe" when `log_prob <= 0` is its log-probability; and its derivative.
///
/// Safe: `-L`. Unsafe: `-ln(1 - e^L)`, by `expm1` near 0 and by `log1p` far from it. At L = 0 the unsafe loss is infinite;
/// the smallest normal number stands in for 0, so that the product with the decoder's own derivative (about -L) is finite.
pub fn trajectory_cross_entropy<T: Scalar>(log_prob: T, safe: bool) -> (T, T) {
    let l = log_prob.f64().min(-T::TINY.f64());
    let (loss, derivative) = match safe {
        true => (-l, -1.0),
        false => {
            let log_unsafe = if l > -std::f64::consts::LN_2 { (-l.exp_m1()).ln() } else { (-l.exp()).ln_1p() };
            (-log_unsafe, 1.0 / (-l).exp_m1())
        }
    };
    (T::of(loss), T::of(derivative))
}

/// `ln sigmoid(logit)` of every logit: a step's log-probability of being safe.
pub fn log_sigmoid<T: Scalar>(logits: &[T], out: &mut [T]) {
    crate::kernels::vectorised(
        #[inline(always)]
        || {
            for (x, y) in logits.iter().zip(out) {
                *y = -(-*x).softplus();
            }
        },
    );
}

/// The way back of [`log_sigmoid`]: `gradient` by the output becomes the gradient by the logit.
pub fn log_sigmoid_backward<T: Scalar>(logits: &[T], gradient: &mut [T]) {
    crate::kernels::vectorised(
        #[inline(always)]
        || {
            for (x, g) in logits.iter().zip(gradient) {
                *g *= (-*x).sigmoid();
            }
        },
    );
}
