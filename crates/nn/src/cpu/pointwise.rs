//! Element-wise kernels, fused so that each array is read only once.

use super::vectors::vectorised;
use crate::Scalar;

/// Sets the gradient to 0 where the unit was inactive; row i of the gradient is row `places[i]` of the activations.
pub(super) fn relu_backward<T: Scalar>(gradient: &mut [T], activations: &[T], places: &[u32], width: usize) {
    vectorised(
        #[inline(always)]
        || {
            for (gradient, place) in gradient.chunks_exact_mut(width).zip(places) {
                let activations = &activations[*place as usize * width..][..width];
                for (g, a) in gradient.iter_mut().zip(activations) {
                    *g = if *a <= T::ZERO { T::ZERO } else { *g };
                }
            }
        },
    );
}

/// Writes the sum of the rows of `x` to `sums`.
pub(super) fn row_sum<T: Scalar>(sums: &mut [T], x: &[T]) {
    vectorised(
        #[inline(always)]
        || {
            let mut first = 0;
            while first + 4 * COLUMNS <= sums.len() {
                sum_columns::<T, { 4 * COLUMNS }>(sums, x, first);
                first += 4 * COLUMNS;
            }
            while first + COLUMNS <= sums.len() {
                sum_columns::<T, COLUMNS>(sums, x, first);
                first += COLUMNS;
            }
            while first < sums.len() {
                sum_columns::<T, 1>(sums, x, first);
                first += 1;
            }
        },
    );
}

/// Columns of a widest vector in f32.
const COLUMNS: usize = 16;

/// Sums the columns `first..first + N`, which stay in registers.
#[inline(always)]
fn sum_columns<T: Scalar, const N: usize>(sums: &mut [T], x: &[T], first: usize) {
    let mut columns = [T::ZERO; N];
    for row in x.chunks_exact(sums.len()) {
        let row = &row[first..first + N];
        for c in 0..N {
            columns[c] += row[c];
        }
    }
    sums[first..first + N].copy_from_slice(&columns);
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

/// The sum, in eight lanes.
pub(super) fn sum<T: Scalar>(x: &[T]) -> T {
    vectorised(
        #[inline(always)]
        || {
            let mut sums = [T::ZERO; 8];
            let chunks = x.chunks_exact(8);
            for (lane, v) in chunks.remainder().iter().enumerate() {
                sums[lane] += *v;
            }
            for chunk in chunks {
                for lane in 0..8 {
                    sums[lane] += chunk[lane];
                }
            }
            sums.into_iter().sum()
        },
    )
}
