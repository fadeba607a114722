//! What an environment provides to draw an episode.

use serde::{Deserialize, Serialize};

/// The plane in which a task's paths are drawn.
///
/// ```
/// use prudence_core::{Scene, Zone};
///
/// let scene = Scene {
///     axes: ["x".into(), "y".into()], // names of signals
///     bounds: [0.0, 10.0, 0.0, 10.0],
///     zones: vec![Zone::Disc([5.3, 5.9], 1.5)],
///     marks: vec![("start".into(), [1.0, 1.0]), ("goal".into(), [8.0, 9.0])],
/// };
/// assert_eq!(scene.axes, ["x", "y"]);
/// ```
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
///
/// ```
/// use prudence_core::Zone;
///
/// let area = |zone| match zone {
///     Zone::Rectangle([left, right, bottom, top]) => (right - left) * (top - bottom),
///     Zone::Disc(_, radius) => std::f64::consts::PI * radius * radius,
/// };
/// assert_eq!(area(Zone::Rectangle([0.0, 10.0, 2.0, 3.0])), 10.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zone {
    /// Left, right, bottom, top.
    Rectangle([f64; 4]),
    /// Centre and radius.
    Disc([f64; 2], f64),
}

/// A part of a body, as a capsule: all points within `radius` of the line segment between its ends.
///
/// ```
/// use prudence_core::Limb;
///
/// let leg = Limb { ends: [[0.0, 0.0], [0.0, 0.5]], radius: 0.05 }; // from the foot to the hip
/// let [foot, hip] = leg.ends;
/// assert_eq!(hip[1] - foot[1], 0.5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limb {
    /// The ends of the line segment; both are the same for a disc.
    pub ends: [[f64; 2]; 2],
    /// Half the thickness.
    pub radius: f64,
}
