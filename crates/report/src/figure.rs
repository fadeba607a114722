//! Figures: one file each, all drawn by a small SVG writer of our own.
//!
//! `plotters` was tried first and looked at. It rounds coordinates to whole pixels, so smooth curves come out as stairs;
//! without fonts it cannot measure text, so outer tick labels were cut off; and it offers neither error bars by area, nor
//! groups, nor descriptions for screen readers. What these figures need of SVG is some two hundred lines, so `svg` and
//! `axes` are ours, and the output is the same bytes on every machine.
//!
//! Colours are Okabe and Ito's, which colour-blind readers can tell apart; one algorithm has one look everywhere.

mod axes;
mod learning_curves;
mod multiplier;
mod paths;
mod reliability;
mod rounds;
mod seeds;
mod series;
mod svg;

pub use learning_curves::{Curve, learning_curves};
pub use multiplier::{MultiplierCurve, multiplier};
pub use paths::{Path, paths};
pub use reliability::reliability;
pub use rounds::rounds;
pub use seeds::seeds;

pub(crate) use axes::minus;
pub(crate) use svg::{escape, number as short_number};

use svg::{Svg, text_width};

/// A finished picture with what a reader needs to understand it.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// A short name, fit for a file's stem.
    pub name: &'static str,
    /// The heading.
    pub title: &'static str,
    /// How to read it.
    pub caption: String,
    /// The picture: a complete SVG document that may also stand inside HTML.
    pub svg: String,
}

/// The width of every figure, in pixels.
const WIDTH: f64 = 720.0;
/// Text and axes.
const INK: &str = "#1b1f24";
/// Tick labels and other text of the second rank.
const SOFT: &str = "#57606a";
/// Grid lines.
const GRID: &str = "#e4e7eb";

/// How an algorithm or another series is drawn; the dashes tell lines apart in grey print.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    colour: &'static str,
    dash: &'static str,
}

/// Whose curve it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Label {
    /// The algorithm's name.
    pub algorithm: String,
    /// The run it is from, where a figure shows several; empty otherwise.
    pub run: String,
}

/// Of the only run.
impl From<&str> for Label {
    fn from(algorithm: &str) -> Self {
        Self { algorithm: algorithm.to_owned(), run: String::new() }
    }
}

impl Label {
    fn text(&self) -> String {
        match self.run.as_str() {
            "" => display_name(&self.algorithm).to_owned(),
            run => format!("{} ({run})", display_name(&self.algorithm)),
        }
    }
}

/// The looks of curves: an algorithm has its colour, and where there are several runs each run has its dashes.
fn looks_of<'a>(labels: impl Iterator<Item = &'a Label> + Clone) -> Vec<Look> {
    const DASHES: [&str; 5] = ["", "7 3", "2 2", "9 3 2 3", "12 5"];
    let mut runs: Vec<&str> = labels.clone().map(|label| label.run.as_str()).collect();
    runs.dedup();
    let looks = looks(labels.clone().map(|label| label.algorithm.as_str()));
    let dashed = |(label, look): (&Label, Look)| match runs.iter().position(|run| *run == label.run) {
        Some(place) if runs.len() > 1 => Look { dash: DASHES[place % DASHES.len()], ..look },
        _ => look,
    };
    labels.zip(looks).map(dashed).collect()
}

/// The looks of all series of a figure. The four algorithms always have theirs, others take what is left in turn.
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

/// An algorithm's name as the paper writes it; other labels as they are.
pub fn display_name(label: &str) -> &str {
    match label {
        "sac" => "SAC",
        "safesac-h" => "SafeSAC-H",
        "safesac-noh" => "SafeSAC-NoH",
        "safesac-nonlb" => "SafeSAC-NonLB",
        other => other,
    }
}

/// The colour of an algorithm on its own, for tables.
pub(crate) fn colour(label: &str) -> &'static str {
    looks([label])[0].colour
}

/// What stands before a legend's text.
enum Key {
    Line(Look),
    Target,
    Dot(&'static str),
    Ring(&'static str),
    Diamond(&'static str),
    Cross(&'static str),
    Area { fill: &'static str, stroke: &'static str },
}

/// Writes a legend from the left edge at height `top`, in as many rows as it needs, and returns where it ends. It stands
/// above the panels, where it can cover no data.
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

/// The target line: black and dashed wherever it appears.
const TARGET: &str = r##"stroke="#000" stroke-width="1.2" stroke-dasharray="5 4""##;

/// The attributes of a line of this look.
fn stroke(look: Look, width: f64) -> String {
    let dash = if look.dash.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{}""#, look.dash) };
    format!(r#"fill="none" stroke="{}" stroke-width="{width}" stroke-linejoin="round"{dash}"#, look.colour)
}

/// "target 90 %".
fn target_label(target: f64) -> String {
    format!("target {}\u{a0}%", svg::number(100.0 * target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_has_one_look_whatever_stands_beside_it() {
        let alone = looks(["safesac-h"])[0];
        assert_eq!(looks(["other", "sac", "safesac-h"])[2], alone);
        let all = looks(["sac", "safesac-h", "safesac-noh", "safesac-nonlb", "a", "b", "a"]);
        for (i, look) in all[..6].iter().enumerate() {
            assert!(all[..i].iter().all(|other| other.colour != look.colour), "{i}");
        }
        assert_eq!(all[4], all[6]);
    }

    #[test]
    fn several_runs_differ_by_their_dashes_and_algorithms_by_their_colours() {
        let label = |algorithm: &str, run: &str| Label { algorithm: algorithm.into(), run: run.into() };
        let labels = [label("sac", "a"), label("safesac-noh", "a"), label("sac", "b"), label("safesac-noh", "b")];
        let looks = looks_of(labels.iter());
        assert_eq!((looks[0].colour, looks[1].colour), (looks[2].colour, looks[3].colour));
        assert_eq!((looks[0].dash, looks[2].dash), (looks[1].dash, looks[3].dash));
        assert!(looks[0].colour != looks[1].colour && looks[0].dash != looks[2].dash);
        assert_eq!(labels[2].text(), "SAC (b)");
    }

    #[test]
    fn a_long_legend_wraps_inside_the_figure() {
        let mut svg = Svg::new();
        let entries: Vec<_> = (0..12).map(|i| (Key::Dot(INK), format!("algorithm number {i}"))).collect();
        let end = legend(&mut svg, 10.0, 0.0, &entries);
        assert!(end > 40.0);
    }
}
