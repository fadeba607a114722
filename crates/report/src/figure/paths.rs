//! Paths in the plane, coloured by the blame that the safety model assigns to each step.

use prudence_core::{Scene, Zone};

use super::axes::{Panel, ticks};
use super::svg::{Svg, path_data, text_width};
use super::{Figure, INK, Key, SOFT, WIDTH, display_name, legend};

/// One episode in the plane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// The positions of the agent, from the start on.
    pub xy: Vec<[f64; 2]>,
    /// The blame of each step, -log P(safe); the last one belongs to the step that led to the last position.
    pub blame: Vec<f64>,
    /// Whether the episode kept the true rule.
    pub safe: bool,
}

impl Path {
    /// The colour level of the step that led to position `k`. Blame is aligned at the end, so that the positions may or
    /// may not include the start.
    fn level(&self, k: usize) -> usize {
        let step = (k + self.blame.len()).checked_sub(self.xy.len());
        let blame = step.and_then(|step| self.blame.get(step)).copied().unwrap_or(0.0);
        ((blame / MAX_BLAME * LEVELS as f64) as usize).min(LEVELS - 1)
    }
}

/// Blame from this value on has the last colour. It is the floor of the safety model.
const MAX_BLAME: f64 = 7.0;
/// The number of colours. Steps of one colour are drawn together, those with the most blame last.
const LEVELS: usize = 28;
/// The colour scale, from light grey-blue through orange to dark red; the lightness decreases along it.
const COLOURS: [[f64; 3]; 4] = [[165.0, 186.0, 208.0], [244.0, 165.0, 80.0], [214.0, 47.0, 32.0], [110.0, 0.0, 16.0]];
const SAFE: &str = "#0072B2";
const UNSAFE: &str = "#000000";
const ZONE: [&str; 2] = ["#f7e3e1", "#d9a8a3"];

/// Draws one panel for each group (label, episodes), three per row.
pub fn paths(scene: &Scene, groups: &[(String, Vec<Path>)]) -> Figure {
    const GAP: f64 = 24.0;
    let [left, right, bottom, top] = scene.bounds;
    let proper = right > left && top > bottom && scene.bounds.iter().all(|bound| bound.is_finite());
    let (x, y) = if proper { ([left, right], [bottom, top]) } else { ([0.0, 1.0], [0.0, 1.0]) };

    let mut svg = Svg::new();
    let mut entries = vec![
        (Key::Dot(SAFE), "end of a safe episode".to_owned()),
        (Key::Cross(UNSAFE), "end of an unsafe episode".to_owned()),
    ];
    if !scene.zones.is_empty() {
        entries.push((Key::Area { fill: ZONE[0], stroke: ZONE[1] }, "zone".to_owned()));
    }
    let top = legend(&mut svg, 40.0, 8.0, &entries) + 32.0;

    let columns = groups.len().clamp(1, 3);
    let room = (WIDTH - 40.0 - 16.0 - GAP * (columns - 1) as f64) / columns as f64;
    let aspect = (y[1] - y[0]) / (x[1] - x[0]);
    let width = room.min(460.0 / aspect);
    let height = width * aspect;
    for (i, (label, episodes)) in groups.iter().enumerate() {
        let panel = Panel {
            left: 40.0 + (i % columns) as f64 * (width + GAP),
            top: top + (i / columns) as f64 * (height + 62.0),
            width,
            height,
            x,
            y,
        };
        draw_group(&mut svg, &panel, scene, label, episodes, i % columns == 0);
    }
    let rows = groups.len().div_ceil(columns).max(1) as f64;
    let below = top + rows * (height + 62.0) - 26.0;
    colour_bar(&mut svg, [40.0, below]);
    Figure {
        name: "paths",
        title: "Where the agents go and which steps the safety model blames",
        caption: "Test episodes in the plane. The colour of each step is the blame that the safety model assigns to it, \
                  \u{2212}log P(step safe): grey-blue steps are harmless, dark red steps violate the rule on their own. The \
                  model never sees the zones. A cross marks the end of an episode that violated the true rule."
            .to_owned(),
        svg: svg.finish(below + 48.0, "Paths of test episodes in the plane, coloured by blame"),
    }
}

/// Draws one panel; `first` says whether it is the first of its row, where the y axis is labelled.
fn draw_group(svg: &mut Svg, panel: &Panel, scene: &Scene, label: &str, episodes: &[Path], first: bool) {
    let safe = episodes.iter().filter(|path| path.safe).count();
    panel.title(svg, &format!("{}: {safe} of {} safe", display_name(label), episodes.len()));
    panel.clipped(svg, 0.0, |svg| {
        for zone in &scene.zones {
            draw_zone(svg, panel, zone);
        }
    });
    draw_ticks(svg, panel, &ticks(panel.x, 5), false);
    if first {
        draw_ticks(svg, panel, &ticks(panel.y, 5), true);
    }
    svg.rect([panel.left, panel.top], [panel.width, panel.height], &format!(r#"fill="none" stroke="{SOFT}""#));
    // Marks are drawn below the paths: many episodes end at the goal, and their ends must be visible.
    let marks = || scene.marks.iter().filter(|(_, place)| finite(place));
    for (_, place) in marks() {
        svg.diamond(panel.at(*place), 11.0, &format!(r##"fill="#F0E442" stroke="{INK}" stroke-width="1.2""##));
    }
    panel.clipped(svg, 6.0, |svg| {
        for (level, data) in steps_by_level(panel, episodes).iter().enumerate().filter(|(_, data)| !data.is_empty()) {
            let colour = colour_at((level as f64 + 0.5) / LEVELS as f64);
            let width = if level == 0 { 1.1 } else { 1.9 };
            let style = format!(r#"fill="none" stroke="{colour}" stroke-width="{width}" stroke-linecap="round""#);
            svg.path(data, &style);
        }
        // Rules judge positions, not the line between them, so in short episodes each position gets a dot.
        for path in episodes.iter().filter(|path| path.xy.len() <= 60) {
            for (k, place) in path.xy.iter().enumerate().skip(1).filter(|(_, place)| finite(place)) {
                let colour = colour_at((path.level(k) as f64 + 0.5) / LEVELS as f64);
                svg.circle(panel.at(*place), 1.7, &format!(r#"fill="{colour}""#));
            }
        }
        for path in episodes {
            let end = path.xy.iter().rev().find(|place| finite(place)).map(|place| panel.at(*place));
            match (end, path.safe) {
                (None, _) => {}
                (Some(end), true) => {
                    svg.circle(end, 3.0, &format!(r##"fill="{SAFE}" stroke="#fff" stroke-width="0.8""##))
                }
                (Some(end), false) => {
                    svg.cross(end, 3.0, r##"stroke="#fff" stroke-width="3.6""##);
                    svg.cross(end, 3.0, &format!(r#"stroke="{UNSAFE}" stroke-width="1.7""#));
                }
            }
        }
    });
    for (name, place) in marks() {
        name_mark(svg, panel, name, panel.at(*place));
    }
    if episodes.is_empty() {
        panel.no_data(svg);
    }
}

fn finite(place: &[f64; 2]) -> bool {
    place.iter().all(|coordinate| coordinate.is_finite())
}

/// The path data of all steps of each colour; consecutive steps of one colour form one line.
fn steps_by_level(panel: &Panel, episodes: &[Path]) -> Vec<String> {
    let mut data = vec![String::new(); LEVELS];
    for path in episodes {
        let mut run: (usize, Vec<[f64; 2]>) = (0, Vec::new());
        for (k, places) in path.xy.windows(2).enumerate() {
            let level = path.level(k + 1);
            if !places.iter().all(finite) || run.0 != level || run.1.is_empty() {
                flush(&mut data, &mut run);
            }
            if places.iter().all(finite) {
                if run.1.is_empty() {
                    run = (level, vec![panel.at(places[0])]);
                }
                run.1.push(panel.at(places[1]));
            }
        }
        flush(&mut data, &mut run);
    }
    data
}

fn flush(data: &mut [String], run: &mut (usize, Vec<[f64; 2]>)) {
    data[run.0].push_str(&path_data(&run.1));
    run.1.clear();
}

fn draw_zone(svg: &mut Svg, panel: &Panel, zone: &Zone) {
    let style = format!(r#"fill="{}" stroke="{}""#, ZONE[0], ZONE[1]);
    match *zone {
        Zone::Rectangle([left, right, bottom, top]) => {
            let (corner, end) = (panel.at([left, top]), panel.at([right, bottom]));
            svg.rect(corner, [end[0] - corner[0], end[1] - corner[1]], &style);
        }
        Zone::Disc([x, y], radius) => {
            let (centre, edge) = (panel.at([x, y]), panel.at([x + radius, y]));
            svg.circle(centre, edge[0] - centre[0], &style);
        }
    }
}

fn draw_ticks(svg: &mut Svg, panel: &Panel, ticks: &[f64], vertical: bool) {
    for (tick, label) in ticks.iter().zip(super::axes::tick_labels(ticks)) {
        let (from, to, at, anchor) = if vertical {
            let [_, y] = panel.at([panel.x[0], *tick]);
            ([panel.left - 4.0, y], [panel.left, y], [panel.left - 6.0, y + 3.5], "end")
        } else {
            let [x, _] = panel.at([*tick, panel.y[0]]);
            ([x, panel.bottom()], [x, panel.bottom() + 4.0], [x, panel.bottom() + 15.0], "middle")
        };
        svg.line(from, to, &format!(r#"stroke="{SOFT}""#));
        svg.text(at, &label, &format!(r#"text-anchor="{anchor}" font-size="10" fill="{SOFT}""#));
    }
}

/// Writes the name of a mark above it, or below it if there is no room.
fn name_mark(svg: &mut Svg, panel: &Panel, name: &str, [x, y]: [f64; 2]) {
    let half = 0.5 * text_width(name, 11.0);
    let middle = if panel.width > 2.0 * half { x.clamp(panel.left + half, panel.right() - half) } else { x };
    let height = if y - 28.0 > panel.top { y - 15.0 } else { y + 23.0 };
    let style = format!(
        r##"text-anchor="middle" font-size="11" font-weight="600" fill="{INK}" stroke="#fff" stroke-width="3" stroke-linejoin="round" paint-order="stroke""##
    );
    svg.text([middle, height], name, &style);
}

fn colour_bar(svg: &mut Svg, [left, top]: [f64; 2]) {
    const NAME: &str = "Blame of a step, \u{2212}log P(safe)";
    let bar = Panel { left: left + 210.0, top, width: 280.0, height: 12.0, x: [0.0, MAX_BLAME], y: [0.0, 1.0] };
    svg.text([left, top + 10.0], NAME, &format!(r#"fill="{INK}""#));
    for level in 0..LEVELS {
        let width = bar.width / LEVELS as f64;
        let colour = colour_at((level as f64 + 0.5) / LEVELS as f64);
        // A small overlap avoids hairline gaps on screens.
        let overlap = if level + 1 < LEVELS { 0.5 } else { 0.0 };
        svg.rect([bar.left + level as f64 * width, top], [width + overlap, bar.height], &format!(r#"fill="{colour}""#));
    }
    for tick in 0..=7 {
        let [x, _] = bar.at([f64::from(tick), 0.0]);
        let label = if tick == 7 { "\u{2265} 7".to_owned() } else { tick.to_string() };
        svg.line([x, bar.bottom()], [x, bar.bottom() + 3.0], &format!(r#"stroke="{SOFT}""#));
        svg.text([x, bar.bottom() + 15.0], &label, &format!(r#"text-anchor="middle" font-size="11" fill="{SOFT}""#));
    }
}

/// The colour at a position on the scale, 0 to 1.
fn colour_at(part: f64) -> String {
    let place = part.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    let below = (place as usize).min(COLOURS.len() - 2);
    let mix = |i: usize| COLOURS[below][i] + (COLOURS[below + 1][i] - COLOURS[below][i]) * (place - below as f64);
    let [r, g, b] = [mix(0), mix(1), mix(2)].map(|channel| channel.round() as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        Scene {
            bounds: [0.0, 10.0, 0.0, 10.0],
            zones: vec![Zone::Rectangle([2.0, 4.0, 3.0, 5.0]), Zone::Disc([7.0, 7.0], 1.0)],
            marks: vec![("start".into(), [1.0, 1.0]), ("goal".into(), [9.0, 9.0])],
            ..Scene::default()
        }
    }

    #[test]
    fn draws_zones_marks_ends_and_groups() {
        let safe = Path { xy: vec![[1.0, 1.0], [5.0, 5.0], [9.0, 9.0]], blame: vec![0.0, 9.0], safe: true };
        let groups =
            [("sac".to_owned(), vec![Path { safe: false, ..safe.clone() }]), ("safesac-h".to_owned(), vec![safe])];
        let figure = paths(&scene(), &groups);
        let most = colour_at((LEVELS as f64 - 0.5) / LEVELS as f64);
        for text in ["SAC: 0 of 1 safe", "SafeSAC-H: 1 of 1 safe", ">start<", ">goal<", most.as_str()] {
            assert!(figure.svg.contains(text), "{text}");
        }
        assert_eq!(figure, paths(&scene(), &groups));
    }

    #[test]
    fn blame_is_aligned_at_the_end() {
        let panel = Panel { left: 0.0, top: 0.0, width: 10.0, height: 10.0, x: [0.0, 10.0], y: [0.0, 10.0] };
        let xy = vec![[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]];
        for blame in [vec![0.0, 7.0], vec![7.0, 0.0, 7.0]] {
            let levels = steps_by_level(&panel, &[Path { xy: xy.clone(), blame, safe: true }]);
            assert_eq!(levels[0], "M0 10L1 10");
            assert_eq!(levels[LEVELS - 1], "M1 10L2 10");
        }
    }

    #[test]
    fn unusual_input_is_drawn_without_nan() {
        let path = |xy: Vec<[f64; 2]>| Path { xy, blame: vec![f64::NAN], safe: false };
        let odd = vec![path(vec![]), path(vec![[1.0, 1.0]]), path(vec![[1.0, f64::NAN], [2.0, 2.0], [3.0, 3.0]])];
        for scene in [Scene::default(), scene()] {
            for groups in [vec![], vec![("x".to_owned(), vec![])], vec![("x".to_owned(), odd.clone()); 5]] {
                assert!(!paths(&scene, &groups).svg.contains("NaN"));
            }
        }
    }
}
