//! The settings of MuJoCo environments: Gymnasium's options under Gymnasium's names, with their defaults for each
//! model.

use serde::{Deserialize, Serialize};

use prudence_core::SettingError;
use prudence_env::{Error, FileSetting};

/// A robot of Gymnasium's MuJoCo environments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Hopper: one leg, three motors.
    Hopper,
    /// Walker2d: two legs, six motors.
    Walker2d,
    /// HalfCheetah: a planar cheetah with two legs, six motors.
    HalfCheetah,
}

/// The section `[env]` with `kind = "mujoco"`. Missing settings have the defaults of Gymnasium's v5 environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MujocoSettings {
    /// The robot to simulate.
    pub model: Model,
    /// The path of another MJCF file, with the same joints and motors and with controls in [-1, 1].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xml_file: Option<String>,
    /// The number of engine steps per environment step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_skip: Option<usize>,
    /// The number of steps in an episode; 1,000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<usize>,
    /// The weight of the forward velocity in the reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_reward_weight: Option<f64>,
    /// The weight of the squared action in the reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctrl_cost_weight: Option<f64>,
    /// The reward for a healthy step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_reward: Option<f64>,
    /// Whether the first unhealthy step terminates the episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminate_when_unhealthy: Option<bool>,
    /// The open interval in which all numbers of the state except the torso's position must lie (only Hopper).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_state_range: Option<[f64; 2]>,
    /// The open interval in which the torso's height must lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_z_range: Option<[f64; 2]>,
    /// The open interval in which the torso's angle must lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_angle_range: Option<[f64; 2]>,
    /// The scale of the noise on the initial state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_noise_scale: Option<f64>,
    /// Whether the observation omits the distance x.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_current_positions_from_observation: Option<bool>,
}

/// The constants of a robot.
pub struct Robot {
    /// The model's file in the engine's folder.
    pub file: &'static str,
    /// The numbers of positions, velocities and motors.
    pub sizes: [usize; 3],
    /// The torso's height when its coordinate is 0.
    pub base_height: f64,
    /// The limit to which observed velocities are clipped.
    pub velocity_limit: f64,
    /// Whether the noise on initial velocities is normal; otherwise it is uniform.
    pub normal_start: bool,
    frame_skip: usize,
    ctrl_cost_weight: f64,
    reset_noise_scale: f64,
    healthy: Option<Healthy>,
}

/// The definition of "healthy". The ends of the ranges are excluded.
#[derive(Clone, Copy, Debug)]
pub struct Healthy {
    /// The reward for a healthy step.
    pub reward: f64,
    /// Whether the first unhealthy step terminates the episode.
    pub terminate: bool,
    /// The range of all numbers of the state except the torso's position, if the model has one.
    pub state: Option<[f64; 2]>,
    /// The range of the torso's height.
    pub z: [f64; 2],
    /// The range of the torso's angle.
    pub angle: [f64; 2],
}

/// [`MujocoSettings`] with all defaults filled in.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of engine steps per environment step.
    pub frame_skip: usize,
    /// The number of steps in an episode.
    pub horizon: usize,
    /// The weight of the forward velocity in the reward.
    pub forward_reward_weight: f64,
    /// The weight of the squared action in the reward.
    pub ctrl_cost_weight: f64,
    /// The definition of "healthy", if the model has one.
    pub healthy: Option<Healthy>,
    /// The scale of the noise on the initial state.
    pub reset_noise_scale: f64,
    /// How many positions at the beginning the observation omits.
    pub skipped: usize,
}

const HOPPER: Robot = Robot {
    file: "hopper.xml",
    sizes: [6, 6, 3],
    base_height: 0.0,
    velocity_limit: 10.0,
    normal_start: false,
    frame_skip: 4,
    ctrl_cost_weight: 1e-3,
    reset_noise_scale: 5e-3,
    healthy: Some(Healthy {
        reward: 1.0,
        terminate: true,
        state: Some([-100.0, 100.0]),
        z: [0.7, f64::INFINITY],
        angle: [-0.2, 0.2],
    }),
};

const WALKER2D: Robot = Robot {
    file: "walker2d_v5.xml",
    sizes: [9, 9, 6],
    healthy: Some(Healthy { reward: 1.0, terminate: true, state: None, z: [0.8, 2.0], angle: [-1.0, 1.0] }),
    ..HOPPER
};

const HALF_CHEETAH: Robot = Robot {
    file: "half_cheetah.xml",
    sizes: [9, 9, 6],
    base_height: 0.7,
    velocity_limit: f64::INFINITY,
    normal_start: true,
    frame_skip: 5,
    ctrl_cost_weight: 0.1,
    reset_noise_scale: 0.1,
    healthy: None,
};

impl Model {
    /// The constants of this robot.
    pub(super) fn robot(self) -> &'static Robot {
        match self {
            Self::Hopper => &HOPPER,
            Self::Walker2d => &WALKER2D,
            Self::HalfCheetah => &HALF_CHEETAH,
        }
    }
}

impl MujocoSettings {
    /// Gymnasium's defaults for a model.
    pub fn new(model: Model) -> Self {
        Self {
            model,
            xml_file: None,
            frame_skip: None,
            horizon: None,
            forward_reward_weight: None,
            ctrl_cost_weight: None,
            healthy_reward: None,
            terminate_when_unhealthy: None,
            healthy_state_range: None,
            healthy_z_range: None,
            healthy_angle_range: None,
            reset_noise_scale: None,
            exclude_current_positions_from_observation: None,
        }
    }

    /// The files that the settings refer to, each with the name of its copy in a run's folder.
    pub fn files(&mut self) -> Vec<FileSetting<'_>> {
        self.xml_file.iter_mut().map(|path| FileSetting { key: "xml_file", copy: "model.xml", path }).collect()
    }

    /// Fills in the defaults; a setting that is out of range or that the model does not have is an error.
    pub(super) fn options(&self) -> Result<Options, Error> {
        let robot = self.model.robot();
        Ok(Options {
            frame_skip: count("frame_skip", self.frame_skip.unwrap_or(robot.frame_skip), 1000)?,
            horizon: count("horizon", self.horizon.unwrap_or(1000), 1_000_000)?,
            forward_reward_weight: finite("forward_reward_weight", self.forward_reward_weight.unwrap_or(1.0))?,
            ctrl_cost_weight: finite("ctrl_cost_weight", self.ctrl_cost_weight.unwrap_or(robot.ctrl_cost_weight))?,
            healthy: self.healthy(robot)?,
            reset_noise_scale: match self.reset_noise_scale.unwrap_or(robot.reset_noise_scale) {
                scale if (0.0..=1000.0).contains(&scale) => scale,
                scale => return Err(refuse("reset_noise_scale", scale, "expected a number from 0 to 1000")),
            },
            skipped: usize::from(self.exclude_current_positions_from_observation.unwrap_or(true)),
        })
    }

    fn healthy(&self, robot: &Robot) -> Result<Option<Healthy>, Error> {
        let meaningless = |key: &str, given: Option<String>| match given {
            Some(value) => Err(refuse(key, value, "this model has no such setting")),
            None => Ok(()),
        };
        let text = |range: Option<[f64; 2]>| range.map(|range| format!("{range:?}"));
        let Some(usual) = robot.healthy else {
            meaningless("healthy_reward", self.healthy_reward.map(|x| x.to_string()))?;
            meaningless("terminate_when_unhealthy", self.terminate_when_unhealthy.map(|x| x.to_string()))?;
            meaningless("healthy_state_range", text(self.healthy_state_range))?;
            meaningless("healthy_z_range", text(self.healthy_z_range))?;
            meaningless("healthy_angle_range", text(self.healthy_angle_range))?;
            return Ok(None);
        };
        if usual.state.is_none() {
            meaningless("healthy_state_range", text(self.healthy_state_range))?;
        }
        Ok(Some(Healthy {
            reward: finite("healthy_reward", self.healthy_reward.unwrap_or(usual.reward))?,
            terminate: self.terminate_when_unhealthy.unwrap_or(usual.terminate),
            state: self.healthy_state_range.or(usual.state).map(|r| range("healthy_state_range", r)).transpose()?,
            z: range("healthy_z_range", self.healthy_z_range.unwrap_or(usual.z))?,
            angle: range("healthy_angle_range", self.healthy_angle_range.unwrap_or(usual.angle))?,
        }))
    }
}

fn refuse(key: &str, value: impl ToString, expected: &str) -> Error {
    SettingError { key: format!("env.{key}"), value: value.to_string(), expected: expected.to_owned() }.into()
}

fn count(key: &str, value: usize, max: usize) -> Result<usize, Error> {
    if (1..=max).contains(&value) {
        Ok(value)
    } else {
        Err(refuse(key, value, &format!("expected a whole number from 1 to {max}")))
    }
}

fn finite(key: &str, value: f64) -> Result<f64, Error> {
    if value.is_finite() { Ok(value) } else { Err(refuse(key, value, "expected a finite number")) }
}

fn range(key: &str, value: [f64; 2]) -> Result<[f64; 2], Error> {
    let expected = "expected two numbers, the first below the second";
    if value[0] < value[1] { Ok(value) } else { Err(refuse(key, format!("{value:?}"), expected)) }
}
