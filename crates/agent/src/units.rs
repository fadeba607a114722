//! Units: what the networks of an agent see of observations, actions and rewards.
//!
//! The policy's actions are in [-1, 1]; its log-probability does not include the scaling. Observations are centred and
//! scaled by their means and deviations, rewards by the size of discounted returns, both measured on the episodes that an
//! agent learns from. So the units of the environment do not matter, and no setting depends on them.

use prudence_core::Spec;
use prudence_data::{Episode, Moments};
use prudence_nn::Device;
use prudence_nn::work::{Room, Units};
use serde::{Deserialize, Serialize};

/// The units of one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentUnits {
    /// The mean and the inverse deviation of each number of an observation; 0 for one that is constant.
    pub observation: Vec<[f32; 2]>,
    /// What is subtracted from rewards, and the factor of the difference.
    pub reward: [f32; 2],
}

impl AgentUnits {
    /// The environment's own units.
    pub fn of_environment(observation: usize) -> Self {
        Self { observation: vec![[0.0, 1.0]; observation], reward: [0.0, 1.0] }
    }
}

/// Between the environment's actions and the policy's, in [-1, 1].
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    observation_width: usize,
    /// Middle and half of each dimension's range.
    action: Vec<[f32; 2]>,
}

impl Scaling {
    /// For the spaces of an environment.
    pub fn new(spec: &Spec) -> Self {
        let pairs = spec.action.low.iter().zip(&spec.action.high);
        let action = pairs.map(|(low, high)| [((low + high) / 2.0) as f32, ((high - low) / 2.0) as f32]).collect();
        Self { observation_width: spec.observation.dim(), action }
    }

    /// The dimension of observations.
    pub fn observation_width(&self) -> usize {
        self.observation_width
    }

    /// The dimension of actions.
    pub fn action_width(&self) -> usize {
        self.action.len()
    }

    /// Allocates the units of some agents on a device, at first those of the environment.
    pub fn units<D: Device>(&self, device: &D, agents: usize) -> Room<Units<D>> {
        let (s, a) = (self.observation_width, self.action.len());
        let put = |pick: fn(&[f32; 2]) -> f32| -> Room<D::Buf> {
            let mut buffer = device.buffer(a)?;
            device.write(&mut buffer, 0, &self.action.iter().map(pick).collect::<Vec<_>>());
            Ok(buffer)
        };
        let mut units = Units {
            agents,
            observation_centre: device.buffer(agents * s)?,
            observation_scale: device.buffer(agents * s)?,
            reward_centre: device.buffer(agents)?,
            reward_scale: device.buffer(agents)?,
            action_middle: put(|pair| pair[0])?,
            action_half: put(|pair| pair[1])?,
            observation_width: s,
            action_width: a,
        };
        for agent in 0..agents {
            set_units(device, &mut units, agent, &AgentUnits::of_environment(s));
        }
        Ok(units)
    }

    /// Converts a policy's action to the environment's units.
    pub fn to_env(&self, unit: &[f32], out: &mut [f32]) {
        for ((out, u), [middle, half]) in out.iter_mut().zip(unit).zip(&self.action) {
            *out = middle + half * u;
        }
    }
}

/// Sets an agent's units on a device.
pub fn set_units<D: Device>(device: &D, units: &mut Units<D>, agent: usize, of_agent: &AgentUnits) {
    let column = |pick: usize| of_agent.observation.iter().map(|pair| pair[pick]).collect::<Vec<f32>>();
    let at = agent * units.observation_width;
    device.write(&mut units.observation_centre, at, &column(0));
    device.write(&mut units.observation_scale, at, &column(1));
    device.write(&mut units.reward_centre, agent, &of_agent.reward[..1]);
    device.write(&mut units.reward_scale, agent, &of_agent.reward[1..]);
}

/// Measures the units of episodes. Observations or rewards times a power of two give the same units but for that power, so
/// networks see the same bits.
#[derive(Clone, Debug)]
pub struct Meter {
    observation: Vec<Moments>,
    /// The rewards of each episode.
    rewards: Vec<Vec<f32>>,
    terminates: bool,
}

impl Meter {
    /// Without episodes so far.
    pub fn new(observation: usize) -> Self {
        Self { observation: vec![Moments::default(); observation], rewards: Vec::new(), terminates: false }
    }

    /// Adds an episode.
    pub fn add(&mut self, episode: &Episode) {
        for row in episode.observations.chunks_exact(episode.observation_width) {
            self.observation.iter_mut().zip(row).for_each(|(moments, x)| moments.add(f64::from(*x)));
        }
        self.rewards.push(episode.rewards.clone());
        self.terminates |= episode.terminated;
    }

    /// The units of what was added; `discount` is that of returns.
    pub fn units(&self, discount: f64) -> AgentUnits {
        let one = |moments: &Moments| {
            [moments.mean() as f32, moments.deviation().map_or(0.0, |deviation| deviation.recip() as f32)]
        };
        AgentUnits { observation: self.observation.iter().map(one).collect(), reward: self.reward(discount) }
    }

    /// Rewards are centred by their mean, unless episodes terminate: then a constant says how much living longer is worth.
    /// They are divided by the deviation of discounted returns so far, or by a fifth of the largest but for one in a
    /// hundred, if that is more.
    fn reward(&self, discount: f64) -> [f32; 2] {
        let steps: f64 = self.rewards.iter().map(|rewards| rewards.len() as f64).sum();
        let total: f64 = self.rewards.iter().flatten().map(|reward| f64::from(*reward)).sum();
        let mean = if self.terminates || steps == 0.0 { 0.0 } else { total / steps };
        let mean = mean as f32;
        let (mut sizes, mut sum, mut squares) = (Vec::with_capacity(steps as usize), 0.0, 0.0);
        for rewards in &self.rewards {
            let mut discounted = 0.0;
            for reward in rewards {
                discounted = discount * discounted + f64::from(*reward) - f64::from(mean);
                sum += discounted;
                squares += discounted * discounted;
                sizes.push(discounted.abs());
            }
        }
        let n = sizes.len().max(1) as f64;
        let deviation = (squares / n - (sum / n) * (sum / n)).max(0.0).sqrt();
        let at = (sizes.len() * 99 / 100).min(sizes.len().saturating_sub(1));
        let large = if sizes.is_empty() { 0.0 } else { *sizes.select_nth_unstable_by(at, f64::total_cmp).1 };
        let unit = deviation.max(large / 5.0);
        [mean, if unit > 0.0 { unit.recip() as f32 } else { 1.0 }]
    }
}
