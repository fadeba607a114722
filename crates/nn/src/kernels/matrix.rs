//! Matrix products: the library's for blocks, our own for a single row (acting), where packing costs more than the product.

use super::vectorised;
use crate::Scalar;

/// A matrix inside a slice: rows, columns and the strides between them.
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, T> View<'a, T> {
    /// `[rows, cols]`, row after row.
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// `[rows, cols]` as the leading columns of rows that lie `stride` apart.
    pub fn strided(data: &'a [T], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(cols <= stride && (rows == 0 || (rows - 1) * stride + cols <= data.len()), "view exceeds its slice");
        Self { data, rows, cols, row_stride: stride, col_stride: 1 }
    }

    /// The transpose, without moving a number.
    pub fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            data: self.data,
        }
    }
}

/// `out = a b`, or `out += a b` with `add`; `out` is `[a.rows, b.cols]`, row after row.
#[allow(unsafe_code)]
pub fn matmul<T: Scalar>(out: &mut [T], add: bool, a: View<'_, T>, b: View<'_, T>) {
    assert!(a.cols == b.rows && out.len() == a.rows * b.cols, "matmul shapes disagree");
    let beta = if add { T::ONE } else { T::ZERO };
    // SAFETY: both views were checked against their slices when made, `out` is checked above, and `out` cannot overlap
    // them because it is borrowed mutably. `gemm` reads and writes exactly those elements.
    unsafe {
        gemm::gemm(
            a.rows,
            b.cols,
            a.cols,
            out.as_mut_ptr(),
            1,
            b.cols as isize,
            add,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            beta,
            T::ONE,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// `out = bias + w x` for a single `x`; `w` is `[out, in]`.
pub fn affine_one<T: Scalar>(out: &mut [T], w: &[T], bias: &[T], x: &[T]) {
    assert!(w.len() == out.len() * x.len() && bias.len() == out.len(), "affine_one shapes disagree");
    vectorised(
        #[inline(always)]
        || {
            const LANES: usize = 16;
            let n = x.len();
            let whole = n - n % LANES;
            for ((y, b), row) in out.iter_mut().zip(bias).zip(w.chunks_exact(n)) {
                let mut sums = [T::ZERO; LANES];
                for (rs, xs) in row[..whole].chunks_exact(LANES).zip(x[..whole].chunks_exact(LANES)) {
                    for lane in 0..LANES {
                        sums[lane] = rs[lane].fma(xs[lane], sums[lane]);
                    }
                }
                let mut sum = *b;
                for (r, v) in row[whole..].iter().zip(&x[whole..]) {
                    sum = r.fma(*v, sum);
                }
                for half in [8, 4, 2, 1] {
                    for lane in 0..half {
                        sums[lane] += sums[lane + half];
                    }
                }
                *y = sum + sums[0];
            }
        },
    );
}
