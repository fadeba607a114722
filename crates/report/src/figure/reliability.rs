//! The reliability diagram of the safety model: predicted P(safe) against the share that is truly safe.

use std::cmp::Reverse;

use super::axes::{Panel, tick_labels, ticks};
use super::svg::Svg;
use super::{Figure, INK, Key, SOFT, WIDTH, legend};
use crate::statistics::clopper_pearson;

const BINS: usize = 10;
const COLOURS: [&str; 4] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"];
/// The radius of the marker of the largest bin, in pixels.
const RADIUS: f64 = 11.0;

/// The episodes whose prediction falls into one of ten equal intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    count: u64,
    safe: u64,
    /// The sum of the predictions.
    predicted: f64,
}

impl Bin {
    fn mean_prediction(&self) -> f64 {
        self.predicted / self.count as f64
    }
}

fn bins(predictions: &[(f64, bool)]) -> [Bin; BINS] {
    let mut bins = [Bin::default(); BINS];
    for (predicted, safe) in predictions.iter().filter(|(predicted, _)| (0.0..=1.0).contains(predicted)) {
        let bin = &mut bins[((predicted * BINS as f64) as usize).min(BINS - 1)];
        bin.count += 1;
        bin.safe += u64::from(*safe);
        bin.predicted += predicted;
    }
    bins
}

/// Draws one series for each label: pairs of predicted P(safe) and whether the episode was safe.
pub fn reliability(series: &[(String, Vec<(f64, bool)>)]) -> Figure {
    let binned: Vec<[Bin; BINS]> = series.iter().map(|(_, predictions)| bins(predictions)).collect();
    let colour = |i: usize| COLOURS[i % COLOURS.len()];
    let mut svg = Svg::new();
    let total = |bins: &[Bin; BINS]| bins.iter().map(|bin| bin.count).sum::<u64>();
    let entries: Vec<(Key, String)> = series
        .iter()
        .zip(&binned)
        .enumerate()
        .map(|(i, ((label, _), bins))| (Key::Dot(colour(i)), format!("{label} ({})", total(bins))))
        .collect();
    let top = legend(&mut svg, 56.0, 8.0, &entries) + 30.0;

    let main = Panel { left: 56.0, top, width: WIDTH - 56.0 - 24.0, height: 280.0, x: [0.0, 1.0], y: [0.0, 1.0] };
    let shares = |bins: &[Bin; BINS]| bins.map(|bin| bin.count as f64 / total(bins).max(1) as f64);
    let highest = binned.iter().flat_map(shares).fold(0.0, f64::max);
    let y = [0.0, if highest > 0.0 { 125.0 * highest } else { 100.0 }];
    let strip = Panel { top: main.bottom() + 56.0, height: 80.0, y, ..main };

    main.title(&mut svg, "Share truly safe");
    main.y_axis(&mut svg, &ticks(main.y, 5));
    main.x_axis(&mut svg, &ticks(main.x, 10), None);
    let diagonal = [main.at([0.0, 0.0]), main.at([1.0, 1.0])];
    svg.line(diagonal[0], diagonal[1], &format!(r#"stroke="{SOFT}" stroke-width="1.2" stroke-dasharray="5 4""#));
    if binned.iter().all(|bins| total(bins) == 0) {
        main.no_data(&mut svg);
    }
    let mut dots: Vec<Dot> = (0..BINS).flat_map(|k| dots_of_bin(&binned, k)).collect();
    // The largest first, so that no dot is hidden.
    dots.sort_by_key(|dot| (Reverse(dot.bin.count), dot.series));
    let fullest = dots.first().map_or(1.0, |dot| dot.bin.count as f64);
    for dot in dots {
        let panel = Panel { left: main.left + dot.shift, ..main };
        draw_bin(&mut svg, &panel, &dot.bin, (dot.bin.count as f64 / fullest).sqrt(), colour(dot.series));
    }

    strip.title(&mut svg, "Share of the episodes (%), with counts");
    strip.y_axis(&mut svg, &ticks(strip.y, 2));
    strip.x_axis(&mut svg, &ticks(strip.x, 10), Some("Predicted P(safe) of the whole episode"));
    let slot = strip.width / BINS as f64;
    let bar = (slot - 10.0) / series.len().max(1) as f64;
    for (i, bins) in binned.iter().enumerate() {
        for (k, bin) in bins.iter().enumerate().filter(|(_, bin)| bin.count > 0) {
            let x = strip.left + k as f64 * slot + 5.0 + i as f64 * bar;
            let [_, y] = strip.at([0.0, 100.0 * bin.count as f64 / total(bins) as f64]);
            let height = (strip.bottom() - y).max(1.0);
            let style = format!(r#"fill="{}" fill-opacity="0.75""#, colour(i));
            svg.rect([x + 1.0, strip.bottom() - height], [bar - 2.0, height], &style);
            let label = if bin.count < 10_000 {
                bin.count.to_string()
            } else {
                tick_labels(&[bin.count as f64 / 1e3]).concat() + "k"
            };
            let style = format!(r#"text-anchor="middle" font-size="9" fill="{SOFT}""#);
            svg.text([x + 0.5 * bar, strip.bottom() - height - 3.0], &label, &style);
        }
    }
    Figure {
        name: "reliability",
        title: "Reliability of the safety model",
        caption: "Episodes in ten bins by the safety model's predicted probability of being safe. Each dot shows the share \
                  of its bin that is truly safe (bars: 95 % Clopper-Pearson interval; larger dots have more episodes). Dots \
                  on the dashed diagonal mean that the probabilities are calibrated; below it the model is too optimistic, \
                  above it too pessimistic. The strip below shows the distribution of the predictions."
            .to_owned(),
        svg: svg.finish(strip.bottom() + 48.0, "Predicted probability of safety against the share truly safe"),
    }
}

/// A bin of one series, shifted horizontally by some pixels.
struct Dot {
    series: usize,
    bin: Bin,
    shift: f64,
}

/// The dots of bin `k`, shifted slightly in the order of their predictions, so that bars do not hide each other.
fn dots_of_bin(binned: &[[Bin; BINS]], k: usize) -> Vec<Dot> {
    let mut dots: Vec<Dot> =
        binned.iter().enumerate().map(|(series, bins)| Dot { series, bin: bins[k], shift: 0.0 }).collect();
    dots.retain(|dot| dot.bin.count > 0);
    dots.sort_by(|a, b| a.bin.mean_prediction().total_cmp(&b.bin.mean_prediction()));
    let middle = 0.5 * (dots.len() as f64 - 1.0);
    dots.iter_mut().enumerate().for_each(|(rank, dot)| dot.shift = 6.0 * (rank as f64 - middle));
    dots
}

/// Draws a marker at the bin's mean prediction, with its interval; `size` is 1 for the largest bin.
fn draw_bin(svg: &mut Svg, panel: &Panel, bin: &Bin, size: f64, colour: &str) {
    let predicted = bin.mean_prediction();
    let share = bin.safe as f64 / bin.count as f64;
    let [low, high] = clopper_pearson(bin.safe, bin.count).map(|limit| panel.at([predicted, limit]));
    let title = format!("predicted {predicted:.3}, truly safe {share:.3} ({} of {})", bin.safe, bin.count);
    svg.titled(&title, |svg| {
        svg.line(low, high, &format!(r#"stroke="{colour}" stroke-width="1.3" stroke-opacity="0.6""#));
        for [x, y] in [low, high] {
            svg.line(
                [x - 3.5, y],
                [x + 3.5, y],
                &format!(r#"stroke="{colour}" stroke-width="1.3" stroke-opacity="0.6""#),
            );
        }
        let style =
            format!(r#"fill="{colour}" fill-opacity="0.8" stroke="{INK}" stroke-opacity="0.6" stroke-width="0.7""#);
        svg.circle(panel.at([predicted, share]), (RADIUS * size).max(2.5), &style);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prediction_falls_into_its_bin() {
        let bins = bins(&[(0.0, false), (0.05, true), (0.95, true), (1.0, true), (f64::NAN, true), (1.5, true)]);
        assert_eq!((bins[0].count, bins[0].safe), (2, 1));
        assert_eq!((bins[9].count, bins[9].safe), (2, 2));
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 4);
    }

    #[test]
    fn shows_both_series_with_their_counts() {
        let series = [
            ("held-out episodes".to_owned(), vec![(0.1, false), (0.9, true)]),
            ("the agent's own episodes".to_owned(), vec![(0.8, true); 12_000]),
        ];
        let figure = reliability(&series);
        for text in ["held-out episodes (2)", "the agent&#39;s own episodes (12000)", ">12k<", "12000 of 12000"] {
            assert!(figure.svg.contains(text), "{text}");
        }
        assert_eq!(figure, reliability(&series));
    }

    #[test]
    fn unusual_input_is_drawn_without_nan() {
        for series in [vec![], vec![("x".to_owned(), vec![])], vec![("x".to_owned(), vec![(f64::NAN, true)])]] {
            let svg = reliability(&series).svg;
            assert!(svg.contains("no data") && !svg.contains("NaN"));
        }
    }
}
