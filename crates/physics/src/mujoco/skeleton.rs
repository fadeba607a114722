//! The positions of the limbs of a planar robot: its MJCF text is read once, then forward kinematics give x and z.
//!
//! The engine also knows them, but only in structs whose layout is unknown here (see `engine`). Only the elements that
//! such robots need are supported; any other one is an error, so that no picture is wrong.

use std::str::FromStr;

use roxmltree::{Document, Node, ParsingOptions};

use prudence_core::Limb;

/// The maximum number of elements in a model.
const MAX_NODES: u32 = 10_000;

/// A tree of bodies, listed with parents first.
pub struct Skeleton(Vec<Body>);

struct Body {
    parent: Option<usize>,
    /// The position in the parent's frame.
    place: [f64; 2],
    joints: Vec<Joint>,
    /// The limbs in the body's frame.
    limbs: Vec<Limb>,
}

/// A joint, which moves the frame of its body. The positions in the state belong to the joints in the order of the
/// text.
struct Joint {
    /// The direction of a slide; `None` for a hinge, which turns about y.
    slide: Option<[f64; 2]>,
    /// 1, or -1 for a hinge that turns about -y.
    sign: f64,
    /// The point a hinge turns about, in the body's frame.
    anchor: [f64; 2],
    /// The joint position at which the body has the pose in the text.
    start: f64,
}

/// A translation and a rotation about y.
#[derive(Clone, Copy)]
struct Frame {
    at: [f64; 2],
    angle: f64,
}

impl Frame {
    /// Rotates a vector; a right-handed rotation about y takes z towards x.
    fn turn(&self, [x, z]: [f64; 2]) -> [f64; 2] {
        let (sin, cos) = self.angle.sin_cos();
        [x * cos + z * sin, z * cos - x * sin]
    }

    fn place(&self, point: [f64; 2]) -> [f64; 2] {
        let [x, z] = self.turn(point);
        [self.at[0] + x, self.at[1] + z]
    }
}

impl Skeleton {
    /// Reads the text of a model with this number of positions. The error names the element that cannot be drawn.
    pub fn read(text: &str, positions: usize) -> Result<Self, String> {
        let options = ParsingOptions { nodes_limit: MAX_NODES, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(|error| error.to_string())?;
        let root = document.root_element();
        // The engine merges sections that appear twice, which is not supported here.
        let section = |name: &str| {
            let mut found = root.children().filter(|child| child.has_tag_name(name));
            match (found.next(), found.next()) {
                (first, None) => Ok(first),
                (_, Some(second)) => Err(refuse(second, "appears twice")),
            }
        };
        let defaults = section("default")?;
        let default = |name: &str| defaults?.children().find(|child| child.has_tag_name(name));
        let radian = section("compiler")?.and_then(|compiler| compiler.attribute("angle")) == Some("radian");
        let reader = Reader {
            joint: default("joint"),
            geom: default("geom"),
            unit: if radian { 1.0 } else { 1f64.to_radians() },
        };
        if let Some((geom, name)) = reader.geom.and_then(|geom| Some((geom, has(geom, &TURNS)?))) {
            return Err(refuse(geom, name));
        }
        let mut bodies = Vec::new();
        for child in section("worldbody")?.ok_or("the model has no worldbody")?.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "body" => reader.body(child, None, &mut bodies)?,
                "geom" => reader.ground(child)?,
                "light" | "camera" | "site" => {}
                _ => return Err(refuse(child, "not supported in worldbody")),
            }
        }
        let joints: usize = bodies.iter().map(|body: &Body| body.joints.len()).sum();
        if joints == positions {
            Ok(Self(bodies))
        } else {
            Err(format!("the model has {joints} joints; expected {positions}"))
        }
    }

    /// The limbs at these positions of the joints.
    pub fn limbs(&self, positions: &[f64]) -> Vec<Limb> {
        let mut positions = positions.iter();
        let mut frames: Vec<Frame> = Vec::with_capacity(self.0.len());
        let mut limbs = Vec::new();
        for body in &self.0 {
            let parent = body.parent.map_or(Frame { at: [0.0; 2], angle: 0.0 }, |parent| frames[parent]);
            let mut frame = Frame { at: parent.place(body.place), ..parent };
            for joint in &body.joints {
                let moved = positions.next().map_or(0.0, |position| position - joint.start);
                match joint.slide {
                    Some(axis) => frame.at = frame.place(axis.map(|x| x * moved)),
                    None => {
                        let anchor = frame.place(joint.anchor);
                        frame.angle += joint.sign * moved;
                        let [x, z] = frame.turn(joint.anchor);
                        frame.at = [anchor[0] - x, anchor[1] - z];
                    }
                }
            }
            let place = |limb: &Limb| Limb { ends: limb.ends.map(|end| frame.place(end)), ..*limb };
            limbs.extend(body.limbs.iter().map(place));
            frames.push(frame);
        }
        limbs
    }
}

/// Reads elements, with the model's defaults for missing attributes.
struct Reader<'a> {
    joint: Option<Node<'a, 'a>>,
    geom: Option<Node<'a, 'a>>,
    /// The unit of angles in the text, in radians.
    unit: f64,
}

impl Reader<'_> {
    fn body(&self, node: Node<'_, '_>, parent: Option<usize>, bodies: &mut Vec<Body>) -> Result<(), String> {
        if let Some(name) = has(node, &TURNS).or_else(|| has(node, &["childclass"])) {
            return Err(refuse(node, name));
        }
        let mut body =
            Body { parent, place: plane(node, "pos", None)?.unwrap_or_default(), joints: vec![], limbs: vec![] };
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "joint" => body.joints.push(self.joint(child)?),
                "geom" => body.limbs.push(self.limb(child)?),
                "body" | "site" | "camera" | "light" | "inertial" => {}
                other => return Err(refuse(node, other)),
            }
        }
        bodies.push(body);
        let me = bodies.len() - 1;
        node.children()
            .filter(|child| child.has_tag_name("body"))
            .try_for_each(|child| self.body(child, Some(me), bodies))
    }

    /// Checks that the floor is at height 0, as in pictures.
    fn ground(&self, node: Node<'_, '_>) -> Result<(), String> {
        let plain = text(node, "type", self.geom) == Some("plane") && has(node, &TURNS).is_none();
        let [_, _, z]: [f64; 3] = numbers(node, "pos", self.geom)?.unwrap_or_default();
        if plain && z == 0.0 { Ok(()) } else { Err(refuse(node, "not a floor at height 0")) }
    }

    fn joint(&self, node: Node<'_, '_>) -> Result<Joint, String> {
        let of = self.joint;
        if let Some(name) = has(node, &["class"]) {
            return Err(refuse(node, name));
        }
        let axis: [f64; 3] = numbers(node, "axis", of)?.unwrap_or([0.0, 0.0, 1.0]);
        let length = axis.iter().map(|x| x * x).sum::<f64>().sqrt();
        let [x, y, z] = axis.map(|x| x / length);
        let slide = match text(node, "type", of).unwrap_or("hinge") {
            "slide" if y == 0.0 => Some([x, z]),
            "hinge" if y.abs() == 1.0 => None,
            "slide" | "hinge" => return Err(refuse(node, "axis")),
            _ => return Err(refuse(node, "type")),
        };
        let unit = if slide.is_some() { 1.0 } else { self.unit };
        let [start] = numbers(node, "ref", of)?.unwrap_or_default();
        Ok(Joint { slide, sign: y, anchor: plane(node, "pos", of)?.unwrap_or_default(), start: start * unit })
    }

    fn limb(&self, node: Node<'_, '_>) -> Result<Limb, String> {
        let of = self.geom;
        if let Some(name) = has(node, &["class", "mesh", "euler", "xyaxes", "zaxis"]) {
            return Err(refuse(node, name));
        }
        let kind = text(node, "type", of).unwrap_or("sphere");
        if !["capsule", "sphere"].contains(&kind) {
            return Err(refuse(node, "type"));
        }
        let all = text(node, "size", of).ok_or_else(|| refuse(node, "size"))?;
        let size: Vec<f64> = parse(all).ok_or_else(|| refuse(node, "size"))?;
        let radius = *size.first().ok_or_else(|| refuse(node, "size"))?;
        if let Some([x0, y0, z0, x1, y1, z1]) = numbers(node, "fromto", of)? {
            return if y0 == 0.0 && y1 == 0.0 {
                Ok(Limb { ends: [[x0, z0], [x1, z1]], radius })
            } else {
                Err(refuse(node, "fromto"))
            };
        }
        let half = match kind {
            "capsule" => *size.get(1).ok_or_else(|| refuse(node, "size"))?,
            _ => 0.0,
        };
        let frame = Frame { at: plane(node, "pos", of)?.unwrap_or_default(), angle: self.angle(node)? };
        Ok(Limb { ends: [-half, half].map(|z| frame.place([0.0, z])), radius })
    }

    /// The rotation of a geom about y.
    fn angle(&self, node: Node<'_, '_>) -> Result<f64, String> {
        if let Some([x, y, z, angle]) = numbers(node, "axisangle", None)? {
            return if x == 0.0 && z == 0.0 {
                Ok(y.signum() * angle * self.unit)
            } else {
                Err(refuse(node, "axisangle"))
            };
        }
        let [w, x, y, z]: [f64; 4] = numbers(node, "quat", None)?.unwrap_or([1.0, 0.0, 0.0, 0.0]);
        if x == 0.0 && z == 0.0 { Ok(2.0 * y.atan2(w)) } else { Err(refuse(node, "quat")) }
    }
}

/// The attributes that rotate an element.
const TURNS: [&str; 5] = ["quat", "axisangle", "euler", "xyaxes", "zaxis"];

/// The first of these attributes that the element has.
fn has(node: Node<'_, '_>, names: &[&'static str]) -> Option<&'static str> {
    names.iter().copied().find(|name| node.has_attribute(*name))
}

fn refuse(node: Node<'_, '_>, what: &str) -> String {
    let name = node.attribute("name").unwrap_or("without a name");
    format!(
        "{} {name}: {what}: only bodies, joints, capsules and spheres in the plane of x and z can be drawn",
        node.tag_name().name()
    )
}

fn text<'a>(node: Node<'a, '_>, name: &str, default: Option<Node<'a, '_>>) -> Option<&'a str> {
    node.attribute(name).or_else(|| default?.attribute(name))
}

fn parse<T: FromStr>(text: &str) -> Option<Vec<T>> {
    text.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
}

fn numbers<const N: usize>(
    node: Node<'_, '_>,
    name: &str,
    default: Option<Node<'_, '_>>,
) -> Result<Option<[f64; N]>, String> {
    let Some(text) = node.attribute(name).or_else(|| default?.attribute(name)) else { return Ok(None) };
    let list = parse(text).and_then(|list| <[f64; N]>::try_from(list).ok());
    list.map(Some).ok_or_else(|| refuse(node, name))
}

/// The x and z of a position whose y is 0.
fn plane(node: Node<'_, '_>, name: &str, default: Option<Node<'_, '_>>) -> Result<Option<[f64; 2]>, String> {
    match numbers(node, name, default)? {
        Some([x, 0.0, z]) => Ok(Some([x, z])),
        Some(_) => Err(refuse(node, name)),
        None => Ok(None),
    }
}
