//! The safe share of each seed or replica against the target, so that none is hidden by a mean.

use super::axes::{Panel, ticks};
use super::svg::Svg;
use super::{Figure, GRID, INK, Key, SOFT, TARGET, WIDTH, display_name, legend, looks, target_label};
use crate::records::{AlgoResult, ReplicaSummary, SeedSummary};
use crate::statistics::{clopper_pearson, within_0_1};

const ROW: f64 = 17.0;

/// Draws the safe share of each seed, or of each replica if there are several, with its interval; `target` is the required
/// share, 0 to 1.
pub fn seeds(results: &[AlgoResult], target: f64) -> Figure {
    let looks = looks(results.iter().map(|result| result.algo.as_str()));
    let mut svg = Svg::new();
    let replicas = results.iter().any(|result| !result.per_replica.is_empty());
    let units = if replicas { "replicas" } else { "seeds" };
    let entries = [
        (Key::Target, target_label(target)),
        (Key::Dot(SOFT), "reaches the target".to_owned()),
        (Key::Ring(SOFT), "misses the target".to_owned()),
        (Key::Diamond(SOFT), format!("all {units}")),
    ];
    let top = legend(&mut svg, 48.0, 8.0, &entries) + 12.0;
    let groups: Vec<Vec<Row>> = results.iter().map(rows).collect();
    let height: f64 = groups.iter().map(|rows| rows.len() as f64 + 1.6).sum();
    let panel = Panel {
        left: 110.0,
        top,
        width: WIDTH - 110.0 - 84.0,
        height: (height * ROW).max(60.0),
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
    for ((result, rows), look) in results.iter().zip(&groups).zip(&looks) {
        y += 0.8 * ROW;
        svg.rect([8.0, y - 5.0], [10.0, 10.0], &format!(r#"fill="{}""#, look.colour));
        svg.text([24.0, y + 4.0], display_name(&result.algo), &format!(r#"font-weight="600" fill="{INK}""#));
        for row in rows {
            y += ROW;
            row.draw(&mut svg, &panel, y, look.colour, target);
        }
        y += 0.8 * ROW;
    }
    if results.is_empty() {
        panel.no_data(&mut svg);
    }
    let (title, pooled) = if replicas {
        (
            "Every replica against the target",
            "The diamond is the mean of the replicas, with the t-interval of the mean if there are at least five.",
        )
    } else {
        ("Every seed against the target", "The diamond pools all seeds.")
    };
    Figure {
        name: "seeds",
        title,
        caption: format!(
            "Share of safe test episodes of each of the {units}, judged by the true rule; the lines of dots are 95 % \
             Clopper-Pearson intervals, which cover the choice of test episodes. Filled dots reach the target, open dots \
             miss it. {pooled} An interval of a diamond entirely to the right of the dashed line shows that the target is \
             met."
        ),
        svg: svg.finish(panel.bottom() + 48.0, &format!("Share of safe episodes of the {units}")),
    }
}

/// The rows of one algorithm: its replicas or seeds, then all of them together.
fn rows(result: &AlgoResult) -> Vec<Row> {
    let counts = [result.safe, result.episodes];
    if result.per_replica.is_empty() {
        let seed = |seed: &SeedSummary| Row {
            label: format!("seed {}", seed.seed),
            share: seed.safe_share,
            interval: Some(seed.interval),
            counts: [seed.safe, seed.episodes],
            whole: false,
        };
        let whole = Row {
            label: "all seeds".to_owned(),
            share: result.safe_share,
            interval: Some(result.interval),
            counts,
            whole: true,
        };
        return result.per_seed.iter().map(seed).chain([whole]).collect();
    }
    let replica = |replica: &ReplicaSummary| Row {
        label: format!("replica {}", replica.replica),
        share: replica.safe_share,
        interval: Some(clopper_pearson(replica.safe, replica.episodes)),
        counts: [replica.safe, replica.episodes],
        whole: false,
    };
    let over = result.over_replicas.as_ref().map(|over| within_0_1(over.safe_share.t_interval));
    let whole = Row {
        label: "all replicas".to_owned(),
        share: result.safe_share,
        interval: over.filter(|interval| interval[0].is_finite()),
        counts,
        whole: true,
    };
    result.per_replica.iter().map(replica).chain([whole]).collect()
}

struct Row {
    label: String,
    share: f64,
    interval: Option<[f64; 2]>,
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
        let range = self.interval.map(|[low, high]| format!(" ({:.1} to {:.1} %)", 100.0 * low, 100.0 * high));
        let title = format!("{}: {:.1} %{}", self.label, 100.0 * self.share, range.unwrap_or_default());
        svg.titled(&title, |svg| {
            let line = format!(r#"stroke="{colour}" stroke-width="{width}""#);
            if let Some([low, high]) = self.interval {
                svg.line(at(low), at(high), &line);
            }
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
    fn replicas_have_a_common_interval_only_from_five_on() {
        let draw = |safe: &[usize]| {
            let results: Vec<AlgoResult> = safe.iter().map(|safe| result(&[*safe])).collect();
            let numbered: Vec<(u64, &AlgoResult)> = (0..).zip(&results).collect();
            seeds(&[AlgoResult::from_replicas("safesac-h", &numbered)], 0.9).svg
        };
        let four = draw(&[9, 5, 10, 8]);
        assert!(four.contains(">replica 3<") && four.contains("all replicas: 80.0 %<"), "{four}");
        assert!(draw(&[9, 5, 10, 8, 8]).contains("all replicas: 80.0 % ("));
        assert!(draw(&[8; 5]).contains("all replicas: 80.0 %<"), "equal replicas say nothing about their variation");
    }

    #[test]
    fn unusual_input_is_drawn_without_nan() {
        let no_episodes = AlgoResult::from_seeds("x", 0, &[SeedResult { seed: 0, returns: vec![], safe: vec![] }]);
        for results in [vec![], vec![result(&[])], vec![result(&[3])], vec![no_episodes]] {
            assert!(!seeds(&results, 0.9).svg.contains("NaN"));
        }
    }
}
