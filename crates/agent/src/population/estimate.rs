//! The left side of the constraint, estimated every few updates, and the move of the multiplier that follows.

use prudence_core::Spec;
use prudence_core::random::StreamId;
use prudence_nn::Device;
use prudence_nn::work::{Columns, Drawn, Input, Pass, Recalled};
use prudence_safety::{Rating, Scorer};

use super::Population;
use crate::Error;
use crate::multiplier::{Allowance, ConstraintEstimate, UPDATES_PER_MOVE};
use crate::replay::Replay;
use crate::safesac::Networks;
use crate::settings::{Constraint, TrainingSettings};

/// The buffers of the lower bound's estimate: fresh actions at recent states, and their scores.
pub(super) struct Estimator<D: Device> {
    recalled: Recalled<D>,
    /// `[P, N]`
    rows: Vec<u32>,
    rows_on_device: D::Rows,
    /// `[P, 6]`: the addresses of the noise
    addresses: Vec<u32>,
    addresses_on_device: D::Rows,
    noise: D::Buf,
    pass: Pass<D>,
    drawn: Drawn<D>,
    actions: D::Buf,
    rating: Option<Rating<D>>,
}

impl<D: Device> Estimator<D> {
    /// For `size` states per agent.
    pub(super) fn new(
        device: &D,
        spec: &Spec,
        networks: &Networks,
        replay: &Replay<D>,
        scorer: Option<&Scorer<D>>,
        size: usize,
    ) -> Result<Self, Error> {
        let (p, s, a) = (networks.population, spec.observation.dim(), networks.action);
        Ok(Self {
            recalled: Recalled::new(device, p, size, networks.state, s, replay.memory_width())?,
            rows: vec![0; p * size],
            rows_on_device: device.rows(p * size)?,
            addresses: vec![0; p * 6],
            addresses_on_device: device.rows(p * 6)?,
            noise: device.buffer(p * size * a)?,
            pass: Pass::new(device, &networks.policy, size)?,
            drawn: Drawn::new(device, p * size, a)?,
            actions: device.buffer(p * size * a)?,
            rating: scorer.map(|scorer| scorer.rating(p * size)).transpose()?,
        })
    }
}

/// Steps that an estimate looks back, within these numbers of episodes.
const WINDOW: f64 = 10_000.0;
const EPISODES: [f64; 2] = [10.0, 40.0];
/// The least time constant of the multiplier, in updates and in episodes.
const LEAST_TIME: [f64; 2] = [2000.0, 10.0];

impl<D: Device> Population<D> {
    /// The paper's update of lambda, estimated on each agent's recent episodes.
    pub(super) fn move_multipliers(&mut self, agents: &[usize]) -> Result<(), Error> {
        let Some(constraint) = self.setup.algorithm.constraint() else { return Ok(()) };
        // The running episode counts only where it is recalled.
        let agents: Vec<usize> =
            agents.iter().copied().filter(|agent| self.members[*agent].counters.episode > 0).collect();
        if agents.is_empty() {
            return Ok(());
        }
        let estimates: Vec<f64> = match constraint {
            Constraint::LowerBound => self.expected_log_prob(&agents)?,
            Constraint::Original => agents.iter().map(|agent| self.expected_prob(*agent)).collect(),
        };
        let TrainingSettings { target, agent: settings, train, multiplier } = &self.setup.settings;
        let [updates, episodes] = LEAST_TIME;
        let time = updates.max(episodes * self.setup.spec.horizon as f64 * train.updates_per_step);
        for (agent, estimate) in agents.into_iter().zip(estimates) {
            let was_safe = self.replay.completed_sums(agent, usize::MAX).iter().any(|sum| *sum >= 0.5f32.ln());
            let member = &mut self.members[agent];
            let allowance = Allowance::new(*target, settings.score_floor, &member.counters.refits.sums);
            member.multiplier.update(constraint, estimate, &allowance, time, was_safe, multiplier);
            let threshold = allowance.threshold(constraint);
            member.counters.estimate = Some(ConstraintEstimate { estimate, threshold });
        }
        Ok(())
    }

    /// The number of recent episodes that an estimate uses.
    fn window(&self) -> usize {
        let [least, most] = EPISODES;
        (WINDOW / self.setup.spec.horizon as f64).clamp(least, most) as usize
    }

    /// `E[exp(sum_t log P)]`: the mean over an agent's recent episodes.
    fn expected_prob(&self, agent: usize) -> f64 {
        let sums = self.replay.completed_sums(agent, self.window());
        sums.iter().map(|sum| f64::from(*sum).exp()).sum::<f64>() / sums.len() as f64
    }

    /// `E[sum_t log P]` with fresh actions at recent (s, h): the mean score times the mean length of episodes.
    fn expected_log_prob(&mut self, agents: &[usize]) -> Result<Vec<f64>, Error> {
        let TrainingSettings { agent: settings, multiplier, .. } = &self.setup.settings;
        let (n, a) = (multiplier.batch, self.setup.spec.action.dim());
        let window = self.window();
        let (d, work) = (&self.device, &mut self.estimator);
        let (Some(scorer), Some(rating)) = (self.actor.scorer(), &mut work.rating) else {
            return Ok(vec![0.0; agents.len()]);
        };
        for agent in agents {
            let member = &self.members[*agent];
            let index = member.counters.update / UPDATES_PER_MOVE;
            let stream = |purpose: &str| StreamId::new(member.seed, purpose, index);
            self.replay.draw_recent(*agent, window, &mut work.rows[agent * n..][..n], stream("multiplier-states"));
            work.addresses[agent * 6..][..6].copy_from_slice(&stream("multiplier-actions").address(0));
        }
        d.write_rows(&mut work.addresses_on_device, 0, &work.addresses);
        d.write_rows(&mut work.rows_on_device, 0, &work.rows);
        d.recall(&self.replay.tables(), &work.rows_on_device, &mut work.recalled);
        let nets = self.learner.networks();
        let input = Input { first: Columns::new(&work.recalled.state, n, nets.state, 1), second: None };
        d.forward(&nets.policy, &self.learner.agents.policy.values, input, &mut work.pass);
        d.normals(&work.addresses_on_device, n * a, &mut work.noise);
        d.sample(&work.pass, &work.noise, settings.log_std(), &mut work.drawn);
        d.to_env(self.replay.units(), &work.drawn.action, &mut work.actions);
        scorer.rate(rating, &mut work.recalled, &work.actions);
        let mut scores = vec![0.0; self.members.len() * n];
        d.read(&rating.score, 0, &mut scores)?;
        let sum = |agent: &usize| scores[agent * n..][..n].iter().map(|score| f64::from(*score)).sum::<f64>();
        Ok(agents.iter().map(|agent| sum(agent) / n as f64 * self.replay.mean_steps(*agent, window)).collect())
    }
}
