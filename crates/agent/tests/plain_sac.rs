//! SAC alone solves plain tasks, so that later failures are not SAC's.

use std::f64::consts::PI;
use std::sync::Arc;

use prudence_agent::population::{Parallel, Population, Setup};
use prudence_agent::replay::Stored;
use prudence_agent::settings::{AgentSettings, TrainSettings, TrainingSettings};
use prudence_agent::{Algorithm, MultiplierSettings, Scaling};
use prudence_core::random::stream;
use prudence_core::{BoxSpace, Spec};
use prudence_data::Rule;
use prudence_env::{Env, Error, Step};
use prudence_nn::Cpu;
use rand::RngExt as _;

/// A task small enough to write down: start, step, observe.
#[derive(Clone)]
struct Small<const S: usize> {
    spec: Spec,
    state: [f64; S],
    t: usize,
    start: fn(u64) -> [f64; S],
    advance: fn(&mut [f64; S], f64) -> f64,
    observe: fn(&[f64; S]) -> Vec<f64>,
}

impl<const S: usize> Env for Small<S> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), Error> {
        (self.state, self.t) = ((self.start)(seed), 0);
        observation.copy_from_slice(&(self.observe)(&self.state));
        Ok(())
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error> {
        let reward = (self.advance)(&mut self.state, action[0]);
        self.t += 1;
        observation.copy_from_slice(&(self.observe)(&self.state));
        Ok(Step { reward, terminated: false, truncated: self.t == self.spec.horizon })
    }

    fn signals(&self) -> &[f64] {
        &self.state[..1]
    }
}

fn boxed(low: &[f64], high: &[f64]) -> BoxSpace {
    BoxSpace { low: low.to_vec(), high: high.to_vec() }
}

/// The action must repeat the observed number: reward -(a - x)^2, a new x each step.
fn identity() -> Small<2> {
    Small {
        spec: Spec {
            observation: boxed(&[-1.0], &[1.0]),
            action: boxed(&[-1.0], &[1.0]),
            signals: vec!["x".into()],
            horizon: 20,
        },
        state: [0.0; 2],
        t: 0,
        start: |seed| [stream(seed, "x", 0).random_range(-0.9..0.9), seed as f64],
        advance: |state, action| {
            let reward = -(action - state[0]).powi(2);
            // The next number, from a chaotic map: no generator to keep.
            state[0] = 0.9 * (37.7 * (state[0] + 1.3)).sin();
            reward
        },
        observe: |state| vec![state[0]],
    }
}

/// The pendulum of Gymnasium's Pendulum-v1: swing up and hold, too weak to lift at once.
fn pendulum() -> Small<2> {
    Small {
        spec: Spec {
            observation: boxed(&[-1.0, -1.0, -8.0], &[1.0, 1.0, 8.0]),
            action: boxed(&[-2.0], &[2.0]),
            signals: vec!["angle".into()],
            horizon: 200,
        },
        state: [0.0; 2],
        t: 0,
        start: |seed| {
            let mut rng = stream(seed, "pendulum", 0);
            [rng.random_range(-PI..PI), rng.random_range(-1.0..1.0)]
        },
        advance: |[angle, speed], torque| {
            let torque = torque.clamp(-2.0, 2.0);
            let wrapped = (*angle + PI).rem_euclid(2.0 * PI) - PI;
            let cost = wrapped * wrapped + 0.1 * *speed * *speed + 0.001 * torque * torque;
            *speed = (*speed + (15.0 * angle.sin() + 3.0 * torque) * 0.05).clamp(-8.0, 8.0);
            *angle += *speed * 0.05;
            -cost
        },
        observe: |[angle, speed]| vec![angle.cos(), angle.sin(), *speed],
    }
}

/// Mean return of 20 test episodes after training plain SAC.
fn learned_return<const S: usize>(env: Small<S>, steps: u64, random_steps: u64, multiplier: MultiplierSettings) -> f64 {
    let agent = AgentSettings {
        hidden: vec![64, 64],
        learning_rate: 1e-3,
        batch: 128,
        polyak: 0.01,
        averaging: 0.02,
        ..AgentSettings::default()
    };
    let train = TrainSettings { steps, random_steps, ..TrainSettings::default() };
    let (device, spec) = (Cpu::<f32>::new(), env.spec.clone());
    let setup = Setup {
        algorithm: Algorithm::Sac,
        rule: Rule::parse(&format!("{} < 1e9", spec.signals[0]), &spec.signals).unwrap(),
        stored: Arc::new(Stored::empty(&device, &Scaling::new(&spec), None).unwrap()),
        parallel: Parallel::default(),
        settings: TrainingSettings { target: 0.9, agent, multiplier, train },
        env: Arc::new(move || env.clone()),
        spec: Arc::new(spec),
        models: Vec::new(),
    };
    let mut population = Population::new(&device, setup, &[1]).unwrap();
    while !population.done(0) {
        population.lockstep().unwrap();
    }
    let tests = population.test(&[0], 0..20, false).unwrap().remove(0).unwrap();
    tests.iter().map(|t| t.total_reward).sum::<f64>() / tests.len() as f64
}

#[test]
fn sac_learns_to_repeat_what_it_observes() {
    // 0 always would cost about 0.4 per step, -8 per episode.
    let mean = learned_return(identity(), 4_000, 500, MultiplierSettings::default());
    assert!(mean > -0.1, "mean return {mean}");
}

#[test]
fn sac_swings_the_pendulum_up() {
    // A random policy has about -1200; solved is -200 or better (Pendulum-v1's usual bar).
    let mean = learned_return(pendulum(), 12_000, 1_000, MultiplierSettings::default());
    assert!(mean > -200.0, "mean return {mean}");
}

#[test]
fn no_setting_of_the_multiplier_reaches_sac() {
    let plain = learned_return(identity(), 600, 300, MultiplierSettings::default());
    for multiplier in [
        MultiplierSettings { initial: 50.0, ..MultiplierSettings::default() },
        MultiplierSettings { fixed: Some(3.0), ..MultiplierSettings::default() },
    ] {
        assert_eq!(plain.to_bits(), learned_return(identity(), 600, 300, multiplier).to_bits());
    }
}
