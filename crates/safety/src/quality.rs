//! The quality of a safety model: both error rates and the calibration, on episodes it was not trained on.
//!
//! Accuracy alone is misleading: if 95 % of the data is unsafe, a model that calls everything unsafe has 95 % accuracy.

use prudence_data::{Episodes, Segment};
use prudence_nn::Device;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Error, Scorer};

/// The quality of predictions on labelled episodes. A prediction of P >= 0.5 counts as "safe". A rate without cases is
/// NaN, and `null` in JSON.
///
/// ```
/// use prudence_safety::Quality;
///
/// let predictions = [(0.9f64, true), (0.2, true), (0.1, false), (0.3, false)]; // P(safe) and the label
/// let quality = Quality::of(&predictions.map(|(p, safe)| (p.ln(), safe)));
/// assert_eq!((quality.accuracy, quality.safe_called_unsafe, quality.unsafe_called_safe), (0.75, 0.5, 0.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Share of the episodes that are classified correctly.
    #[serde(deserialize_with = "number")]
    pub accuracy: f64,
    /// Mean of the accuracy on safe episodes and the accuracy on unsafe ones.
    #[serde(deserialize_with = "number")]
    pub balanced_accuracy: f64,
    /// The number of labelled whole episodes.
    pub episodes: u64,
    /// Share of the episodes that are truly safe.
    #[serde(default = "nan", deserialize_with = "number")]
    pub safe_share: f64,
    /// Share of the safe episodes that are called unsafe.
    #[serde(default = "nan", deserialize_with = "number")]
    pub safe_called_unsafe: f64,
    /// Share of the unsafe episodes that are called safe.
    #[serde(default = "nan", deserialize_with = "number")]
    pub unsafe_called_safe: f64,
    /// Brier score: the mean squared error of the probability.
    #[serde(default = "nan", deserialize_with = "number")]
    pub brier: f64,
    /// Expected calibration error over ten bins of the probability.
    #[serde(default = "nan", deserialize_with = "number")]
    pub calibration_error: f64,
    /// Mean log-probability of the truly safe episodes: how much the model doubts what is safe.
    #[serde(default = "nan", deserialize_with = "number")]
    pub safe_mean_log_prob: f64,
}

fn nan() -> f64 {
    f64::NAN
}

/// A number, or `null` for NaN, which is how `serde_json` writes it.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl Quality {
    /// Computes the quality from pairs of the log-probability of being safe and the label.
    pub fn of(predictions: &[(f64, bool)]) -> Self {
        let n = predictions.len() as f64;
        let half = 0.5f64.ln();
        let count = |f: &dyn Fn(f64, bool) -> bool| predictions.iter().filter(|(l, safe)| f(*l, *safe)).count() as f64;
        let safe = count(&|_, safe| safe);
        // Errors are counted as what is not right, so that a NaN is always an error.
        let safe_right = count(&|l, safe| safe && l >= half);
        let unsafe_right = count(&|l, safe| !safe && l < half);
        let safe_called_unsafe = (safe - safe_right) / safe;
        let unsafe_called_safe = (n - safe - unsafe_right) / (n - safe);
        let mut bins = [(0.0, 0.0); 10];
        let mut brier = 0.0;
        for (l, truth) in predictions {
            let (p, y) = (l.exp(), f64::from(u8::from(*truth)));
            brier += (p - y) * (p - y);
            let bin = &mut bins[((p * 10.0) as usize).min(9)];
            *bin = (bin.0 + p, bin.1 + y);
        }
        let gap: f64 = bins.iter().map(|(p, y)| (p - y).abs()).sum();
        let safe_sum: f64 = predictions.iter().filter(|(_, safe)| *safe).map(|(l, _)| l).sum();
        Self {
            accuracy: (safe_right + unsafe_right) / n,
            balanced_accuracy: 1.0 - 0.5 * (safe_called_unsafe + unsafe_called_safe),
            episodes: predictions.len() as u64,
            safe_share: safe / n,
            safe_called_unsafe,
            unsafe_called_safe,
            brier: brier / n,
            calibration_error: gap / n,
            safe_mean_log_prob: safe_sum / safe,
        }
    }
}

impl Quality {
    /// The quality of several models together, each on its own episodes; the calibration error is their mean, weighted by
    /// episodes.
    pub fn pooled(all: &[Quality]) -> Self {
        // A rate over no episodes is NaN, and does not count.
        let mean = |of: fn(&Quality) -> (f64, f64)| {
            let cases = all.iter().map(of).filter(|(_, cases)| *cases > 0.0);
            let (sum, cases) = cases.fold((0.0, 0.0), |(sum, n), (rate, cases)| (sum + rate * cases, n + cases));
            sum / cases
        };
        let safe_called_unsafe = mean(|q| (q.safe_called_unsafe, q.safe_share * q.episodes as f64));
        let unsafe_called_safe = mean(|q| (q.unsafe_called_safe, (1.0 - q.safe_share) * q.episodes as f64));
        Self {
            accuracy: mean(|q| (q.accuracy, q.episodes as f64)),
            balanced_accuracy: 1.0 - 0.5 * (safe_called_unsafe + unsafe_called_safe),
            episodes: all.iter().map(|q| q.episodes).sum(),
            safe_share: mean(|q| (q.safe_share, q.episodes as f64)),
            safe_called_unsafe,
            unsafe_called_safe,
            brier: mean(|q| (q.brier, q.episodes as f64)),
            calibration_error: mean(|q| (q.calibration_error, q.episodes as f64)),
            safe_mean_log_prob: mean(|q| (q.safe_mean_log_prob, q.safe_share * q.episodes as f64)),
        }
    }
}

/// The log-probability of being safe and the label of each segment that is a whole episode.
pub fn predictions<D: Device, E: Episodes + ?Sized>(
    scorer: &Scorer<D>,
    episodes: &E,
    segments: &[Segment],
) -> Result<Vec<(f64, bool)>, Error> {
    const CHUNK: usize = 64; // episodes in memory at a time
    let whole: Vec<_> = segments.iter().filter(|s| s.start == 0 && s.end == episodes.steps(s.episode)).collect();
    let mut predictions = Vec::with_capacity(whole.len());
    for chunk in whole.chunks(CHUNK) {
        let read: Vec<_> = chunk.iter().map(|s| episodes.episode(s.episode)).collect::<Result<_, _>>()?;
        let scores = scorer.score(&read.iter().map(AsRef::as_ref).collect::<Vec<_>>())?;
        let sum = |log_prob: &[f32]| log_prob.iter().map(|l| f64::from(*l)).sum();
        predictions.extend(scores.iter().zip(chunk).map(|(scores, segment)| (sum(&scores.log_prob), segment.safe)));
    }
    Ok(predictions)
}
