//! Univariate distributions ("laws"): their parameters, samplers and inverse distribution functions.
//!
//! The parameters are those of pyRDDLGym, which passes them to numpy: mean and variance of a Normal, mean of an
//! Exponential, shape and scale of a Gamma; a Pareto starts at 0 and a Geometric at 1. Discrete and UnnormDiscrete are
//! in [`crate::draws`].

use rand::RngExt as _;
use rand_chacha::rand_core::Rng;
use rand_distr::{
    Beta, Binomial, ChiSquared, Distribution as _, Exp1, Gamma, Open01, Poisson, StandardNormal, StudentT,
};

use crate::model::Range;
use crate::special::{beta_inverse, beta_regularised, gamma_inverse, gamma_upper, normal_quantile};

/// A univariate distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the variants are named after the distributions
pub enum Law {
    Uniform,
    Bernoulli,
    Normal,
    Poisson,
    Exponential,
    Weibull,
    Gamma,
    Binomial,
    NegativeBinomial,
    Beta,
    Geometric,
    Pareto,
    Student,
    Gumbel,
    Laplace,
    Cauchy,
    Gompertz,
    ChiSquare,
    Kumaraswamy,
}

impl Law {
    /// All laws, in the order of declaration.
    pub const ALL: [Law; 19] = [
        Law::Uniform,
        Law::Bernoulli,
        Law::Normal,
        Law::Poisson,
        Law::Exponential,
        Law::Weibull,
        Law::Gamma,
        Law::Binomial,
        Law::NegativeBinomial,
        Law::Beta,
        Law::Geometric,
        Law::Pareto,
        Law::Student,
        Law::Gumbel,
        Law::Laplace,
        Law::Cauchy,
        Law::Gompertz,
        Law::ChiSquare,
        Law::Kumaraswamy,
    ];

    /// The name in RDDL.
    pub fn name(self) -> &'static str {
        match self {
            Law::Uniform => "Uniform",
            Law::Bernoulli => "Bernoulli",
            Law::Normal => "Normal",
            Law::Poisson => "Poisson",
            Law::Exponential => "Exponential",
            Law::Weibull => "Weibull",
            Law::Gamma => "Gamma",
            Law::Binomial => "Binomial",
            Law::NegativeBinomial => "NegativeBinomial",
            Law::Beta => "Beta",
            Law::Geometric => "Geometric",
            Law::Pareto => "Pareto",
            Law::Student => "Student",
            Law::Gumbel => "Gumbel",
            Law::Laplace => "Laplace",
            Law::Cauchy => "Cauchy",
            Law::Gompertz => "Gompertz",
            Law::ChiSquare => "ChiSquare",
            Law::Kumaraswamy => "Kumaraswamy",
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Law> {
        Law::ALL.into_iter().find(|law| law.name() == name)
    }

    /// The number of parameters.
    pub fn arity(self) -> usize {
        match self {
            Law::Bernoulli | Law::Poisson | Law::Exponential | Law::Geometric | Law::Student | Law::ChiSquare => 1,
            _ => 2,
        }
    }

    pub(crate) fn range(self) -> Range {
        match self {
            Law::Bernoulli => Range::Bool,
            Law::Poisson | Law::Binomial | Law::NegativeBinomial | Law::Geometric => Range::Int,
            _ => Range::Real,
        }
    }

    /// What is wrong with the parameters, and the parameter at fault.
    #[inline]
    pub(crate) fn wrong(self, a: f64, b: f64) -> Option<(&'static str, f64)> {
        let need = |good: bool, message, value| if good { None } else { Some((message, value)) };
        let share = |p: f64| (0.0..=1.0).contains(&p);
        match self {
            Law::Uniform => need(a <= b, "the lower bound of a Uniform must not be above the upper one", a),
            Law::Bernoulli => need(share(a), "the probability of a Bernoulli must lie in 0..=1", a),
            Law::Normal => need(b >= 0.0, "the variance of a Normal must not be negative", b),
            Law::Poisson => need((0.0..1e18).contains(&a), "the rate of a Poisson must not be negative", a),
            Law::Exponential => need(a > 0.0, "the scale of an Exponential must be positive", a),
            Law::Binomial => need((0.0..1e15).contains(&a), "the count of a Binomial must not be negative", a)
                .or(need(share(b), "the probability of a Binomial must lie in 0..=1", b)),
            Law::NegativeBinomial => need(a > 0.0, "the count of a NegativeBinomial must be positive", a).or(need(
                share(b) && b > 0.0,
                "the probability of a NegativeBinomial must be above 0, up to 1",
                b,
            )),
            Law::Geometric => need(share(a) && a > 0.0, "the probability of a Geometric must be above 0, up to 1", a),
            Law::Student | Law::ChiSquare => need(a > 0.0, "the degrees of freedom must be positive", a),
            Law::Gumbel | Law::Laplace | Law::Cauchy => need(b > 0.0, "the scale must be positive", b),
            Law::Weibull | Law::Gamma | Law::Beta | Law::Pareto | Law::Gompertz | Law::Kumaraswamy => need(
                a > 0.0,
                "the first parameter must be positive",
                a,
            )
            .or(need(b > 0.0, "the second parameter must be positive", b)),
        }
    }

    /// Draws a number; NaN if the parameters are out of range.
    pub fn sample(self, a: f64, b: f64, rng: &mut impl Rng) -> f64 {
        match self {
            Law::Normal => a + b.sqrt() * rng.sample::<f64, _>(StandardNormal),
            Law::Exponential => a * rng.sample::<f64, _>(Exp1),
            Law::Poisson if a == 0.0 => 0.0,
            Law::Poisson => Poisson::new(a).map_or(f64::NAN, |law| law.sample(rng)),
            Law::Gamma => Gamma::new(a, b).map_or(f64::NAN, |law| law.sample(rng)),
            Law::Beta => Beta::new(a, b).map_or(f64::NAN, |law| law.sample(rng)),
            Law::Binomial => Binomial::new(a as u64, b).map_or(f64::NAN, |law| law.sample(rng) as f64),
            // A Poisson whose rate is drawn from a Gamma distribution.
            Law::NegativeBinomial if b == 1.0 => 0.0,
            Law::NegativeBinomial => {
                let rate = Gamma::new(a, (1.0 - b) / b).map_or(f64::NAN, |law| law.sample(rng));
                if rate > 0.0 { Poisson::new(rate).map_or(f64::NAN, |law| law.sample(rng)) } else { rate }
            }
            Law::Student => StudentT::new(a).map_or(f64::NAN, |law| law.sample(rng)),
            Law::ChiSquare => ChiSquared::new(a).map_or(f64::NAN, |law| law.sample(rng)),
            _ => self.quantile(rng.sample(Open01), a, b),
        }
    }

    /// The inverse distribution function at `u`, which must be strictly between 0 and 1; the parameters must be valid.
    ///
    /// For a discrete law this is the smallest number at which the distribution function reaches `u`. A Bernoulli is
    /// true if `u` is below its probability.
    pub fn quantile(self, u: f64, a: f64, b: f64) -> f64 {
        let tail = -(-u).ln_1p(); // the quantile of the exponential law with mean 1
        match self {
            Law::Uniform => a + (b - a) * u,
            Law::Bernoulli => f64::from(u8::from(u < a)),
            Law::Normal => a + b.sqrt() * normal_quantile(u),
            Law::Exponential => a * tail,
            Law::Weibull => b * tail.powf(1.0 / a),
            Law::Gamma => b * gamma_inverse(a, u),
            Law::ChiSquare => 2.0 * gamma_inverse(a / 2.0, u),
            Law::Beta => beta_inverse(a, b, u),
            Law::Student => {
                // In the tails, t² / (a + t²) is near 1, so its complement is computed instead.
                let tails = 2.0 * u.min(1.0 - u);
                let odds = if tails < 0.5 {
                    let x = beta_inverse(a / 2.0, 0.5, tails);
                    (1.0 - x) / x
                } else {
                    let x = beta_inverse(0.5, a / 2.0, (2.0 * u - 1.0).abs());
                    x / (1.0 - x)
                };
                (a * odds).sqrt().copysign(u - 0.5)
            }
            Law::Pareto => b * (tail / a).exp_m1(),
            Law::Gumbel => a - b * (-u.ln()).ln(),
            Law::Laplace if u < 0.5 => a + b * (2.0 * u).ln(),
            Law::Laplace => a - b * (2.0 * (1.0 - u)).ln(),
            Law::Cauchy => a + b * (std::f64::consts::PI * (u - 0.5)).tan(),
            Law::Gompertz => (tail / a).ln_1p() / b,
            Law::Kumaraswamy => (-(-tail / b).exp_m1()).powf(1.0 / a),
            Law::Poisson if a == 0.0 => 0.0,
            Law::Poisson => smallest(u, a, |k| gamma_upper(k + 1.0, a)),
            Law::Binomial if b == 0.0 || a == 0.0 => 0.0,
            Law::Binomial if b == 1.0 => a,
            Law::Binomial => {
                let count = a.floor();
                let reached = |k: f64| if k >= count { 1.0 } else { 1.0 - beta_regularised(k + 1.0, count - k, b) };
                smallest(u, count * b, reached)
            }
            Law::NegativeBinomial if b == 1.0 => 0.0,
            Law::NegativeBinomial => smallest(u, a * (1.0 - b) / b, |k| beta_regularised(a, k + 1.0, b)),
            Law::Geometric if a == 1.0 => 1.0,
            Law::Geometric => {
                let k = (tail / -(-a).ln_1p()).ceil().max(1.0);
                let before = -((k - 1.0) * (-a).ln_1p()).exp_m1(); // rounding may have gone one step too far
                if k > 1.0 && before >= u { k - 1.0 } else { k }
            }
        }
    }
}

/// Whether a name with arguments is a distribution and not a fluent.
pub(crate) fn is_distribution(name: &str) -> bool {
    Law::by_name(name).is_some() || ["KronDelta", "DiracDelta", "Discrete", "UnnormDiscrete"].contains(&name)
}

/// The smallest non-negative integer at which a distribution function reaches `u`; the search starts at `mean`.
fn smallest(u: f64, mean: f64, reached: impl Fn(f64) -> f64) -> f64 {
    if !mean.is_finite() {
        return f64::NAN;
    }
    let mut step = (mean.sqrt()).ceil().max(1.0);
    let mut high = mean.ceil();
    while reached(high) < u && step < 1e300 {
        high += step;
        step *= 2.0;
    }
    let mut low = -1.0; // the distribution function is 0 here
    let mut guess = high - step.min(high + 1.0);
    while high - low > 1.0 {
        if !(low < guess && guess < high) {
            guess = (low + (high - low) / 2.0).floor();
        }
        if guess <= low {
            break;
        }
        if reached(guess) >= u {
            high = guess;
        } else {
            low = guess;
        }
        guess = f64::NAN;
    }
    high
}
