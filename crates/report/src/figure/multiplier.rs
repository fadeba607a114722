//! The multiplier over environment steps, which shows whether the dual problem converges or diverges.

use super::axes::{Panel, padded_range, ticks};
use super::series::{draw_line, over_common_steps};
use super::svg::Svg;
use super::{CurveLabel, Figure, Key, Look, WIDTH, legend, looks_of, stroke};

/// The multiplier of one algorithm during training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MultiplierCurve {
    /// The algorithm, and the run if there are several.
    pub label: CurveLabel,
    /// The records of each seed: environment step, lambda.
    pub seeds: Vec<Vec<(f64, f64)>>,
}

/// Draws the mean over seeds as a thick line and each seed as a thin one.
pub fn multiplier(curves: &[MultiplierCurve]) -> Figure {
    let looks = looks_of(curves.iter().map(|curve| &curve.label));
    let mut svg = Svg::new();
    let entries: Vec<(Key, String)> =
        curves.iter().zip(&looks).map(|(curve, look)| (Key::Line(*look), curve.label.text())).collect();
    let top = legend(&mut svg, 56.0, 8.0, &entries) + 30.0;

    let finite = |(step, lambda): &(f64, f64)| (step.is_finite() && lambda.is_finite()).then_some([*step, *lambda]);
    let seeds: Vec<Vec<Vec<[f64; 2]>>> =
        curves.iter().map(|c| c.seeds.iter().map(|s| s.iter().filter_map(finite).collect()).collect()).collect();
    let all = || seeds.iter().flatten().flatten();
    let last_step = all().map(|point| point[0]).fold(0.0, f64::max);
    let x = [0.0, if last_step > 0.0 { last_step } else { 1.0 }];
    let y = [0.0, padded_range(all().map(|point| point[1]).chain([0.0]))[1]];
    let panel = Panel { left: 56.0, top, width: WIDTH - 56.0 - 24.0, height: 220.0, x, y };
    panel.title(&mut svg, "Multiplier λ");
    panel.y_axis(&mut svg, &ticks(y, 5));
    panel.x_axis(&mut svg, &ticks(x, 6), Some("Environment steps"));
    if all().next().is_none() {
        panel.no_data(&mut svg);
    }
    panel.clipped(&mut svg, 3.0, |svg| {
        for (line, look) in seeds.iter().zip(&looks).flat_map(|(curve, look)| curve.iter().map(move |l| (l, look))) {
            let thin = stroke(Look { dash: "", ..*look }, 0.8) + r#" stroke-opacity="0.45""#;
            draw_line(svg, &panel, line, &thin, look.colour);
        }
        for (curve, look) in curves.iter().zip(&looks) {
            let mean: Vec<[f64; 2]> = over_common_steps(&curve.seeds).iter().map(|p| [p.step, p.mean]).collect();
            draw_line(svg, &panel, &mean, &stroke(*look, 2.4), look.colour);
        }
    });
    Figure {
        name: "multiplier",
        title: "The multiplier",
        caption:
            "The weight of safety against reward during training. Thick lines are means over seeds, thin lines are \
                  single seeds. A line that levels off has reached a balance; one that keeps rising shows that the \
                  constraint is not met."
                .to_owned(),
        svg: svg.finish(panel.bottom() + 48.0, "The multiplier over environment steps"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_each_seed_and_the_mean() {
        let curve = MultiplierCurve { label: "safesac-h".into(), seeds: vec![vec![(0.0, 0.0), (5.0, 2.0)]; 3] };
        let figure = multiplier(std::slice::from_ref(&curve));
        assert_eq!(figure.svg.matches(r#"stroke-width="0.8""#).count(), 3);
        assert_eq!(figure.svg.matches(r#"stroke-width="2.4""#).count(), 1);
        assert_eq!(figure, multiplier(&[curve]));
    }

    #[test]
    fn unusual_input_is_drawn_without_nan() {
        for seeds in [vec![], vec![vec![]], vec![vec![(0.0, 0.0)]], vec![vec![(f64::NAN, 1.0), (1.0, f64::NAN)]]] {
            let svg = multiplier(&[MultiplierCurve { label: "x".into(), seeds }]).svg;
            assert!(!svg.contains("NaN"));
        }
        assert!(multiplier(&[]).svg.contains("no data"));
    }
}
