//! The settings of Bullet environments, and the constants of agents and worlds.

use std::f64::consts::{PI, TAU};

use serde::{Deserialize, Serialize};

use super::engine::{Gear, Timing};
use prudence_core::{Scene, SettingError, Zone};
use prudence_env::Error;

/// The robot that acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vehicle {
    /// A ball that the action pushes.
    Ball,
    /// A car with throttle and steering.
    Car,
}

/// The objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Course {
    /// Drive around a circle.
    Circle,
    /// Drive straight ahead.
    Run,
}

/// The published version of the environment. They differ in timing, in episode length and in whether a car clips
/// actions out of range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// Gronauer's original repository.
    #[default]
    #[serde(rename = "original")]
    Original,
    /// `bullet-safety-gym` 1.4.0 on PyPI.
    #[serde(rename = "pypi-1.4")]
    Pypi,
}

/// The section `[env]` with `kind = "bullet"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulletSettings {
    /// The robot that acts.
    pub agent: Vehicle,
    /// The objective.
    pub task: Course,
    /// The published version to reproduce.
    #[serde(default)]
    pub variant: Variant,
    /// The number of steps in an episode; by default the variant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<usize>,
}

impl BulletSettings {
    /// The default settings of a variant for an agent and a task.
    pub fn new(agent: Vehicle, task: Course, variant: Variant) -> Self {
        Self { agent, task, variant, horizon: None }
    }

    /// The number of steps in an episode.
    pub(super) fn horizon(&self) -> Result<usize, Error> {
        const MAX: usize = 1_000_000;
        let usual = match (self.variant, self.agent, self.task) {
            (Variant::Original, Vehicle::Ball, _) => 250,
            (Variant::Original, Vehicle::Car, _) => 500,
            (Variant::Pypi, Vehicle::Ball, Course::Circle) => 200,
            (Variant::Pypi, Vehicle::Ball, Course::Run) => 100,
            (Variant::Pypi, Vehicle::Car, Course::Circle) => 300,
            (Variant::Pypi, Vehicle::Car, Course::Run) => 200,
        };
        match self.horizon.unwrap_or(usual) {
            horizon if (1..=MAX).contains(&horizon) => Ok(horizon),
            horizon => Err(SettingError {
                key: "env.horizon".into(),
                value: horizon.to_string(),
                expected: format!("expected a whole number from 1 to {MAX}"),
            }
            .into()),
        }
    }

    pub(super) fn timing(&self) -> Timing {
        match (self.variant, self.task) {
            (Variant::Original, _) => Timing { dt: 1.0 / 240.0, substeps: 4 },
            (Variant::Pypi, Course::Circle) => Timing { dt: 1.0 / 60.0, substeps: 6 },
            (Variant::Pypi, Course::Run) => Timing { dt: 1.0 / 120.0, substeps: 4 },
        }
    }

    /// The limit to which actions are clipped. The original car accepts any action; the limit avoids numerical
    /// overflow.
    pub(super) fn max_action(&self) -> f64 {
        if (self.variant, self.agent) == (Variant::Original, Vehicle::Car) { 1e3 } else { 1.0 }
    }
}

/// The constants of an agent.
pub struct Robot {
    /// The model's file in the engine's folder.
    pub file: &'static str,
    /// The meshes that the model uses.
    pub meshes: &'static [&'static str],
    /// The factor by which the model is enlarged.
    pub scale: f64,
    /// The initial height of the centre of mass above the floor.
    pub height: f64,
    /// The initial yaw in the Run task; the Circle task adds it to its own.
    pub yaw: f64,
    /// The speed above which the signal `too_fast` is 1.
    pub speed_limit: f64,
    /// The number of joints.
    pub joints: usize,
    /// The gears that couple them.
    pub gears: &'static [Gear],
}

/// The joints that drive a car: the differentials of the wheels.
pub const WHEELS: [usize; 2] = [8, 15];
/// The joints that steer a car: the hinges of the front wheels.
pub const STEERING: [usize; 2] = [0, 2];

const BALL: Robot = Robot {
    file: "ball.urdf",
    meshes: &[],
    scale: 1.0,
    height: 0.5,
    yaw: 0.0,
    speed_limit: 2.5,
    joints: 0,
    gears: &[],
};

const fn gear(parent: i32, child: i32, ratio: f64, aux_link: Option<i32>) -> Gear {
    Gear { joints: [parent, child], ratio, aux_link }
}

const CAR: Robot = Robot {
    file: "racecar_differential.urdf",
    meshes: &["meshes/chassis_differential.STL"],
    scale: 3.0,
    height: 0.2,
    yaw: PI,
    speed_limit: 1.5,
    joints: 20,
    gears: &[
        gear(9, 11, 1.0, None),
        gear(10, 13, -1.0, None),
        gear(9, 13, -1.0, None),
        gear(16, 18, 1.0, None),
        gear(16, 19, -1.0, None),
        gear(17, 19, -1.0, None),
        gear(1, 18, -1.0, Some(15)),
        gear(3, 19, -1.0, Some(15)),
    ],
};

impl Vehicle {
    /// The constants of this agent.
    pub(super) fn robot(self) -> &'static Robot {
        match self {
            Self::Ball => &BALL,
            Self::Car => &CAR,
        }
    }
}

impl Course {
    pub(super) fn floor(self) -> &'static str {
        match self {
            Self::Circle => "plane15.urdf",
            Self::Run => "plane250.urdf",
        }
    }

    /// The model and the yaw of each wall.
    pub(super) fn walls(self) -> impl Iterator<Item = (&'static str, f64)> {
        let count = if self == Self::Circle { 8 } else { 0 };
        // Eight angles from 0 to 7/8 of a turn, with the same bits as in Bullet Safety Gym.
        let last = 7.0 / 8.0 * TAU;
        (0..count).map(move |i| ("octagon_wall.urdf", if i == 7 { last } else { f64::from(i) * (last / 7.0) }))
    }

    /// The task seen from above; the zones are where the agent is `outside`.
    pub(super) fn scene(self) -> Scene {
        const FAR: f64 = 1000.0; // the zones are unbounded
        let (bounds, zones) = match self {
            // As far as the walls.
            Self::Circle => ([-12.0, 12.0, -12.0, 12.0], [[-FAR, -6.0, -FAR, FAR], [6.0, FAR, -FAR, FAR]]),
            // As far as an unconstrained ball gets.
            Self::Run => ([-2.0, 38.0, -6.0, 6.0], [[-FAR, FAR, -FAR, -2.0], [-FAR, FAR, 2.0, FAR]]),
        };
        let axes = ["x", "y"].map(str::to_owned);
        Scene { axes, bounds, zones: zones.map(Zone::Rectangle).to_vec(), marks: Vec::new() }
    }
}
