//! The safe share of each seed against the target, so that no seed is hidden by a mean.

use super::axes::{Panel, ticks};
use super::svg::Svg;
use super::{Figure, GRID, INK, Key, SOFT, TARGET, WIDTH, display_name, legend, looks, target_label};
use crate::records::AlgoResult;

const ROW: f64 = 17.0;

/// Draws the safe share of each seed with its interval; `target` is the required share, 0 to 1.
pub fn seeds(results: &[AlgoResult], target: f64) -> Figure {
    let looks = looks(results.iter().map(|result| result.algo.as_str()));
    let mut svg = Svg::new();
    let entries = [
        (Key::Target, target_label(target)),
        (Key::Dot(SOFT), "reaches the target".to_owned()),
        (Key::Ring(SOFT), "misses the target".to_owned()),
        (Key::Diamond(SOFT), "all seeds".to_owned()),
    ];
    let top = legend(&mut svg, 48.0, 8.0, &entries) + 12.0;
    let rows: f64 = results.iter().map(|result| result.per_seed.len() as f64 + 2.6).sum();
    let panel = Panel {
        left: 110.0,
        top,
        width: WIDTH - 110.0 - 84.0,
        height: (rows * ROW).max(60.0),
        x: [0.0, 100.0],
        y: [0.0, 1.0],
    };
    for tick in ticks(panel.x, 5) {
        let [x, _] = panel.at([tick, 0.0]);
        svg.line([x, panel.top], [x, panel.bottom()], &format!(r#"stroke="{GRID}""#));
    }
    panel.x_axis(&mut svg, &ticks(panel.x, 5), Some("Safe episodes (%)"));
    let [x, _] = panel.at([100.0 * target, 0.0]);
    svg.line([x, panel.top], [x, panel.bottom()], TARGET);

    let mut y = panel.top;
    for (result, look) in results.iter().zip(&looks) {
        y += 0.8 * ROW;
        svg.rect([8.0, y - 5.0], [10.0, 10.0], &format!(r#"fill="{}""#, look.colour));
        svg.text([24.0, y + 4.0], display_name(&result.algo), &format!(r#"font-weight="600" fill="{INK}""#));
        y += ROW;
        for seed in &result.per_seed {
            let row = Row {
                label: format!("seed {}", seed.seed),
                share: seed.safe_share,
                interval: seed.interval,
                counts: [seed.safe, seed.episodes],
                whole: false,
            };
            row.draw(&mut svg, &panel, y, look.colour, target);
            y += ROW;
        }
        let row = Row {
            label: "all seeds".to_owned(),
            share: result.safe_share,
            interval: result.interval,
            counts: [result.safe, result.episodes],
            whole: true,
        };
        row.draw(&mut svg, &panel, y, look.colour, target);
        y += 0.8 * ROW;
    }
    if results.is_empty() {
        panel.no_data(&mut svg);
    }
    Figure {
        name: "seeds",
        title: "Every seed against the target",
        caption: "Share of safe test episodes of each seed, judged by the true rule; lines are 95 % Clopper-Pearson \
                  intervals. Filled dots reach the target, open dots miss it; the diamond pools all seeds. An interval \
                  entirely to the right of the dashed line shows that the target is met."
            .to_owned(),
        svg: svg.finish(panel.bottom() + 48.0, "Share of safe episodes of every seed"),
    }
}

struct Row {
    label: String,
    share: f64,
    interval: [f64; 2],
    counts: [u64; 2],
    whole: bool,
}

impl Row {
    fn draw(&self, svg: &mut Svg, panel: &Panel, y: f64, colour: &str, target: f64) {
        let weight = if self.whole { r#" font-weight="600""# } else { "" };
        let side = format!(r#"text-anchor="end" font-size="11" fill="{SOFT}"{weight}"#);
        svg.text([panel.left - 10.0, y + 4.0], &self.label, &side);
        svg.text([WIDTH - 16.0, y + 4.0], &format!("{}/{}", self.counts[0], self.counts[1]), &side);
        if !self.share.is_finite() {
            return;
        }
        let at = |share: f64| [panel.at([100.0 * share, 0.0])[0], y];
        let width = if self.whole { 2.2 } else { 1.4 };
        let [low, high] = self.interval.map(|limit| 100.0 * limit);
        svg.titled(&format!("{}: {:.1} % ({low:.1} to {high:.1} %)", self.label, 100.0 * self.share), |svg| {
            let line = format!(r#"stroke="{colour}" stroke-width="{width}""#);
            svg.line(at(self.interval[0]), at(self.interval[1]), &line);
            let fill = if self.share >= target { colour } else { "#fff" };
            let style = format!(r#"fill="{fill}" stroke="{colour}" stroke-width="1.6""#);
            if self.whole {
                svg.diamond(at(self.share), 6.0, &style);
            } else {
                svg.circle(at(self.share), 4.0, &style);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::SeedResult;

    fn result(shares: &[usize]) -> AlgoResult {
        let seed = |(k, safe): (usize, &usize)| SeedResult {
            seed: k as u64,
            returns: vec![0.0; 10],
            safe: (0..10).map(|i| i < *safe).collect(),
        };
        AlgoResult::from_seeds("safesac-h", 10, &shares.iter().enumerate().map(seed).collect::<Vec<_>>())
    }

    #[test]
    fn a_seed_that_misses_the_target_has_an_open_dot() {
        let figure = seeds(&[result(&[9, 5, 10])], 0.9);
        assert_eq!(figure.svg.matches(r##"r="4" fill="#fff" stroke="#0072B2""##).count(), 1);
        assert_eq!(figure.svg.matches(r##"r="4" fill="#0072B2""##).count(), 2);
        for text in [">seed 1<", ">5/10<", ">24/30<", ">all seeds<"] {
            assert!(figure.svg.contains(text), "{text}");
        }
        assert_eq!(figure, seeds(&[result(&[9, 5, 10])], 0.9));
    }

    #[test]
    fn unusual_input_is_drawn_without_nan() {
        let no_episodes = AlgoResult::from_seeds("x", 0, &[SeedResult { seed: 0, returns: vec![], safe: vec![] }]);
        for results in [vec![], vec![result(&[])], vec![result(&[3])], vec![no_episodes]] {
            assert!(!seeds(&results, 0.9).svg.contains("NaN"));
        }
    }
}
