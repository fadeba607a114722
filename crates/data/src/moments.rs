//! Means and deviations of the numbers of episodes.

/// The mean and the deviation of a column, measured in one pass.
///
/// Every intermediate number is proportional to the column, so that a column times a power of two gives the same bits but
/// for that power.
///
/// ```
/// use prudence_data::Moments;
///
/// let mut moments = Moments::default();
/// [1.0, 2.0, 3.0, 4.0].into_iter().for_each(|x| moments.add(x));
/// assert_eq!((moments.mean(), moments.deviation()), (2.5, Some(1.25f64.sqrt())));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    count: f64,
    mean: f64,
    /// The sum of squared differences from the mean.
    squares: f64,
    largest: f64,
}

impl Moments {
    /// Adds a number.
    pub fn add(&mut self, x: f64) {
        self.count += 1.0;
        let before = self.mean;
        self.mean += (x - before) / self.count;
        self.squares += (x - before) * (x - self.mean);
        self.largest = self.largest.max(x.abs());
    }

    /// The mean; 0 without numbers.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The deviation; `None` for a constant, whose deviation is nothing but rounding.
    pub fn deviation(&self) -> Option<f64> {
        let deviation = (self.squares / self.count.max(1.0)).sqrt();
        (deviation > 1e-6 * self.largest).then_some(deviation)
    }
}
