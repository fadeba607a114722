//! What the numeric tests share: reproducible numbers, central differences, distance of two vectors.
#![allow(dead_code, reason = "each test file uses its part")]

use prudence_nn::Scalar;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// `n` numbers in +-`scale`, always the same for a seed.
pub fn numbers(seed: u64, n: usize, scale: f64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n).map(|_| rng.random_range(-scale..scale)).collect()
}

/// The same numbers in another type.
pub fn cast<T: Scalar>(x: &[f64]) -> Vec<T> {
    x.iter().map(|x| T::of(*x)).collect()
}

pub fn wide<T: Scalar>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.f64()).collect()
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

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
