//! The quality of predictions, compared with values computed by hand.

use prudence_safety::Quality;

#[test]
fn rates_are_counted_by_class_and_a_half_counts_as_safe() {
    let at = |p: f64| p.ln();
    let predictions =
        [(at(0.9), true), (at(0.5), true), (at(0.2), true), (at(0.4), false), (at(0.7), false), (f64::NAN, false)];
    let quality = Quality::of(&predictions[..5]);
    assert_eq!((quality.episodes, quality.safe_share, quality.accuracy), (5, 0.6, 0.6));
    assert!((quality.safe_called_unsafe - 1.0 / 3.0).abs() < 1e-15 && quality.unsafe_called_safe == 0.5);
    assert!((quality.balanced_accuracy - 0.5 * (2.0 / 3.0 + 0.5)).abs() < 1e-15);
    let brier = [0.1f64, 0.5, 0.8, 0.4, 0.7].iter().map(|x| x * x).sum::<f64>() / 5.0;
    assert!((quality.brier - brier).abs() < 1e-15);
    let mean = [0.9f64, 0.5, 0.2].iter().map(|p| p.ln()).sum::<f64>() / 3.0;
    assert!((quality.safe_mean_log_prob - mean).abs() < 1e-15);
    // Each prediction is in its own bin.
    assert!((quality.calibration_error - (0.1 + 0.5 + 0.8 + 0.4 + 0.7) / 5.0).abs() < 1e-12);

    let quality = Quality::of(&predictions);
    assert_eq!(quality.accuracy, 0.5, "a NaN prediction should never be right");
}

#[test]
fn a_rate_without_cases_is_nan_and_null_in_json() {
    let quality = Quality::of(&[(0.9f64.ln(), true), (0.3f64.ln(), true)]);
    assert!(quality.unsafe_called_safe.is_nan() && quality.balanced_accuracy.is_nan());
    assert_eq!((quality.accuracy, quality.safe_called_unsafe), (0.5, 0.5));
    let json = serde_json::to_string(&quality).unwrap();
    assert!(json.contains("\"unsafe_called_safe\":null"), "{json}");
    let read: Quality = serde_json::from_str(&json).unwrap();
    assert!(read.unsafe_called_safe.is_nan() && read.accuracy == 0.5);
    assert!(Quality::of(&[]).accuracy.is_nan());
}
