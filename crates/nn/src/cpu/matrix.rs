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
///
/// A critic has one output, so a third of an update's products are really dot products, sums of rows or outer products:
/// those are done here, without packing.
pub fn matmul<T: Scalar>(out: &mut [T], add: bool, a: View<'_, T>, b: View<'_, T>) {
    assert!(a.cols == b.rows && out.len() == a.rows * b.cols, "matmul shapes disagree");
    let (rows_of_a, rows_of_b) = (a.col_stride == 1, b.col_stride == 1 || b.cols == 1);
    if b.cols == 1 && rows_of_a && b.row_stride == 1 {
        vectorised(
            #[inline(always)]
            || {
                for (i, out) in out.iter_mut().enumerate() {
                    let product = dot(&a.data[i * a.row_stride..][..a.cols], &b.data[..a.cols]);
                    *out = if add { *out + product } else { product }; // what was there may be infinite
                }
            },
        );
    } else if (a.cols == 1 || a.rows == 1) && rows_of_b && b.cols > 1 {
        vectorised(
            #[inline(always)]
            || {
                if !add {
                    out.fill(T::ZERO);
                }
                for (i, out) in out.chunks_exact_mut(b.cols).enumerate() {
                    for k in 0..a.cols {
                        let weight = a.data[i * a.row_stride + k * a.col_stride];
                        for (out, x) in out.iter_mut().zip(&b.data[k * b.row_stride..][..b.cols]) {
                            *out = weight.fma(*x, *out);
                        }
                    }
                }
            },
        );
    } else {
        block(out, add, a, b);
    }
}

/// The sum of products, in as many lanes as keep the multipliers busy. Lanes are indexed by constants alone, so that they
/// stay in registers.
#[inline(always)]
fn dot<T: Scalar>(a: &[T], b: &[T]) -> T {
    const LANES: usize = 32;
    const PART: usize = 8;
    let mut sums = [T::ZERO; LANES];
    let (xs, ys) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (rest_a, rest_b) = (xs.remainder(), ys.remainder());
    for (x, y) in xs.zip(ys) {
        for lane in 0..LANES {
            sums[lane] = x[lane].fma(y[lane], sums[lane]);
        }
    }
    let mut part = [T::ZERO; PART];
    for lane in 0..PART {
        part[lane] = (sums[lane] + sums[lane + PART]) + (sums[lane + 2 * PART] + sums[lane + 3 * PART]);
    }
    let (xs, ys) = (rest_a.chunks_exact(PART), rest_b.chunks_exact(PART));
    let (last_a, last_b) = (xs.remainder(), ys.remainder());
    for (x, y) in xs.zip(ys) {
        for lane in 0..PART {
            part[lane] = x[lane].fma(y[lane], part[lane]);
        }
    }
    let mut rest = T::ZERO;
    for (x, y) in last_a.iter().zip(last_b) {
        rest = x.fma(*y, rest);
    }
    rest + ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]))
}

#[allow(unsafe_code)]
fn block<T: Scalar>(out: &mut [T], add: bool, a: View<'_, T>, b: View<'_, T>) {
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

/// `out = bias + w x` for a single `x`; `w` is `[out, in]`. Four rows at a time, so that `x` is read a quarter as often.
pub fn affine_one<T: Scalar>(out: &mut [T], w: &[T], bias: &[T], x: &[T]) {
    let n = x.len();
    assert!(w.len() == out.len() * n && bias.len() == out.len(), "affine_one shapes disagree");
    vectorised(
        #[inline(always)]
        || {
            let blocks = out.len() / 4 * 4;
            let (whole, rest) = x.split_at(n - n % LANES);
            for i in (0..blocks).step_by(4) {
                let rows: [&[T]; 4] =
                    [&w[i * n..][..n], &w[(i + 1) * n..][..n], &w[(i + 2) * n..][..n], &w[(i + 3) * n..][..n]];
                let mut sums = [[T::ZERO; LANES]; 4];
                let [a, b, c, d] = rows.map(|row| row.chunks_exact(LANES));
                for ((((x, a), b), c), d) in whole.chunks_exact(LANES).zip(a).zip(b).zip(c).zip(d) {
                    for lane in 0..LANES {
                        sums[0][lane] = a[lane].fma(x[lane], sums[0][lane]);
                        sums[1][lane] = b[lane].fma(x[lane], sums[1][lane]);
                        sums[2][lane] = c[lane].fma(x[lane], sums[2][lane]);
                        sums[3][lane] = d[lane].fma(x[lane], sums[3][lane]);
                    }
                }
                let mut lanes = sums; // a copy: `sums` is to stay in registers
                for (lanes, row) in lanes.iter_mut().zip(rows) {
                    for ((lane, w), x) in lanes.iter_mut().zip(&row[whole.len()..]).zip(rest) {
                        *lane = w.fma(*x, *lane);
                    }
                }
                for (r, sum) in across(&lanes).into_iter().enumerate() {
                    out[i + r] = bias[i + r] + sum;
                }
            }
            for i in blocks..out.len() {
                out[i] = bias[i] + dot(&w[i * n..][..n], x);
            }
        },
    );
}

/// Lanes of [`affine_one`]: eight chains of vectors, as many as keep both multipliers busy.
const LANES: usize = 16;

/// The sums of four rows of lanes. Never inlined: the compiler would lay out the whole loop before it in the pairs that are
/// added here, two lanes a vector instead of eight.
#[inline(never)]
fn across<T: Scalar>(lanes: &[[T; LANES]; 4]) -> [T; 4] {
    let mut sums = *lanes;
    for half in [8, 4, 2, 1] {
        for row in &mut sums {
            let (low, high) = row.split_at_mut(half);
            low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
        }
    }
    sums.map(|row| row[0])
}
