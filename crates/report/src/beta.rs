//! The part of the beta distribution that exact binomial intervals need: the regularised incomplete beta function and
//! its inverse.
//!
//! It is implemented here because a statistics crate would be a large dependency for one function. The tests compare it
//! with SciPy.

/// The `x` at which the Beta(`a`, `b`) distribution function reaches `p`.
///
/// Uses bisection, which is slower than Newton's method but cannot fail; a report needs a few hundred of these at most.
pub(crate) fn quantile(p: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0f64, 1.0f64);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if regularised(middle, a, b) < p {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= f64::EPSILON * high {
            break;
        }
    }
    0.5 * (low + high)
}

/// I_x(a, b), the distribution function of Beta(`a`, `b`).
fn regularised(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // The continued fraction converges quickly on one side of the mean; the other side follows by symmetry.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * continued_fraction(x, a, b) / a
    } else {
        1.0 - front * continued_fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of I_x(a, b) by Lentz's method (Numerical Recipes, section 6.4).
fn continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    // About sqrt(max(a, b)) terms are needed, so this suffices for far more than a million episodes.
    for m in 1..20_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away_from_zero(1.0 + even * d);
        c = away_from_zero(1.0 + even / c);
        result *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away_from_zero(1.0 + odd * d);
        c = away_from_zero(1.0 + odd / c);
        result *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// ln Gamma(x) for x > 0, by Lanczos' approximation (g = 7, nine terms).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum = TERMS.iter().zip(1u32..).fold(0.999_999_999_999_809_9, |sum, (term, i)| sum + term / (x + f64::from(i)));
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `scipy.special.gammaln`, `betainc` and `betaincinv` (SciPy 1.17.1).
    #[test]
    fn agrees_with_scipy() {
        for (x, expected) in [
            (0.5, 0.572_364_942_924_7),
            (1.0, 0.0),
            (2.5, 0.284_682_870_472_919_2),
            (101.0, 363.739_375_555_563_47),
            (1e6, 12_815_504.569_147_611),
        ] {
            assert!((ln_gamma(x) - expected).abs() < 1e-13 * (1.0 + expected), "ln_gamma({x}) = {}", ln_gamma(x));
        }
        for (x, a, b, expected) in [
            (0.3, 2.0, 3.0, 0.3483),
            (0.9, 50.0, 4.0, 0.210_531_717_219_026_78),
            (0.5, 1000.0, 1010.0, 0.588_269_827_543_728),
            (0.001, 0.5, 0.5, 0.020_135_041_633_377_492),
        ] {
            assert!((regularised(x, a, b) - expected).abs() < 1e-11, "I_{x}({a}, {b}) = {}", regularised(x, a, b));
        }
        for (p, a, b, expected) in [
            (0.025, 90.0, 11.0, 0.823_777_402_259_977_3),
            (0.975, 91.0, 10.0, 0.950_995_310_778_514_1),
            (0.025, 96_000.0, 4_001.0, 0.958_767_039_953_754_5),
        ] {
            assert!((quantile(p, a, b) - expected).abs() < 1e-10, "{p} of Beta({a}, {b}): {}", quantile(p, a, b));
        }
    }

    #[test]
    fn the_distribution_function_is_0_and_1_at_the_ends() {
        assert_eq!(regularised(0.0, 2.0, 3.0), 0.0);
        assert_eq!(regularised(1.0, 2.0, 3.0), 1.0);
    }
}
