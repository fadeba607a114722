//! SAC alone solves plain tasks, so that later failures are not SAC's.

use std::f64::consts::PI;
use std::sync::Arc;

use prudence_agent::settings::{AgentSettings, Settings, TrainSettings};
use prudence_agent::trainer::{Setup, Trainer};
use prudence_agent::{Algorithm, MultiplierSettings};
use prudence_data::Rule;
use prudence_core::random::stream;
use prudence_env::{BoxSpace, Env, Error, MakeEnv, Spec, Step};
use rand::RngExt as _;
use serde_json::Value;

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

impl<const S: usize> Small<S> {
    fn see(&self, observation: &mut [f64]) {
        observation.copy_from_slice(&(self.observe)(&self.state));
    }
}

impl<const S: usize> Env for Small<S> {
    fn spec(&self) -> &Spec {
        &self.spec
    }
    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), Error> {
        (self.state, self.t) = ((self.start)(seed), 0);
        self.see(observation);
        Ok(())
    }
    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error> {
        let reward = (self.advance)(&mut self.state, action[0]);
        self.t += 1;
        self.see(observation);
        Ok(Step { reward, terminated: false, truncated: self.t == self.spec.horizon })
    }
    fn signals(&self) -> &[f64] {
        &self.state[..1]
    }
    fn state(&self) -> Value {
        Value::Null
    }
    fn set_state(&mut self, _: &Value, _: &mut [f64]) -> Result<(), Error> {
        Err(Error::State("not in this test".into()))
    }
    fn snapshot(&self) -> Option<Vec<u8>> {
        None
    }
    fn restore(&mut self, _: &[u8], _: &mut [f64]) -> Result<(), Error> {
        Err(Error::State("not in this test".into()))
    }
}

impl<const S: usize> MakeEnv for Small<S> {
    fn build(&self) -> Result<Box<dyn Env>, Error> {
        Ok(Box::new(self.clone()))
    }
    fn describe(&self) -> String {
        "a test's".into()
    }
}

fn boxed(low: &[f64], high: &[f64]) -> BoxSpace {
    BoxSpace { low: low.to_vec(), high: high.to_vec() }
}

/// Say the number you are shown: reward -(a - x)^2, a new x each step.
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
fn learned_return<const S: usize>(env: Small<S>, steps: u64, random_steps: u64) -> f64 {
    learned_return_with(env, steps, random_steps, MultiplierSettings::default())
}

fn learned_return_with<const S: usize>(
    env: Small<S>,
    steps: u64,
    random_steps: u64,
    multiplier: MultiplierSettings,
) -> f64 {
    let rule = Rule::parse(&format!("{} < 1e9", env.spec.signals[0]), &env.spec.signals).unwrap();
    let settings = Settings {
        agent: AgentSettings {
            hidden: vec![64, 64],
            learning_rate: 1e-3,
            batch: 128,
            polyak: 0.01,
            averaging: 0.02,
            ..AgentSettings::default()
        },
        multiplier,
        train: TrainSettings { steps, random_steps, ..TrainSettings::default() },
    };
    let setup = Setup {
        algorithm: Algorithm::Sac,
        settings,
        env: Arc::new(env),
        rule,
        safety: None,
        stored: Arc::default(),
        seed: 1,
    };
    let mut trainer = Trainer::new(setup).unwrap();
    while !trainer.done() {
        trainer.episode().unwrap();
    }
    let tests = trainer.test(0..20, false).unwrap();
    tests.iter().map(|t| t.total_reward).sum::<f64>() / tests.len() as f64
}

#[test]
fn sac_learns_to_repeat_what_it_is_shown() {
    // Saying 0 always would cost about 0.4 a step, -8 an episode.
    let mean = learned_return(identity(), 4_000, 500);
    assert!(mean > -0.1, "mean return {mean}");
}

#[test]
fn sac_swings_the_pendulum_up() {
    // A random policy has about -1200; solved is -200 or better (Pendulum-v1's usual bar).
    let mean = learned_return(pendulum(), 12_000, 1_000);
    assert!(mean > -200.0, "mean return {mean}");
}

#[test]
fn no_setting_of_the_multiplier_reaches_sac() {
    let plain = learned_return(identity(), 600, 300);
    for multiplier in [
        MultiplierSettings { initial: 50.0, ..MultiplierSettings::default() },
        MultiplierSettings { fixed: Some(3.0), ..MultiplierSettings::default() },
    ] {
        assert_eq!(plain.to_bits(), learned_return_with(identity(), 600, 300, multiplier).to_bits());
    }
}
