//! Renders an episode from its limbs, without a window or GPU: as an animated GIF, or as a PNG sheet of frames.

use prudence_core::{Limb, Scene, Zone};
use tiny_skia::{Color, FillRule, LineCap, Paint, PathBuilder, Pixmap, Rect, Stroke, Transform};

/// The width and height of a frame, in pixels.
const SIZE: [u32; 2] = [480, 270];
/// The maximum number of frames in a GIF, and the duration of each, in hundredths of a second.
const MAX_FRAMES: usize = 250;
const DELAY: u16 = 4;
/// The number of frames on a sheet, across and down.
const SHEET: [usize; 2] = [3, 4];
/// The width of a side view and the height of the ground above its lower edge, in metres.
const METRES: f64 = 4.8;
const GROUND: f64 = 0.25;

type Rgb = [u8; 3];
const PAPER: Rgb = [255, 255, 255];
const TILES: [Rgb; 2] = [[208, 213, 219], [178, 185, 193]];
const ZONE: Rgb = [250, 220, 205];
/// The colours while the rule is kept and once it is violated, which are those of SafeSAC-H and SAC in the figures.
const KEPT: Rgb = [0, 114, 178];
const BROKEN: Rgb = [213, 94, 0];

/// The pose of the body at one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Pose {
    /// The limbs to draw; a side view follows the first one.
    pub limbs: Vec<Limb>,
    /// Whether the rule has been kept so far.
    pub safe: bool,
}

/// An empty episode, or an error of an encoder.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be written: {0}")]
pub struct Error(String);

impl Error {
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// The index of the k-th of n evenly spaced poses, which include the first and the last.
fn spread(poses: usize, k: usize, n: usize) -> usize {
    k * poses.saturating_sub(1) / n.saturating_sub(1).max(1)
}

/// Renders an episode as a GIF, in the plane of the scene or, without one, from the side.
pub fn gif(poses: &[Pose], scene: Option<&Scene>) -> Result<Vec<u8>, Error> {
    let palette = palette();
    let nearest = nearest(&palette);
    let [width, height] = SIZE.map(|n| n as u16);
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, width, height, &palette.concat()).map_err(Error::of)?;
    encoder.set_repeat(gif::Repeat::Infinite).map_err(Error::of)?;
    let frames = poses.len().min(MAX_FRAMES);
    for k in 0..frames {
        let frame = draw(poses, spread(poses.len(), k, frames), scene)?;
        let buffer: Vec<u8> = frame.pixels().iter().map(|p| nearest[cell([p.red(), p.green(), p.blue()])]).collect();
        let frame = gif::Frame { width, height, delay: DELAY, buffer: buffer.into(), ..gif::Frame::default() };
        encoder.write_frame(&frame).map_err(Error::of)?;
    }
    drop(encoder);
    Ok(bytes)
}

/// Renders evenly spaced frames of an episode as a PNG, row by row.
pub fn sheet(poses: &[Pose], scene: Option<&Scene>) -> Result<Vec<u8>, Error> {
    const GAP: u32 = 4;
    let [columns, rows] = SHEET.map(|n| n as u32);
    let mut sheet = blank([columns * (SIZE[0] + GAP) - GAP, rows * (SIZE[1] + GAP) - GAP], [120, 126, 133])?;
    let count = SHEET[0] * SHEET[1];
    for k in 0..count {
        let frame = draw(poses, spread(poses.len(), k, count), scene)?;
        let place = [(k % SHEET[0]) as u32 * (SIZE[0] + GAP), (k / SHEET[0]) as u32 * (SIZE[1] + GAP)];
        let paint = tiny_skia::PixmapPaint::default();
        sheet.draw_pixmap(place[0] as i32, place[1] as i32, frame.as_ref(), &paint, Transform::identity(), None);
    }
    sheet.encode_png().map_err(Error::of)
}

fn blank([width, height]: [u32; 2], rgb: Rgb) -> Result<Pixmap, Error> {
    let mut pixmap =
        Pixmap::new(width, height).ok_or_else(|| Error(format!("not enough memory for {width} x {height} pixels")))?;
    pixmap.fill(colour(rgb));
    Ok(pixmap)
}

/// Draws one frame.
fn draw(poses: &[Pose], at: usize, scene: Option<&Scene>) -> Result<Pixmap, Error> {
    let pose = poses.get(at).ok_or_else(|| Error("the episode is empty".to_owned()))?;
    let mut frame = blank(SIZE, PAPER)?;
    let [width, height] = SIZE.map(f64::from);
    // The point (x, y) of the world is at (left + scale x, bottom - scale y) in the frame.
    let (scale, left, bottom) = match scene {
        Some(Scene { bounds: [west, east, south, north], .. }) => {
            let scale = (width / (east - west)).min(height / (north - south));
            (scale, 0.5 * width - 0.5 * scale * (west + east), 0.5 * height + 0.5 * scale * (south + north))
        }
        None => {
            let scale = width / METRES;
            let here = pose.limbs.first().map_or(0.0, |limb| 0.5 * (limb.ends[0][0] + limb.ends[1][0]));
            (scale, 0.5 * width - scale * here, height - scale * GROUND)
        }
    };
    let place = |[x, y]: [f64; 2]| [left + scale * x, bottom - scale * y];
    match scene {
        Some(scene) => {
            for zone in &scene.zones {
                match *zone {
                    Zone::Rectangle([west, east, south, north]) => {
                        rectangle(&mut frame, place([west, north]), place([east, south]), ZONE);
                    }
                    Zone::Disc(centre, radius) => capsule(&mut frame, [place(centre); 2], scale * radius, ZONE),
                }
            }
            for (_, mark) in &scene.marks {
                capsule(&mut frame, [place(*mark); 2], 5.0, TILES[1]);
                capsule(&mut frame, [place(*mark); 2], 3.5, PAPER);
            }
            let centres = poses[..=at].iter().filter_map(|pose| Some(place(pose.limbs.first()?.ends[0])));
            line(&mut frame, centres, 1.5, TILES[1]);
        }
        None => {
            let first = (-left / scale).floor();
            for i in 0..=METRES.ceil() as usize {
                let x = first + i as f64;
                let tile = TILES[usize::from(x.rem_euclid(2.0) >= 1.0)];
                rectangle(&mut frame, place([x, 0.0]), place([x + 1.0, -GROUND]), tile);
            }
        }
    }
    let ink = if pose.safe { KEPT } else { BROKEN };
    for limb in &pose.limbs {
        let ends = limb.ends.map(place);
        capsule(&mut frame, ends, scale * limb.radius + 1.0, PAPER);
        capsule(&mut frame, ends, scale * limb.radius, ink);
    }
    // A bar at the bottom shows the progress of the episode.
    let done = width * (at + 1) as f64 / poses.len() as f64;
    rectangle(&mut frame, [0.0, height - 5.0], [done, height], ink);
    Ok(frame)
}

fn colour([r, g, b]: Rgb) -> Color {
    Color::from_rgba8(r, g, b, 255)
}

fn paint(rgb: Rgb) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color(colour(rgb));
    paint
}

fn rectangle(frame: &mut Pixmap, [left, top]: [f64; 2], [right, bottom]: [f64; 2], rgb: Rgb) {
    if let Some(rect) = Rect::from_ltrb(left as f32, top as f32, right as f32, bottom as f32) {
        frame.fill_rect(rect, &paint(rgb), Transform::identity(), None);
    }
}

fn capsule(frame: &mut Pixmap, [from, to]: [[f64; 2]; 2], radius: f64, rgb: Rgb) {
    if from != to {
        return line(frame, [from, to], 2.0 * radius, rgb);
    }
    if let Some(circle) = PathBuilder::from_circle(from[0] as f32, from[1] as f32, radius as f32) {
        frame.fill_path(&circle, &paint(rgb), FillRule::Winding, Transform::identity(), None);
    }
}

fn line(frame: &mut Pixmap, points: impl IntoIterator<Item = [f64; 2]>, width: f64, rgb: Rgb) {
    let mut path = PathBuilder::new();
    for [x, y] in points {
        if path.is_empty() {
            path.move_to(x as f32, y as f32);
        } else {
            path.line_to(x as f32, y as f32);
        }
    }
    let stroke = Stroke { width: width as f32, line_cap: LineCap::Round, ..Stroke::default() };
    if let Some(path) = path.finish() {
        frame.stroke_path(&path, &paint(rgb), &stroke, Transform::identity(), None);
    }
}

/// All mixtures of two of the colours, which antialiased edges need.
fn palette() -> Vec<Rgb> {
    const INKS: [Rgb; 6] = [PAPER, TILES[0], TILES[1], ZONE, KEPT, BROKEN];
    let pairs = (0..INKS.len()).flat_map(|a| (0..a).map(move |b| (INKS[a], INKS[b])));
    let mix =
        |a: Rgb, b: Rgb, k: u32| [0, 1, 2].map(|i| ((u32::from(a[i]) * (16 - k) + u32::from(b[i]) * k) / 16) as u8);
    let mut palette: Vec<Rgb> = pairs.flat_map(|(a, b)| (0..=16).map(move |k| mix(a, b, k))).collect();
    palette.sort_unstable();
    palette.dedup();
    palette.truncate(256);
    palette
}

/// The index of a colour's cell in a grid of 32 x 32 x 32.
fn cell([r, g, b]: Rgb) -> usize {
    usize::from(r >> 3) << 10 | usize::from(g >> 3) << 5 | usize::from(b >> 3)
}

/// The index of the nearest colour in the palette, for each cell.
fn nearest(palette: &[Rgb]) -> Vec<u8> {
    let distance = |a: Rgb, b: Rgb| -> i32 { (0..3).map(|i| (i32::from(a[i]) - i32::from(b[i])).pow(2)).sum() };
    let find = |cell: usize| {
        let rgb = [cell >> 10, cell >> 5 & 31, cell & 31].map(|c| (c << 3 | c >> 2) as u8);
        (0..palette.len()).min_by_key(|i| distance(palette[*i], rgb)).unwrap_or(0) as u8
    };
    (0..1 << 15).map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(steps: usize) -> Vec<Pose> {
        let pose = |t: usize| Pose {
            limbs: vec![Limb { ends: [[t as f64, 0.5], [t as f64, 1.0]], radius: 0.1 }],
            safe: t + 1 < steps, // violated by the last step
        };
        (0..steps).map(pose).collect()
    }

    #[test]
    fn a_gif_has_the_expected_frames_and_colours() {
        assert!(palette().len() <= 256);
        let bytes = gif(&walk(600), None).unwrap();
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::RGBA);
        let mut decoder = options.read_info(&bytes[..]).unwrap();
        let mut middles = Vec::new();
        while let Some(frame) = decoder.read_next_frame().unwrap() {
            let at = 4 * (170 * SIZE[0] as usize + SIZE[0] as usize / 2);
            middles.push([frame.buffer[at], frame.buffer[at + 1], frame.buffer[at + 2]]);
        }
        assert_eq!(middles.len(), MAX_FRAMES);
        let like = |a: Rgb, b: Rgb| a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= 8);
        assert!(like(middles[0], KEPT) && like(middles[MAX_FRAMES - 1], BROKEN), "{middles:?}");
    }

    #[test]
    fn the_ground_extends_from_edge_to_edge() {
        for x in [0.0, 0.3, 0.5, 0.99, -7.6] {
            let pose = Pose { limbs: vec![Limb { ends: [[x, 0.5], [x, 1.0]], radius: 0.1 }], safe: true };
            let frame = draw(&[pose], 0, None).unwrap();
            for at in [2, SIZE[0] - 3] {
                let pixel = frame.pixel(at, SIZE[1] - 10).unwrap();
                assert_ne!([pixel.red(), pixel.green(), pixel.blue()], PAPER, "{x}");
            }
        }
    }

    #[test]
    fn a_sheet_is_a_png_of_the_expected_size() {
        let sheet = Pixmap::decode_png(&sheet(&walk(5), None).unwrap()).unwrap();
        assert_eq!([sheet.width(), sheet.height()], [1448, 1092]);
    }

    #[test]
    fn a_scene_shows_its_zones_and_unusual_input_does_not_panic() {
        let zones = vec![Zone::Rectangle([6.0, 10.0, 0.0, 10.0]), Zone::Disc([2.0, 2.0], 1.0)];
        let scene = Scene { bounds: [0.0, 10.0, 0.0, 10.0], zones, ..Scene::default() };
        let disc = |x: f64| Pose { limbs: vec![Limb { ends: [[x, 5.0]; 2], radius: 0.2 }], safe: true };
        let frame = draw(&[disc(1.0), disc(5.0)], 1, Some(&scene)).unwrap();
        let at = |x: u32, y: u32| frame.pixel(x, y).map(|p| [p.red(), p.green(), p.blue()]);
        assert_eq!([at(240, 135), at(300, 60), at(200, 60)], [Some(KEPT), Some(ZONE), Some(PAPER)]);
        for poses in [vec![], vec![disc(f64::NAN)], vec![Pose { limbs: vec![], safe: true }]] {
            for scene in [None, Some(&scene), Some(&Scene::default())] {
                let _ = (gif(&poses, scene), sheet(&poses, scene));
            }
        }
    }
}
