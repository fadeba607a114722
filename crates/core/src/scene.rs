//! What pictures of an episode are drawn from.

use serde::{Deserialize, Serialize};

/// A drawing of the task's plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scene {
    /// The signals that hold the position in the plane: horizontal, vertical.
    pub axes: [String; 2],
    /// What the picture shows: left, right, bottom, top.
    pub bounds: [f64; 4],
    /// Marked areas.
    #[serde(default)]
    pub zones: Vec<Zone>,
    /// Named points, such as where episodes start and where they should go.
    #[serde(default)]
    pub marks: Vec<(String, [f64; 2])>,
}

/// A marked area of a [`Scene`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zone {
    /// Left, right, bottom, top.
    Rectangle([f64; 4]),
    /// Centre and radius.
    Disc([f64; 2], f64),
}

/// A part of a body: all points no further than `radius` from the line between its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limb {
    /// Both are the same for a disc.
    pub ends: [[f64; 2]; 2],
    /// Half of its thickness.
    pub radius: f64,
}
