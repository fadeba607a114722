//! Element-wise kernels, fused so that each array is walked once.

use super::vectorised;
use crate::Scalar;

/// Adds `bias` to every row of `x`.
pub fn add_bias<T: Scalar>(x: &mut [T], bias: &[T]) {
    vectorised(
        #[inline(always)]
        || {
            for row in x.chunks_exact_mut(bias.len()) {
                for (v, b) in row.iter_mut().zip(bias) {
                    *v += *b;
                }
            }
        },
    );
}

/// Adds `bias` to every row of `x`, then takes the positive part.
pub fn add_bias_relu<T: Scalar>(x: &mut [T], bias: &[T]) {
    vectorised(
        #[inline(always)]
        || {
            for row in x.chunks_exact_mut(bias.len()) {
                for (v, b) in row.iter_mut().zip(bias) {
                    *v = (*v + *b).max(T::ZERO);
                }
            }
        },
    );
}

/// Zeroes the gradient wherever the unit was off.
pub fn relu_backward<T: Scalar>(gradient: &mut [T], activation: &[T]) {
    vectorised(
        #[inline(always)]
        || {
            for (g, a) in gradient.iter_mut().zip(activation) {
                *g = if *a > T::ZERO { *g } else { T::ZERO };
            }
        },
    );
}

/// `sums = ` the sum of the rows of `x`.
pub fn row_sum<T: Scalar>(sums: &mut [T], x: &[T]) {
    vectorised(
        #[inline(always)]
        || {
            sums.fill(T::ZERO);
            for row in x.chunks_exact(sums.len()) {
                for (s, v) in sums.iter_mut().zip(row) {
                    *s += *v;
                }
            }
        },
    );
}

/// The numbers Adam needs for one step, bias corrections included.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep<T> {
    /// The gradient's share in the first moment, `1 - beta1`.
    pub gain1: T,
    /// Second moment's decay.
    pub beta2: T,
    /// The square's share in the second moment, `1 - beta2`: in f32 that difference is wrong in its fifth digit.
    pub gain2: T,
    /// Learning rate over `1 - beta1^t`.
    pub rate: T,
    /// One over the root of `1 - beta2^t`.
    pub correction: T,
    /// Added to the root.
    pub epsilon: T,
    /// What the weights are multiplied by first: `1 - rate * decay` (AdamW).
    pub shrink: T,
    /// What the gradient is multiplied by (clipping).
    pub scale: T,
}

/// One Adam(W) step on every weight.
pub fn adam<T: Scalar>(w: &mut [T], g: &[T], m: &mut [T], v: &mut [T], s: AdamStep<T>) {
    vectorised(
        #[inline(always)]
        || {
            for (((w, g), m), v) in w.iter_mut().zip(g).zip(m.iter_mut()).zip(v.iter_mut()) {
                adam_one(w, *g, m, v, s);
            }
        },
    );
}

/// [`adam`], then `target += rate * (w - target)`, in one walk over the arrays.
pub fn adam_polyak<T: Scalar>(
    w: &mut [T],
    g: &[T],
    m: &mut [T],
    v: &mut [T],
    s: AdamStep<T>,
    target: &mut [T],
    rate: T,
) {
    vectorised(
        #[inline(always)]
        || {
            for ((((w, g), m), v), t) in w.iter_mut().zip(g).zip(m.iter_mut()).zip(v.iter_mut()).zip(target) {
                adam_one(w, *g, m, v, s);
                *t = rate.fma(*w - *t, *t);
            }
        },
    );
}

#[inline(always)]
fn adam_one<T: Scalar>(w: &mut T, g: T, m: &mut T, v: &mut T, s: AdamStep<T>) {
    let gradient = g * s.scale;
    *m = s.gain1.fma(gradient - *m, *m);
    *v = s.beta2.fma(*v, s.gain2 * gradient * gradient);
    *w = *w * s.shrink - s.rate * *m / v.sqrt().fma(s.correction, s.epsilon);
}

/// `target += rate * (w - target)`
pub fn polyak<T: Scalar>(target: &mut [T], w: &[T], rate: T) {
    vectorised(
        #[inline(always)]
        || {
            for (t, w) in target.iter_mut().zip(w) {
                *t = rate.fma(*w - *t, *t);
            }
        },
    );
}

/// The sum of squares, in eight lanes.
pub fn sum_squares<T: Scalar>(x: &[T]) -> T {
    vectorised(
        #[inline(always)]
        || {
            let mut sums = [T::ZERO; 8];
            let chunks = x.chunks_exact(8);
            for (lane, v) in chunks.remainder().iter().enumerate() {
                sums[lane] = v.fma(*v, sums[lane]);
            }
            for chunk in chunks {
                for lane in 0..8 {
                    sums[lane] = chunk[lane].fma(chunk[lane], sums[lane]);
                }
            }
            sums.into_iter().sum()
        },
    )
}
