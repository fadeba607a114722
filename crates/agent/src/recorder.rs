//! One environment, and the recording of its running episode.

use prudence_data::Episode;
use prudence_env::{Env, Error, Step};

/// An environment and its episode since the last reset.
pub struct Recorder {
    env: Box<dyn Env>,
    episode: Episode,
    observation: Vec<f64>,
    action: Vec<f64>,
    done: bool,
}

impl Recorder {
    /// Without an episode in progress.
    pub fn new(env: Box<dyn Env>) -> Self {
        let (s, a) = (env.spec().observation.dim(), env.spec().action.dim());
        Self { env, episode: Episode::new(s, a), observation: vec![0.0; s], action: vec![0.0; a], done: true }
    }

    /// The environment.
    pub fn env(&self) -> &dyn Env {
        &*self.env
    }

    /// The environment, mutably.
    pub fn env_mut(&mut self) -> &mut dyn Env {
        &mut *self.env
    }

    /// Starts an episode.
    pub fn start(&mut self, seed: u64) -> Result<(), Error> {
        self.env.reset(seed, &mut self.observation)?;
        self.finish();
        self.episode.observations.extend(self.observation.iter().map(|x| *x as f32));
        self.done = false;
        Ok(())
    }

    /// The latest observation, in the environment's precision.
    pub fn observation(&self) -> &[f64] {
        &self.observation
    }

    /// The latest observation, in the precision of stored episodes.
    pub fn stored_observation(&self) -> &[f32] {
        &self.episode.observations[self.episode.observations.len() - self.observation.len()..]
    }

    /// The last action, in the environment's units.
    pub fn action(&self) -> &[f64] {
        &self.action
    }

    /// The episode so far.
    pub fn episode(&self) -> &Episode {
        &self.episode
    }

    /// The number of steps of the episode so far.
    pub fn steps(&self) -> usize {
        self.episode.len()
    }

    /// Whether no episode is in progress.
    pub fn done(&self) -> bool {
        self.done
    }

    /// Takes one step.
    pub fn step(&mut self, action: &[f32]) -> Result<Step, Error> {
        self.action.iter_mut().zip(action).for_each(|(to, from)| *to = f64::from(*from));
        let step = self.env.step(&self.action, &mut self.observation)?;
        self.episode.actions.extend_from_slice(action);
        self.episode.rewards.push(step.reward as f32);
        self.episode.signals.extend_from_slice(self.env.signals());
        self.episode.observations.extend(self.observation.iter().map(|x| *x as f32));
        self.episode.terminated = step.terminated;
        self.done = step.terminated || step.truncated;
        Ok(step)
    }

    /// Ends the recording and returns the episode.
    pub fn finish(&mut self) -> Episode {
        self.done = true;
        let empty = Episode::new(self.observation.len(), self.action.len());
        std::mem::replace(&mut self.episode, empty)
    }
}
