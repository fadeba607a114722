//! Element-wise kernels, fused so that each array is walked once.

use super::vectorised;
use crate::Scalar;

/// Adds `bias` to every row of `x`.
pub(super) fn add_bias<T: Scalar>(x: &mut [T], bias: &[T]) {
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
pub(super) fn add_bias_relu<T: Scalar>(x: &mut [T], bias: &[T]) {
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
pub(super) fn relu_backward<T: Scalar>(gradient: &mut [T], activation: &[T]) {
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
pub(super) fn row_sum<T: Scalar>(sums: &mut [T], x: &[T]) {
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

/// The sum of squares, in eight lanes.
pub(super) fn sum_squares<T: Scalar>(x: &[T]) -> T {
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
