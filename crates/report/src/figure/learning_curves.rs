//! The figure of the paper: return and share of safe episodes over environment steps.

use super::axes::{Panel, padded_range, ticks};
use super::series::{Point, draw_band, draw_line, over_common_steps};
use super::svg::Svg;
use super::{CurveLabel, Figure, Key, Look, TARGET, WIDTH, legend, looks_of, stroke, target_label};

/// The training records of one algorithm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The algorithm, and the run if there are several.
    pub label: CurveLabel,
    /// The records of each seed: environment step, return, share of safe episodes (0 to 1).
    pub seeds: Vec<Vec<(f64, f64, f64)>>,
}

/// Draws the return above and the safe share below; `target` is the required share, 0 to 1.
pub fn learning_curves(curves: &[Curve], target: f64) -> Figure {
    let looks = looks_of(curves.iter().map(|curve| &curve.label));
    let aggregate = |value: fn(&(f64, f64, f64)) -> f64| -> Vec<Vec<Point>> {
        let of_seed = |seed: &Vec<(f64, f64, f64)>| seed.iter().map(|record| (record.0, value(record))).collect();
        curves.iter().map(|curve| over_common_steps(&curve.seeds.iter().map(of_seed).collect::<Vec<_>>())).collect()
    };
    let returns = aggregate(|record| record.1);
    let shares = aggregate(|record| 100.0 * record.2);

    let mut svg = Svg::new();
    let mut entries: Vec<(Key, String)> =
        curves.iter().zip(&looks).map(|(curve, look)| (Key::Line(*look), curve.label.text())).collect();
    entries.push((Key::Target, target_label(target)));
    let top = legend(&mut svg, 56.0, 8.0, &entries) + 30.0;

    let last_step = returns.iter().chain(&shares).flatten().map(|point| point.step).fold(0.0, f64::max);
    let x = [0.0, if last_step > 0.0 { last_step } else { 1.0 }];
    let edges = |p: &Point| if p.sd.is_finite() { [p.mean - p.sd, p.mean + p.sd] } else { [p.mean; 2] };
    let y = padded_range(returns.iter().flatten().flat_map(edges));
    let upper = Panel { left: 56.0, top, width: WIDTH - 56.0 - 24.0, height: 210.0, x, y };
    let lower = Panel { top: upper.bottom() + 44.0, height: 180.0, y: [0.0, 100.0], ..upper };

    upper.title(&mut svg, "Return");
    upper.y_axis(&mut svg, &ticks(y, 5));
    upper.x_axis(&mut svg, &ticks(x, 6), None);
    draw(&mut svg, &upper, &returns, &looks, [f64::NEG_INFINITY, f64::INFINITY]);

    lower.title(&mut svg, "Safe episodes (%)");
    lower.y_axis(&mut svg, &ticks(lower.y, 5));
    lower.x_axis(&mut svg, &ticks(x, 6), Some("Environment steps"));
    draw(&mut svg, &lower, &shares, &looks, lower.y);
    let line = [[x[0], 100.0 * target], [x[1], 100.0 * target]].map(|point| lower.at(point));
    svg.line(line[0], line[1], TARGET);

    Figure {
        name: "learning-curves",
        title: "Learning curves",
        caption:
            "Return (above) and share of episodes that keep the hidden rule (below) during training. Lines are means \
                  over seeds; bands are one standard deviation. A good agent is high in both panels; below the dashed line \
                  it is not safe enough. The results are those of the selected policy, which may be older than the last point."
                .to_owned(),
        svg: svg.finish(lower.bottom() + 48.0, "Return and share of safe episodes over environment steps"),
    }
}

fn draw(svg: &mut Svg, panel: &Panel, curves: &[Vec<Point>], looks: &[Look], limits: [f64; 2]) {
    if curves.iter().all(Vec::is_empty) {
        panel.no_data(svg);
    }
    panel.clipped(svg, 3.0, |svg| {
        for (points, look) in curves.iter().zip(looks) {
            draw_band(svg, panel, points, limits, look.colour);
        }
        for (points, look) in curves.iter().zip(looks) {
            let line: Vec<[f64; 2]> = points.iter().map(|point| [point.step, point.mean]).collect();
            draw_line(svg, panel, &line, &stroke(*look, 2.2), look.colour);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_every_algorithm_and_the_target() {
        let curve = |name: &str| Curve { label: name.into(), seeds: vec![vec![(0.0, 1.0, 0.5), (9.0, 2.0, 0.75)]; 2] };
        let curves = [curve("sac"), curve("safesac-h"), curve("<mine>")];
        let figure = learning_curves(&curves, 0.9);
        for text in ["SAC", "SafeSAC-H", "&lt;mine&gt;", "target 90", "Environment steps", "stroke-dasharray"] {
            assert!(figure.svg.contains(text), "{text}");
        }
        assert_eq!(figure, learning_curves(&curves, 0.9));
    }

    #[test]
    fn unusual_input_is_drawn_without_nan() {
        let odd = |seeds| vec![Curve { label: "sac".into(), seeds }];
        for curves in [
            vec![],
            odd(vec![]),
            odd(vec![vec![]]),
            odd(vec![vec![(0.0, 1.0, 1.0)]]),
            odd(vec![vec![(0.0, f64::NAN, f64::NAN), (1.0, f64::INFINITY, 0.0)]]),
            odd(vec![vec![(0.0, 5.0, 0.5), (10.0, 5.0, 0.5)]; 3]),
        ] {
            let svg = learning_curves(&curves, 0.9).svg;
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
