//! Matrix products.
//!
//! In `out = a b`, every element is a chain of fused multiply-adds in the order of the inner dimension (in blocks of
//! `DEPTH`), independent of the vectors' width and of the other rows. Therefore a single row, a batch and another
//! machine give the same bits. Columns of `b` are along the vectors, numbers of `a` are broadcast, and a tile of `out`
//! stays in registers. This is why weights are stored as `[in, out]`: a layer's forward pass and the gradient of its
//! weights read both factors in their layout.
//!
//! The bias, the ReLU and the ReLU's mask are applied to a tile before it is stored.
#![allow(unsafe_code, reason = "tiles are read and written by pointer; every product first checks all ranges")]

use pulp::{Simd, WithSimd};

use super::vectors::dispatch;
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

    /// `[rows, cols]`: the leading columns of rows that are `stride` apart.
    pub fn strided(data: &'a [T], rows: usize, cols: usize, stride: usize) -> Self {
        let last = rows.checked_sub(1).map(|last| last.checked_mul(stride).and_then(|start| start.checked_add(cols)));
        assert!(
            cols <= stride && last.is_none_or(|end| end.is_some_and(|end| end <= data.len())),
            "a view of {rows} x {cols} numbers, rows {stride} apart, in a slice of {}",
            data.len()
        );
        Self { data, rows, cols, row_stride: stride, col_stride: 1 }
    }

    /// The transpose, without copying.
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

/// The operation on each element of a product before it is stored.
#[derive(Clone, Copy)]
pub enum Then<'a, T> {
    /// No operation.
    Store,
    /// The previous value is added.
    Add,
    /// The column's bias is added.
    Bias(&'a [T]),
    /// The column's bias is added, then ReLU is applied.
    BiasRelu(&'a [T]),
    /// The element becomes 0 where this array, of the product's shape, is not positive: the backward pass of a ReLU.
    Mask(&'a [T]),
}

/// The length of the blocks of the inner dimension, whose sums are added in order.
const DEPTH: usize = 256;

/// `out = a b`, followed by `then`; `out` is `[a.rows, b.cols]`, row after row.
pub fn product<T: Scalar>(out: &mut [T], a: View<'_, T>, b: View<'_, T>, then: Then<'_, T>) {
    product_of_parts(out, [a, View { cols: 0, ..a }], b, then);
}

/// Like [`product`], for an `a` of two matrices side by side.
pub fn product_of_parts<T: Scalar>(out: &mut [T], a: [View<'_, T>; 2], b: View<'_, T>, then: Then<'_, T>) {
    let [left, right] = a;
    assert!(
        left.rows == right.rows && left.cols + right.cols == b.rows && out.len() == left.rows * b.cols,
        "a product of [{}, {} + {}] and [{}, {}] into {} numbers",
        left.rows,
        left.cols,
        right.cols,
        b.rows,
        b.cols,
        out.len()
    );
    match then {
        Then::Bias(bias) | Then::BiasRelu(bias) => assert!(bias.len() == b.cols, "a bias of {} columns", bias.len()),
        Then::Mask(mask) => assert!(mask.len() == out.len(), "a mask of {} numbers", mask.len()),
        Then::Store | Then::Add => {}
    }
    if out.is_empty() {
        return;
    }
    if b.cols == 1 && right.cols == 0 {
        single_column(out, left, b, then);
        return;
    }
    T::scratch(|panel| dispatch(Product { out, a, b, then, panel }));
}

struct Product<'a, 'b, T> {
    out: &'a mut [T],
    a: [View<'b, T>; 2],
    b: View<'b, T>,
    then: Then<'b, T>,
    panel: &'a mut Vec<T>,
}

impl<T: Scalar> WithSimd for Product<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        let all = self.b.rows;
        let mut from = 0;
        loop {
            let depth = DEPTH.min(all - from);
            self.panels::<S>(s, from, depth);
            from += depth;
            if from == all {
                return;
            }
        }
    }
}

/// Columns of `b` as a tile reads them: rows as wide as the tile and `stride` apart, except for the last row, which may
/// be elsewhere.
#[derive(Clone, Copy)]
struct Panel<T> {
    start: *const T,
    stride: usize,
    last: *const T,
}

/// A tile of the product.
#[derive(Clone, Copy)]
struct Tile {
    row: usize,
    col: usize,
    /// The number of columns in use; the others are padding.
    width: usize,
    /// The block of the inner dimension.
    from: usize,
    depth: usize,
    first: bool,
    last: bool,
}

impl<T: Scalar> Product<'_, '_, T> {
    /// One block of the inner dimension, in panels of as many columns as a tile has.
    #[inline(always)]
    fn panels<S: Simd>(&mut self, s: S, from: usize, depth: usize) {
        let lanes = T::lanes::<S>();
        let most = if lanes * size_of::<T>() == 64 { 4 } else { 2 };
        let mut col = 0;
        while col < self.b.cols {
            let vectors = (self.b.cols - col).div_ceil(lanes).min(most);
            let width = (self.b.cols - col).min(vectors * lanes);
            let tile = Tile { row: 0, col, width, from, depth, first: from == 0, last: from + depth == self.b.rows };
            // 8 to 24 accumulators hide the latency of an addition and fit into the registers.
            match (vectors, lanes * size_of::<T>()) {
                (1, 64) => self.rows::<S, 12, 1>(s, tile),
                (2, 64) => self.rows::<S, 8, 2>(s, tile),
                (3, 64) => self.rows::<S, 8, 3>(s, tile),
                (_, 64) => self.rows::<S, 6, 4>(s, tile),
                (1, _) => self.rows::<S, 8, 1>(s, tile),
                (_, _) => self.rows::<S, 6, 2>(s, tile),
            }
            col += width;
        }
    }

    /// One panel, tile after tile.
    #[inline(always)]
    fn rows<S: Simd, const M: usize, const V: usize>(&mut self, s: S, mut tile: Tile) {
        let panel = self.panel_of::<S, V>(&tile);
        let rows = self.a[0].rows;
        while tile.row + M <= rows {
            self.tile::<S, M, V>(s, tile, panel);
            tile.row += M;
        }
        while tile.row + 4 <= rows {
            self.tile::<S, 4, V>(s, tile, panel);
            tile.row += 4;
        }
        while tile.row < rows {
            self.tile::<S, 1, V>(s, tile, panel);
            tile.row += 1;
        }
    }

    /// The panel's columns: in place if a tile can read whole vectors there, otherwise copied side by side and padded
    /// with zeros. In place, a whole vector of the last row may extend past the end of the slice; then that row is
    /// copied.
    #[inline(always)]
    fn panel_of<S: Simd, const V: usize>(&mut self, tile: &Tile) -> Panel<T> {
        let (wide, depth) = (V * T::lanes::<S>(), tile.depth);
        if self.panel.len() < depth * wide + 64 {
            self.panel.resize(depth * wide + 64, T::ZERO);
        }
        let aligned = self.panel.as_ptr().align_offset(64).min(64);
        let panel = &mut self.panel[aligned..];
        let View { data, row_stride, col_stride, .. } = self.b;
        let Some(last) = depth.checked_sub(1) else {
            return Panel { start: panel.as_ptr(), stride: 0, last: panel.as_ptr() };
        };
        let at = tile.from * row_stride + tile.col * col_stride;
        // Rows are read in place however far apart they are.
        if col_stride == 1 && row_stride + tile.width >= wide {
            let rows = &data[at..];
            let row = &rows[last * row_stride..];
            let last = if row.len() >= wide {
                row.as_ptr()
            } else {
                panel[..wide].fill(T::ZERO);
                panel[..tile.width].copy_from_slice(&row[..tile.width]);
                panel.as_ptr()
            };
            return Panel { start: rows.as_ptr(), stride: row_stride, last };
        }
        let panel = &mut panel[..depth * wide];
        if col_stride == 1 {
            for (k, to) in panel.chunks_exact_mut(wide).enumerate() {
                let from = &data[at + k * row_stride..][..tile.width];
                to[..tile.width].copy_from_slice(from);
                to[tile.width..].fill(T::ZERO);
            }
        } else {
            transpose_into(panel, wide, &data[at..], tile.width, depth, col_stride, row_stride);
        }
        Panel { start: panel.as_ptr(), stride: wide, last: panel[last * wide..].as_ptr() }
    }

    #[inline(always)]
    fn tile<S: Simd, const M: usize, const V: usize>(&mut self, s: S, tile: Tile, panel: Panel<T>) {
        let lanes = T::lanes::<S>();
        let mut sums = [[T::splat(s, T::ZERO); V]; M];
        let [left, right] = self.a;
        let split = left.cols.saturating_sub(tile.from).min(tile.depth);
        // The last row of the panel may be elsewhere, so it is added after the others.
        let last = tile.depth.saturating_sub(1);
        let (of_left, of_right) = (split.min(last), last.saturating_sub(split));
        let right_col = (tile.from + split).saturating_sub(left.cols);
        let (last_part, last_col) =
            if split == tile.depth { (left, tile.from + last) } else { (right, right_col + last - split) };
        let parts = [
            (left, tile.from, of_left, panel.start),
            (right, right_col, of_right, panel.start.wrapping_add(split * panel.stride)),
            (last_part, last_col, tile.depth - last, panel.last),
        ];
        for (part, col, depth, rows) in parts {
            // SAFETY: `product_of_parts` checked that each part has `tile.row + M` rows and that together they have
            // `tile.from + tile.depth` columns, all within their slices (checked when the views were created).
            // `panel_of` returns `depth` rows from which a whole tile's width can be read.
            unsafe {
                let weights = part.data.as_ptr().wrapping_add(tile.row * part.row_stride + col * part.col_stride);
                for k in 0..depth {
                    let (weights, row) = (weights.add(k * part.col_stride), rows.add(k * panel.stride));
                    multiply_add::<T, S, M, V>(s, &mut sums, weights, part.row_stride, row);
                }
            }
        }
        if tile.width == V * lanes {
            self.store::<S, M, V, false>(s, tile, sums);
        } else {
            self.store::<S, M, V, true>(s, tile, sums);
        }
    }

    /// Stores a tile; with PART, only the columns in use of its last vector. Indices are constants, so that the sums
    /// stay in registers.
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "constant indices keep the sums in registers")]
    fn store<S: Simd, const M: usize, const V: usize, const PART: bool>(
        &mut self,
        s: S,
        tile: Tile,
        sums: [[T::Vector<S>; V]; M],
    ) {
        let (lanes, n) = (T::lanes::<S>(), self.b.cols);
        let start = tile.row * n + tile.col;
        let zero = T::splat(s, T::ZERO);
        let add = !tile.first || matches!(self.then, Then::Add);
        let out = self.out.as_mut_ptr();
        for r in 0..M {
            for v in 0..V {
                let (at, col) = (start + r * n + v * lanes, tile.col + v * lanes);
                let part = (PART && v + 1 == V).then_some(tile.width - v * lanes);
                // SAFETY: the tile is within `out` and within a mask, whose shapes `product_of_parts` checked, and its
                // columns are within a bias. A vector that would extend past the tile is accessed in part.
                unsafe {
                    let load = |from: *const T| match part {
                        None => from.cast::<T::Vector<S>>().read_unaligned(),
                        Some(part) => T::load(s, std::slice::from_raw_parts(from, part)),
                    };
                    let mut value = sums[r][v];
                    if add {
                        value = T::plus(s, load(out.add(at)), value);
                    }
                    if tile.last {
                        value = match self.then {
                            Then::Store | Then::Add => value,
                            Then::Bias(bias) => T::plus(s, value, load(bias.as_ptr().add(col))),
                            Then::BiasRelu(bias) => {
                                let value = T::plus(s, value, load(bias.as_ptr().add(col)));
                                T::keep_where_positive(s, value, value, zero)
                            }
                            Then::Mask(mask) => T::keep_where_positive(s, load(mask.as_ptr().add(at)), value, zero),
                        };
                    }
                    match part {
                        None => out.add(at).cast::<T::Vector<S>>().write_unaligned(value),
                        Some(part) => T::store(s, std::slice::from_raw_parts_mut(out.add(at), part), value),
                    }
                }
            }
        }
    }
}

/// Adds `weights[r * stride] * row` to each row `r` of the sums.
///
/// # Safety
/// `row` must be valid for reads of `V` vectors, and `weights` for reads of M numbers, `stride` apart.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "constant indices keep the sums in registers")]
unsafe fn multiply_add<T: Scalar, S: Simd, const M: usize, const V: usize>(
    s: S,
    sums: &mut [[T::Vector<S>; V]; M],
    weights: *const T,
    stride: usize,
    row: *const T,
) {
    let mut columns = [T::splat(s, T::ZERO); V];
    for v in 0..V {
        // SAFETY: guaranteed by the caller.
        columns[v] = unsafe { row.add(v * T::lanes::<S>()).cast::<T::Vector<S>>().read_unaligned() };
    }
    for r in 0..M {
        // SAFETY: guaranteed by the caller.
        let weight = T::splat(s, unsafe { *weights.add(r * stride) });
        for v in 0..V {
            sums[r][v] = T::mul_add(s, weight, columns[v], sums[r][v]);
        }
    }
}

/// Applies a [`Then`] to one element.
#[inline(always)]
fn then<T: Scalar>(then: Then<'_, T>, value: T, col: usize, at: usize) -> T {
    match then {
        Then::Store | Then::Add => value,
        Then::Bias(bias) => value + bias[col],
        Then::BiasRelu(bias) => keep_where_positive(value + bias[col], value + bias[col]),
        Then::Mask(mask) => keep_where_positive(mask[at], value),
    }
}

/// See [`Scalar::keep_where_positive`].
#[inline(always)]
fn keep_where_positive<T: Scalar>(sign: T, value: T) -> T {
    if sign <= T::ZERO { T::ZERO } else { value }
}

/// `panel[k][c] = data[c * col_stride + k * row_stride]` for `width` columns, the rest of each row zero.
#[inline(always)]
fn transpose_into<T: Scalar>(
    panel: &mut [T],
    wide: usize,
    data: &[T],
    width: usize,
    depth: usize,
    col_stride: usize,
    row_stride: usize,
) {
    const BLOCK: usize = 8;
    if row_stride == 1 {
        let blocks = width / BLOCK * BLOCK;
        for col in (0..blocks).step_by(BLOCK) {
            let columns: [&[T]; BLOCK] = std::array::from_fn(|c| &data[(col + c) * col_stride..][..depth]);
            for k in 0..depth {
                let to = &mut panel[k * wide + col..][..BLOCK];
                for (to, column) in to.iter_mut().zip(columns) {
                    *to = column[k];
                }
            }
        }
        for col in blocks..width {
            for (k, x) in data[col * col_stride..][..depth].iter().enumerate() {
                panel[k * wide + col] = *x;
            }
        }
        for row in panel.chunks_exact_mut(wide) {
            row[width..].fill(T::ZERO);
        }
    } else {
        for (k, row) in panel.chunks_exact_mut(wide).enumerate() {
            for (col, to) in row.iter_mut().enumerate() {
                *to = if col < width { data[col * col_stride + k * row_stride] } else { T::ZERO };
            }
        }
    }
}

/// A product with a single column. For a critic's output: dot products row by row, in a fixed number of lanes. For the
/// gradient of the column's weights: the rows of the transposed factor, weighted and added in order.
fn single_column<T: Scalar>(out: &mut [T], a: View<'_, T>, b: View<'_, T>, epilogue: Then<'_, T>) {
    let add = matches!(epilogue, Then::Add);
    super::vectors::vectorised(
        #[inline(always)]
        || {
            if a.row_stride == 1 && a.col_stride != 1 && a.rows > 1 {
                if !add {
                    out.fill(T::ZERO);
                }
                for k in 0..b.rows {
                    let weight = b.data[k * b.row_stride];
                    let row = &a.data[k * a.col_stride..][..a.rows];
                    for (out, x) in out.iter_mut().zip(row) {
                        *out = weight.fma(*x, *out);
                    }
                }
                if !matches!(epilogue, Then::Store | Then::Add) {
                    out.iter_mut().enumerate().for_each(|(i, out)| *out = then(epilogue, *out, 0, i));
                }
            } else if a.col_stride == 1 && b.row_stride == 1 {
                let column = &b.data[..b.rows];
                let mut i = 0;
                while i + 4 <= a.rows {
                    let sums = dots::<T, 4>(&a.data[i * a.row_stride..], a.row_stride, column);
                    for r in 0..4 {
                        let value = if add { out[i + r] + sums[r] } else { sums[r] };
                        out[i + r] = then(epilogue, value, 0, i + r);
                    }
                    i += 4;
                }
                while i < a.rows {
                    let [sum] = dots::<T, 1>(&a.data[i * a.row_stride..], a.row_stride, column);
                    out[i] = then(epilogue, if add { out[i] + sum } else { sum }, 0, i);
                    i += 1;
                }
            } else {
                for (i, out) in out.iter_mut().enumerate() {
                    let mut sum = if add { *out } else { T::ZERO };
                    for k in 0..b.rows {
                        let x = a.data[i * a.row_stride + k * a.col_stride];
                        sum = x.fma(b.data[k * b.row_stride], sum);
                    }
                    *out = then(epilogue, sum, 0, i);
                }
            }
        },
    );
}

/// The number of lanes of a dot product, independent of the vectors' width.
const LANES: usize = 16;

/// The dot products of R rows of `a`, `stride` apart, with `b`: summed in a fixed number of lanes, then in pairs. Lanes
/// are indexed only by constants, so that they stay in registers.
#[inline(always)]
fn dots<T: Scalar, const R: usize>(a: &[T], stride: usize, b: &[T]) -> [T; R] {
    let whole = b.len() / LANES * LANES;
    let mut sums = [[T::ZERO; LANES]; R];
    for k in (0..whole).step_by(LANES) {
        let y = &b[k..k + LANES];
        for r in 0..R {
            let x = &a[r * stride + k..][..LANES];
            for lane in 0..LANES {
                sums[r][lane] = x[lane].fma(y[lane], sums[r][lane]);
            }
        }
    }
    if whole < b.len() {
        let y = padded(&b[whole..]);
        for r in 0..R {
            let x = padded(&a[r * stride + whole..][..b.len() - whole]);
            for lane in 0..LANES {
                sums[r][lane] = x[lane].fma(y[lane], sums[r][lane]);
            }
        }
    }
    let mut totals = [T::ZERO; R];
    for r in 0..R {
        totals[r] = fold(sums[r]);
    }
    totals
}

#[inline(always)]
fn padded<T: Scalar>(x: &[T]) -> [T; LANES] {
    let mut lanes = [T::ZERO; LANES];
    lanes[..x.len()].copy_from_slice(x);
    lanes
}

/// The sum of all lanes, added in pairs.
#[inline(always)]
fn fold<T: Scalar>(x: [T; LANES]) -> T {
    let mut eight = [T::ZERO; 8];
    for lane in 0..8 {
        eight[lane] = x[lane] + x[lane + 8];
    }
    let mut four = [T::ZERO; 4];
    for lane in 0..4 {
        four[lane] = eight[lane] + eight[lane + 4];
    }
    (four[0] + four[2]) + (four[1] + four[3])
}
