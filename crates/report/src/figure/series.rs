//! Aggregates the seeds of a curve: mean and standard deviation at the steps that all of them have.

use std::collections::BTreeMap;

use super::axes::Panel;
use super::svg::{Svg, path_data};
use crate::statistics::{mean, sample_sd};

/// An aggregated curve at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) step: f64,
    pub(crate) mean: f64,
    /// The sample standard deviation; NaN if only one seed has a finite value.
    pub(crate) sd: f64,
}

/// Aggregates at the steps that all seeds with any record have, so that a seed that stopped early shortens the curve
/// and does not distort it. Values that are not finite are ignored; a step without finite values is dropped.
pub(crate) fn over_common_steps(seeds: &[Vec<(f64, f64)>]) -> Vec<Point> {
    let mut by_step: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut seeds_with_records = 0;
    for seed in seeds {
        // The bits of non-negative numbers sort as the numbers do. Of several records at one step, the last one counts.
        let records: BTreeMap<u64, f64> = seed
            .iter()
            .filter(|(step, _)| step.is_finite() && *step >= 0.0)
            .map(|(step, value)| ((step + 0.0).to_bits(), *value))
            .collect();
        seeds_with_records += usize::from(!records.is_empty());
        for (step, value) in records {
            by_step.entry(step).or_default().push(value);
        }
    }
    by_step
        .into_iter()
        .filter(|(_, values)| values.len() == seeds_with_records)
        .filter_map(|(step, values)| {
            let finite: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
            let point = Point { step: f64::from_bits(step), mean: mean(&finite), sd: sample_sd(&finite) };
            (!finite.is_empty()).then_some(point)
        })
        .collect()
}

/// Draws a line; a single point becomes a dot.
pub(crate) fn draw_line(svg: &mut Svg, panel: &Panel, points: &[[f64; 2]], attributes: &str, colour: &str) {
    let places: Vec<[f64; 2]> = points.iter().map(|point| panel.at(*point)).collect();
    match places[..] {
        [] => {}
        [only] => svg.circle(only, 3.0, &format!(r#"fill="{colour}""#)),
        _ => svg.path(&path_data(&places), attributes),
    }
}

/// Draws the band of one standard deviation around the mean, clamped to `limits`.
pub(crate) fn draw_band(svg: &mut Svg, panel: &Panel, points: &[Point], limits: [f64; 2], colour: &str) {
    let edge =
        |point: &Point, sign: f64| panel.at([point.step, (point.mean + sign * point.sd).clamp(limits[0], limits[1])]);
    for run in points.split(|point| !point.sd.is_finite()).filter(|run| run.len() > 1) {
        let upper = run.iter().map(|point| edge(point, 1.0));
        let outline: Vec<[f64; 2]> = upper.chain(run.iter().rev().map(|point| edge(point, -1.0))).collect();
        svg.polygon(&outline, &format!(r#"fill="{colour}" fill-opacity="0.16""#));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_common_steps_count() {
        let seeds = [vec![(0.0, 1.0), (10.0, 2.0), (20.0, 9.0)], vec![(0.0, 3.0), (10.0, 4.0)], vec![]];
        let points = over_common_steps(&seeds);
        assert_eq!(points.iter().map(|p| (p.step, p.mean)).collect::<Vec<_>>(), [(0.0, 2.0), (10.0, 3.0)]);
        assert!((points[0].sd - 2f64.sqrt()).abs() < 1e-15);
    }

    #[test]
    fn values_that_are_not_finite_are_ignored() {
        let seeds = [vec![(0.0, f64::NAN), (1.0, f64::NAN)], vec![(0.0, 3.0), (1.0, f64::INFINITY)]];
        let points = over_common_steps(&seeds);
        assert_eq!((points.len(), points[0].mean), (1, 3.0));
        assert!(points[0].sd.is_nan());
    }
}
