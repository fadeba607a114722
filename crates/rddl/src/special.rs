//! Special functions that the standard library lacks, with a relative error of about 1e-13.

use std::f64::consts::PI;

/// The logarithm of the gamma function of a positive number; NaN otherwise.
///
/// Uses Stirling's series from 10 on; smaller numbers are shifted there by `gamma(x + 1) = x gamma(x)`.
pub(crate) fn ln_gamma(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 {
        return f64::NAN;
    }
    let (mut x, mut product) = (x, 1.0_f64);
    while x < 10.0 {
        product *= x;
        x += 1.0;
    }
    let squared = 1.0 / (x * x);
    // Bernoulli numbers over 2k (2k - 1)
    let series = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
        1.0 / 156.0,
        -3617.0 / 122_400.0,
    ];
    let correction = series.iter().rev().fold(0.0, |sum, term| sum * squared + term) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * PI).ln() + correction - product.ln()
}

/// The quantile function of the standard normal distribution: Acklam's rational approximation, refined by two steps of
/// Halley's method with the error function, which leave only rounding errors.
pub(crate) fn normal_quantile(u: f64) -> f64 {
    if !(u > 0.0 && u < 1.0) {
        return if u == 0.0 {
            f64::NEG_INFINITY
        } else if u == 1.0 {
            f64::INFINITY
        } else {
            f64::NAN
        };
    }
    if u > 0.5 {
        return -normal_lower(1.0 - u);
    }
    normal_lower(u)
}

/// The quantile for `u` up to one half.
fn normal_lower(u: f64) -> f64 {
    if u == 0.5 {
        return 0.0;
    }
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 5] =
        [-5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1, -1.328068155288572e1];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416];
    let polynomial = |terms: &[f64], x: f64| terms.iter().fold(0.0, |sum, term| sum * x + term);
    let mut x = if u < 0.02425 {
        let q = (-2.0 * u.ln()).sqrt();
        polynomial(&C, q) / (polynomial(&D, q) * q + 1.0)
    } else {
        let (q, r) = (u - 0.5, (u - 0.5) * (u - 0.5));
        polynomial(&A, r) * q / (polynomial(&B, r) * r + 1.0)
    };
    for _ in 0..2 {
        let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
        let step = (normal_distribution(x) - u) / density;
        x -= step / (1.0 + 0.5 * x * step);
    }
    x
}

/// The standard normal distribution function for `x` up to 0.
fn normal_distribution(x: f64) -> f64 {
    let half = 0.5 * x * x;
    if half < 1.5 { 0.5 - 0.5 * gamma_series(0.5, half) } else { 0.5 * gamma_fraction(0.5, half) }
}

/// The upper regularised incomplete gamma function Q(a, x).
pub(crate) fn gamma_upper(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        1.0
    } else if x < a + 1.0 {
        1.0 - gamma_series(a, x)
    } else {
        gamma_fraction(a, x)
    }
}

/// The lower regularised incomplete gamma function P(a, x).
fn gamma_lower(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        0.0
    } else if x < a + 1.0 {
        gamma_series(a, x)
    } else {
        1.0 - gamma_fraction(a, x)
    }
}

/// The maximum number of terms, enough for parameters of a million.
const TERMS: usize = 20_000;

fn gamma_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
    for _ in 0..TERMS {
        n += 1.0;
        term *= x / n;
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum * (a * x.ln() - x - ln_gamma(a)).exp()
}

/// Evaluates the continued fraction of Q(a, x) by Lentz's method.
fn gamma_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut fraction = d;
    for i in 1..TERMS {
        let numerator = -(i as f64) * (i as f64 - a);
        b += 2.0;
        d = 1.0 / nonzero(numerator * d + b);
        c = nonzero(b + numerator / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    fraction * (a * x.ln() - x - ln_gamma(a)).exp()
}

fn nonzero(x: f64) -> f64 {
    if x.abs() < 1e-300 { 1e-300 } else { x }
}

/// The x at which P(a, x) is `u`.
pub(crate) fn gamma_inverse(a: f64, u: f64) -> f64 {
    // The Wilson-Hilferty approximation, or the first term of the series far in the lower tail.
    let cube = 1.0 - 1.0 / (9.0 * a) + normal_quantile(u) / (3.0 * a.sqrt());
    let first = ((u.ln() + ln_gamma(a + 1.0)) / a).exp();
    let guess = if a > 0.5 && cube > 0.0 { a * cube * cube * cube } else { first };
    let log_density = |x: f64| (a - 1.0) * x.ln() - x - ln_gamma(a);
    find_root(guess, f64::INFINITY, u, |x| gamma_lower(a, x), |x| gamma_upper(a, x), log_density)
}

/// The regularised incomplete beta function.
pub(crate) fn beta_regularised(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        0.0
    } else if x >= 1.0 {
        1.0
    } else if x < (a + 1.0) / (a + b + 2.0) {
        beta_front(a, b, x) * beta_fraction(a, b, x) / a
    } else {
        1.0 - beta_front(a, b, x) * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_front(a: f64, b: f64, x: f64) -> f64 {
    (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp()
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let mut c = 1.0;
    let mut d = 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..TERMS {
        let m = m as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / nonzero(1.0 + even * d);
        c = nonzero(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / nonzero(1.0 + odd * d);
        c = nonzero(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    fraction
}

/// The x at which the regularised incomplete beta function is `u`.
pub(crate) fn beta_inverse(a: f64, b: f64, u: f64) -> f64 {
    if u <= 0.0 {
        return 0.0;
    }
    let log_beta = ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b);
    let guess = ((u.ln() + a.ln() + log_beta) / a).exp().clamp(1e-300, 0.5);
    let log_density = |x: f64| (a - 1.0) * x.ln() + (b - 1.0) * (-x).ln_1p() - log_beta;
    let upper = |x: f64| beta_regularised(b, a, 1.0 - x);
    find_root(guess, 1.0, u, |x| beta_regularised(a, b, x), upper, log_density)
}

/// Finds a root between 0 and `end` by Newton's method, within a bracket that every step narrows. For `u` above one
/// half the upper tails are compared, which avoids cancellation.
fn find_root(
    guess: f64,
    end: f64,
    u: f64,
    lower: impl Fn(f64) -> f64,
    upper: impl Fn(f64) -> f64,
    log_density: impl Fn(f64) -> f64,
) -> f64 {
    let (mut low, mut high) = (0.0, end);
    let mut x = guess.max(f64::MIN_POSITIVE);
    for _ in 0..400 {
        let excess = if u <= 0.5 { lower(x) - u } else { (1.0 - u) - upper(x) };
        if excess == 0.0 {
            return x;
        }
        if excess > 0.0 {
            high = x;
        } else {
            low = x;
        }
        let newton = x - excess / log_density(x).exp();
        let next = if newton > low && newton < high {
            newton
        } else if high.is_infinite() {
            2.0 * x
        } else if low == 0.0 {
            high * 0.1
        } else {
            0.5 * (low + high)
        };
        if (next - x).abs() <= 4e-16 * x.abs() {
            return next;
        }
        x = next;
    }
    x
}
