//! Test episodes during training, the records made of them, and the selection of policies.

use std::ops::Range;
use std::sync::Arc;

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

/// What was asked to accept a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Fresh labelled episodes of the policy.
    pub episodes: u64,
    /// Those that are not safe.
    pub broken: u64,
    /// The labels of this and of rejected policies.
    pub labels: u64,
    /// Whether no more are unsafe than the multiplier allows.
    pub is_met: bool,
}

/// The number of the first test episode on which policies are accepted: others than those of records and final tests.
const FRESH_STARTS: u64 = 1 << 40;
/// Policies that are kept to choose from.
const CANDIDATES: usize = 8;

/// The environments of test episodes, made at the first one, with the agents' policies.
pub(super) struct Tests<D: Device> {
    player: Option<Player<D>>,
    /// The models that the player's scorer was made from, one per agent; none where there is no model.
    models: Vec<Arc<SafetyModel>>,
}

impl<D: Device> Default for Tests<D> {
    fn default() -> Self {
        Self { player: None, models: Vec::new() }
    }
}

/// An agent to be tested, with the policy and the model to test it with.
struct Tested {
    agent: usize,
    policy: Vec<f32>,
    model: Option<Arc<SafetyModel>>,
}

impl<D: Device> Population<D> {
    /// The policy to use, which acts with [`Population::policy_model`]: the accepted one; before an acceptance the averaged
    /// policy of the last record whose test episodes met the original constraint, `E[P] >= target`, according to the safety
    /// model; without such a record the current averaged policy. Lambda oscillates around its equilibrium, and so does the
    /// policy of the very last steps. (The lower bound, which lambda may compare, implies the original constraint, but
    /// estimated on a few episodes, one of which may be at the floor, it says too little.)
    pub fn policy(&self, agent: usize) -> Result<Vec<f32>, Error> {
        match self.selected(agent) {
            Some(selected) => Ok(selected.policy.clone()),
            None => self.average(agent),
        }
    }

    fn selected(&self, agent: usize) -> Option<&SelectedPolicy> {
        let member = &self.members[agent];
        match &member.accepted {
            Some((index, _)) => member.selected.get(*index),
            None => member.selected.last(),
        }
    }

    /// The safety model that [`Population::policy`] acts with: the one it was selected with, where one was selected.
    pub fn policy_model(&self, agent: usize) -> Option<&Arc<SafetyModel>> {
        match self.selected(agent) {
            Some(selected) => Some(&selected.model),
            None => self.model(agent),
        }
    }

    /// The training step at which [`Population::policy`] was selected, where one met the constraint.
    pub fn selected_step(&self, agent: usize) -> Option<u64> {
        self.selected(agent).map(|selected| selected.step)
    }

    /// What was asked to accept [`Population::policy`].
    pub fn accepted(&self, agent: usize) -> Option<&Accepted> {
        self.members[agent].accepted.as_ref().map(|(_, accepted)| accepted)
    }

    /// Chooses among the policies that these agents selected: from the latest on, each plays fresh episodes with its mode,
    /// which are labelled, until one breaks no more of them than the multiplier allows. The best of them is taken if none
    /// does.
    pub fn accept(&mut self, agents: &[usize]) -> Result<Vec<Result<(), Error>>, Error> {
        let episodes = self.setup.settings.train.accept_episodes;
        // Without the last term, rounding would forbid the 1 of 20 that a target of 0.9 allows.
        let allowed = ((1.0 - self.setup.settings.target) / 2.0 * episodes as f64 + 1e-9).floor() as u64;
        let mut outcomes: Vec<Result<(), Error>> = agents.iter().map(|_| Ok(())).collect();
        let mut best: Vec<Option<(u64, usize)>> = vec![None; agents.len()];
        let mut next: Vec<usize> = agents.iter().map(|agent| self.members[*agent].selected.len()).collect();
        let mut asked = vec![0; agents.len()];
        loop {
            let open = |i: &usize| {
                let settled = best[*i].is_some_and(|(broken, _)| broken <= allowed);
                episodes > 0 && next[*i] > 0 && !settled && outcomes[*i].is_ok()
            };
            let open: Vec<usize> = (0..agents.len()).filter(open).collect();
            if open.is_empty() {
                break;
            }
            let candidate = |i: &usize| {
                let SelectedPolicy { policy, model, .. } = &self.members[agents[*i]].selected[next[*i] - 1];
                Tested { agent: agents[*i], policy: policy.clone(), model: Some(model.clone()) }
            };
            let tested: Vec<Tested> = open.iter().map(candidate).collect();
            let fresh = FRESH_STARTS..FRESH_STARTS + episodes;
            for (i, tests) in open.into_iter().zip(self.play(&tested, fresh, false)?) {
                next[i] -= 1;
                asked[i] += episodes;
                match tests {
                    Err(error) => outcomes[i] = Err(error),
                    Ok(tests) => {
                        let broken = tests.iter().filter(|test| !test.safe).count() as u64;
                        if best[i].is_none_or(|(least, _)| broken < least) {
                            best[i] = Some((broken, next[i]));
                        }
                    }
                }
            }
        }
        for ((agent, best), labels) in agents.iter().zip(best).zip(asked) {
            self.members[*agent].accepted =
                best.map(|(broken, index)| (index, Accepted { episodes, broken, labels, is_met: broken <= allowed }));
        }
        Ok(outcomes)
    }

    /// Plays test episodes with the [`Population::policy`] of these agents, and returns those of each, or the error that
    /// ended them.
    pub fn test(
        &mut self,
        agents: &[usize],
        episodes: Range<u64>,
        sampled: bool,
    ) -> Result<Vec<Result<Vec<TestEpisode>, Error>>, Error> {
        let one = |agent: &usize| -> Result<Tested, Error> {
            Ok(Tested { agent: *agent, policy: self.policy(*agent)?, model: self.policy_model(*agent).cloned() })
        };
        let tested = agents.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        self.play(&tested, episodes, sampled)
    }

    /// Plays test episodes; see [`Population::test`].
    fn play(
        &mut self,
        tested: &[Tested],
        episodes: Range<u64>,
        sampled: bool,
    ) -> Result<Vec<Result<Vec<TestEpisode>, Error>>, Error> {
        let p = self.members.len();
        let of_agent = |agent: usize| {
            let found = tested.iter().find(|tested| tested.agent == agent);
            found.and_then(|tested| tested.model.as_ref()).or(self.model(agent)).cloned()
        };
        let models: Vec<Arc<SafetyModel>> = (0..p).filter_map(of_agent).collect();
        let floor = self.setup.settings.agent.score_floor;
        let scorer = || (!models.is_empty()).then(|| Scorer::new(&self.device, &models, floor)).transpose();
        let player = match self.tests.player.take() {
            None => self.player(scorer()?)?,
            Some(player) if self.tests.models == models => player,
            Some(mut player) => {
                if let Some(scorer) = scorer()? {
                    player.replace_scorer(scorer);
                }
                player
            }
        };
        self.tests.models = models;
        let player = self.tests.player.insert(player);
        let mut wanted = vec![false; p];
        for Tested { agent, policy, .. } in tested {
            player.load(*agent, policy, &self.members[*agent].units);
            wanted[*agent] = true;
        }
        let seeds: Vec<u64> = self.members.iter().map(|member| member.seed).collect();
        let tests = player.test(&wanted, &self.setup.rule, episodes, sampled.then_some(&seeds[..]))?;
        let mut tests: Vec<Option<_>> = tests.into_iter().map(Some).collect();
        Ok(tested.iter().filter_map(|tested| tests[tested.agent].take()).collect())
    }

    /// The environments of test episodes.
    fn player(&self, scorer: Option<Scorer<D>>) -> Result<Player<D>, Error> {
        let (setup, p) = (&self.setup, self.members.len());
        let shape = PolicyShape {
            network: self.learner.networks().policy.shape.clone(),
            scaling: setup.scaling(),
            clip: setup.settings.agent.log_std(),
            history: setup.algorithm.history(),
        };
        let made = setup.parallel.threads.map(&mut vec![(); p * setup.parallel.tests], |_, ()| setup.env.make());
        let envs = made.into_iter().collect::<Result<Vec<_>, _>>()?;
        Player::new(&self.device, envs, p, &shape, scorer, &setup.parallel.threads)
    }

    /// Tests the averaged policies of these agents, selects each where it meets the constraint, and records the state of
    /// training; or returns the error that ended an agent's tests.
    pub fn record(&mut self, agents: &[usize]) -> Result<Vec<Result<Record, Error>>, Error> {
        let mut log_temperature = vec![0.0; self.members.len()];
        self.device.read(&self.learner.agents.temperature.values, 0, &mut log_temperature)?;
        let one = |agent: &usize| -> Result<Tested, Error> {
            Ok(Tested { agent: *agent, policy: self.average(*agent)?, model: self.model(*agent).cloned() })
        };
        let tested = agents.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        let tests = self.play(&tested, 0..self.setup.settings.train.test_episodes, false)?;
        let mut records = Vec::with_capacity(agents.len());
        for (Tested { agent, policy, model }, tests) in tested.into_iter().zip(tests) {
            let mut record = self.untested(agent, log_temperature[agent]);
            records.push(tests.map(|tests| {
                record.tests(&tests);
                let settings = &self.setup.settings.multiplier;
                let member = &self.members[agent];
                let free = self.setup.constrained() && member.multiplier.is_free(settings);
                // Before its first update an agent has learned nothing, and its units are not measured yet.
                if free
                    && member.counters.update > 0
                    && record.mean_predicted() >= self.setup.settings.target
                    && let Some(model) = model
                {
                    let (step, selected) = (record.step, &mut self.members[agent].selected);
                    selected.push(SelectedPolicy { step, policy, model });
                    selected.drain(..selected.len().saturating_sub(CANDIDATES));
                }
                record
            }));
        }
        Ok(records)
    }

    /// An agent's record without its test episodes.
    fn untested(&mut self, agent: usize, log_temperature: f32) -> Record {
        let member = &mut self.members[agent];
        let (sum, n) = std::mem::take(&mut member.counters.returns);
        let Counters { step, episode, update, metrics, estimate, refits, .. } = &member.counters;
        let of_head = |numbers: &[f64], k: usize| numbers.get(k).copied().unwrap_or(0.0);
        Record {
            step: *step,
            episodes: *episode,
            updates: *update,
            training_return: sum / n.max(1) as f64,
            multiplier: member.multiplier.value(),
            constraint: estimate.map(|e| e.estimate),
            threshold: estimate.map(|e| e.threshold),
            q_reward: of_head(&metrics.values, 0),
            q_safety: of_head(&metrics.values, 1),
            reward_critic_loss: of_head(&metrics.losses, 0),
            safety_critic_loss: of_head(&metrics.losses, 1),
            entropy: metrics.entropy,
            temperature: f64::from(log_temperature).exp(),
            refits: refits.clone(),
            ..Record::default()
        }
    }
}
