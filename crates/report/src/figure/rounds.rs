//! The effect of the rounds: safe share, return and accuracy of the safety model, side by side.

use super::axes::{Panel, padded_range, ticks};
use super::series::draw_line;
use super::svg::Svg;
use super::{Figure, Key, Look, TARGET, WIDTH, display_name, legend, looks, stroke, target_label};
use crate::records::Round;

/// The x position, the value and the interval of a round; an interval that is not finite is not drawn.
type Point = (f64, f64, [f64; 2]);

/// Draws one line for each algorithm over the rounds; `target` is the required share, 0 to 1.
pub fn rounds(records: &[Round], target: f64) -> Figure {
    const GAP: f64 = 52.0;
    let mut algos: Vec<&str> = Vec::new();
    for record in records {
        if !algos.contains(&record.algo.as_str()) {
            algos.push(&record.algo);
        }
    }
    let looks = looks(algos.iter().copied());
    let mut svg = Svg::new();
    let held_out = Look { colour: "#7F7F7F", dash: "" };
    let mut entries: Vec<(Key, String)> =
        algos.iter().zip(&looks).map(|(algo, look)| (Key::Line(*look), display_name(algo).to_owned())).collect();
    entries.push((Key::Target, target_label(target)));
    entries.push((Key::Line(held_out), "model on held-out episodes".to_owned()));
    let top = legend(&mut svg, 48.0, 8.0, &entries) + 30.0;

    let last = records.iter().map(|record| record.round).max().unwrap_or(0);
    let width = (WIDTH - 48.0 - 16.0 - 2.0 * GAP) / 3.0;
    let first = Panel { left: 48.0, top, width, height: 210.0, x: [-0.4, last as f64 + 0.4], y: [0.0, 100.0] };
    // The algorithms are shifted slightly, so that their bars do not hide each other.
    let apart = |i: usize| (i as f64 - 0.5 * (algos.len() as f64 - 1.0)) * (0.4 / algos.len().max(1) as f64).min(0.12);
    let points = |value: fn(&Round) -> (f64, [f64; 2])| -> Vec<Vec<Point>> {
        let of_algo = |(i, algo): (usize, &&str)| -> Vec<Point> {
            let own = records.iter().filter(|record| record.algo == *algo);
            own.map(|record| (record.round as f64 + apart(i), value(record).0, value(record).1)).collect()
        };
        algos.iter().enumerate().map(of_algo).collect()
    };
    let shares = points(|r| (100.0 * r.safe_share, r.interval.map(|limit| 100.0 * limit)));
    let returns = points(|r| (r.return_mean, [r.return_mean - r.return_sd, r.return_mean + r.return_sd]));
    let own = points(|r| (100.0 * r.own_accuracy, [f64::NAN; 2]));
    let mut model: Vec<[f64; 2]> = Vec::new();
    for record in records.iter().filter(|record| record.accuracy.is_finite()) {
        if model.iter().all(|point| point[0] != record.round as f64) {
            model.push([record.round as f64, 100.0 * record.accuracy]);
        }
    }

    draw(&mut svg, &first, "Safe episodes (%)", last, |svg| {
        let line = [first.x[0], first.x[1]].map(|x| first.at([x, 100.0 * target]));
        svg.line(line[0], line[1], TARGET);
        draw_points(svg, &first, &shares, &looks);
    });
    let y = padded_range(returns.iter().flatten().flat_map(|(_, value, [low, high])| [*value, *low, *high]));
    let second = Panel { left: first.right() + GAP, y, ..first };
    draw(&mut svg, &second, "Return", last, |svg| draw_points(svg, &second, &returns, &looks));
    let accuracies = own.iter().flatten().map(|point| point.1).chain(model.iter().map(|point| point[1]));
    let [low, high] = padded_range(accuracies.chain([100.0]));
    let third = Panel { left: second.right() + GAP, y: [low.clamp(0.0, 90.0), high.min(100.0)], ..first };
    draw(&mut svg, &third, "Model accuracy (%)", last, |svg| {
        draw_line(svg, &third, &model, &stroke(held_out, 1.6), held_out.colour);
        draw_points(svg, &third, &own, &looks);
    });
    if records.is_empty() {
        [first, second, third].iter().for_each(|panel| panel.no_data(&mut svg));
    }
    // Replicas have no interval over pooled episodes.
    let pooled = records.iter().any(|record| record.interval[0].is_finite());
    let (bars, over) = if pooled { (" (bars: 95 % Clopper-Pearson interval)", "seeds") } else { ("", "replicas") };
    Figure {
        name: "rounds",
        title: "Round by round",
        caption: format!(
            "After each round the agents' own episodes are labelled and the safety model is refitted. Left: share of safe \
             test episodes{bars}. Middle: return (bars: one standard deviation over {over}). Right: accuracy of the safety \
             model on the agents' own episodes; if it is below the grey line, the agents still visit states that the model \
             was not trained on."
        ),
        svg: svg.finish(first.bottom() + 48.0, "Safe share, return and accuracy for every round"),
    }
}

fn draw(svg: &mut Svg, panel: &Panel, title: &str, last: usize, inside: impl FnOnce(&mut Svg)) {
    panel.title(svg, title);
    panel.y_axis(svg, &ticks(panel.y, 5));
    let every = last / 8 + 1;
    let rounds: Vec<f64> = (0..=last).step_by(every).map(|round| round as f64).collect();
    panel.x_axis(svg, &rounds, Some("Round"));
    inside(svg);
}

fn draw_points(svg: &mut Svg, panel: &Panel, algos: &[Vec<Point>], looks: &[Look]) {
    for (points, look) in algos.iter().zip(looks) {
        let finite: Vec<&Point> = points.iter().filter(|point| point.1.is_finite()).collect();
        if finite.len() > 1 {
            let line: Vec<[f64; 2]> = finite.iter().map(|point| [point.0, point.1]).collect();
            draw_line(svg, panel, &line, &stroke(*look, 1.4), look.colour);
        }
        for (x, value, [low, high]) in finite {
            if low.is_finite() && high.is_finite() {
                let bar = format!(r#"stroke="{}" stroke-width="1.6""#, look.colour);
                svg.line(panel.at([*x, *low]), panel.at([*x, *high]), &bar);
            }
            let dot = format!(r##"fill="{}" stroke="#fff" stroke-width="0.8""##, look.colour);
            svg.circle(panel.at([*x, *value]), 3.4, &dot);
        }
    }
    if algos.iter().flatten().all(|point| !point.1.is_finite()) && !algos.is_empty() {
        panel.no_data(svg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{AlgoResult, SeedResult};

    fn round(round: usize, algo: &str, returns: &[f64]) -> Round {
        let seed = SeedResult { seed: 0, returns: returns.to_vec(), safe: vec![true; returns.len()] };
        Round::new(round, &AlgoResult::from_seeds(algo, 10, &[seed]), 0.98, 0.9)
    }

    #[test]
    fn shows_all_rounds_of_all_algorithms() {
        let records = [round(0, "safesac-h", &[1.0, 2.0]), round(1, "safesac-h", &[3.0]), round(1, "sac", &[1.0])];
        let figure = rounds(&records, 0.9);
        assert!(figure.svg.contains("SafeSAC-H") && figure.svg.contains(">SAC<"));
        assert_eq!(figure.svg.matches(r##"r="3.4" fill="#0072B2""##).count(), 3 * 2);
        assert_eq!(figure, rounds(&records, 0.9));
    }

    #[test]
    fn unusual_input_is_drawn_without_nan() {
        let mut nan = round(0, "sac", &[f64::NAN]);
        nan.own_accuracy = f64::NAN;
        for records in [vec![], vec![nan], vec![round(0, "sac", &[])], vec![round(0, "sac", &[1.0]); 2]] {
            assert!(!rounds(&records, 0.9).svg.contains("NaN"));
        }
    }
}
