//! Matrix products: equal, to the bit, to plain loops in the order that the module documents, whatever the layout.

mod common;

use common::*;
use proptest::prelude::*;
use prudence_nn::Scalar;
use prudence_nn::cpu::matrix::{Then, View, product, product_of_parts};

/// The inner dimension is summed in blocks of this length.
const DEPTH: usize = 256;
/// A single column is summed in this many lanes.
const LANES: usize = 16;

/// `[rows, cols]` inside rows that are `spare` longer; what is between is NaN.
fn spread<T: Scalar>(x: &[T], cols: usize, spare: usize) -> Vec<T> {
    x.chunks_exact(cols).flat_map(|row| [row.to_vec(), vec![T::of(f64::NAN); spare]].concat()).collect()
}

fn transposed<T: Scalar>(x: &[T], rows: usize, cols: usize) -> Vec<T> {
    prudence_nn::weights::transposed(x, rows, cols)
}

/// The four layouts of a matrix: dense and spread, as it is and transposed.
struct Layouts<T> {
    rows: usize,
    cols: usize,
    data: [Vec<T>; 4],
}

impl<T: Scalar> Layouts<T> {
    fn new(x: &[T], rows: usize, cols: usize) -> Self {
        let t = transposed(x, rows, cols);
        Self { rows, cols, data: [x.to_vec(), spread(x, cols, 3), t.clone(), spread(&t, rows, 2)] }
    }

    fn view(&self, layout: usize) -> View<'_, T> {
        let (rows, cols, data) = (self.rows, self.cols, &self.data[layout]);
        match layout {
            0 => View::new(data, rows, cols),
            1 => View::strided(data, rows, cols, cols + 3),
            2 => View::new(data, cols, rows).t(),
            _ => View::strided(data, cols, rows, rows + 2).t(),
        }
    }
}

/// One element of a product of two columns and more: fused multiply-adds in order, block after block.
fn chain<T: Scalar>(a: &[T], b: &[T], before: Option<T>) -> T {
    let sum = |a: &[T], b: &[T]| a.iter().zip(b).fold(T::ZERO, |sum, (a, b)| a.fma(*b, sum));
    let blocks = a.chunks(DEPTH).zip(b.chunks(DEPTH)).map(|(a, b)| sum(a, b));
    blocks.fold(before, |before, sum| Some(before.map_or(sum, |before| before + sum))).unwrap_or(T::ZERO)
}

/// One element of a single column: fused multiply-adds in lanes, then the lanes in pairs.
fn lanes<T: Scalar>(a: &[T], b: &[T], before: Option<T>) -> T {
    let mut lanes = [T::ZERO; LANES];
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        lanes[i % LANES] = a.fma(*b, lanes[i % LANES]);
    }
    let mut n = LANES;
    while n > 1 {
        n /= 2;
        (0..n).for_each(|i| lanes[i] += lanes[i + n]);
    }
    before.map_or(lanes[0], |before| before + lanes[0])
}

/// One element of a single column where a factor lies across: fused multiply-adds in order.
fn in_order<T: Scalar>(a: &[T], b: &[T], before: Option<T>) -> T {
    a.iter().zip(b).fold(before.unwrap_or(T::ZERO), |sum, (a, b)| a.fma(*b, sum))
}

/// The product by plain loops: `b` is given transposed, `[n, k]`.
fn plain<T: Scalar>(
    m: usize,
    a: &[T],
    b_t: &[T],
    k: usize,
    then: Then<'_, T>,
    before: &[T],
    element: Element<T>,
) -> Vec<T> {
    let n = b_t.len().checked_div(k).unwrap_or(before.len() / m);
    let positive = |sign: T, x: T| if sign <= T::ZERO { T::ZERO } else { x };
    let one = |i: usize| {
        let (row, col) = (i / n, i % n);
        let before = matches!(then, Then::Add).then(|| before[i]);
        let x = element(&a[row * k..][..k], &b_t[col * k..][..k], before);
        match then {
            Then::Store | Then::Add => x,
            Then::Bias(bias) => x + bias[col],
            Then::BiasRelu(bias) => positive(x + bias[col], x + bias[col]),
            Then::Mask(mask) => positive(mask[i], x),
        }
    };
    (0..m * n).map(one).collect()
}

type Element<T> = fn(&[T], &[T], Option<T>) -> T;

/// Every layout of both factors and everything that can happen to an element.
fn check<T: Scalar>(m: usize, k: usize, n: usize) {
    let (a, b): (Vec<T>, Vec<T>) = (cast(&numbers(71, m * k, 1.0)), cast(&numbers(72, k * n, 1.0)));
    let [before, mask]: [Vec<T>; 2] = [73, 74].map(|seed| cast(&numbers(seed, m * n, 1.0)));
    let bias: Vec<T> = cast(&numbers(75, n, 1.0));
    let (left, right) = (Layouts::new(&a, m, k), Layouts::new(&b, k, n));
    for (then, name) in [
        (Then::Store, "stored"),
        (Then::Add, "added"),
        (Then::Bias(&bias), "with bias"),
        (Then::BiasRelu(&bias), "with bias and ReLU"),
        (Then::Mask(&mask), "masked"),
    ] {
        for (i, j) in (0..16).map(|layout| (layout / 4, layout % 4)) {
            let element: Element<T> = match (n, i, j) {
                (2.., ..) => chain,
                // Columns that lie one after the other are read in lanes; a row of one number lies both ways.
                (_, 2 | 3, _) if m > 1 => in_order,
                (_, 3, _) => in_order,
                (_, _, 1) => in_order,
                _ => lanes,
            };
            // Overwritten and never read, unless it is added to.
            let mut out = if matches!(then, Then::Add) { before.clone() } else { vec![T::of(f64::NAN); m * n] };
            product(&mut out, left.view(i), right.view(j), then);
            let exact = plain(m, &a, &transposed(&b, k, n), k, then, &before, element);
            assert_eq!(bits(&out), bits(&exact), "[{m}, {k}] [{k}, {n}] {name}, layouts {i} and {j}");
        }
    }
}

/// Among them rows and columns for every size of a tile, with and without a rest; and more than one block.
const SHAPES: [(usize, usize, usize); 20] = [
    (1, 1, 1),
    (1, 7, 1),
    (3, 1, 5),
    (5, 3, 1),
    (1, 17, 33),
    (7, 13, 5),
    (16, 16, 16),
    (31, 67, 9),
    (65, 3, 129),
    (9, 70, 1),
    (1, 70, 40),
    (40, 1, 21),
    (13, 19, 64),
    (29, 31, 48),
    (23, 5, 17),
    (4, 256, 12),
    (6, 257, 7),
    (3, 600, 35),
    (11, 513, 1),
    (1, 300, 1),
];

#[test]
fn a_product_equals_plain_loops_to_the_bit_for_odd_shapes_strides_and_transposes() {
    for (m, k, n) in SHAPES {
        check::<f32>(m, k, n);
        check::<f64>(m, k, n);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn a_product_of_any_shape_equals_plain_loops(m in 1..30usize, k in 1..40usize, n in 1..90usize) {
        check::<f32>(m, k, n);
        check::<f64>(m, k, n);
    }
}

#[test]
fn f32_products_are_close_to_f64_ones() {
    for (m, k, n) in SHAPES {
        let (a, b) = (numbers(71, m * k, 1.0), numbers(72, k * n, 1.0));
        let exact = plain(m, &a, &transposed(&b, k, n), k, Then::Store, &[], chain);
        let (mut out, a, b) = (vec![f32::NAN; m * n], cast::<f32>(&a), cast::<f32>(&b));
        product(&mut out, View::new(&a, m, k), View::new(&b, k, n), Then::Store);
        assert_close_in_f32(&out, &exact);
    }
}

fn parts_equal_plain_loops<T: Scalar>() {
    for (m, k, n) in SHAPES.into_iter().filter(|(_, k, _)| *k > 1) {
        let (a, b): (Vec<T>, Vec<T>) = (cast(&numbers(76, m * k, 1.0)), cast(&numbers(77, k * n, 1.0)));
        for split in [1, k / 2, k - 1] {
            let part = |columns: std::ops::Range<usize>| {
                let part: Vec<T> = a.chunks_exact(k).flat_map(|row| row[columns.clone()].to_vec()).collect();
                Layouts::new(&part, m, columns.len())
            };
            let (left, right) = (part(0..split), part(split..k));
            let exact = plain(m, &a, &transposed(&b, k, n), k, Then::Store, &[], chain);
            for layout in 0..4 {
                let mut out = vec![T::of(f64::NAN); m * n];
                let parts = [left.view(layout), right.view(3 - layout)];
                product_of_parts(&mut out, parts, View::new(&b, k, n), Then::Store);
                assert_eq!(bits(&out), bits(&exact), "[{m}, {split} + {}] [{k}, {n}], {layout}", k - split);
            }
        }
    }
}

#[test]
fn a_product_of_two_parts_is_the_product_of_both_side_by_side() {
    parts_equal_plain_loops::<f32>();
    parts_equal_plain_loops::<f64>();
}

#[test]
fn a_row_alone_gives_the_bits_that_it_has_in_a_batch() {
    for (m, k, n) in SHAPES {
        let (a, b) = (cast::<f32>(&numbers(78, m * k, 1.0)), cast::<f32>(&numbers(79, k * n, 1.0)));
        let mut batch = vec![f32::NAN; m * n];
        product(&mut batch, View::new(&a, m, k), View::new(&b, k, n), Then::Store);
        for (row, together) in batch.chunks_exact(n).enumerate() {
            let mut alone = vec![f32::NAN; n];
            product(&mut alone, View::new(&a[row * k..][..k], 1, k), View::new(&b, k, n), Then::Store);
            assert_eq!(bits(&alone), bits(together), "row {row} of [{m}, {k}] [{k}, {n}]");
        }
    }
}

#[test]
fn a_product_over_nothing_is_zero() {
    for n in [1, 3] {
        let mut out = vec![f64::NAN; 2 * n];
        product(&mut out, View::new(&[], 2, 0), View::new(&[], 0, n), Then::Store);
        assert_eq!(out, vec![0.0; 2 * n]);
        product(&mut out, View::new(&[], 2, 0), View::new(&[], 0, n), Then::Bias(&vec![1.5; n]));
        assert_eq!(out, vec![1.5; 2 * n]);
    }
    product(&mut [], View::new(&[], 0, 2), View::new(&[1.0; 6], 2, 3), Then::Store);
}

#[test]
fn what_diverged_stays_visible_behind_a_relu() {
    for n in [1, 2, 40] {
        let (b, bias, mut out) = (vec![1.0f32; n], vec![-1.0; n], vec![0.0; 2 * n]);
        product(&mut out, View::new(&[f32::NAN, 0.5], 2, 1), View::new(&b, 1, n), Then::BiasRelu(&bias));
        assert!(out[..n].iter().all(|x| x.is_nan()) && out[n..].iter().all(|x| *x == 0.0), "{out:?}");
        let mask = [vec![f32::NAN; n], vec![0.0; n]].concat();
        product(&mut out, View::new(&[2.0f32, 3.0], 2, 1), View::new(&b, 1, n), Then::Mask(&mask));
        assert_eq!(out, [vec![2.0; n], vec![0.0; n]].concat());
    }
}

#[test]
fn shapes_that_disagree_are_refused() {
    let refused = |f: fn()| assert!(std::panic::catch_unwind(f).is_err());
    fn run(out: usize, a: (usize, usize), b: (usize, usize), then: Then<'_, f32>) {
        let (left, right) = (vec![1.0; a.0 * a.1], vec![1.0; b.0 * b.1]);
        product(&mut vec![0.0; out], View::new(&left, a.0, a.1), View::new(&right, b.0, b.1), then);
    }
    run(6, (2, 4), (4, 3), Then::Bias(&[1.0; 3]));
    refused(|| run(6, (2, 4), (5, 3), Then::Store));
    refused(|| run(5, (2, 4), (4, 3), Then::Store));
    refused(|| run(7, (2, 4), (4, 3), Then::Store));
    refused(|| run(6, (2, 4), (4, 3), Then::Bias(&[1.0; 2])));
    refused(|| run(6, (2, 4), (4, 3), Then::BiasRelu(&[1.0; 4])));
    refused(|| run(6, (2, 4), (4, 3), Then::Mask(&[1.0; 5])));
    refused(|| _ = View::new(&[1.0f32; 5], 2, 3));
    refused(|| _ = View::strided(&[1.0f32; 9], 2, 4, 3));
    refused(|| _ = View::strided(&[1.0f32; 8], 3, 2, 4));
}
