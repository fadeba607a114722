//! Figures: one file each, all drawn with a small SVG writer.
//!
//! The `plotters` crate was tried first. It rounds coordinates to whole pixels, so smooth curves become jagged; without
//! fonts it cannot measure text, so outer tick labels were cut off; and it has no markers scaled by area, no groups and
//! no descriptions for screen readers. These figures need about two hundred lines of SVG code, in `svg` and `axes`, and
//! the output has the same bytes on every machine.
//!
//! The colours are Okabe and Ito's, which colour-blind readers can distinguish. An algorithm has the same look
//! everywhere.

mod axes;
mod learning_curves;
mod multiplier;
mod paths;
mod reliability;
mod rounds;
mod seeds;
mod series;
mod signals;
mod svg;

pub use learning_curves::{Curve, learning_curves};
pub use multiplier::{MultiplierCurve, multiplier};
pub use paths::{Path, paths};
pub use reliability::reliability;
pub use rounds::rounds;
pub use seeds::seeds;
pub use signals::{EpisodeSignals, signals};

pub(crate) use axes::minus;
pub(crate) use svg::{escape, number as short_number};

use svg::{Svg, text_width};

/// A finished picture with its title and caption.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// A short name, suitable as a file name without extension.
    pub name: &'static str,
    /// The heading above the figure.
    pub title: &'static str,
    /// An explanation of how to read the figure.
    pub caption: String,
    /// The picture: a complete SVG document that can also be embedded in HTML.
    pub svg: String,
}

/// The width of every figure, in pixels.
const WIDTH: f64 = 720.0;
/// The colour of text and axes.
const INK: &str = "#1b1f24";
/// The colour of tick labels and other secondary text.
const SOFT: &str = "#57606a";
/// The colour of grid lines.
const GRID: &str = "#e4e7eb";

/// How an algorithm or another series is drawn; the dashes distinguish lines in greyscale print.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    colour: &'static str,
    dash: &'static str,
}

/// The label of a curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurveLabel {
    /// The name of the algorithm, such as `safesac-h`.
    pub algorithm: String,
    /// The run, if a figure shows several; otherwise empty.
    pub run: String,
    /// The round of the agents, if the run has several.
    pub round: Option<usize>,
}

/// A label for a figure with only one run.
impl From<&str> for CurveLabel {
    fn from(algorithm: &str) -> Self {
        Self { algorithm: algorithm.to_owned(), ..Self::default() }
    }
}

impl CurveLabel {
    fn text(&self) -> String {
        let round = self.round.map_or(String::new(), |round| format!(", round {round}"));
        match self.run.as_str() {
            "" => format!("{}{round}", display_name(&self.algorithm)),
            run => format!("{}{round} ({run})", display_name(&self.algorithm)),
        }
    }
}

/// The looks of curves: each algorithm has a colour, and if there are several runs, each run has a dash pattern.
fn looks_of<'a>(labels: impl Iterator<Item = &'a CurveLabel> + Clone) -> Vec<Look> {
    const DASHES: [&str; 5] = ["", "7 3", "2 2", "9 3 2 3", "12 5"];
    let mut runs: Vec<&str> = labels.clone().map(|label| label.run.as_str()).collect();
    runs.dedup();
    let looks = looks(labels.clone().map(|label| label.algorithm.as_str()));
    let dashed = |(label, look): (&CurveLabel, Look)| match runs.iter().position(|run| *run == label.run) {
        Some(place) if runs.len() > 1 => Look { dash: DASHES[place % DASHES.len()], ..look },
        _ => look,
    };
    labels.zip(looks).map(dashed).collect()
}

/// The looks of all series of a figure. The four algorithms have fixed looks; other series get the remaining ones in
/// turn.
fn looks<'a>(labels: impl IntoIterator<Item = &'a str>) -> Vec<Look> {
    const OTHERS: [&str; 4] = ["#E69F00", "#56B4E9", "#7F7F7F", "#000000"];
    let mut others = OTHERS.iter().cycle();
    let mut looks: Vec<(&str, Look)> = Vec::new();
    for label in labels {
        let known = looks.iter().find(|(name, _)| *name == label).map(|(_, look)| *look);
        let look = known.unwrap_or_else(|| match label {
            "safesac-h" => Look { colour: "#0072B2", dash: "" },
            "sac" => Look { colour: "#D55E00", dash: "" },
            "safesac-noh" => Look { colour: "#009E73", dash: "7 3" },
            "safesac-nonlb" => Look { colour: "#CC79A7", dash: "2 2" },
            _ => Look { colour: others.next().copied().unwrap_or(INK), dash: "" },
        });
        looks.push((label, look));
    }
    looks.into_iter().map(|(_, look)| look).collect()
}

/// The name of an algorithm as in the paper; other labels are unchanged.
pub fn display_name(label: &str) -> &str {
    match label {
        "sac" => "SAC",
        "safesac-h" => "SafeSAC-H",
        "safesac-noh" => "SafeSAC-NoH",
        "safesac-nonlb" => "SafeSAC-NonLB",
        other => other,
    }
}

/// The colour of an algorithm, for tables.
pub(crate) fn colour(label: &str) -> &'static str {
    looks([label])[0].colour
}

/// The symbol before the text of a legend entry.
enum Key {
    Line(Look),
    Target,
    Dot(&'static str),
    Ring(&'static str),
    Diamond(&'static str),
    Cross(&'static str),
    Area { fill: &'static str, stroke: &'static str },
}

/// Draws a legend at height `top`, in as many rows as it needs, and returns the height at which it ends. It is above
/// the panels, so it cannot cover data.
fn legend(svg: &mut Svg, left: f64, top: f64, entries: &[(Key, String)]) -> f64 {
    const ROW: f64 = 20.0;
    let (mut x, mut y) = (left, top + 8.0);
    for (key, label) in entries {
        let key_width = if matches!(key, Key::Line(_) | Key::Target) { 24.0 } else { 14.0 };
        let width = key_width + 6.0 + text_width(label, 12.0) + 18.0;
        if x > left && x + width - 18.0 > WIDTH {
            (x, y) = (left, y + ROW);
        }
        let middle = [x + 0.5 * key_width, y];
        match key {
            Key::Line(look) => svg.line([x, y], [x + key_width, y], &stroke(*look, 2.2)),
            Key::Target => svg.line([x, y], [x + key_width, y], TARGET),
            Key::Dot(colour) => svg.circle(middle, 4.5, &format!(r#"fill="{colour}""#)),
            Key::Ring(colour) => {
                svg.circle(middle, 4.0, &format!(r##"fill="#fff" stroke="{colour}" stroke-width="1.6""##));
            }
            Key::Diamond(colour) => svg.diamond(middle, 6.0, &format!(r#"fill="{colour}""#)),
            Key::Cross(colour) => svg.cross(middle, 4.0, &format!(r#"stroke="{colour}" stroke-width="2""#)),
            Key::Area { fill, stroke } => {
                svg.rect([x, y - 5.0], [key_width, 10.0], &format!(r#"fill="{fill}" stroke="{stroke}""#));
            }
        }
        svg.text([x + key_width + 6.0, y + 4.0], label, &format!(r#"fill="{INK}""#));
        x += width;
    }
    if entries.is_empty() { top } else { y + 12.0 }
}

/// The style of target lines: black and dashed.
const TARGET: &str = r##"stroke="#000" stroke-width="1.2" stroke-dasharray="5 4""##;

/// The attributes of a line of this look.
fn stroke(look: Look, width: f64) -> String {
    let dash = if look.dash.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{}""#, look.dash) };
    format!(r#"fill="none" stroke="{}" stroke-width="{width}" stroke-linejoin="round"{dash}"#, look.colour)
}

/// The label of target lines, such as "target 90 %".
fn target_label(target: f64) -> String {
    format!("target {}\u{a0}%", svg::number(100.0 * target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_has_the_same_look_beside_any_others() {
        let alone = looks(["safesac-h"])[0];
        assert_eq!(looks(["other", "sac", "safesac-h"])[2], alone);
        let all = looks(["sac", "safesac-h", "safesac-noh", "safesac-nonlb", "a", "b", "a"]);
        for (i, look) in all[..6].iter().enumerate() {
            assert!(all[..i].iter().all(|other| other.colour != look.colour), "{i}");
        }
        assert_eq!(all[4], all[6]);
    }

    #[test]
    fn runs_differ_by_dashes_and_algorithms_by_colours() {
        let label = |algorithm: &str, run: &str| CurveLabel {
            algorithm: algorithm.into(),
            run: run.into(),
            ..CurveLabel::default()
        };
        let labels = [label("sac", "a"), label("safesac-noh", "a"), label("sac", "b"), label("safesac-noh", "b")];
        let looks = looks_of(labels.iter());
        assert_eq!((looks[0].colour, looks[1].colour), (looks[2].colour, looks[3].colour));
        assert_eq!((looks[0].dash, looks[2].dash), (looks[1].dash, looks[3].dash));
        assert!(looks[0].colour != looks[1].colour && looks[0].dash != looks[2].dash);
        assert_eq!(labels[2].text(), "SAC (b)");
    }

    #[test]
    fn a_long_legend_wraps_within_the_figure() {
        let mut svg = Svg::new();
        let entries: Vec<_> = (0..12).map(|i| (Key::Dot(INK), format!("algorithm number {i}"))).collect();
        let end = legend(&mut svg, 10.0, 0.0, &entries);
        assert!(end > 40.0);
    }
}
