//! The statistics of a report: exact intervals for shares, and bootstrap intervals over seeds.
//!
//! A share of episodes has a Clopper-Pearson interval, which is conservative for any number of episodes. It treats
//! episodes as independent, but episodes of one seed share a policy, so there is also an interval over seeds. All
//! intervals are 95 % intervals. A number without a value (the mean of nothing, the deviation of one number) is NaN.

use prudence_core::random::{Stream, stream};
use rand_core::Rng as _;

use crate::beta;

/// The number of bootstrap resamples.
const RESAMPLES: usize = 2_000;

/// The two-sided 95 % Clopper-Pearson interval for a share; `[0, 1]` if there were no trials.
pub fn clopper_pearson(successes: u64, trials: u64) -> [f64; 2] {
    [lower_limit(successes, trials, 0.025), 1.0 - lower_limit(trials.saturating_sub(successes), trials, 0.025)]
}

/// The one-sided 95 % lower Clopper-Pearson bound for a share.
pub fn clopper_pearson_lower(successes: u64, trials: u64) -> f64 {
    lower_limit(successes, trials, 0.05)
}

/// The share at which `successes` or more would occur with probability `tail`.
fn lower_limit(successes: u64, trials: u64, tail: f64) -> f64 {
    let successes = successes.min(trials);
    if successes == 0 {
        return 0.0;
    }
    beta::quantile(tail, successes as f64, (trials - successes) as f64 + 1.0)
}

/// The arithmetic mean; NaN for an empty slice.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample standard deviation (divisor n - 1); NaN for fewer than two values.
pub fn sample_sd(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return f64::NAN;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// The 95 % interval of the mean of independent values by Student's t distribution; NaN for fewer than two values.
pub fn t_interval(values: &[f64]) -> [f64; 2] {
    let freedom = values.len() as f64 - 1.0;
    if freedom < 1.0 {
        return [f64::NAN; 2];
    }
    // If T has the t distribution, freedom / (freedom + T^2) has a beta distribution.
    let b = beta::quantile(0.05, 0.5 * freedom, 0.5);
    let quantile = (freedom * (1.0 / b - 1.0)).sqrt();
    let (centre, half) = (mean(values), quantile * sample_sd(values) / (values.len() as f64).sqrt());
    [centre - half, centre + half]
}

/// The interquartile mean, which is the mean of the middle half, as in rliable (Agarwal et al., 2021).
///
/// If the number of values is not a multiple of four, the values at the edges count in part, which makes it smoother
/// for few seeds; otherwise it is the 25 % trimmed mean.
pub fn interquartile_mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    iqm_sorting(&mut sorted)
}

fn iqm_sorting(values: &mut [f64]) -> f64 {
    if values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let (low, high) = (0.25 * n, 0.75 * n);
    let inside = |i: usize| ((i as f64 + 1.0).min(high) - (i as f64).max(low)).max(0.0);
    let sum: f64 =
        values.iter().enumerate().map(|(i, value)| if inside(i) > 0.0 { value * inside(i) } else { 0.0 }).sum();
    sum / (high - low)
}

/// The 95 % interval of the interquartile mean by the stratified percentile bootstrap.
///
/// Each stratum (a task) has one value per seed and is resampled separately, so that no resample mixes tasks.
pub fn bootstrap_iqm(strata: &[Vec<f64>], seed: u64) -> [f64; 2] {
    bootstrap(strata, seed, iqm_sorting)
}

/// The 95 % interval of the mean by the percentile bootstrap over the values, one per seed.
pub fn bootstrap_mean(values: &[f64], seed: u64) -> [f64; 2] {
    bootstrap(&[values], seed, |sample| mean(sample))
}

fn bootstrap<S: AsRef<[f64]>>(strata: &[S], seed: u64, statistic: impl Fn(&mut [f64]) -> f64) -> [f64; 2] {
    let mut random = stream(seed, "bootstrap", 0);
    let mut sample = Vec::new();
    let mut results: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            sample.clear();
            for stratum in strata.iter().map(AsRef::as_ref) {
                sample.extend((0..stratum.len()).map(|_| stratum[below(stratum.len(), &mut random)]));
            }
            statistic(&mut sample)
        })
        .collect();
    if results.iter().any(|value| value.is_nan()) {
        return [f64::NAN; 2];
    }
    results.sort_by(f64::total_cmp);
    [percentile(&results, 0.025), percentile(&results, 0.975)]
}

/// An interval of shares by a distribution that does not know that shares end at 0 and 1.
pub(crate) fn within_0_1(interval: [f64; 2]) -> [f64; 2] {
    interval.map(|share| share.clamp(0.0, 1.0))
}

/// Draws a uniform index below `n`.
fn below(n: usize, random: &mut Stream) -> usize {
    ((u128::from(random.next_u64()) * n as u128) >> 64) as usize
}

/// A percentile by linear interpolation between the sorted values, as by default in NumPy.
fn percentile(sorted: &[f64], p: f64) -> f64 {
    let place = p * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values of `binomtest(k, n).proportion_ci(0.95, "exact")`, the lower bound with `alternative="greater"` (SciPy
    /// 1.17.1).
    #[test]
    fn clopper_pearson_agrees_with_scipy() {
        for (successes, trials, low, high, one_sided) in [
            (90, 100, 0.823_777_402_259_824_7, 0.950_995_310_778_514_1, 0.836_282_376_724_185_7),
            (0, 100, 0.0, 0.036_216_692_645_190_54, 0.0),
            (100, 100, 0.963_783_307_354_809_4, 1.0, 0.970_486_950_392_843_4),
            (0, 1, 0.0, 0.975, 0.0),
            (1, 1, 0.025, 1.0, 0.05),
            (1, 2, 0.012_579_117_093_678_99, 0.987_420_882_906_321, 0.025_320_565_519_103_635),
            (5, 7, 0.290_420_863_737_342_55, 0.963_307_433_823_914_4, 0.341_261_436_155_302_1),
            (288, 300, 0.931_171_011_810_503, 0.979_163_423_693_586_3, 0.935_996_084_621_227),
            (916, 1000, 0.897_057_001_008_265, 0.932_447_258_029_416_7, 0.900_142_700_948_223_7),
            (96_000, 100_000, 0.958_767_039_954_127_6, 0.961_206_187_655_087_8, 0.958_965_810_476_455_5),
        ] {
            let [ours_low, ours_high] = clopper_pearson(successes, trials);
            assert!((ours_low - low).abs() < 1e-10, "{successes}/{trials}: low {ours_low}");
            assert!((ours_high - high).abs() < 1e-10, "{successes}/{trials}: high {ours_high}");
            let ours = clopper_pearson_lower(successes, trials);
            assert!((ours - one_sided).abs() < 1e-10, "{successes}/{trials}: one-sided {ours}");
        }
    }

    #[test]
    fn at_least_916_of_1000_are_needed_to_show_90_percent() {
        assert!(clopper_pearson_lower(916, 1000) >= 0.9);
        assert!(clopper_pearson_lower(915, 1000) < 0.9);
    }

    #[test]
    fn without_trials_the_interval_is_everything() {
        assert_eq!(clopper_pearson(0, 0), [0.0, 1.0]);
        assert_eq!(clopper_pearson_lower(0, 0), 0.0);
    }

    #[test]
    fn mean_and_deviation_have_known_values() {
        let values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        assert_eq!(mean(&values), 3.875);
        assert!((sample_sd(&values) - 2.748_376_143_938_713).abs() < 1e-14);
        assert!(mean(&[]).is_nan());
        assert!(sample_sd(&[1.0]).is_nan());
    }

    /// Values of `scipy.stats.t.ppf(0.975, freedom)` (SciPy 1.17.1).
    #[test]
    fn t_intervals_have_students_quantiles() {
        for (n, quantile) in
            [(2, 12.706_204_736), (3, 4.302_652_73), (5, 2.776_445_105), (10, 2.262_157_163), (30, 2.045_229_642)]
        {
            let values: Vec<f64> = (0..n).map(f64::from).collect();
            let half = quantile * sample_sd(&values) / f64::from(n).sqrt();
            let [low, high] = t_interval(&values);
            assert!(
                (mean(&values) - low - half).abs() < 1e-6 * half && (high - mean(&values) - half).abs() < 1e-6 * half
            );
        }
        assert!(t_interval(&[1.0])[0].is_nan() && t_interval(&[])[1].is_nan());
        assert_eq!(t_interval(&[0.5; 4]), [0.5, 0.5]);
    }

    #[test]
    fn interquartile_mean_is_the_trimmed_mean_with_fractional_edges() {
        // scipy.stats.trim_mean(x, 0.25)
        assert_eq!(interquartile_mean(&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]), 3.5);
        // Three values: the middle one counts fully, each neighbour by a quarter.
        assert!((interquartile_mean(&[0.0, 2.0, 7.0]) - (0.25 * 0.0 + 2.0 + 0.25 * 7.0) / 1.5).abs() < 1e-15);
        assert_eq!(interquartile_mean(&[4.0]), 4.0);
        assert!(interquartile_mean(&[]).is_nan());
        assert!(interquartile_mean(&[1.0, f64::NAN]).is_nan());
    }

    #[test]
    fn the_bootstrap_is_reproducible_and_close_to_the_normal_interval() {
        let values: Vec<f64> = (0..200).map(|i| f64::from(i % 20)).collect();
        let [low, high] = bootstrap_mean(&values, 7);
        assert_eq!([low, high], bootstrap_mean(&values, 7));
        assert_ne!([low, high], bootstrap_mean(&values, 8));
        let half = 1.96 * sample_sd(&values) / (values.len() as f64).sqrt();
        assert!((low - (mean(&values) - half)).abs() < 0.1 * half, "{low}");
        assert!((high - (mean(&values) + half)).abs() < 0.1 * half, "{high}");
    }

    #[test]
    fn strata_are_resampled_separately() {
        // Two tasks that differ by 1000, each without variance: mixing them would widen the interval.
        let tasks = [vec![0.0; 4], vec![1000.0; 4]];
        assert_eq!(bootstrap_iqm(&tasks, 1), [500.0, 500.0]);
    }

    #[test]
    fn the_bootstrap_handles_no_values_one_value_and_nan() {
        assert!(bootstrap_mean(&[], 0)[0].is_nan());
        assert_eq!(bootstrap_mean(&[0.5], 0), [0.5, 0.5]);
        assert!(bootstrap_iqm(&[vec![1.0, f64::NAN, f64::NAN]], 0)[1].is_nan());
        assert!(bootstrap_iqm(&[], 0)[0].is_nan());
    }

    proptest! {
        #[test]
        fn the_interval_contains_the_share(trials in 1u64..5_000, part in 0.0f64..=1.0) {
            let successes = (part * trials as f64).round() as u64;
            let share = successes as f64 / trials as f64;
            let [low, high] = clopper_pearson(successes, trials);
            prop_assert!(0.0 <= low && low <= share && share <= high && high <= 1.0);
            prop_assert!(clopper_pearson_lower(successes, trials) >= low);
        }
    }
}
