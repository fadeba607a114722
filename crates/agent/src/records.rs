//! Training records. They do not depend on the clock; timings are in separate records.

use serde::{Deserialize, Serialize};

use prudence_safety::Quality;

use crate::evaluate::TestEpisode;
use crate::population::Refits;

/// One line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Environment steps so far.
    pub step: u64,
    /// Completed training episodes.
    pub episodes: u64,
    /// Updates so far.
    pub updates: u64,
    /// The number of test episodes of this record.
    pub test_episodes: u64,
    /// Mean return of the test episodes.
    pub return_mean: f64,
    /// Share of the test episodes that kept the true rule. It is for people; the learner never reads it.
    pub safe_share: f64,
    /// Share of the steps at which the rule held, averaged over the test episodes.
    pub steps_kept: f64,
    /// Mean return of the training episodes since the last record.
    pub training_return: f64,
    /// The multiplier lambda.
    pub multiplier: f64,
    /// Estimated left side of the constraint: `E[sum log P]` (lower bound) or `E[P]` (original).
    pub constraint: Option<f64>,
    /// Right side of the constraint; see [`Allowance`](crate::multiplier::Allowance).
    pub threshold: Option<f64>,
    /// Mean of the smallest reward critic at the policy's actions, in the last update.
    pub q_reward: f64,
    /// Mean of the smallest safety critic at the policy's actions, in the last update.
    pub q_safety: f64,
    /// Loss of the reward critics in the last update.
    pub reward_critic_loss: f64,
    /// Loss of the safety critics in the last update.
    pub safety_critic_loss: f64,
    /// Mean of -log pi in the last update.
    pub entropy: f64,
    /// The entropy temperature alpha.
    pub temperature: f64,
    /// The safety model's accuracy on these test episodes, which are the agent's own.
    pub own_accuracy: Option<f64>,
    /// Refits of the safety model so far, what they were given, and what they showed; see
    /// [`Refits`].
    #[serde(default, skip_serializing_if = "never")]
    pub refits: Refits,
    /// The safety model's P(safe) of each test episode.
    pub predicted: Vec<f32>,
    /// Whether each test episode kept the true rule.
    pub truth: Vec<bool>,
}

fn never(refits: &Refits) -> bool {
    refits.count == 0
}

impl Record {
    /// Fills in the fields that are computed from the test episodes.
    pub fn tests(&mut self, tests: &[TestEpisode]) {
        let n = tests.len() as f64;
        let mean = |f: &dyn Fn(&TestEpisode) -> f64| tests.iter().map(f).sum::<f64>() / n;
        self.test_episodes = tests.len() as u64;
        self.return_mean = mean(&|t| t.total_reward);
        self.safe_share = mean(&|t| f64::from(u8::from(t.safe)));
        self.steps_kept = mean(&|t| t.steps_kept);
        self.truth = tests.iter().map(|t| t.safe).collect();
        self.predicted = tests.iter().filter_map(|t| t.log_prob().map(|l| l.exp() as f32)).collect();
        let predictions: Vec<_> = tests.iter().filter_map(|t| Some((t.log_prob()?, t.safe))).collect();
        self.own_accuracy = (!predictions.is_empty()).then(|| Quality::of(&predictions).accuracy);
    }

    /// The mean of the safety model's P(safe) over the test episodes, the left side of the original constraint. NaN
    /// without a model.
    pub fn mean_predicted(&self) -> f64 {
        self.predicted.iter().map(|p| f64::from(*p)).sum::<f64>() / self.predicted.len() as f64
    }

    /// The scalars with their names in TensorBoard.
    pub fn scalars(&self) -> Vec<(&'static str, f32)> {
        let mut scalars = vec![
            ("test/return", self.return_mean),
            ("test/safe_share", self.safe_share),
            ("test/steps_kept", self.steps_kept),
            ("train/return", self.training_return),
            ("multiplier/value", self.multiplier),
            ("critic/q_reward", self.q_reward),
            ("critic/q_safety", self.q_safety),
            ("critic/reward_loss", self.reward_critic_loss),
            ("critic/safety_loss", self.safety_critic_loss),
            ("policy/entropy", self.entropy),
            ("policy/temperature", self.temperature),
        ];
        let optional = [
            ("multiplier/constraint", self.constraint),
            ("multiplier/threshold", self.threshold),
            ("safety/own_accuracy", self.own_accuracy),
        ];
        scalars.extend(optional.into_iter().filter_map(|(name, value)| value.map(|v| (name, v))));
        scalars.into_iter().map(|(name, value)| (name, value as f32)).collect()
    }
}

/// One line of `timing.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Environment steps so far.
    pub step: u64,
    /// Seconds since this process started or resumed the training.
    pub seconds: f64,
    /// Updates per second since the last record.
    pub updates_per_second: f64,
    /// Environment steps per second since the last record.
    pub steps_per_second: f64,
}
