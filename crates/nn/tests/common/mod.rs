//! What the numeric tests share: reproducible numbers, buffers of them, central differences, the distance of two vectors.
#![allow(dead_code, reason = "each test file uses its part")]

use prudence_core::random::stream;
use prudence_nn::cpu::Buffer;
use prudence_nn::work::{Columns, Input, Pass};
use prudence_nn::{Bank, Cpu, Device as _, Mlp, Scalar};
use rand::RngExt as _;

/// Of the norm of a difference over the norm, where gradients are compared with central differences in f64.
pub const GRADIENT_LIMIT: f64 = 1e-6;

/// The same where f32 is compared with f64.
pub const F32_LIMIT: f64 = 1e-5;

/// `n` numbers in +-`scale`, always the same for a seed.
pub fn numbers(seed: u64, n: usize, scale: f64) -> Vec<f64> {
    let mut rng = stream(seed, "test-numbers", 0);
    (0..n).map(|_| rng.random_range(-scale..scale)).collect()
}

/// The same numbers in another type.
pub fn cast<T: Scalar>(x: &[f64]) -> Vec<T> {
    x.iter().map(|x| T::of(*x)).collect()
}

/// The same numbers in f64.
pub fn wide<T: Scalar>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.f64()).collect()
}

/// What distinguishes numbers that compare equal, and NaNs.
pub fn bits<T: Scalar>(x: &[T]) -> Vec<u64> {
    x.iter().map(|x| x.f64().to_bits()).collect()
}

/// A buffer of these numbers, rounded once.
pub fn buffer<T: Scalar>(x: &[f64]) -> Buffer<T> {
    Buffer::from(&cast(x)[..])
}

/// A buffer that is to be overwritten and never read: what is left of it shows.
pub fn unwritten<T: Scalar>(n: usize) -> Buffer<T> {
    buffer(&vec![f64::NAN; n])
}

/// A pass whose output is these numbers, `[groups, rows, width]`: linear networks have passed them on.
pub fn pass_with_output<T: Scalar>(output: &[T], groups: usize, rows: usize, width: usize) -> Pass<Cpu<T>> {
    let (d, net) = (Cpu::new(), Bank::dense(Mlp::new(width, &[], width), groups));
    let mut weights = Buffer::zeros(groups * net.stride);
    for identity in weights.chunks_exact_mut(net.stride) {
        (0..width).for_each(|i| identity[i * width + i] = T::ONE);
    }
    let (x, mut pass) = (Buffer::from(output), Pass::new(&d, &net, rows).unwrap());
    let input = Input { first: Columns::new(&x, rows, width, 1), second: None };
    d.forward(&net, &weights, input, &mut pass);
    assert!(pass.output()[..] == *output, "the networks pass on what they read");
    pass
}

/// Norm of the difference over the norm of `exact`.
pub fn distance(x: &[f64], exact: &[f64]) -> f64 {
    assert_eq!(x.len(), exact.len());
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let size = norm(&mut exact.iter().copied());
    assert!(size > 0.0, "nothing to compare with");
    norm(&mut x.iter().zip(exact).map(|(a, b)| a - b)) / size
}

/// The gradient of `f` at `x` by central differences.
pub fn central(x: &[f64], mut f: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    let mut at = x.to_vec();
    (0..x.len())
        .map(|i| {
            let step = 1e-5;
            let mut value = |x: f64| {
                at[i] = x;
                f(&at)
            };
            let slope = (value(x[i] + step) - value(x[i] - step)) / (2.0 * step);
            at[i] = x[i];
            slope
        })
        .collect()
}

#[track_caller]
pub fn assert_same_gradient(analytic: &[f64], x: &[f64], f: impl FnMut(&[f64]) -> f64) {
    let error = distance(analytic, &central(x, f));
    assert!(error < GRADIENT_LIMIT, "relative error {error:e}");
}

#[track_caller]
pub fn assert_close_in_f32(x: &[f32], exact: &[f64]) {
    let error = distance(&wide(x), exact);
    assert!(error < F32_LIMIT, "relative error {error:e}");
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
