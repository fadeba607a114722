//! The signals of one episode over time, with the blame that a safety model assigns to each step below them.

use super::axes::{Panel, padded_range, ticks};
use super::series::draw_line;
use super::svg::Svg;
use super::{Figure, Key, Look, SOFT, WIDTH, legend, stroke};

/// One episode to draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpisodeSignals {
    /// The name and the values of each signal, one per step.
    pub signals: Vec<(String, Vec<f64>)>,
    /// The blame of each step, -log P(safe); empty without a safety model.
    pub blame: Vec<f64>,
    /// The step that broke the rule, if it is known.
    pub breaking: Option<usize>,
}

const LINE: Look = Look { colour: "#0072B2", dash: "" };
const BLAME: &str = "#D55E00";
const BREAKING: &str = r##"stroke="#000" stroke-width="1.2" stroke-dasharray="4 3""##;

/// Draws one panel per signal, and one for the blame if there is any.
pub fn signals(title: &str, episode: &EpisodeSignals) -> Figure {
    const HEIGHT: f64 = 76.0;
    let mut svg = Svg::new();
    let mut entries = Vec::new();
    if episode.breaking.is_some() {
        entries.push((Key::Target, "the step that breaks the rule".to_owned()));
    }
    let mut top = legend(&mut svg, 56.0, 8.0, &entries) + 30.0;
    let steps = episode.signals.iter().map(|(_, values)| values.len()).max().unwrap_or(0).max(episode.blame.len());
    let x = [1.0, steps.max(2) as f64];
    let blame =
        (!episode.blame.is_empty()).then(|| ("blame: \u{2212}log P(step safe)".to_owned(), episode.blame.clone()));
    let panels = episode.signals.len() + usize::from(blame.is_some());
    let mut bottom = top;
    for (i, (name, values)) in episode.signals.iter().chain(&blame).enumerate() {
        let is_blame = i == episode.signals.len();
        let mut y = padded_range(values.iter().copied());
        if is_blame {
            y = [0.0, y[1].max(1.0)]; // less than 1 is hardly any blame
        }
        let panel = Panel { left: 56.0, top, width: WIDTH - 56.0 - 24.0, height: HEIGHT, x, y };
        panel.title(&mut svg, name);
        panel.y_axis(&mut svg, &ticks(y, 3));
        panel.x_axis(&mut svg, &ticks(x, 6), (i + 1 == panels).then_some("Step"));
        panel.clipped(&mut svg, 1.0, |svg| {
            let points: Vec<[f64; 2]> =
                values.iter().enumerate().map(|(t, v)| [t as f64 + 1.0, *v]).filter(|p| p[1].is_finite()).collect();
            if is_blame {
                for point in &points {
                    svg.line(
                        panel.at([point[0], 0.0]),
                        panel.at(*point),
                        &format!(r#"stroke="{BLAME}" stroke-width="2""#),
                    );
                }
            } else {
                draw_line(svg, &panel, &points, &stroke(LINE, 1.6), LINE.colour);
            }
            if let Some(t) = episode.breaking {
                let step = t as f64 + 1.0;
                svg.line(panel.at([step, y[0]]), panel.at([step, y[1]]), BREAKING);
            }
        });
        bottom = panel.bottom();
        top = bottom + 34.0;
    }
    if panels == 0 {
        svg.text([56.0, top], "no signals", &format!(r#"font-style="italic" fill="{SOFT}""#));
        bottom = top;
    }
    Figure {
        name: "signals",
        title: "Signals of an episode",
        caption: format!("{title}. Signals are measured after each step; the safety model never sees them."),
        svg: svg.finish(bottom + 48.0, title),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_every_signal_the_blame_and_the_breaking_step() {
        let episode = EpisodeSignals {
            signals: vec![("speed".into(), vec![0.0, 1.0, 3.0]), ("<x>".into(), vec![1.0; 3])],
            blame: vec![0.0, 0.1, 5.0],
            breaking: Some(2),
        };
        let figure = signals("episode 3", &episode);
        for text in ["speed", "&lt;x&gt;", "blame", "breaks the rule", "Step", "stroke-dasharray"] {
            assert!(figure.svg.contains(text), "{text}");
        }
        assert!(!signals("e", &EpisodeSignals { breaking: None, ..episode }).svg.contains("breaks the rule"));
    }

    #[test]
    fn unusual_input_is_drawn_without_nan() {
        for values in [vec![], vec![1.0], vec![f64::NAN, 1.0], vec![f64::INFINITY; 2]] {
            let episode = EpisodeSignals { signals: vec![("a".into(), values.clone())], blame: values, breaking: None };
            assert!(!signals("e", &episode).svg.contains("NaN"));
        }
        assert!(signals("e", &EpisodeSignals::default()).svg.contains("no signals"));
    }
}
