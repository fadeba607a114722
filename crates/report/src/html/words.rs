//! Numbers and verdicts as text.

use crate::figure::display_name;
use crate::records::{AlgoResult, Evaluation};
use crate::statistics::within_0_1;

pub(crate) use crate::figure::escape;

/// The text for a number without a value.
pub(crate) const NOTHING: &str = "\u{2013}";

/// How a share compares with the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The whole interval lies at or above the target.
    Shown,
    /// The share reaches the target, but the interval extends below it.
    Reached,
    /// The share is below the target.
    Missed,
    /// There are replicas, but too few for an interval over them.
    TooFew,
    /// All replicas have the same share, which says nothing about their variation.
    Same,
}

impl Verdict {
    /// By the interval over replicas if there are several, otherwise by the one over all episodes.
    pub(crate) fn of(result: &AlgoResult, target: f64) -> Self {
        let low = match &result.over_replicas {
            Some(over) if over.safe_share.t_interval[0].is_nan() => return Self::Same,
            Some(over) => over.safe_share.t_interval[0],
            None if !result.per_replica.is_empty() => return Self::TooFew,
            None => result.interval[0],
        };
        if low >= target {
            Self::Shown
        } else if result.safe_share >= target {
            Self::Reached
        } else {
            Self::Missed
        }
    }
}

/// What the interval over the pooled episodes of a run covers.
pub const POOLED: &str = "The interval covers the choice of test episodes. It does not cover the variation of collecting data, \
                          fitting a safety model and training, which the seeds of a run share; replicas would.";

/// The result in one sentence, also suitable for a terminal.
pub fn headline(evaluation: &Evaluation) -> String {
    let Some(result) = main_result(evaluation) else {
        return format!("No algorithm was tested on {}.", evaluation.task);
    };
    if result.episodes == 0 {
        return format!("{} was not tested on {}.", display_name(&result.algo), evaluation.task);
    }
    let (name, target) = (display_name(&result.algo), short_percent(evaluation.target));
    let (replicas, episodes) = (result.per_replica.len(), thousands(result.episodes));
    match &result.over_replicas {
        Some(over) if over.safe_share.t_interval[0].is_nan() => format!(
            "{name} keeps the hidden rule in {} of its test episodes in each of {replicas} independent replicas; target {target}.",
            percent(over.safe_share.mean),
        ),
        Some(over) => format!(
            "{name} keeps the hidden rule in {} of its test episodes, on average over {replicas} independent replicas (95\u{a0}% \
             t-interval {}); target {target}.",
            percent(over.safe_share.mean),
            percent_range(within_0_1(over.safe_share.t_interval)),
        ),
        None if replicas > 0 => {
            let shares: Vec<String> = result.per_replica.iter().map(|replica| percent(replica.safe_share)).collect();
            format!(
                "{name} keeps the hidden rule in {} of its test episodes in {replicas} replicas; target {target}.",
                shares.join(", ")
            )
        }
        None => format!(
            "{name} keeps the hidden rule in {} of {episodes} test episodes (95\u{a0}% interval {}); target {target}.",
            percent(result.safe_share),
            percent_range(result.interval),
        ),
    }
}

/// The headline, whether the target is met, and what that costs in return.
pub(crate) fn summary(evaluation: &Evaluation) -> Vec<String> {
    let mut sentences = vec![headline(evaluation)];
    let Some(result) = main_result(evaluation).filter(|result| result.episodes > 0) else {
        return sentences;
    };
    let missing = result.per_seed.iter().filter(|seed| seed.safe_share < evaluation.target).count();
    let replicas = &result.per_replica;
    let missing_replicas = replicas.iter().filter(|replica| replica.safe_share < evaluation.target).count();
    let seeds = match (result.seeds, missing) {
        _ if !replicas.is_empty() => {
            format!("{} of {} replicas reach the target.", replicas.len() - missing_replicas, replicas.len())
        }
        (1, _) => "This is a single seed; others may differ.".to_owned(),
        (n, 0) => format!("All {n} seeds reach the target."),
        (n, missing) => format!("{missing} of {n} seeds {} the target.", if missing == 1 { "misses" } else { "miss" }),
    };
    let verdict = match Verdict::of(result, evaluation.target) {
        Verdict::Shown => "The whole interval lies above the target.",
        Verdict::Reached if result.per_replica.is_empty() => {
            "The share reaches the target, but the interval extends below it; more test episodes would decide."
        }
        Verdict::Reached => {
            "The mean reaches the target, but the interval extends below it; more replicas would decide."
        }
        Verdict::Missed => "The target is missed.",
        Verdict::TooFew => "There are too few replicas for an interval over them; from five on there is one.",
        Verdict::Same => "All replicas have the same share, so there is no interval over them.",
    };
    sentences.push(format!("{verdict} {seeds}"));
    sentences.extend(result.per_replica.is_empty().then(|| POOLED.to_owned()));
    let plain = evaluation.results.iter().find(|other| other.algo == "sac" && other.algo != result.algo);
    if let Some(plain) = plain.filter(|plain| plain.episodes > 0) {
        sentences.push(format!(
            "Its mean return is {}; SAC, which has no constraint, reaches {} and keeps the rule in {} of its episodes.",
            number(result.return_mean),
            number(plain.return_mean),
            percent(plain.safe_share)
        ));
    }
    sentences
}

/// The algorithm that the report is about: SafeSAC-H, otherwise the first that is not SAC, otherwise the first.
fn main_result(evaluation: &Evaluation) -> Option<&AlgoResult> {
    let results = &evaluation.results;
    let named = results.iter().find(|result| result.algo == "safesac-h");
    named.or_else(|| results.iter().find(|result| result.algo != "sac")).or(results.first())
}

/// A number with about four significant digits.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    with_decimals(value, decimals(value))
}

/// The number of decimals that gives about four significant digits.
fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    }
}

fn with_decimals(value: f64, decimals: usize) -> String {
    crate::figure::minus(&format!("{value:.decimals$}"))
}

/// "mean ± sd", both with as many decimals as the mean.
pub(crate) fn mean_sd(mean: f64, sd: f64) -> String {
    if !mean.is_finite() || !sd.is_finite() {
        return number(mean);
    }
    format!("{} ± {}", number(mean), with_decimals(sd, decimals(mean)))
}

/// "low to high".
pub(crate) fn range([low, high]: [f64; 2]) -> String {
    if low.is_finite() && high.is_finite() {
        format!("{} to {}", number(low), number(high))
    } else {
        NOTHING.to_owned()
    }
}

/// "96.0 %", or "no cases" for a share of nothing. Only a share of exactly 1 is shown as 100 %, and only one of exactly 0 as 0 %.
pub(crate) fn percent(share: f64) -> String {
    if share.is_finite() { format!("{}\u{a0}%", percent_digits(share)) } else { "no cases".to_owned() }
}

/// "93.1–97.9 %".
pub(crate) fn percent_range([low, high]: [f64; 2]) -> String {
    if low.is_finite() && high.is_finite() {
        format!("{}\u{2013}{}\u{a0}%", percent_digits(low), percent_digits(high))
    } else {
        NOTHING.to_owned()
    }
}

fn percent_digits(share: f64) -> String {
    match format!("{:.1}", 100.0 * share).as_str() {
        "100.0" if share < 1.0 => "99.9".to_owned(),
        "100.0" => "100".to_owned(),
        "0.0" if share > 0.0 => "0.1".to_owned(),
        "0.0" => "0".to_owned(),
        digits => digits.to_owned(),
    }
}

/// "90 %", without trailing zeros.
pub(crate) fn short_percent(share: f64) -> String {
    if share.is_finite() {
        format!("{}\u{a0}%", crate::figure::short_number(100.0 * share))
    } else {
        NOTHING.to_owned()
    }
}

/// "20,000".
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{ModelQuality, SeedResult};
    use prudence_safety::Quality;

    fn evaluation(safe: usize, episodes: usize) -> Evaluation {
        let seed =
            SeedResult { seed: 0, returns: vec![-70.0; episodes], safe: (0..episodes).map(|i| i < safe).collect() };
        Evaluation {
            task: "navigation".into(),
            target: 0.9,
            safety_model: ModelQuality { held_out: Quality::of(&[]), own: None, data_episodes: 0, data_segments: 0 },
            results: vec![AlgoResult::from_seeds("safesac-h", 1, &[seed])],
            rounds: vec![],
            references: vec![],
        }
    }

    #[test]
    fn the_headline_states_the_result() {
        assert_eq!(
            headline(&evaluation(288, 300)).replace('\u{a0}', " "),
            "SafeSAC-H keeps the hidden rule in 96.0 % of 300 test episodes (95 % interval 93.1\u{2013}97.9 %); target 90 %."
        );
        assert!(headline(&evaluation(0, 0)).contains("not tested"));
        assert!(summary(&evaluation(288, 300))[1].starts_with("The whole interval lies above"));
        assert!(summary(&evaluation(91, 100))[1].starts_with("The share reaches"));
        assert!(summary(&evaluation(89, 100))[1].starts_with("The target is missed"));
    }

    /// The evaluation of replicas with 10 episodes each; `safe` holds the number of safe ones in each.
    fn replicas(safe: &[usize]) -> Evaluation {
        let results: Vec<AlgoResult> = safe.iter().map(|safe| evaluation(*safe, 10).results.remove(0)).collect();
        let numbered: Vec<(u64, &AlgoResult)> = (0..).zip(&results).collect();
        let mut all = evaluation(0, 0);
        all.results = vec![AlgoResult::from_replicas("safesac-h", &numbered)];
        all
    }

    #[test]
    fn replicas_have_an_interval_only_if_there_are_enough_and_they_differ() {
        for (safe, expected) in [
            (&[10, 9][..], Verdict::TooFew),
            (&[10, 9, 10, 8], Verdict::TooFew),
            (&[10, 10, 10, 10, 10], Verdict::Same),
            (&[0, 0, 0, 0, 0], Verdict::Same),
            (&[10, 10, 10, 10, 9], Verdict::Shown),
            (&[10, 10, 10, 10, 6], Verdict::Reached),
            (&[10, 10, 0, 0, 0], Verdict::Missed),
        ] {
            let all = replicas(safe);
            assert_eq!(Verdict::of(&all.results[0], 0.9), expected, "{safe:?}");
            let text = summary(&all)[..2].join(" ");
            let has_interval = !matches!(expected, Verdict::TooFew | Verdict::Same);
            assert_eq!(text.contains("t-interval"), has_interval, "{text}");
            assert!(!text.contains("95\u{a0}% interval"), "the pooled interval is not one over replicas: {text}");
        }
    }

    #[test]
    fn numbers_are_formatted_for_readers() {
        assert_eq!(number(-70.28), "\u{2212}70.3");
        assert_eq!(number(-0.001), "0.00");
        assert_eq!(number(3210.7), "3211");
        assert_eq!(number(f64::NAN), NOTHING);
        assert_eq!(mean_sd(1.0, f64::NAN), "1.00");
        assert_eq!(mean_sd(-52.66, 4.614), "\u{2212}52.7 ± 4.6");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(20), "20");
    }

    #[test]
    fn a_share_is_never_rounded_to_certainty() {
        assert_eq!([0.9999, 1.0, 0.0001, 0.0].map(percent_digits), ["99.9", "100", "0.1", "0"].map(String::from));
    }
}
