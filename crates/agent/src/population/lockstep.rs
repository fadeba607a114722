//! One environment step of every running agent, and the ends of episodes.

use prudence_core::random::{StreamId, stream, subseed};
use prudence_nn::Device;
use rand::RngExt as _;

use super::{Counters, Ended, Population};
use crate::Error;
use crate::actor::Choose;

impl<D: Device> Population<D> {
    /// One environment step of every running agent, and the updates that follow. Returns the agents whose episode ended;
    /// does nothing once every agent is done or stopped.
    pub fn lockstep(&mut self) -> Result<Vec<Ended>, Error> {
        let mut ended = Vec::new();
        let mut active = vec![false; self.members.len()];
        for agent in 0..self.members.len() {
            let idle = self.members[agent].recorder.done();
            if idle && (self.members[agent].stopped || self.done(agent)) {
                continue;
            }
            active[agent] = true;
            if idle && let Err(error) = self.start(agent) {
                self.fail(agent, error, &mut active, &mut ended);
            }
        }
        if !active.contains(&true) {
            return Ok(ended);
        }
        self.choose(&active)?;
        let mut steps = vec![None; self.members.len()];
        for agent in 0..self.members.len() {
            if active[agent] {
                match self.step(agent) {
                    Ok(step) => steps[agent] = Some(step),
                    Err(error) => self.fail(agent, error, &mut active, &mut ended),
                }
            }
        }
        self.actor.score(self.scorer.as_ref(), &self.actions, &active);
        let a = self.setup.spec.action.dim();
        for (agent, step) in steps.iter().enumerate() {
            let Some(step) = step else { continue };
            let member = &mut self.members[agent];
            let next = member.recorder.stored_observation();
            let tracker = self.actor.tracker.as_ref().filter(|_| self.setup.constrained());
            let action = &self.actions[agent * a..][..a];
            self.replay.step(agent, action, step.reward as f32, step.terminated, next, tracker);
            member.counters.step += 1;
            if member.warm_up.is_none() {
                member.counters.pending_updates += self.setup.settings.train.updates_per_step;
            }
        }
        self.update(&active)?;
        let finished: Vec<usize> =
            (0..self.members.len()).filter(|agent| active[*agent] && self.members[*agent].recorder.done()).collect();
        if !finished.is_empty() {
            self.finish(&finished, &mut ended)?;
        }
        Ok(ended)
    }

    /// Ends an agent's training by an error.
    fn fail(&mut self, agent: usize, error: Error, active: &mut [bool], ended: &mut Vec<Ended>) {
        active[agent] = false;
        self.members[agent].stopped = true;
        self.members[agent].recorder.finish();
        ended.push(Ended { agent, episode: Err(error) });
    }

    /// Starts an agent's next episode.
    fn start(&mut self, agent: usize) -> Result<(), Error> {
        let replica = agent * self.setup.stored.replicas() / self.members.len();
        let member = &mut self.members[agent];
        let (seed, index) = (member.seed, member.counters.episode);
        let nothing_stored = self.setup.stored.is_empty(replica);
        let warm_up = nothing_stored && member.counters.step < self.setup.settings.train.random_steps;
        member.warm_up = warm_up.then(|| stream(seed, "warm-up", index));
        member.centre.clear();
        member.recorder.start(subseed(seed, "train", index))?;
        self.actor.start(agent, self.scorer.as_ref());
        let tracker = self.actor.tracker.as_ref().filter(|_| self.setup.constrained());
        self.replay.start(agent, member.recorder.stored_observation(), tracker);
        Ok(())
    }

    /// Chooses every active agent's action: from its policy or, in a warm-up, at random around a centre that stays the same
    /// for the whole episode (with uniform noise alone an agent hardly moves, and hardly any episode was safe).
    fn choose(&mut self, active: &[bool]) -> Result<(), Error> {
        let a = self.setup.spec.action.dim();
        let mut policies = false;
        for (agent, member) in self.members.iter().enumerate().filter(|(agent, _)| active[*agent]) {
            self.actor.show(agent, member.recorder.stored_observation());
            if member.warm_up.is_none() {
                let stream = StreamId::new(member.seed, "actions", member.counters.episode);
                self.actor.draw_from(agent, stream, member.recorder.steps());
                policies = true;
            }
        }
        if policies {
            self.actor.choose(&self.learner.agents.policy.values, Choose::Drawn, &mut self.actions)?;
        }
        let scaling = self.setup.scaling();
        let mut unit = vec![0.0; a];
        for (agent, member) in self.members.iter_mut().enumerate().filter(|(agent, _)| active[*agent]) {
            let Some(stream) = &mut member.warm_up else { continue };
            if member.centre.is_empty() {
                member.centre.extend((0..a).map(|_| stream.random_range(-1.0f32..1.0)));
            }
            for (unit, centre) in unit.iter_mut().zip(&member.centre) {
                *unit = (centre + stream.random_range(-1.0f32..1.0)).clamp(-1.0, 1.0);
            }
            scaling.to_env(&unit, &mut self.actions[agent * a..][..a]);
        }
        Ok(())
    }

    /// Takes an agent's chosen action in its environment.
    fn step(&mut self, agent: usize) -> Result<prudence_env::Step, Error> {
        let a = self.setup.spec.action.dim();
        let action = &self.actions[agent * a..][..a];
        if let Some(value) = action.iter().find(|x| !x.is_finite()) {
            let what = "the policy's action".to_owned();
            let (step, value) = (self.members[agent].counters.step, f64::from(*value));
            self.read_metrics(agent)?;
            return Err(self.divergence(agent)?.unwrap_or(Error::Diverged { step, what, value }));
        }
        Ok(self.members[agent].recorder.step(action)?)
    }

    /// Ends the episodes of these agents: checks that they have not diverged, and moves their multipliers.
    fn finish(&mut self, finished: &[usize], ended: &mut Vec<Ended>) -> Result<(), Error> {
        let mut moving = Vec::new();
        for agent in finished.iter().copied() {
            let sum = self.actor.sum(agent)?;
            self.replay.end(agent, sum.unwrap_or(0.0));
            self.read_metrics(agent)?;
            let member = &mut self.members[agent];
            let episode = member.recorder.finish();
            member.counters.episode += 1;
            member.counters.returns.0 += episode.total_reward();
            member.counters.returns.1 += 1;
            let mut outcome = Ok(episode);
            if member.warm_up.is_none() {
                match self.divergence(agent)? {
                    Some(error) => {
                        self.members[agent].stopped = true;
                        outcome = Err(error);
                    }
                    None => moving.push(agent),
                }
            }
            ended.push(Ended { agent, episode: outcome });
        }
        self.move_multipliers(&moving)
    }

    /// The error of an agent whose updates left numbers that are not finite.
    ///
    /// Adam's second moments remember every gradient that was not: a loss shows only the last update.
    fn divergence(&self, agent: usize) -> Result<Option<Error>, Error> {
        let Counters { metrics, step, .. } = &self.members[agent].counters;
        let heads = &self.learner.networks().heads;
        let losses =
            heads.iter().zip(&metrics.losses).map(|(head, loss)| (format!("the {} critics' loss", head.name), *loss));
        let mut numbers = losses.chain([("the policy's entropy".to_owned(), metrics.entropy)]);
        let mut found = numbers.find(|(_, number)| !number.is_finite());
        let agents = &self.learner.agents;
        for (what, parameters) in [("policy", &agents.policy), ("critics", &agents.critics)] {
            if found.is_none() {
                let mut moments = vec![0.0; parameters.each];
                self.device.read(&parameters.moments[1], agent * parameters.each, &mut moments)?;
                let moment = moments.iter().find(|moment| !moment.is_finite());
                found = moment.map(|moment| (format!("the mean squared gradient of the {what}"), f64::from(*moment)));
            }
        }
        Ok(found.map(|(what, value)| Error::Diverged { step: *step, what, value }))
    }
}
