//! How far a safety model can be trusted: both error rates, calibration, on episodes it was not trained on.
//!
//! Accuracy alone misleads: where 95 % of the data is unsafe, a model that calls everything unsafe has 95 %.

use prudence_data::{Episode, Segment};
use serde::{Deserialize, Serialize};

use crate::SafetyModel;

/// What predictions on labelled episodes amount to. A prediction counts as "safe" from P = 0.5 on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Labelled whole episodes judged.
    pub episodes: usize,
    /// Share of them that is truly safe.
    pub safe_share: f64,
    /// Share called right.
    pub accuracy: f64,
    /// Mean of the shares called right among the safe and among the unsafe.
    pub balanced_accuracy: f64,
    /// Share of the safe episodes called unsafe.
    pub safe_called_unsafe: f64,
    /// Share of the unsafe episodes called safe.
    pub unsafe_called_safe: f64,
    /// Mean squared error of the probability (Brier).
    pub brier: f64,
    /// Expected calibration error over ten bins of the probability.
    pub calibration_error: f64,
    /// Mean log-probability of the truly safe episodes; the constraint's budget is log(d).
    pub safe_mean_log_prob: f64,
}

impl Quality {
    /// From log-probabilities of being safe, and the truth.
    pub fn of(predictions: &[(f64, bool)]) -> Self {
        let n = predictions.len();
        let share = |hit: usize, of: usize| if of == 0 { 0.0 } else { hit as f64 / of as f64 };
        let half = 0.5f64.ln();
        let count = |f: &dyn Fn(f64, bool) -> bool| predictions.iter().filter(|(l, safe)| f(*l, *safe)).count();
        let safe = count(&|_, safe| safe);
        // Counted from the right ones: a NaN is never right.
        let missed_safe = safe - count(&|l, safe| safe && l >= half);
        let missed_unsafe = n - safe - count(&|l, safe| !safe && l < half);
        let (safe_called_unsafe, unsafe_called_safe) = (share(missed_safe, safe), share(missed_unsafe, n - safe));
        let mut bins = [(0.0, 0.0, 0usize); 10];
        let mut brier = 0.0;
        for (l, truth) in predictions {
            let (p, y) = (l.exp(), f64::from(u8::from(*truth)));
            brier += (p - y) * (p - y);
            let bin = &mut bins[((p * 10.0) as usize).min(9)];
            *bin = (bin.0 + p, bin.1 + y, bin.2 + 1);
        }
        let gap: f64 = bins.iter().map(|(p, y, _)| (p - y).abs()).sum();
        let safe_sum: f64 = predictions.iter().filter(|(_, safe)| *safe).map(|(l, _)| l).sum();
        let balanced = match (safe, n - safe) {
            (0, _) => 1.0 - unsafe_called_safe,
            (_, 0) => 1.0 - safe_called_unsafe,
            _ => 1.0 - 0.5 * (safe_called_unsafe + unsafe_called_safe),
        };
        Self {
            episodes: n,
            safe_share: share(safe, n),
            accuracy: share(n - missed_safe - missed_unsafe, n),
            balanced_accuracy: balanced,
            safe_called_unsafe,
            unsafe_called_safe,
            brier: brier / n.max(1) as f64,
            calibration_error: gap / n.max(1) as f64,
            safe_mean_log_prob: safe_sum / safe.max(1) as f64,
        }
    }
}

/// Log-probability of being safe and the label, for each whole-episode segment among `segments`.
pub fn predictions(model: &SafetyModel, episodes: &[Episode], segments: &[Segment]) -> Vec<(f64, bool)> {
    let whole: Vec<_> = segments.iter().filter(|s| s.start == 0 && s.end == episodes[s.episode].len()).collect();
    let chosen: Vec<_> = whole.iter().map(|s| &episodes[s.episode]).collect();
    let scores = model.score(&chosen);
    scores
        .iter()
        .zip(&whole)
        .map(|(scores, segment)| (scores.iter().map(|l| f64::from(*l)).sum(), segment.safe))
        .collect()
}
