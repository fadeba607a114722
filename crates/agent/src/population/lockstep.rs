//! One environment step of every running agent, and the ends of episodes.

use prudence_core::random::{StreamId, stream, subseed};
use prudence_nn::Device;
use rand::RngExt as _;

use super::{Counters, Ended, Member, Population};
use crate::Error;
use crate::actor::Choose;
use crate::replay::NewStep;

impl<D: Device> Population<D> {
    /// One environment step of every running agent, and the updates that follow. Returns the agents whose episode ended;
    /// does nothing once every agent is done or stopped.
    pub fn lockstep(&mut self) -> Result<Vec<Ended>, Error> {
        self.score_restored()?;
        let mut ended = Vec::new();
        let mut active = vec![false; self.members.len()];
        for (agent, active) in active.iter_mut().enumerate() {
            let idle = self.members[agent].recorder.done();
            let Member { stopped, paused, .. } = self.members[agent];
            if idle && (stopped || paused || self.done(agent)) {
                continue;
            }
            *active = true;
            if idle && let Err(error) = self.start(agent) {
                *active = false;
                self.fail(agent, error, &mut ended);
            }
        }
        if !active.contains(&true) {
            return Ok(ended);
        }
        self.choose(&active)?;
        for (agent, active) in active.iter_mut().enumerate() {
            if *active && let Err(error) = self.check_action(agent) {
                *active = false;
                self.fail(agent, error, &mut ended);
            }
        }
        let (a, actions) = (self.setup.spec.action.dim(), &self.actions);
        let step =
            |agent: usize, member: &mut Member| active[agent].then(|| member.recorder.step(&actions[agent * a..][..a]));
        let outcomes = self.setup.parallel.threads.map(&mut self.members, step);
        let mut steps = vec![None; self.members.len()];
        for (agent, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                None => {}
                Some(Ok(step)) => steps[agent] = Some(step),
                Some(Err(error)) => {
                    active[agent] = false;
                    self.fail(agent, error.into(), &mut ended);
                }
            }
        }
        self.actor.score(&self.actions, &active)?;
        let new_step = |(agent, step): (usize, &Option<prudence_env::Step>)| {
            step.map(|step| NewStep {
                action: &self.actions[agent * a..][..a],
                reward: step.reward as f32,
                terminated: step.terminated,
                next: self.members[agent].recorder.stored_observation(),
            })
        };
        let new_steps: Vec<Option<NewStep<'_>>> = steps.iter().enumerate().map(new_step).collect();
        self.replay.step(&new_steps, self.actor.tracker.as_ref().filter(|_| self.setup.constrained()));
        for (member, _) in self.members.iter_mut().zip(&steps).filter(|(_, step)| step.is_some()) {
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
    fn fail(&mut self, agent: usize, error: Error, ended: &mut Vec<Ended>) {
        self.members[agent].stopped = true;
        self.members[agent].recorder.finish();
        ended.push(Ended { agent, episode: Err(error) });
    }

    /// Starts an agent's next episode.
    fn start(&mut self, agent: usize) -> Result<(), Error> {
        let replica = agent * self.setup.stored.replicas() / self.members.len();
        let nothing_stored = self.setup.stored.is_empty(replica);
        let warm_up = nothing_stored && self.members[agent].counters.step < self.setup.settings.train.random_steps;
        if nothing_stored && !warm_up {
            self.measure_units(agent)?;
        }
        let member = &mut self.members[agent];
        let (seed, index) = (member.seed, member.counters.episode);
        member.warm_up = warm_up.then(|| stream(seed, "warm-up", index));
        member.centre.clear();
        member.plays_mode = self.setup.plays_mode(index) && !warm_up;
        member.recorder.start(subseed(seed, "train", index))?;
        self.actor.start(agent);
        let tracker = self.actor.tracker.as_ref().filter(|_| self.setup.constrained());
        self.replay.start(agent, member.recorder.stored_observation(), tracker);
        let latest = self.replay.own_episodes(agent) - 1;
        self.replay.set_counts(agent, latest, self.counts(index, warm_up));
        Ok(())
    }

    /// Whether the constraint is estimated on an episode: on those that play the mode, if there are such.
    pub(super) fn counts(&self, index: u64, warm_up: bool) -> bool {
        !warm_up && (self.setup.settings.train.mode_every == 0 || self.setup.plays_mode(index))
    }

    /// Measures the units of an agent that learns from its own episodes alone: before its first update, and the unit of
    /// rewards again each time that its steps have doubled, because returns grow while it learns. Networks then change so
    /// that they mean the same.
    fn measure_units(&mut self, agent: usize) -> Result<(), Error> {
        let Counters { step, measured, .. } = self.members[agent].counters;
        let doublings = |step: u64| (step / 1000 + 1).ilog2();
        if step == 0 || measured.is_some_and(|measured| doublings(step) == doublings(measured)) {
            return Ok(());
        }
        let discount = self.setup.settings.agent.discount;
        let mut units = self.replay.own_units(agent, discount)?;
        let [old_centre, old_scale] = self.members[agent].units.reward;
        if measured.is_some() || self.members[agent].counters.update > 0 {
            units.observation = self.members[agent].units.observation.clone();
        }
        let [centre, scale] = units.reward;
        let factor = f64::from(scale) / f64::from(old_scale);
        self.members[agent].counters.measured = Some(step);
        if measured.is_some() && (0.8..=1.25).contains(&factor) {
            return Ok(());
        }
        // The sum of the discounted differences of the centres.
        let shift = (f64::from(old_centre) - f64::from(centre)) / (1.0 - discount).max(1e-3) * f64::from(scale);
        if self.members[agent].counters.update > 0 {
            self.learner.change_reward_unit(agent, factor, shift)?;
        }
        self.set_units(agent, units);
        Ok(())
    }

    /// Chooses every active agent's action: drawn from its policy, the policy's mode or, in a warm-up, at random around a
    /// centre that stays the same for the whole episode (with uniform noise alone an agent hardly moves, and hardly any
    /// episode was safe).
    fn choose(&mut self, active: &[bool]) -> Result<(), Error> {
        let a = self.setup.spec.action.dim();
        let (mut drawn, mut modes) = (false, false);
        for (agent, member) in self.members.iter().enumerate().filter(|(agent, _)| active[*agent]) {
            self.actor.show(agent, member.recorder.stored_observation());
            modes |= member.plays_mode;
            if member.warm_up.is_none() && !member.plays_mode {
                let stream = StreamId::new(member.seed, "actions", member.counters.episode);
                self.actor.draw_from(agent, stream, member.recorder.steps());
                drawn = true;
            }
        }
        let policies = &self.learner.agents.policy.values;
        if drawn {
            self.actor.choose(policies, Choose::Drawn, &mut self.actions)?;
        }
        if modes {
            self.actor.choose(policies, Choose::Mode, &mut self.modes)?;
            for (agent, _) in self.members.iter().enumerate().filter(|(_, member)| member.plays_mode) {
                self.actions[agent * a..][..a].copy_from_slice(&self.modes[agent * a..][..a]);
            }
        }
        if !self.members.iter().any(|member| member.warm_up.is_some()) {
            return Ok(());
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

    /// Refuses an action that is not finite: the agent has diverged.
    fn check_action(&mut self, agent: usize) -> Result<(), Error> {
        let a = self.setup.spec.action.dim();
        let Some(value) = self.actions[agent * a..][..a].iter().find(|x| !x.is_finite()).copied() else {
            return Ok(());
        };
        self.read_metrics()?;
        let (step, value) = (self.members[agent].counters.step, f64::from(value));
        let what = "the policy's action".to_owned();
        let moments = self.mean_squares()?;
        Err(self.divergence(agent, &moments).unwrap_or(Error::Diverged { step, what, value }))
    }

    /// Ends the episodes of these agents, and checks that they have not diverged.
    fn finish(&mut self, finished: &[usize], ended: &mut Vec<Ended>) -> Result<(), Error> {
        let mut sums = Vec::new();
        self.actor.sums(&mut sums)?;
        self.read_metrics()?;
        let moments = self.mean_squares()?;
        for agent in finished.iter().copied() {
            self.replay.end(agent, sums.get(agent).copied().unwrap_or(0.0));
            let member = &mut self.members[agent];
            let episode = member.recorder.finish();
            member.counters.episode += 1;
            member.counters.returns.0 += episode.total_reward();
            member.counters.returns.1 += 1;
            let mut outcome = Ok(episode);
            if member.warm_up.is_none()
                && let Some(error) = self.divergence(agent, &moments)
            {
                self.members[agent].stopped = true;
                outcome = Err(error);
            }
            ended.push(Ended { agent, episode: outcome });
        }
        Ok(())
    }

    /// The sum of the mean squared gradients of each agent's policy and critics, `[2, P]`.
    fn mean_squares(&mut self) -> Result<[Vec<f32>; 2], Error> {
        let (d, agents) = (&self.device, &self.learner.agents);
        let mut sums = [vec![0.0; self.members.len()], vec![0.0; self.members.len()]];
        for (parameters, sums) in [&agents.policy, &agents.critics].into_iter().zip(&mut sums) {
            d.sum(&parameters.moments[1], &mut self.summed);
            d.read(&self.summed, 0, sums)?;
        }
        Ok(sums)
    }

    /// The error of an agent whose updates left numbers that are not finite.
    ///
    /// Adam's second moments remember every gradient that was not: a loss shows only the last update.
    fn divergence(&self, agent: usize, moments: &[Vec<f32>; 2]) -> Option<Error> {
        let Counters { metrics, step, .. } = &self.members[agent].counters;
        let heads = &self.learner.networks().heads;
        let losses =
            heads.iter().zip(&metrics.losses).map(|(head, loss)| (format!("the {} critics' loss", head.name), *loss));
        let of =
            |what: &str, sums: &[f32]| (format!("the mean squared gradient of the {what}"), f64::from(sums[agent]));
        let [policy, critics] = moments;
        let mut numbers = losses
            .chain([("the policy's entropy".to_owned(), metrics.entropy)])
            .chain([of("policy", policy), of("critics", critics)]);
        let (what, value) = numbers.find(|(_, number)| !number.is_finite())?;
        Some(Error::Diverged { step: *step, what, value })
    }
}
