//! Test episodes in environments of their own, judged by the true rule.
//!
//! The rule is for people: what is computed here never reaches a learner.

use std::ops::Range;

use prudence_data::{Episode, Rule};
use prudence_env::random::{stream, subseed};

use crate::Error;
use crate::player::{Choose, Player};

/// One test episode and what is to be said of it.
#[derive(Clone, Debug)]
pub struct TestEpisode {
    /// What happened.
    pub episode: Episode,
    /// Undiscounted, unscaled.
    pub total_reward: f64,
    /// Whether the true rule held at every step.
    pub safe: bool,
    /// Share of the steps at which it held (the paper's second metric).
    pub steps_kept: f64,
    /// The safety model's log P of each step; empty without a model.
    pub log_probs: Vec<f32>,
}

impl TestEpisode {
    /// The model's log-probability that the whole episode is safe, where there is a model.
    pub fn log_prob(&self) -> Option<f64> {
        (!self.log_probs.is_empty()).then(|| self.log_probs.iter().map(|l| f64::from(*l)).sum())
    }
}

/// Plays test episodes with these policy parameters: actions are the policy's mode, or drawn if `sampled`.
///
/// Episode i of a seed starts the same way whatever is tested, so that algorithms meet the same starts.
pub fn test(
    player: &mut Player,
    rule: &Rule,
    policy: &[f32],
    episodes: Range<u64>,
    seed: u64,
    sampled: bool,
) -> Result<Vec<TestEpisode>, Error> {
    let mut judge = rule.judge();
    let width = player.env().spec().signals.len();
    episodes
        .map(|i| {
            let mut noise = stream(seed, "test-actions", i);
            player.start(subseed(seed, "test", i))?;
            while !player.done() {
                player.step(&mut Choose::Policy(policy, sampled.then_some(&mut noise)))?;
            }
            let (episode, log_probs) = player.finish();
            judge.reset();
            let kept = episode.signals.chunks_exact(width).filter(|signals| judge.step(signals)).count();
            Ok(TestEpisode {
                total_reward: episode.total_reward(),
                safe: judge.safe(),
                steps_kept: kept as f64 / episode.len() as f64,
                log_probs,
                episode,
            })
        })
        .collect()
}
