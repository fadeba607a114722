//! What an environment provides to draw an episode.

use serde::{Deserialize, Serialize};

/// The plane in which a task's paths are drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scene {
    /// The names of the signals that hold the position: horizontal, vertical.
    pub axes: [String; 2],
    /// The limits of the picture: left, right, bottom, top.
    pub bounds: [f64; 4],
    /// The areas to mark, such as where it is dangerous.
    #[serde(default)]
    pub zones: Vec<Zone>,
    /// Named points, such as the start and the goal.
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

/// A part of a body, as a capsule: all points within `radius` of the line segment between its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limb {
    /// The ends of the line segment; both are the same for a disc.
    pub ends: [[f64; 2]; 2],
    /// Half the thickness.
    pub radius: f64,
}
