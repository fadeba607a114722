//! What an agent draws has an address: a training is repeated here with numbers drawn from the addresses that the
//! population's documentation lists, each part of a stream on its own.

mod common;

use std::sync::Arc;

use common::{Device, HORIZON, Training, Walk, assert_same, setup};
use prudence_agent::Algorithm;
use prudence_agent::population::Setup;
use prudence_agent::safesac::{Head, Learner, Networks, Steering};
use prudence_agent::units::{AgentUnits, Meter};
use prudence_core::random::{StreamId, blocks, stream, subseed};
use prudence_data::{Episode, Rule};
use prudence_env::Env as _;
use prudence_nn::work::{Batch, Columns, Drawn, Input, LogStd, Pass};
use prudence_nn::{Bank, Device as _};
use rand::RngExt as _;

/// Actions of the environment: more than a block of the generator has.
const ACTIONS: usize = 5;
const SEED: u64 = 9;

fn normals(purpose: &str, index: u64, block: u64, n: usize) -> Vec<f32> {
    let mut noise = vec![0.0; n];
    StreamId::new(SEED, purpose, index).normals(block, &mut noise);
    noise
}

fn below(purpose: &str, index: u64, limit: usize, n: usize) -> Vec<usize> {
    let mut drawn = vec![0; n];
    StreamId::new(SEED, purpose, index).below(0, limit as u32, &mut drawn);
    drawn.into_iter().map(|i| i as usize).collect()
}

/// Observations and actions as networks read them, and actions as the environment takes them.
fn state_of(units: &AgentUnits, observation: &[f32]) -> [f32; 2] {
    std::array::from_fn(|i| {
        let [centre, scale] = units.observation[i];
        ((observation[i] - centre) * scale).clamp(-10.0, 10.0)
    })
}

fn to_unit(action: f32) -> f32 {
    ((action - 1.0) / 3.0).clamp(-1.0, 1.0)
}

fn to_env(unit: f32) -> f32 {
    1.0 + 3.0 * unit
}

/// Actions of a policy at these states with this noise, in [-1, 1].
fn act(networks: &Networks, policy: &[f32], clip: LogStd, states: &[f32], noise: &[f32]) -> Vec<f32> {
    let d = Device::new();
    let rows = states.len() / networks.state;
    let bank = Bank::dense(networks.policy.shape.clone(), 1);
    let mut pass = Pass::new(&d, &bank, rows).unwrap();
    let mut drawn = Drawn::new(&d, rows, networks.action).unwrap();
    let states = states.into();
    let input = Input { first: Columns::new(&states, rows, networks.state, 1), second: None };
    d.forward(&bank, &policy.into(), input, &mut pass);
    d.sample(&pass, &noise.into(), clip, &mut drawn);
    drawn.action.to_vec()
}

/// Observation, action, reward, next observation, not_terminal.
type Transition = ([f32; 2], Vec<f32>, f32, [f32; 2], f32);

/// Plain SAC, an environment of [`ACTIONS`] actions, everything kept in lists.
struct Repeated {
    setup: Setup<Device>,
    networks: Networks,
    learner: Learner<Device>,
    batch: Batch<Device>,
    transitions: Vec<Transition>,
    /// The episodes of the warm-up, and the units measured on them.
    meter: Meter,
    units: AgentUnits,
    updates: u64,
}

impl Repeated {
    fn new(setup: Setup<Device>) -> Self {
        let settings = &setup.settings.agent;
        let networks = Networks::new(1, 2, ACTIONS, &settings.hidden, vec![Head::reward(true)]);
        let streams = [stream(SEED, "networks", 0)];
        let learner = Learner::new(&Device::new(), networks.clone(), settings, streams).unwrap();
        let batch = Batch::new(&Device::new(), 1, settings.batch, 2, ACTIONS).unwrap();
        let (meter, units) = (Meter::new(2), AgentUnits::of_environment(2));
        Self { networks, learner, batch, transitions: Vec::new(), meter, units, updates: 0, setup }
    }

    fn update(&mut self) {
        let settings = &self.setup.settings;
        let (n, u) = (settings.agent.batch, self.updates);
        for (i, index) in below("batch", u, self.transitions.len(), n).into_iter().enumerate() {
            let (observation, action, reward, next, not_terminal) = &self.transitions[index];
            self.batch.state[2 * i..][..2].copy_from_slice(&state_of(&self.units, observation));
            self.batch.next_state[2 * i..][..2].copy_from_slice(&state_of(&self.units, next));
            let units = action.iter().map(|a| to_unit(*a));
            self.batch.action[ACTIONS * i..][..ACTIONS].iter_mut().zip(units).for_each(|(to, unit)| *to = unit);
            let [centre, scale] = self.units.reward;
            (self.batch.reward[i], self.batch.not_terminal[i]) = ((*reward - centre) * scale, *not_terminal);
        }
        self.batch.next_noise.copy_from_slice(&normals("next-actions", u, 0, n * ACTIONS));
        self.batch.noise.copy_from_slice(&normals("new-actions", u, 0, n * ACTIONS));
        self.updates += 1;
        let progress = (self.transitions.len() as f64 / settings.train.steps as f64).min(1.0);
        let rate = settings.agent.learning_rate * (1.0 - (1.0 - settings.agent.final_rate) * progress);
        self.learner.steer(0, Some(&Steering { rate, update: self.updates, multipliers: Vec::new() }));
        self.learner.update(&self.batch).unwrap();
    }

    fn episode(&mut self, e: u64) {
        let (mut env, mut observation) = (Walk::with_actions(ACTIONS), [0.0; 2]);
        env.reset(subseed(SEED, "train", e), &mut observation).unwrap();
        let warm_up = (self.transitions.len() as u64) < self.setup.settings.train.random_steps;
        if !warm_up && self.updates == 0 {
            self.units = self.meter.units(self.setup.settings.agent.discount);
        }
        let mut episode = Episode { observations: observation.map(|x| x as f32).to_vec(), ..Episode::new(2, ACTIONS) };
        let mut random = stream(SEED, "warm-up", e);
        let mut centre = Vec::new();
        for t in 0.. {
            let from = observation.map(|x| x as f32);
            let action: Vec<f32> = if warm_up {
                if centre.is_empty() {
                    centre.extend((0..ACTIONS).map(|_| random.random_range(-1.0f32..1.0)));
                }
                let mut unit = |centre: &f32| (centre + random.random_range(-1.0f32..1.0)).clamp(-1.0, 1.0);
                centre.iter().map(&mut unit).map(to_env).collect()
            } else {
                let noise = normals("actions", e, t * blocks(ACTIONS), ACTIONS);
                let clip = self.setup.settings.agent.log_std();
                let policy = &self.learner.agents.policy.values;
                act(&self.networks, policy, clip, &state_of(&self.units, &from), &noise)
                    .into_iter()
                    .map(to_env)
                    .collect()
            };
            let given: Vec<f64> = action.iter().map(|a| f64::from(*a)).collect();
            let step = env.step(&given, &mut observation).unwrap();
            let not_terminal = if step.terminated { 0.0 } else { 1.0 };
            episode.observations.extend(observation.map(|x| x as f32));
            episode.actions.extend(&action);
            episode.rewards.push(step.reward as f32);
            episode.terminated = step.terminated;
            self.transitions.push((from, action, step.reward as f32, observation.map(|x| x as f32), not_terminal));
            if !warm_up {
                self.update();
            }
            if step.terminated || step.truncated {
                return self.meter.add(&episode);
            }
        }
    }
}

#[test]
fn a_training_draws_from_the_documented_addresses() {
    let mut setup = setup(Algorithm::Sac, &[], &[]);
    let spec = Walk::with_actions(ACTIONS).spec().clone();
    setup.rule = Rule::parse("place < 0.5", &spec.signals).unwrap();
    setup.spec = Arc::new(spec);
    setup.env = Arc::new(|| Walk::with_actions(ACTIONS));
    setup.stored = Arc::new(prudence_agent::replay::Stored::empty(&Device::new(), &setup.scaling(), None).unwrap());
    setup.settings.train.capacity = 10_000;
    let training = Training::complete(setup.clone(), &[SEED]);
    let mut repeated = Repeated::new(setup);
    (0..training.traces[0].episodes.len() as u64).for_each(|e| repeated.episode(e));
    let actions: Vec<f32> = training.traces[0].episodes.iter().flat_map(|e| e.actions.clone()).collect();
    let again: Vec<f32> = repeated.transitions.iter().flat_map(|transition| transition.1.clone()).collect();
    assert!(training.traces[0].episodes.iter().any(|e| e.len() == HORIZON));
    assert_same(&actions, &again, "actions");
    assert_eq!(training.population.counters(0).update, repeated.updates);
    let policy = training.state(0).tensors.swap_remove(0);
    assert_same(&policy, &("policy", repeated.learner.agents.policy.values.to_vec()), "policy");
}
