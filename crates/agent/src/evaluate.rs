//! Test episodes in their own environment, judged by the true rule.
//!
//! The rule is for people: nothing computed here reaches a learner.

use std::ops::Range;

use prudence_core::random::{StreamId, subseed};
use prudence_data::{Episode, Rule};
use prudence_env::{Env, Step};
use prudence_nn::work::LogStd;
use prudence_nn::{Bank, Device, Mlp};
use prudence_safety::Scorer;

use crate::Error;
use crate::actor::{Actor, Choose};
use crate::recorder::Recorder;
use crate::scaling::Scaling;

/// The seed of the test episodes' starts, the same for everything that is tested.
const TEST_STARTS: u64 = 0;

/// A test episode with its judgement.
#[derive(Clone, Debug)]
pub struct TestEpisode {
    /// The trajectory.
    pub episode: Episode,
    /// The signals of the initial state; rules do not read them.
    pub start: Vec<f64>,
    /// The undiscounted sum of unscaled rewards.
    pub total_reward: f64,
    /// Whether the true rule held throughout.
    pub safe: bool,
    /// Share of the steps at which it held (the paper's second metric).
    pub steps_kept: f64,
    /// The safety model's log P of each step; empty without a model.
    pub log_probs: Vec<f32>,
}

impl TestEpisode {
    /// An episode, judged by a rule.
    pub fn new(episode: Episode, start: Vec<f64>, log_probs: Vec<f32>, rule: &Rule) -> Self {
        let mut judge = rule.judge();
        let width = episode.signals.len() / episode.len();
        let kept = (0..episode.len()).filter(|t| judge.step(&episode.signals[t * width..][..width])).count();
        Self {
            total_reward: episode.total_reward(),
            safe: judge.safe(),
            steps_kept: kept as f64 / episode.len() as f64,
            log_probs,
            start,
            episode,
        }
    }

    /// The safety model's log-probability that the whole episode is safe; `None` without a model.
    pub fn log_prob(&self) -> Option<f64> {
        (!self.log_probs.is_empty()).then(|| self.log_probs.iter().map(|l| f64::from(*l)).sum())
    }
}

/// Everything about a policy except its parameters.
#[derive(Clone, Debug)]
pub struct PolicyShape {
    /// The shape of its network.
    pub network: Mlp,
    /// Converts between the environment's units and the policy's.
    pub scaling: Scaling,
    /// The bounds of its log standard deviation.
    pub clip: LogStd,
    /// Whether it reads the safety model's memory.
    pub history: bool,
}

/// One policy in one environment.
pub struct Player<D: Device> {
    recorder: Recorder,
    actor: Actor<D>,
    weights: D::Buf,
    device: D,
    action: Vec<f32>,
    log_probs: Vec<f32>,
}

impl<D: Device> Player<D> {
    /// For this environment. The parameters of the policy must then be loaded with [`Player::load`].
    pub fn new(device: &D, env: Box<dyn Env>, shape: &PolicyShape, scorer: Option<&Scorer<D>>) -> Result<Self, Error> {
        let a = shape.scaling.action_width();
        let bank = Bank::dense(shape.network.clone(), 1);
        Ok(Self {
            recorder: Recorder::new(env),
            actor: Actor::new(device, &shape.scaling, &bank, shape.clip, shape.history, scorer)?,
            weights: device.buffer(shape.network.parameters())?,
            device: device.clone(),
            action: vec![0.0; a],
            log_probs: Vec::new(),
        })
    }

    /// Loads a policy's parameters.
    pub fn load(&mut self, policy: &[f32]) {
        self.device.write(&mut self.weights, 0, policy);
    }

    /// The environment with its running episode.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The environment, mutably.
    pub fn env_mut(&mut self) -> &mut dyn Env {
        self.recorder.env_mut()
    }

    /// Starts an episode.
    pub fn start(&mut self, seed: u64, scorer: Option<&Scorer<D>>) -> Result<(), Error> {
        self.recorder.start(seed)?;
        self.actor.start(0, scorer);
        self.log_probs.clear();
        Ok(())
    }

    /// Takes one step. The action is sampled from the policy with the noise of `stream`; without a stream, it is the
    /// policy's mode.
    pub fn step(&mut self, scorer: Option<&Scorer<D>>, stream: Option<StreamId>) -> Result<Step, Error> {
        self.actor.show(0, self.recorder.stored_observation());
        let choose = match stream {
            None => Choose::Mode,
            Some(stream) => {
                self.actor.draw_from(0, stream, self.recorder.steps());
                Choose::Drawn
            }
        };
        self.actor.choose(&self.weights, choose, &mut self.action)?;
        let step = self.recorder.step(&self.action)?;
        self.actor.score(scorer, &self.action, &[true]);
        self.log_probs.extend(self.actor.log_prob(0)?);
        Ok(step)
    }

    /// Plays test episodes. Actions are the policy's mode or, with a seed for their noise, sampled from it.
    ///
    /// Test episode i starts the same way whichever policy is tested, so that all algorithms, rounds and replicas have
    /// the same starts.
    pub fn test(
        &mut self,
        scorer: Option<&Scorer<D>>,
        rule: &Rule,
        episodes: Range<u64>,
        sampled: Option<u64>,
    ) -> Result<Vec<TestEpisode>, Error> {
        let mut tests = Vec::with_capacity((episodes.end - episodes.start) as usize);
        for i in episodes {
            let noise = sampled.map(|seed| StreamId::new(seed, "test-actions", i));
            self.start(subseed(TEST_STARTS, "test", i), scorer)?;
            let start = self.recorder.env().signals().to_vec();
            while !self.recorder.done() {
                self.step(scorer, noise)?;
            }
            let episode = self.recorder.finish();
            tests.push(TestEpisode::new(episode, start, std::mem::take(&mut self.log_probs), rule));
        }
        Ok(tests)
    }
}
