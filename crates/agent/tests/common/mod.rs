//! What the tests share: a small environment, small safety models, and trainings whose results can be compared to the bit.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod training;

use std::sync::Arc;

use prudence_agent::population::{Parallel, Setup};
use prudence_agent::replay::{Replay, ReplicaEpisodes, Stored};
use prudence_agent::settings::{AgentSettings, MultiplierSettings, TrainSettings, TrainingSettings};
use prudence_agent::{Algorithm, Scaling};
use prudence_core::random::{StreamId, stream, subseed};
use prudence_core::{BoxSpace, Spec};
use prudence_data::{Episode, Rule};
use prudence_env::{Env, MakeEnv, Step};
use prudence_nn::work::Batch;
use prudence_nn::{Cpu, Device as _};
use prudence_safety::fit::initial_model;
use prudence_safety::{FitSettings, SafetyModel, Scorer};
use rand::RngExt as _;

pub use training::{
    Training, assert_as_alone, assert_resumes, assert_same, assert_same_agent, killed, without_signals,
};

pub type Device = Cpu<f32>;

/// The floor of running sums in these tests: low enough to be reached.
pub const FLOOR: f64 = -2.0;

/// A point on a line that an action pushes. Episodes end after a random number of steps, some by termination.
#[derive(Clone)]
pub struct Walk {
    spec: Spec,
    place: f64,
    speed: f64,
    t: usize,
    length: usize,
    reward: f64,
    /// Seeds of episodes that have this reward at every step.
    huge: Option<(Vec<u64>, f64)>,
}

pub const HORIZON: usize = 15;

impl Walk {
    pub fn new() -> Self {
        let spec = Spec {
            observation: BoxSpace { low: vec![f64::NEG_INFINITY, -2.0], high: vec![f64::INFINITY, 2.0] },
            action: BoxSpace { low: vec![-2.0], high: vec![4.0] },
            signals: vec!["place".into()],
            horizon: HORIZON,
        };
        Self { spec, place: 0.0, speed: 0.0, t: 0, length: 0, reward: 0.0, huge: None }
    }

    /// With this many actions, whose sum pushes the point.
    pub fn with_actions(n: usize) -> Self {
        let mut walk = Self::new();
        walk.spec.action = BoxSpace::uniform(n, -2.0, 4.0);
        walk
    }

    /// An environment that gives an agent of this seed an absurd reward from its training episode `first` on.
    pub fn absurd_for(seed: u64, first: u64, reward: f64) -> Self {
        let seeds = (first..first + 1000).map(|episode| subseed(seed, "train", episode)).collect();
        Self { huge: Some((seeds, reward)), ..Self::new() }
    }
}

impl Env for Walk {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), prudence_env::Error> {
        let mut rng = stream(seed, "walk", 0);
        (self.place, self.speed, self.t) = (rng.random_range(-1.0..1.0), 0.0, 0);
        self.length = rng.random_range(1..HORIZON + 5);
        self.reward = match &self.huge {
            Some((seeds, reward)) if seeds.contains(&seed) => *reward,
            _ => 0.0,
        };
        observation.copy_from_slice(&[self.place, self.speed]);
        Ok(())
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, prudence_env::Error> {
        prudence_env::check_finite("action", action)?;
        self.t += 1;
        self.speed = (0.8 * self.speed + 0.1 * action.iter().map(|a| a.clamp(-2.0, 4.0)).sum::<f64>()).clamp(-2.0, 2.0);
        self.place += 0.3 * self.speed;
        observation.copy_from_slice(&[self.place, self.speed]);
        let terminated = self.t == self.length && self.length <= HORIZON;
        let reward = self.reward - self.place.powi(2);
        Ok(Step { reward, terminated, truncated: !terminated && self.t == HORIZON })
    }

    fn signals(&self) -> &[f64] {
        std::slice::from_ref(&self.place)
    }
}

/// An environment made for each episode of training and testing.
pub fn walk() -> Arc<dyn MakeEnv> {
    Arc::new(Walk::new)
}

/// Episodes of random actions in [`Walk`].
pub fn random_episodes(seed: u64, n: u64) -> Vec<Episode> {
    let mut env = Walk::new();
    let mut observation = [0.0; 2];
    let mut one = |index: u64| {
        let mut rng = stream(seed, "random-episodes", index);
        let mut episode = Episode::new(2, 1);
        env.reset(subseed(seed, "random-episodes", index), &mut observation).unwrap();
        episode.observations.extend(observation.map(|x| x as f32));
        loop {
            let action: f32 = rng.random_range(-2.0..4.0);
            let step = env.step(&[f64::from(action)], &mut observation).unwrap();
            episode.observations.extend(observation.map(|x| x as f32));
            episode.actions.push(action);
            episode.rewards.push(step.reward as f32);
            episode.signals.extend(env.signals());
            episode.terminated = step.terminated;
            if step.terminated || step.truncated {
                return episode;
            }
        }
    };
    (0..n).map(&mut one).collect()
}

/// An untrained model of steps in [`Walk`].
pub fn safety_model(seed: u64, ensemble: usize) -> Arc<SafetyModel> {
    small_model(&random_episodes(0, 10), seed, ensemble)
}

/// An untrained model for inputs like these, under which a step is safe with a probability of about 0.9.
pub fn small_model(episodes: &[Episode], seed: u64, ensemble: usize) -> Arc<SafetyModel> {
    let settings = FitSettings { encoder: vec![6, 3], hidden: 4, decoder: vec![8], ensemble, ..FitSettings::default() };
    let all: Vec<usize> = (0..episodes.len()).collect();
    Arc::new(initial_model(episodes, &all, [2, 1], 0, &settings, seed).unwrap())
}

pub fn scorer(model: &Arc<SafetyModel>) -> Scorer<Device> {
    Scorer::new(&Device::new(), std::slice::from_ref(model), FLOOR).unwrap()
}

/// A short training in [`Walk`]: small networks, many early ends.
pub fn settings() -> TrainingSettings {
    TrainingSettings {
        agent: AgentSettings {
            hidden: vec![16, 12],
            batch: 10,
            learning_rate: 3e-3,
            final_rate: 0.3,
            score_floor: FLOOR,
            ..AgentSettings::default()
        },
        target: 0.2,
        multiplier: MultiplierSettings { initial: 0.5, ..MultiplierSettings::default() },
        train: TrainSettings {
            steps: 350,
            random_steps: 60,
            capacity: 150,
            test_episodes: 2,
            ..TrainSettings::default()
        },
    }
}

pub fn scaling() -> Scaling {
    Scaling::new(Walk::new().spec())
}

/// Stored episodes: a list per model, or one without a model.
pub fn stored(models: &[Arc<SafetyModel>], episodes: &[Vec<Episode>]) -> Arc<Stored<Device>> {
    let scorers: Vec<Scorer<Device>> = models.iter().map(scorer).collect();
    let replicas: Vec<_> = (0..scorers.len().max(1))
        .map(|r| ReplicaEpisodes { scorer: scorers.get(r), episodes: episodes.get(r).map_or(&[][..], Vec::as_slice) })
        .collect();
    Arc::new(Stored::of_replicas(&Device::new(), &scaling(), &replicas).unwrap())
}

/// A transition drawn from a replay buffer: state, action, reward, score, next state, not_terminal.
pub type Row = (Vec<f32>, Vec<f32>, f32, f32, Vec<f32>, f32);

/// `n` transitions of each agent of a replay buffer, drawn with `stream`.
pub fn draw(replay: &Replay<Device>, agents: usize, n: usize, stream: StreamId) -> Vec<Vec<Row>> {
    let (d, width, a) = (Device::new(), replay.state_width(), replay.units().action_width);
    let mut rows = vec![0; agents * n];
    rows.chunks_exact_mut(n).enumerate().for_each(|(agent, rows)| replay.draw(agent, rows, 0.0, stream));
    let mut batch = Batch::new(&d, agents, n, width, a).unwrap();
    d.gather(&replay.tables(), &rows, &mut batch);
    let part = |buffer: &[f32], i: usize, width: usize| buffer[i * width..][..width].to_vec();
    let row = |i: usize| -> Row {
        let Batch { state, action, reward, score, next_state, not_terminal, .. } = &batch;
        (part(state, i, width), part(action, i, a), reward[i], score[i], part(next_state, i, width), not_terminal[i])
    };
    (0..agents).map(|agent| (agent * n..(agent + 1) * n).map(row).collect()).collect()
}

/// A training in [`Walk`] from these models and, for each of them, these stored episodes.
pub fn setup(algorithm: Algorithm, models: &[Arc<SafetyModel>], episodes: &[Vec<Episode>]) -> Setup<Device> {
    let spec = Walk::new().spec().clone();
    Setup {
        algorithm,
        settings: settings(),
        env: walk(),
        rule: Rule::parse("place < 0.5", &spec.signals).unwrap(),
        spec: Arc::new(spec),
        models: models.to_vec(),
        stored: stored(models, episodes),
        parallel: Parallel::default(),
    }
}
