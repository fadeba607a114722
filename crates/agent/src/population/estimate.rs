//! The left side of the constraint, estimated every few updates, and the move of the multiplier that follows.

use prudence_nn::Device;

use super::Population;
use crate::multiplier::{Allowance, ConstraintEstimate};
use crate::settings::{Constraint, TrainingSettings};

/// An estimate looks back this many steps, or at least this many episodes.
const WINDOW: (usize, usize) = (5000, 4);
/// The least time constant of the multiplier, in updates and in episodes.
const LEAST_TIME: (f64, f64) = (15_000.0, 10.0);

impl<D: Device> Population<D> {
    /// Moves the multipliers of these agents, by what the safety model gave to their latest episodes: `E[sum log P]` for the
    /// lower bound, `E[exp(sum log P)]` for the original constraint. Where some episodes play the policy's mode, it is
    /// those: what is tested is what has to be safe.
    pub(super) fn move_multipliers(&mut self, agents: &[usize]) {
        let Some(constraint) = self.setup.algorithm.constraint() else { return };
        let TrainingSettings { target, agent: settings, train, multiplier } = &self.setup.settings;
        let horizon = self.setup.spec.horizon;
        let time = LEAST_TIME.0.max(LEAST_TIME.1 * horizon as f64 * train.updates_per_step);
        let window = (WINDOW.0 / horizon / train.mode_every.max(1) as usize).max(WINDOW.1);
        for agent in agents {
            let sums = self.replay.completed_sums(*agent, window);
            if sums.is_empty() {
                continue;
            }
            let number = |sum: &f32| match constraint {
                Constraint::LowerBound => f64::from(*sum),
                Constraint::Original => f64::from(*sum).exp(),
            };
            let estimate = sums.iter().map(number).sum::<f64>() / sums.len() as f64;
            let member = &mut self.members[*agent];
            let allowance = Allowance::new(*target, settings.score_floor, &member.counters.refits.sums);
            member.multiplier.update(constraint, estimate, &allowance, time, multiplier);
            let threshold = allowance.threshold(constraint);
            member.counters.estimate = Some(ConstraintEstimate { estimate, threshold });
        }
    }
}
