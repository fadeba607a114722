//! Panels: rectangles of a figure with a scale in each direction, a light grid and ticks at round numbers.

use super::svg::Svg;
use super::{GRID, INK, SOFT};

/// A plotting area. `x` and `y` are the ranges of the data; y increases upwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panel {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) x: [f64; 2],
    pub(crate) y: [f64; 2],
}

impl Panel {
    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// The position of a data point in the figure.
    pub(crate) fn at(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [
            self.left + self.width * (x - self.x[0]) / (self.x[1] - self.x[0]),
            self.bottom() - self.height * (y - self.y[0]) / (self.y[1] - self.y[0]),
        ]
    }

    /// Writes the title above the left edge; horizontal text is easier to read than a rotated axis label.
    pub(crate) fn title(&self, svg: &mut Svg, title: &str) {
        svg.text([self.left, self.top - 9.0], title, &format!(r#"font-weight="600" fill="{INK}""#));
    }

    /// Draws grid lines and labels for these ticks of the y axis.
    pub(crate) fn y_axis(&self, svg: &mut Svg, ticks: &[f64]) {
        for (tick, label) in ticks.iter().zip(tick_labels(ticks)) {
            let [_, y] = self.at([self.x[0], *tick]);
            svg.line([self.left, y], [self.right(), y], &format!(r#"stroke="{GRID}""#));
            svg.text([self.left - 7.0, y + 4.0], &label, &format!(r#"text-anchor="end" font-size="11" fill="{SOFT}""#));
        }
    }

    /// Draws the x axis with its ticks, and below it tick labels and the name of the axis if `name` is given.
    pub(crate) fn x_axis(&self, svg: &mut Svg, ticks: &[f64], name: Option<&str>) {
        let bottom = self.bottom();
        svg.line([self.left, bottom], [self.right(), bottom], &format!(r#"stroke="{INK}""#));
        for (tick, label) in ticks.iter().zip(tick_labels(ticks)) {
            let [x, _] = self.at([*tick, self.y[0]]);
            svg.line([x, bottom], [x, bottom + 4.0], &format!(r#"stroke="{INK}""#));
            if name.is_some() {
                svg.text([x, bottom + 17.0], &label, &format!(r#"text-anchor="middle" font-size="11" fill="{SOFT}""#));
            }
        }
        if let Some(name) = name {
            let middle = self.left + 0.5 * self.width;
            svg.text([middle, bottom + 36.0], name, &format!(r#"text-anchor="middle" fill="{INK}""#));
        }
    }

    /// Writes "no data" in the middle of the panel.
    pub(crate) fn no_data(&self, svg: &mut Svg) {
        let middle = [self.left + 0.5 * self.width, self.top + 0.5 * self.height + 4.0];
        svg.text(middle, "no data", &format!(r#"text-anchor="middle" font-style="italic" fill="{SOFT}""#));
    }

    /// Clips what `inside` draws to the panel, plus `margin` pixels for markers on the edge.
    pub(crate) fn clipped(&self, svg: &mut Svg, margin: f64, inside: impl FnOnce(&mut Svg)) {
        let size = [self.width + 2.0 * margin, self.height + 2.0 * margin];
        svg.clipped([self.left - margin, self.top - margin], size, inside);
    }
}

/// The range of the finite values, extended by 5 % on both sides; never empty.
pub(crate) fn padded_range(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let finite = values.into_iter().filter(|value| value.is_finite());
    let [low, high] = finite.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)]);
    if low > high {
        return [0.0, 1.0];
    }
    let pad = if high > low { 0.05 * (high - low) } else { (0.05 * high.abs()).max(0.5) };
    [low - pad, high + pad]
}

/// About `count` round numbers inside the range.
pub(crate) fn ticks([low, high]: [f64; 2], count: usize) -> Vec<f64> {
    let rough = (high - low) / count.max(1) as f64;
    if !rough.is_finite() || rough <= 0.0 {
        return vec![low];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|m| m * power >= 0.8 * rough).unwrap_or(10.0) * power;
    let first = (low / step - 1e-9).ceil();
    let last = (high / step + 1e-9).floor();
    (0..=(last - first).max(0.0) as usize).map(|i| (first + i as f64) * step).collect()
}

/// Tick labels in a common unit, such as 0, 20k, 40k, with enough decimals to distinguish them.
pub(crate) fn tick_labels(ticks: &[f64]) -> Vec<String> {
    let largest = ticks.iter().fold(0.0f64, |largest, tick| largest.max(tick.abs()));
    let (unit, suffix) = match largest {
        l if l >= 1e6 => (1e6, "M"),
        l if l >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let whole = |decimals: i32| {
        let scaled = |tick: &f64| tick / unit * 10f64.powi(decimals);
        ticks.iter().all(|tick| (scaled(tick) - scaled(tick).round()).abs() < 1e-6)
    };
    let decimals = (0..6).find(|decimals| whole(*decimals)).unwrap_or(6) as usize;
    let label = |tick: &f64| {
        if *tick == 0.0 && !suffix.is_empty() {
            "0".to_owned()
        } else {
            minus(&format!("{:.decimals$}", tick / unit)) + suffix
        }
    };
    ticks.iter().map(label).collect()
}

/// Replaces the hyphen before a number by a minus sign, or removes it if there are only zeros.
pub(crate) fn minus(number: &str) -> String {
    match number.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_owned(),
        Some(rest) => format!("\u{2212}{rest}"),
        None => number.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_and_labelled_in_a_common_unit() {
        assert_eq!(ticks([0.0, 100.0], 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(tick_labels(&ticks([0.0, 200_000.0], 5)), ["0", "50k", "100k", "150k", "200k"]);
        assert_eq!(tick_labels(&[0.0, 500_000.0, 1_000_000.0]), ["0", "0.5M", "1.0M"]);
        assert_eq!(tick_labels(&[-0.5, 0.0, 0.5]), ["\u{2212}0.5", "0.0", "0.5"]);
        assert_eq!(tick_labels(&[-1500.0, -0.0]), ["\u{2212}1500", "0"]);
    }

    #[test]
    fn a_range_is_never_empty() {
        assert_eq!(padded_range([]), [0.0, 1.0]);
        assert_eq!(padded_range([f64::NAN]), [0.0, 1.0]);
        assert_eq!(padded_range([3.0, 3.0]), [2.5, 3.5]);
    }

    proptest! {
        #[test]
        fn ticks_lie_in_the_range(low in -1e6f64..1e6, width in 1e-3f64..1e6) {
            let ticks = ticks([low, low + width], 5);
            let slack = 1e-6 * width;
            prop_assert!(ticks.len() <= 12);
            prop_assert!(ticks.iter().all(|tick| *tick >= low - slack && *tick <= low + width + slack));
        }
    }
}
