//! What a task file may set, and what is fixed about agents and worlds.

use std::f64::consts::{PI, TAU};

use serde::{Deserialize, Serialize};

use super::engine::{Gear, Timing};
use prudence_core::{Scene, SettingError, Zone};
use prudence_env::Error;

/// Who moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agent {
    /// A ball that is pushed.
    Ball,
    /// A car with a throttle and a steering wheel.
    Car,
}

/// What for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Round and round.
    Circle,
    /// Straight on.
    Run,
}

/// Which of the published versions: they differ in timing, in the episode's length and in what a car does with actions
/// beyond their range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// Gronauer's.
    #[default]
    #[serde(rename = "original")]
    Original,
    /// `bullet-safety-gym` 1.4.0 on PyPI.
    #[serde(rename = "pypi-1.4")]
    Pypi,
}

/// Section `[env]` with `kind = "bullet"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulletSettings {
    /// Who moves.
    pub agent: Agent,
    /// What for.
    pub task: Task,
    /// Whose timing.
    #[serde(default)]
    pub variant: Variant,
    /// Steps in an episode; the variant's own if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<usize>,
}

impl BulletSettings {
    /// The variant's own for an agent and a task.
    pub fn new(agent: Agent, task: Task, variant: Variant) -> Self {
        Self { agent, task, variant, horizon: None }
    }

    /// The episode's length.
    pub(super) fn horizon(&self) -> Result<usize, Error> {
        const MOST: usize = 1_000_000;
        let usual = match (self.variant, self.agent, self.task) {
            (Variant::Original, Agent::Ball, _) => 250,
            (Variant::Original, Agent::Car, _) => 500,
            (Variant::Pypi, Agent::Ball, Task::Circle) => 200,
            (Variant::Pypi, Agent::Ball, Task::Run) => 100,
            (Variant::Pypi, Agent::Car, Task::Circle) => 300,
            (Variant::Pypi, Agent::Car, Task::Run) => 200,
        };
        match self.horizon.unwrap_or(usual) {
            horizon if (1..=MOST).contains(&horizon) => Ok(horizon),
            horizon => Err(SettingError {
                key: "env.horizon".into(),
                value: horizon.to_string(),
                expected: format!("expected a whole number from 1 to {MOST}"),
            }
            .into()),
        }
    }

    pub(super) fn timing(&self) -> Timing {
        match (self.variant, self.task) {
            (Variant::Original, _) => Timing { dt: 1.0 / 240.0, substeps: 4 },
            (Variant::Pypi, Task::Circle) => Timing { dt: 1.0 / 60.0, substeps: 6 },
            (Variant::Pypi, Task::Run) => Timing { dt: 1.0 / 120.0, substeps: 4 },
        }
    }

    /// The largest action that is acted on. The original's car takes any; where the engine's numbers end, so do ours.
    pub(super) fn most_action(&self) -> f64 {
        if (self.variant, self.agent) == (Variant::Original, Agent::Car) { 1e3 } else { 1.0 }
    }
}

/// What is fixed about an agent.
pub struct Robot {
    /// Its model among the engine's files.
    pub file: &'static str,
    /// What the model is made of.
    pub meshes: &'static [&'static str],
    /// How much larger than its file says.
    pub scale: f64,
    /// Where its centre of mass starts, above the floor.
    pub height: f64,
    /// Where it looks when nothing else is said.
    pub yaw: f64,
    /// Faster is too fast.
    pub speed_limit: f64,
    /// Its joints.
    pub joints: usize,
    /// Which of them turn together.
    pub gears: &'static [Gear],
}

/// A car's motors: the wheels' differentials, and the front wheels' hinges.
pub const WHEELS: [usize; 2] = [8, 15];
/// See [`WHEELS`].
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

impl Agent {
    /// What is fixed about it.
    pub(super) fn robot(self) -> &'static Robot {
        match self {
            Self::Ball => &BALL,
            Self::Car => &CAR,
        }
    }
}

impl Task {
    pub(super) fn floor(self) -> &'static str {
        match self {
            Self::Circle => "plane15.urdf",
            Self::Run => "plane250.urdf",
        }
    }

    /// Each wall's model and where it is turned to.
    pub(super) fn walls(self) -> impl Iterator<Item = (&'static str, f64)> {
        let count = if self == Self::Circle { 8 } else { 0 };
        // Spaced as theirs, to the last bit: eight from 0 to 7/8 of a turn.
        let last = 7.0 / 8.0 * TAU;
        (0..count).map(move |i| ("octagon_wall.urdf", if i == 7 { last } else { f64::from(i) * (last / 7.0) }))
    }

    /// Seen from above, where one must not be shaded.
    pub(super) fn scene(self) -> Scene {
        const FAR: f64 = 1000.0; // zones have no end
        let (bounds, zones) = match self {
            // Up to the walls.
            Self::Circle => ([-12.0, 12.0, -12.0, 12.0], [[-FAR, -6.0, -FAR, FAR], [6.0, FAR, -FAR, FAR]]),
            // As far as an unconstrained ball gets.
            Self::Run => ([-2.0, 38.0, -6.0, 6.0], [[-FAR, FAR, -FAR, -2.0], [-FAR, FAR, 2.0, FAR]]),
        };
        let axes = ["x", "y"].map(str::to_owned);
        Scene { axes, bounds, zones: zones.map(Zone::Rectangle).to_vec(), marks: Vec::new() }
    }
}
