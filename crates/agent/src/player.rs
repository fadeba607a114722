//! Acting: one environment, one policy, and the safety model's memory beside them.

use std::sync::Arc;

use prudence_data::Episode;
use prudence_env::random::Stream;
use prudence_env::{Env, Step};
use prudence_nn::gaussian::{self, LogStd};
use prudence_nn::{Mlp, Scalar as _};
use prudence_safety::{SafetyModel, Tracker};
use rand::RngExt as _;
use rand_distr::{Distribution as _, StandardNormal};

use crate::scaling::Scaling;

/// How actions are chosen.
pub enum Choose<'a> {
    /// From the policy with these parameters; with a stream: drawn, without: its mode.
    Policy(&'a [f32], Option<&'a mut Stream>),
    /// At random around a point that stays the same for the whole episode: uniform noise alone hardly moves an agent, and
    /// hardly ever gave a safe episode to learn from.
    Random(&'a mut Stream),
}

/// An environment with what is needed to act in it, an episode at a time.
pub struct Player {
    env: Box<dyn Env>,
    scaling: Scaling,
    shape: Mlp,
    clip: LogStd,
    history: bool,
    safety: Option<(Arc<SafetyModel>, Tracker)>,
    episode: Episode,
    log_probs: Vec<f32>,
    bias: Vec<f32>,
    done: bool,
    observation: Vec<f64>,
    state: Vec<f32>,
    head: Vec<f32>,
    unit: Vec<f32>,
    action: Vec<f64>,
    scratch: [Vec<f32>; 2],
}

impl Player {
    /// For a policy of this shape.
    pub fn new(
        env: Box<dyn Env>,
        shape: Mlp,
        clip: LogStd,
        safety: Option<Arc<SafetyModel>>,
        history: bool,
        floor: f64,
    ) -> Self {
        let scaling = Scaling::new(env.spec());
        let (s, a) = scaling.sizes();
        let safety = safety.map(|model| {
            let tracker = model.tracker(floor);
            (model, tracker)
        });
        Self {
            observation: vec![0.0; s],
            state: vec![0.0; shape.inputs()],
            head: vec![0.0; shape.outputs()],
            unit: vec![0.0; a],
            action: vec![0.0; a],
            bias: vec![0.0; a],
            env,
            scaling,
            shape,
            clip,
            history,
            safety,
            episode: Episode::default(),
            log_probs: Vec::new(),
            done: true,
            scratch: Default::default(),
        }
    }

    /// The environment.
    pub fn env(&self) -> &dyn Env {
        &*self.env
    }

    /// Starts an episode.
    pub fn start(&mut self, seed: u64) -> Result<(), prudence_env::Error> {
        self.env.reset(seed, &mut self.observation)?;
        self.episode = Episode::default();
        self.episode.observations.extend(self.observation.iter().map(|x| *x as f32));
        self.log_probs.clear();
        self.bias.clear();
        if let Some((_, tracker)) = &mut self.safety {
            tracker.reset();
        }
        self.done = false;
        Ok(())
    }

    /// What the environment showed last, in its own precision.
    pub fn observation(&self) -> &[f64] {
        &self.observation
    }

    /// The last action, in the environment's units.
    pub fn action(&self) -> &[f64] {
        &self.action
    }

    /// What happened so far.
    pub fn episode(&self) -> &Episode {
        &self.episode
    }

    /// Whether the episode is over.
    pub fn done(&self) -> bool {
        self.done
    }

    /// Chooses an action and takes one step.
    pub fn step(&mut self, choose: &mut Choose<'_>) -> Result<Step, prudence_env::Error> {
        let (s, a) = self.scaling.sizes();
        let now = self.episode.observations.len() - s;
        match choose {
            Choose::Policy(parameters, stream) => {
                let (observation, memory) = self.state.split_at_mut(s);
                self.scaling.observation(&self.episode.observations[now..], observation);
                if let (true, Some((_, tracker))) = (self.history, &self.safety) {
                    tracker.write_memory(memory);
                }
                self.shape.forward_one(parameters, &self.state, &mut self.head, &mut self.scratch);
                match stream {
                    None => gaussian::mode(&self.head, &mut self.unit),
                    Some(stream) => {
                        for i in 0..a {
                            let e: f32 = StandardNormal.sample(*stream);
                            let log_std = (self.head[a + i]).clamp(self.clip.min as f32, self.clip.max as f32);
                            self.unit[i] = prudence_nn::Scalar::tanh(log_std.exp().fma(e, self.head[i]));
                        }
                    }
                }
            }
            Choose::Random(stream) => {
                if self.bias.is_empty() {
                    self.bias.extend((0..a).map(|_| stream.random_range(-1.0f32..1.0)));
                }
                for (unit, bias) in self.unit.iter_mut().zip(&self.bias) {
                    *unit = (bias + stream.random_range(-1.0f32..1.0)).clamp(-1.0, 1.0);
                }
            }
        }
        let at = self.episode.actions.len();
        self.episode.actions.resize(at + a, 0.0);
        self.scaling.to_env(&self.unit, &mut self.episode.actions[at..]);
        for (out, x) in self.action.iter_mut().zip(&self.episode.actions[at..]) {
            *out = f64::from(*x);
        }
        let step = self.env.step(&self.action, &mut self.observation)?;
        if let Some((model, tracker)) = &mut self.safety {
            let (observation, action) = (&self.episode.observations[now..], &self.episode.actions[at..]);
            let log_prob = model.step(tracker, observation, action);
            tracker.score(log_prob);
            self.log_probs.push(log_prob);
        }
        self.episode.rewards.push(step.reward as f32);
        self.episode.signals.extend_from_slice(self.env.signals());
        self.episode.observations.extend(self.observation.iter().map(|x| *x as f32));
        self.episode.terminated = step.terminated;
        self.done = step.terminated || step.truncated;
        Ok(step)
    }

    /// The episode so far, and the model's log P of each step.
    pub fn finish(&mut self) -> (Episode, Vec<f32>) {
        self.done = true;
        (std::mem::take(&mut self.episode), std::mem::take(&mut self.log_probs))
    }
}
