//! The laws: inverse distribution functions compared with scipy, samplers with inverse distribution functions and
//! moments.

use prudence_rddl::Law;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

/// Law, u, parameters, and the value of `ppf(u)` in `scipy.stats`.
const KNOWN: &[(Law, f64, f64, f64, f64)] = &[
    (Law::Uniform, 0.001, -1.5, 2.0, -1.4965),
    (Law::Uniform, 0.3, -1.5, 2.0, -0.44999999999999996),
    (Law::Uniform, 0.5, -1.5, 2.0, 0.25),
    (Law::Uniform, 0.97, -1.5, 2.0, 1.895),
    (Law::Normal, 0.001, 1.0, 4.0, -5.180464612335626),
    (Law::Normal, 0.3, 1.0, 4.0, -0.04880102541608178),
    (Law::Normal, 0.5, 1.0, 4.0, 1.0),
    (Law::Normal, 0.97, 1.0, 4.0, 4.761587216302502),
    (Law::Exponential, 0.001, 2.5, 0.0, 0.002501250833958834),
    (Law::Exponential, 0.3, 2.5, 0.0, 0.8916873598468311),
    (Law::Exponential, 0.5, 2.5, 0.0, 1.7328679513998633),
    (Law::Exponential, 0.97, 2.5, 0.0, 8.766394743299951),
    (Law::Weibull, 0.001, 1.7, 2.0, 0.03439156193100916),
    (Law::Weibull, 0.3, 1.7, 2.0, 1.0905885601962122),
    (Law::Weibull, 0.5, 1.7, 2.0, 1.6121220343718417),
    (Law::Weibull, 0.97, 1.7, 2.0, 4.183581551376634),
    (Law::Gamma, 0.001, 0.4, 2.0, 4.689882169532949e-08),
    (Law::Gamma, 0.3, 0.4, 2.0, 0.07508377287484609),
    (Law::Gamma, 0.5, 0.4, 2.0, 0.2901562832868709),
    (Law::Gamma, 0.97, 0.4, 2.0, 4.148682976629333),
    (Law::Gamma, 0.001, 30.0, 0.5, 7.934585398570176),
    (Law::Gamma, 0.3, 30.0, 0.5, 13.452281533088197),
    (Law::Gamma, 0.5, 30.0, 0.5, 14.833666569110616),
    (Law::Gamma, 0.97, 30.0, 0.5, 20.556271944212288),
    (Law::Beta, 0.001, 0.5, 3.0, 2.8444455232269607e-07),
    (Law::Beta, 0.3, 0.5, 3.0, 0.02652228581049731),
    (Law::Beta, 0.5, 0.5, 3.0, 0.07903276707617297),
    (Law::Beta, 0.97, 0.5, 3.0, 0.5715152738182006),
    (Law::Beta, 0.001, 20.0, 4.0, 0.5430629017689164),
    (Law::Beta, 0.3, 20.0, 4.0, 0.800846254679576),
    (Law::Beta, 0.5, 20.0, 4.0, 0.8426566847324525),
    (Law::Beta, 0.97, 20.0, 4.0, 0.9476098842632577),
    (Law::Student, 0.001, 3.5, 0.0, -8.315567604516117),
    (Law::Student, 0.3, 3.5, 0.0, -0.5753387017722312),
    (Law::Student, 0.5, 3.5, 0.0, 0.0),
    (Law::Student, 0.97, 3.5, 0.0, 2.742272445095943),
    (Law::ChiSquare, 0.001, 5.0, 0.0, 0.2102126026292192),
    (Law::ChiSquare, 0.3, 5.0, 0.0, 2.9999081327599066),
    (Law::ChiSquare, 0.5, 5.0, 0.0, 4.351460191095526),
    (Law::ChiSquare, 0.97, 5.0, 0.0, 12.374618480559814),
    (Law::Pareto, 0.001, 3.0, 2.0, 0.0006671114570784391),
    (Law::Pareto, 0.3, 3.0, 2.0, 0.25249576088721226),
    (Law::Pareto, 0.5, 3.0, 2.0, 0.5198420997897463),
    (Law::Pareto, 0.97, 3.0, 2.0, 4.4365958973708635),
    (Law::Gumbel, 0.001, 1.0, 2.0, -2.865289467832131),
    (Law::Gumbel, 0.3, 1.0, 2.0, 0.6287464822752685),
    (Law::Gumbel, 0.5, 1.0, 2.0, 1.7330258411633288),
    (Law::Gumbel, 0.97, 1.0, 2.0, 7.982733900167572),
    (Law::Laplace, 0.001, 1.0, 2.0, -11.429216196844383),
    (Law::Laplace, 0.3, 1.0, 2.0, -0.021651247531981443),
    (Law::Laplace, 0.5, 1.0, 2.0, 1.0),
    (Law::Laplace, 0.97, 1.0, 2.0, 6.626821433520071),
    (Law::Cauchy, 0.001, 1.0, 2.0, -635.6176779711009),
    (Law::Cauchy, 0.3, 1.0, 2.0, -0.453085056010722),
    (Law::Cauchy, 0.5, 1.0, 2.0, 1.0),
    (Law::Cauchy, 0.97, 1.0, 2.0, 22.157789986811256),
    (Law::Poisson, 0.001, 0.3, 0.0, 0.0),
    (Law::Poisson, 0.3, 0.3, 0.0, 0.0),
    (Law::Poisson, 0.5, 0.3, 0.0, 0.0),
    (Law::Poisson, 0.97, 0.3, 0.0, 2.0),
    (Law::Poisson, 0.001, 1234.5, 0.0, 1127.0),
    (Law::Poisson, 0.3, 1234.5, 0.0, 1216.0),
    (Law::Poisson, 0.5, 1234.5, 0.0, 1234.0),
    (Law::Poisson, 0.97, 1234.5, 0.0, 1301.0),
    (Law::Binomial, 0.001, 40.0, 0.3, 4.0),
    (Law::Binomial, 0.3, 40.0, 0.3, 10.0),
    (Law::Binomial, 0.5, 40.0, 0.3, 12.0),
    (Law::Binomial, 0.97, 40.0, 0.3, 18.0),
    (Law::NegativeBinomial, 0.001, 3.5, 0.2, 0.0),
    (Law::NegativeBinomial, 0.3, 3.5, 0.2, 9.0),
    (Law::NegativeBinomial, 0.5, 3.5, 0.2, 13.0),
    (Law::NegativeBinomial, 0.97, 3.5, 0.2, 33.0),
    (Law::Geometric, 0.001, 0.15, 0.0, 1.0),
    (Law::Geometric, 0.3, 0.15, 0.0, 3.0),
    (Law::Geometric, 0.5, 0.15, 0.0, 5.0),
    (Law::Geometric, 0.97, 0.15, 0.0, 22.0),
];

#[test]
fn quantiles_equal_those_of_scipy() {
    for (law, u, a, b, expected) in KNOWN {
        let found = law.quantile(*u, *a, *b);
        let error = (found - expected).abs() / expected.abs().max(1e-3);
        assert!(error < 1e-10, "{law:?}({a}, {b}) at {u}: {found}, expected {expected}");
    }
}

#[test]
fn quantiles_that_scipy_lacks_invert_their_distribution_functions() {
    for u in [1e-6, 0.2, 0.5, 0.9, 1.0 - 1e-6] {
        let x = Law::Gompertz.quantile(u, 0.7, 1.3); // 1 - exp(-shape (exp(scale x) - 1))
        assert!((1.0 - (-0.7 * ((1.3 * x).exp() - 1.0)).exp() - u).abs() < 1e-12, "{u}");
        let x = Law::Kumaraswamy.quantile(u, 2.0, 3.0); // 1 - (1 - x^a)^b
        assert!((1.0 - (1.0 - x.powi(2)).powi(3) - u).abs() < 1e-12, "{u}");
        assert_eq!(Law::Bernoulli.quantile(u, 0.4, 0.0), if u < 0.4 { 1.0 } else { 0.0 });
    }
}

#[test]
fn quantiles_of_discrete_laws_are_right_for_extreme_parameters() {
    let cases = [
        (Law::Poisson, 0.0, 0.0, 0.0),
        (Law::Binomial, 0.0, 0.3, 0.0),
        (Law::Binomial, 7.0, 0.0, 0.0),
        (Law::Binomial, 7.0, 1.0, 7.0),
        (Law::NegativeBinomial, 3.0, 1.0, 0.0),
        (Law::Geometric, 1.0, 0.0, 1.0),
    ];
    for (law, a, b, expected) in cases {
        for u in [1e-12, 0.5, 1.0 - 1e-12] {
            assert_eq!(law.quantile(u, a, b), expected, "{law:?}({a}, {b}) at {u}");
        }
    }
}

/// Law, parameters, mean and variance (NaN if it does not exist or is not tested).
const MOMENTS: [(Law, f64, f64, f64, f64); 24] = [
    (Law::Uniform, -1.0, 3.0, 1.0, 16.0 / 12.0),
    (Law::Bernoulli, 0.3, 0.0, 0.3, 0.21),
    (Law::Normal, 2.0, 9.0, 2.0, 9.0),
    (Law::Normal, 2.0, 0.0, 2.0, 0.0),
    (Law::Poisson, 0.0, 0.0, 0.0, 0.0),
    (Law::Poisson, 2.5, 0.0, 2.5, 2.5),
    (Law::Poisson, 80.0, 0.0, 80.0, 80.0),
    (Law::Exponential, 2.0, 0.0, 2.0, 4.0),
    (Law::Weibull, 2.0, 3.0, 2.658_680_776_358_274, 1.931_416_529_422_965),
    (Law::Gamma, 0.4, 2.0, 0.8, 1.6),
    (Law::Gamma, 9.0, 0.5, 4.5, 2.25),
    (Law::Binomial, 20.0, 0.3, 6.0, 4.2),
    (Law::NegativeBinomial, 3.0, 0.4, 4.5, 11.25),
    (Law::NegativeBinomial, 3.0, 1.0, 0.0, 0.0),
    (Law::Beta, 2.0, 3.0, 0.4, 0.04),
    (Law::Geometric, 0.25, 0.0, 4.0, 12.0),
    (Law::Pareto, 5.0, 2.0, 0.5, 5.0 / 12.0),
    (Law::Student, 9.0, 0.0, 0.0, 9.0 / 7.0),
    (Law::Gumbel, 1.0, 2.0, 2.154_431_329_803_065, 6.579_736_267_392_906),
    (Law::Laplace, 1.0, 2.0, 1.0, 8.0),
    (Law::Cauchy, 1.0, 2.0, f64::NAN, f64::NAN),
    (Law::Gompertz, 1.0, 1.0, 0.596_347_362_323_194, f64::NAN),
    (Law::ChiSquare, 4.0, 0.0, 4.0, 8.0),
    (Law::Kumaraswamy, 1.0, 3.0, 0.25, 0.0375),
];

#[test]
fn samples_of_every_law_have_its_moments_and_quantiles() {
    const DRAWS: usize = 100_000;
    for (seed, (law, a, b, mean, variance)) in MOMENTS.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        let draws: Vec<f64> = (0..DRAWS).map(|_| law.sample(a, b, &mut rng)).collect();
        let found = draws.iter().sum::<f64>() / DRAWS as f64;
        let spread = draws.iter().map(|x| (x - found).powi(2)).sum::<f64>() / DRAWS as f64;
        let error = 5.0 * (spread / DRAWS as f64).sqrt() + 1e-12;
        assert!(mean.is_nan() || (found - mean).abs() <= error, "{law:?}({a}, {b}): mean {found}, expected {mean}");
        let close = (spread - variance).abs() <= 0.1 * variance;
        assert!(variance.is_nan() || close, "{law:?}({a}, {b}): variance {spread}, expected {variance}");
        if law == Law::Bernoulli || variance == 0.0 {
            continue;
        }
        for u in [0.05, 0.3, 0.5, 0.8, 0.99] {
            let quantile = law.quantile(u, a, b);
            let share = |p: &dyn Fn(f64) -> bool| draws.iter().filter(|x| p(**x)).count() as f64 / DRAWS as f64;
            let (below, up_to) = (share(&|x| x < quantile), share(&|x| x <= quantile));
            assert!(below <= u + 0.008 && up_to >= u - 0.008, "{law:?}({a}, {b}): {below} to {up_to} at {u}");
        }
    }
}

#[test]
fn the_table_of_moments_covers_every_law() {
    for law in Law::ALL {
        assert!(MOMENTS.iter().any(|(known, ..)| *known == law), "{law:?}");
    }
}
