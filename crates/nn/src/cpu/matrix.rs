//! Matrix products.
//!
//! `out = a b`, every element a chain of fused multiply-adds in the order of the inner dimension (in blocks of [`DEPTH`]),
//! whatever the vectors' width and whatever other rows there are: so one row alone, a batch and another machine give the
//! same bits. `b`'s columns lie along the vectors, `a`'s numbers are broadcast; a tile of `out` stays in registers. That is
//! why weights are stored `[in, out]`: a layer's forward pass and its weights' gradient read both factors as they lie.
//!
//! Bias, ReLU and its mask are applied to a tile before it is stored.
#![allow(unsafe_code, reason = "tiles are read and written by pointer; every range is checked where a product begins")]

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

    /// `[rows, cols]` as the leading columns of rows that lie `stride` apart.
    pub fn strided(data: &'a [T], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(
            cols <= stride && (rows == 0 || (rows - 1) * stride + cols <= data.len()),
            "a view of {rows} x {cols} numbers, rows {stride} apart, in a slice of {}",
            data.len()
        );
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

/// What happens to each element of a product before it is stored.
#[derive(Clone, Copy)]
pub enum Then<'a, T> {
    /// Nothing.
    Store,
    /// It is added to what was there.
    Add,
    /// The column's bias is added.
    Bias(&'a [T]),
    /// The column's bias is added, then the positive part is taken.
    BiasRelu(&'a [T]),
    /// Where this array of the product's shape is not positive, it becomes 0: the backward pass of a ReLU.
    Mask(&'a [T]),
}

/// Products run over the inner dimension in blocks of this length, whose sums are added in order.
const DEPTH: usize = 256;

/// `out = a b`, and then; `out` is `[a.rows, b.cols]`, row after row.
pub fn product<T: Scalar>(out: &mut [T], a: View<'_, T>, b: View<'_, T>, then: Then<'_, T>) {
    product_of_parts(out, [a, View { cols: 0, ..a }], b, then);
}

/// The same for an `a` of two matrices side by side.
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

/// Columns of `b` as a tile reads them: rows `stride` apart, each as wide as the tile; the last row elsewhere.
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
    /// Columns that count; the others are padding.
    width: usize,
    /// The block of the inner dimension.
    from: usize,
    depth: usize,
    first: bool,
    last: bool,
}

impl<T: Scalar> Product<'_, '_, T> {
    /// One block of the inner dimension, panel after panel of as many columns as a tile has.
    #[inline(always)]
    fn panels<S: Simd>(&mut self, s: S, from: usize, depth: usize) {
        let lanes = T::lanes::<S>();
        let most = if lanes * size_of::<T>() == 64 { 4 } else { 2 };
        let mut col = 0;
        while col < self.b.cols {
            let vectors = (self.b.cols - col).div_ceil(lanes).min(most);
            let width = (self.b.cols - col).min(vectors * lanes);
            let tile = Tile {
                row: 0,
                col,
                width,
                from,
                depth,
                first: from == 0,
                last: from + depth == self.b.rows,
            };
            // Twelve to thirty accumulators: enough to hide the latency of an addition, few enough for the registers.
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

    /// The panel's columns: where they lie, if a tile can read whole vectors there; else copied side by side, padded with
    /// zeros. Of rows where they lie, the last may end with the slice before a whole vector does: that one is copied.
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
        // A few rows of `a` are not worth a copy; many of them over far-apart columns are.
        let near = true;
        if col_stride == 1 && near && row_stride + tile.width >= wide {
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
        let last = tile.depth.saturating_sub(1);
        let parts = [(left, tile.from, 0..split), (right, (tile.from + split).saturating_sub(left.cols), split..tile.depth)];
        for (part, col, range) in parts {
            let first = tile.row * part.row_stride + col * part.col_stride;
            for (i, k) in range.enumerate() {
                // SAFETY: `product_of_parts` checked that each part has `tile.row + M` rows and together they have
                // `tile.from + tile.depth` columns, all within their slices (checked when the views were made). `panel_of`
                // gives `depth` rows that a whole tile's width can be read from.
                unsafe {
                    let row = if k == last { panel.last } else { panel.start.add(k * panel.stride) };
                    let weights = part.data.as_ptr().add(first + i * part.col_stride);
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

    /// Stores a tile; of its last vector, where PART, only the columns that count. Indices are constants, so that the sums
    /// stay in registers.
    #[inline(always)]
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
                // SAFETY: the tile lies within `out`, whose shape `product_of_parts` checked, and so does it within a mask;
                // the tile's columns lie within a bias. A vector that would reach beyond the tile is a part.
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
/// `row` must hold `V` vectors, and `weights` M numbers, `stride` apart.
#[inline(always)]
unsafe fn multiply_add<T: Scalar, S: Simd, const M: usize, const V: usize>(
    s: S,
    sums: &mut [[T::Vector<S>; V]; M],
    weights: *const T,
    stride: usize,
    row: *const T,
) {
    let mut columns = [T::splat(s, T::ZERO); V];
    for v in 0..V {
        // SAFETY: the caller's promise.
        columns[v] = unsafe { row.add(v * T::lanes::<S>()).cast::<T::Vector<S>>().read_unaligned() };
    }
    for r in 0..M {
        // SAFETY: the caller's promise.
        let weight = T::splat(s, unsafe { *weights.add(r * stride) });
        for v in 0..V {
            sums[r][v] = T::mul_add(s, weight, columns[v], sums[r][v]);
        }
    }
}

/// What happens to one element, as [`Then`] says.
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

/// A product with a single column, such as a critic's output: sums of products row by row, in a fixed number of lanes. The
/// gradient of such a column's weights: rows of the transposed factor, weighted and added in order.
fn single_column<T: Scalar>(out: &mut [T], a: View<'_, T>, b: View<'_, T>, epilogue: Then<'_, T>) {
    let add = matches!(epilogue, Then::Add);
    super::vectors::vectorised(
        #[inline(always)]
        || {
            if a.row_stride == 1 && a.rows > 1 {
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

/// Lanes of a sum of products, whatever the vectors' width.
const LANES: usize = 16;

/// The sums of products of R rows of `a`, `stride` apart, with `b`: in a fixed number of lanes, then in pairs. Lanes are
/// indexed by constants alone, so that they stay in registers.
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

/// The sum of all lanes, in pairs.
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
