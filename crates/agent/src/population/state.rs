//! An agent between two of its episodes: read out, restored, continued with another safety model.

use std::sync::Arc;

use prudence_data::Episode;
use prudence_nn::Device;
use prudence_safety::{SafetyModel, Scorer};

use super::{Counters, Population, Refits, SelectedPolicy};
use crate::Error;
use crate::multiplier::Multiplier;
use crate::replay::{NewStep, OwnStep};
use crate::safesac::Agents;
use crate::units::AgentUnits;

/// Everything that an agent is between two of its episodes, except for the stored episodes themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentState {
    /// Its progress.
    pub counters: Counters,
    /// Its multiplier.
    pub multiplier: Multiplier,
    /// The units in which its networks see observations and rewards.
    pub units: AgentUnits,
    /// Its networks and their optimisers' moments, named as in [`Population::tensor_sizes`] and in that order.
    pub tensors: Vec<(&'static str, Vec<f32>)>,
    /// The latest policies that met the constraint, the oldest first.
    pub selected: Vec<SelectedPolicy>,
    /// The safety model it is trained with.
    pub model: Option<Arc<SafetyModel>>,
}

/// One kind of tensor of all agents, `[P, each]`.
struct Tensor<B> {
    name: &'static str,
    buffer: B,
    each: usize,
}

/// A list of [`Tensor`]s, of shared or of mutable references.
macro_rules! tensors {
    ($agents:expr, $($borrow:tt)+) => {{
        let Agents { policy, average, critics, target_critics, temperature } = $agents;
        let (p, c) = (policy.each, critics.each);
        let [policy0, policy1] = $($borrow)+ policy.moments;
        let [critics0, critics1] = $($borrow)+ critics.moments;
        let [temperature0, temperature1] = $($borrow)+ temperature.moments;
        [
            Tensor { name: "policy", buffer: $($borrow)+ policy.values, each: p },
            Tensor { name: "averaged_policy", buffer: average, each: p },
            Tensor { name: "critics", buffer: $($borrow)+ critics.values, each: c },
            Tensor { name: "target_critics", buffer: target_critics, each: c },
            Tensor { name: "log_temperature", buffer: $($borrow)+ temperature.values, each: 1 },
            Tensor { name: "optimiser.policy.moment0", buffer: policy0, each: p },
            Tensor { name: "optimiser.policy.moment1", buffer: policy1, each: p },
            Tensor { name: "optimiser.critics.moment0", buffer: critics0, each: c },
            Tensor { name: "optimiser.critics.moment1", buffer: critics1, each: c },
            Tensor { name: "optimiser.temperature.moment0", buffer: temperature0, each: 1 },
            Tensor { name: "optimiser.temperature.moment1", buffer: temperature1, each: 1 },
        ]
    }};
}

impl<D: Device> Population<D> {
    /// The state of an agent, which must be between two of its episodes.
    pub fn state(&self, agent: usize) -> Result<AgentState, Error> {
        let tensors = tensors!(&self.learner.agents, &).into_iter().map(|Tensor { name, buffer, each }| {
            let mut numbers = vec![0.0; each];
            self.device.read(buffer, agent * each, &mut numbers)?;
            Ok((name, numbers))
        });
        let member = &self.members[agent];
        Ok(AgentState {
            counters: member.counters.clone(),
            multiplier: member.multiplier.clone(),
            units: member.units.clone(),
            tensors: tensors.collect::<Result<_, Error>>()?,
            selected: member.selected.clone(),
            model: self.model(agent).cloned(),
        })
    }

    /// The names and lengths of [`AgentState::tensors`].
    pub fn tensor_sizes(&self) -> Vec<(&'static str, usize)> {
        tensors!(&self.learner.agents, &).into_iter().map(|tensor| (tensor.name, tensor.each)).collect()
    }

    /// Restores a state into an agent that has not taken a step yet; `episodes` are its training episodes so far. A state
    /// that does not match the population is rejected and changes nothing; one with another safety model can be restored
    /// after [`Population::replace_models`].
    pub fn restore(&mut self, agent: usize, state: AgentState, episodes: &[Episode]) -> Result<(), Error> {
        self.check(agent, &state, episodes)?;
        let scorer = self.scorers.get(self.replica(agent)).filter(|_| self.setup.constrained());
        if D::PASSES_EQUAL_STEPS || scorer.is_none() {
            self.replay.restore(agent, episodes, scorer)?;
        } else {
            // Those before the last refit were scored in whole passes, too.
            self.replay.restore(agent, episodes, None)?;
            let dropped = episodes.len() - self.replay.own_episodes(agent);
            let passed = (state.counters.refits.episode as usize).saturating_sub(dropped);
            if let Some(scorer) = scorer {
                self.replay.score_own_again(agent, scorer, 0..passed)?;
            }
            let member = &mut self.members[agent];
            member.first_unscored = passed;
            member.unscored = episodes[dropped + passed..].to_vec();
        }
        self.count_restored(agent, episodes);
        let tensors = tensors!(&mut self.learner.agents, &mut);
        for (Tensor { buffer, each, .. }, (_, numbers)) in tensors.into_iter().zip(&state.tensors) {
            self.device.write(buffer, agent * each, numbers);
        }
        self.set_units(agent, state.units);
        let member = &mut self.members[agent];
        member.counters = state.counters;
        member.multiplier = state.multiplier;
        member.selected = state.selected;
        Ok(())
    }

    /// Says which restored episodes the constraint is estimated on.
    fn count_restored(&mut self, agent: usize, episodes: &[Episode]) {
        let dropped = episodes.len() - self.replay.own_episodes(agent);
        let nothing_stored = self.setup.stored.is_empty(agent * self.setup.stored.replicas() / self.members.len());
        let mut step = 0;
        for (index, episode) in episodes.iter().enumerate() {
            let warm_up = nothing_stored && step < self.setup.settings.train.random_steps;
            if let Some(place) = index.checked_sub(dropped) {
                self.replay.set_counts(agent, place, self.counts(index as u64, warm_up));
            }
            step += episode.len() as u64;
        }
    }

    /// Scores restored episodes step by step, all agents at the same time, as when they were played: on some devices a
    /// whole pass has other bits. Does nothing where they have been scored; the next lockstep calls it.
    pub fn score_restored(&mut self) -> Result<(), Error> {
        if self.members.iter().all(|member| member.unscored.is_empty()) {
            return Ok(());
        }
        let a = self.setup.spec.action.dim();
        let unscored: Vec<Vec<Episode>> =
            self.members.iter_mut().map(|member| std::mem::take(&mut member.unscored)).collect();
        let first: Vec<usize> = self.members.iter().map(|member| member.first_unscored).collect();
        let mut places: Vec<OwnStep> = first.iter().map(|episode| OwnStep { episode: *episode, t: 0 }).collect();
        let mut sums = Vec::new();
        loop {
            let mut active = vec![false; unscored.len()];
            for (agent, OwnStep { episode, t }) in places.iter().enumerate() {
                let Some(stored) = unscored[agent].get(episode - first[agent]) else { continue };
                active[agent] = true;
                if *t == 0 {
                    self.actor.start(agent);
                    if let Some(tracker) = &self.actor.tracker {
                        self.replay.start_again(agent, *episode, tracker);
                    }
                }
                self.actor.show(agent, stored.observation(*t));
                self.actions[agent * a..][..a].copy_from_slice(stored.action(*t));
            }
            if !active.contains(&true) {
                return Ok(());
            }
            self.actor.score(&self.actions, &active)?;
            let Some(tracker) = &self.actor.tracker else { return Ok(()) };
            let step = |(agent, place): (usize, &OwnStep)| {
                let episode = unscored[agent].get(place.episode - first[agent])?;
                let step = NewStep {
                    action: episode.action(place.t),
                    reward: episode.rewards[place.t],
                    terminated: episode.terminated && place.t + 1 == episode.len(),
                    next: episode.observation(place.t + 1),
                };
                Some((*place, step))
            };
            let steps: Vec<_> = places.iter().enumerate().map(step).collect();
            self.replay.write_again(&steps, tracker);
            let ends = |agent: usize, place: &OwnStep| {
                active[agent] && place.t + 1 == unscored[agent][place.episode - first[agent]].len()
            };
            if places.iter().enumerate().any(|(agent, place)| ends(agent, place)) {
                self.actor.sums(&mut sums)?;
            }
            for (agent, place) in places.iter_mut().enumerate() {
                if ends(agent, place) {
                    self.replay.set_sum(agent, place.episode, sums[agent]);
                    *place = OwnStep { episode: place.episode + 1, t: 0 };
                } else if active[agent] {
                    place.t += 1;
                }
            }
        }
    }

    /// Refuses a state that does not match the population, its episodes or its safety model.
    fn check(&self, agent: usize, state: &AgentState, episodes: &[Episode]) -> Result<(), Error> {
        let given = state.tensors.iter().map(|(name, numbers)| (*name, numbers.len()));
        let expected = self.tensor_sizes();
        if state.units.observation.len() != self.setup.spec.observation.dim() {
            return Err(Error::OtherNetworks);
        }
        let policies = state.selected.iter().map(|selected| ("policy", selected.policy.len()));
        if !given.clone().eq(expected.iter().copied()) || !policies.clone().all(|policy| expected.contains(&policy)) {
            return Err(Error::OtherNetworks);
        }
        if state.model.as_ref() != self.model(agent) {
            return Err(Error::OtherModel);
        }
        for selected in &state.selected {
            same_shape(Some(&selected.model), self.model(agent))?;
        }
        let steps: usize = episodes.iter().map(Episode::len).sum();
        if (episodes.len() as u64, steps as u64) != (state.counters.episode, state.counters.step) {
            return Err(Error::OtherEpisodes);
        }
        Ok(())
    }

    /// Replaces the safety models of these replicas in the middle of a training, running episodes included: the stored
    /// episodes and the agents' own are scored again, and agents continue with the memory that the new models have of
    /// their episodes. Selected policies keep the model that they were selected with. Models that do not match change
    /// nothing.
    pub fn replace_models(&mut self, models: &[(usize, Arc<SafetyModel>)]) -> Result<(), Error> {
        for (replica, model) in models {
            let Some(old) = self.setup.models.get(*replica) else {
                return Err(Error::Replicas { agents: self.members.len(), replicas: *replica + 1 });
            };
            same_shape(Some(model), Some(old))?;
        }
        let floor = self.setup.settings.agent.score_floor;
        let mut running = Vec::new();
        for (replica, model) in models {
            let scorer = Scorer::new(&self.device, std::slice::from_ref(model), floor)?;
            if self.setup.constrained() {
                self.replay.score_stored_again(*replica, &scorer)?;
            }
            for agent in self.agents_of(*replica) {
                let recorder = &self.members[agent].recorder;
                if !recorder.done() {
                    running.extend(scorer.score(&[recorder.episode()])?.into_iter().map(|scores| (agent, scores)));
                }
                if self.setup.constrained() {
                    self.replay.score_own_again(agent, &scorer, 0..self.replay.own_episodes(agent))?;
                }
            }
            self.scorers[*replica] = scorer;
            self.setup.models[*replica] = model.clone();
        }
        if !models.is_empty() {
            self.actor.replace_scorer(Scorer::new(&self.device, &self.setup.models, floor)?);
        }
        for (agent, scores) in &running {
            self.actor.continue_from(*agent, scores);
        }
        Ok(())
    }

    /// Continues an agent, which is between two of its episodes and shares its model with no other, with a refitted one.
    pub fn refit(&mut self, agent: usize, model: Arc<SafetyModel>) -> Result<(), Error> {
        let (agents, replicas) = (self.members.len(), self.setup.models.len());
        if agents != replicas {
            return Err(Error::Replicas { agents, replicas });
        }
        self.replace_models(&[(agent, model)])
    }

    /// Sets the counts of an agent's refits, after each.
    pub fn set_refits(&mut self, agent: usize, refits: Refits) {
        self.members[agent].counters.refits = refits;
    }

    /// The floored sums of log P of an agent's most recent episodes.
    pub fn recent_sums(&self, agent: usize, episodes: usize) -> Vec<f32> {
        self.replay.recent_sums(agent, episodes)
    }

    /// The agents that use a replica's model.
    fn agents_of(&self, replica: usize) -> std::ops::Range<usize> {
        let each = self.members.len() / self.setup.models.len();
        replica * each..(replica + 1) * each
    }
}

/// Refuses a model that cannot take the other's place.
fn same_shape(model: Option<&Arc<SafetyModel>>, other: Option<&Arc<SafetyModel>>) -> Result<(), Error> {
    let shape = |model: &Arc<SafetyModel>| (model.shape().clone(), model.members());
    if model.map(shape) == other.map(shape) { Ok(()) } else { Err(Error::ModelShape) }
}
