//! Test episodes in an environment of their own, judged by the true rule.
//!
//! The rule is for people: what is computed here never reaches a learner.

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

/// What a policy needs beside its parameters.
#[derive(Clone, Debug)]
pub struct PolicyShape {
    /// Its network.
    pub network: Mlp,
    /// Between the environment's units and its own.
    pub scaling: Scaling,
    /// The clipping of its spread.
    pub clip: LogStd,
    /// Whether it sees the safety model's memory.
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
    /// In this environment; its policy is still to be loaded.
    pub fn new(
        device: &D,
        env: Box<dyn Env>,
        shape: &PolicyShape,
        scorer: Option<&Scorer<D>>,
    ) -> Result<Self, Error> {
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

    /// Takes these parameters for its policy.
    pub fn load(&mut self, policy: &[f32]) {
        self.device.write(&mut self.weights, 0, policy);
    }

    /// What has been recorded, and the environment.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The environment, for what changes it.
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

    /// Takes one step: with a stream, actions are drawn from the policy; without, they are its mode.
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

    /// Plays test episodes: actions are the policy's mode, or drawn if `sampled`.
    ///
    /// Episode i of a seed starts the same way whatever is tested, so that algorithms meet the same starts.
    pub fn test(
        &mut self,
        scorer: Option<&Scorer<D>>,
        rule: &Rule,
        episodes: Range<u64>,
        seed: u64,
        sampled: bool,
    ) -> Result<Vec<TestEpisode>, Error> {
        let mut judge = rule.judge();
        let width = self.recorder.env().spec().signals.len();
        let mut tests = Vec::with_capacity((episodes.end - episodes.start) as usize);
        for i in episodes {
            let noise = sampled.then_some(StreamId::new(seed, "test-actions", i));
            self.start(subseed(seed, "test", i), scorer)?;
            while !self.recorder.done() {
                self.step(scorer, noise)?;
            }
            let episode = self.recorder.finish();
            judge.reset();
            let kept = episode.signals.chunks_exact(width).filter(|signals| judge.step(signals)).count();
            tests.push(TestEpisode {
                total_reward: episode.total_reward(),
                safe: judge.safe(),
                steps_kept: kept as f64 / episode.len() as f64,
                log_probs: std::mem::take(&mut self.log_probs),
                episode,
            });
        }
        Ok(tests)
    }
}
