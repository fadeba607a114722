//! The only clock. It is for timing files and progress; a learner never reads it.
#![expect(clippy::disallowed_methods, reason = "the one place that reads clocks")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Measures the time since it was started.
///
/// ```
/// let watch = prudence_core::clock::Stopwatch::start();
/// let sum: u64 = (1..=1000).sum();
/// println!("{sum} after {:.6} s", watch.seconds());
/// assert!(watch.seconds() >= 0.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The elapsed time in seconds.
    pub fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Seconds since 1970 (Unix time).
pub fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// The current time in UTC, in ISO 8601: `2026-11-16T08:30:00Z`.
pub fn timestamp() -> String {
    let seconds = unix_seconds() as i64;
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // From days to a date: Howard Hinnant's civil_from_days.
    let z = days + 719_468;
    let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}
