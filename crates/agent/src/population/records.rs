//! Test episodes during training, the records made of them, and the selection of policies.

use std::ops::Range;
use std::slice;
use std::sync::Arc;

use prudence_env::Env;
use prudence_nn::Device;
use prudence_safety::{SafetyModel, Scorer};

use super::{Counters, Population};
use crate::Error;
use crate::evaluate::{Player, PolicyShape, TestEpisode};
use crate::records::Record;

/// A policy that met the constraint when it was last tested, according to the safety model; with that model.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectedPolicy {
    /// The training step of that test.
    pub step: u64,
    /// The policy's parameters.
    pub policy: Vec<f32>,
    /// The safety model that judged, which the policy acts with.
    pub model: Arc<SafetyModel>,
}

/// The environment of test episodes, and a scorer for each replica.
pub(super) struct Tests<D: Device> {
    player: Player<D>,
    pub(super) scorers: Vec<Scorer<D>>,
}

impl<D: Device> Tests<D> {
    pub(super) fn new(
        device: &D,
        env: Box<dyn Env>,
        shape: &PolicyShape,
        scorers: Vec<Scorer<D>>,
    ) -> Result<Self, Error> {
        Ok(Self { player: Player::new(device, env, shape, scorers.first())?, scorers })
    }
}

impl<D: Device> Population<D> {
    /// The policy to use, which acts with [`Population::policy_model`]: the averaged policy of the last record whose test
    /// episodes met the original constraint, `E[P] >= d`, according to the safety model; without such a record the current
    /// averaged policy. Lambda oscillates around its equilibrium, and so does the policy of the very last steps. (The lower
    /// bound, which lambda may compare, implies `E[P] >= d`, but estimated on a few episodes, one of which may be at the
    /// floor, it says too little.)
    pub fn policy(&self, agent: usize) -> Result<Vec<f32>, Error> {
        match &self.members[agent].selected {
            Some(selected) => Ok(selected.policy.clone()),
            None => self.average(agent),
        }
    }

    /// The safety model that [`Population::policy`] acts with: the one it was selected with, where one was selected.
    pub fn policy_model(&self, agent: usize) -> Option<&Arc<SafetyModel>> {
        match &self.members[agent].selected {
            Some(selected) => Some(&selected.model),
            None => self.model(agent),
        }
    }

    /// The training step at which [`Population::policy`] was selected, where one met the constraint.
    pub fn selected_step(&self, agent: usize) -> Option<u64> {
        self.members[agent].selected.as_ref().map(|selected| selected.step)
    }

    /// Plays test episodes with [`Population::policy`].
    pub fn test(&mut self, agent: usize, episodes: Range<u64>, sampled: bool) -> Result<Vec<TestEpisode>, Error> {
        let policy = self.policy(agent)?;
        let replaced = self.policy_model(agent).filter(|model| Some(*model) != self.model(agent));
        let floor = self.setup.settings.agent.score_floor;
        let scorer = replaced.map(|model| Scorer::new(&self.device, slice::from_ref(model), floor)).transpose()?;
        self.play(agent, &policy, scorer.as_ref(), episodes, sampled)
    }

    /// Plays test episodes with a policy, and with this scorer in place of the agent's.
    fn play(
        &mut self,
        agent: usize,
        policy: &[f32],
        scorer: Option<&Scorer<D>>,
        episodes: Range<u64>,
        sampled: bool,
    ) -> Result<Vec<TestEpisode>, Error> {
        let (replica, sampled) = (self.replica(agent), sampled.then_some(self.members[agent].seed));
        let Tests { player, scorers } = &mut self.tests;
        player.load(policy);
        player.test(scorer.or(scorers.get(replica)), &self.setup.rule, episodes, sampled)
    }

    /// Tests the averaged policy, selects it where it meets the constraint, and records the state of training.
    pub fn record(&mut self, agent: usize) -> Result<Record, Error> {
        let member = &mut self.members[agent];
        let (sum, n) = std::mem::take(&mut member.counters.returns);
        let Counters { step, episode, update, metrics, estimate, .. } = member.counters.clone();
        let of_head = |numbers: &[f64], k: usize| numbers.get(k).copied().unwrap_or(0.0);
        let mut log_temperature = [0.0];
        self.device.read(&self.learner.agents.temperature.values, agent, &mut log_temperature)?;
        let mut record = Record {
            step,
            episodes: episode,
            updates: update,
            training_return: sum / n.max(1) as f64,
            multiplier: member.multiplier.value(),
            constraint: estimate.map(|e| e.estimate),
            threshold: estimate.map(|e| e.threshold),
            q_reward: of_head(&metrics.values, 0),
            q_safety: of_head(&metrics.values, 1),
            reward_critic_loss: of_head(&metrics.losses, 0),
            safety_critic_loss: of_head(&metrics.losses, 1),
            entropy: metrics.entropy,
            temperature: f64::from(log_temperature[0]).exp(),
            ..Record::default()
        };
        let policy = self.average(agent)?;
        let tests = self.play(agent, &policy, None, 0..self.setup.settings.train.test_episodes, false)?;
        record.tests(&tests);
        let settings = &self.setup.settings.multiplier;
        let free = self.setup.constrained() && self.members[agent].multiplier.is_free(settings);
        if free
            && record.mean_predicted() >= settings.target
            && let Some(model) = self.model(agent).cloned()
        {
            self.members[agent].selected = Some(SelectedPolicy { step, policy, model });
        }
        Ok(record)
    }
}
