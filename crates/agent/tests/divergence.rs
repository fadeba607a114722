//! An agent that diverges, or whose environment fails, stops alone.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{HORIZON, Training, Walk, assert_same, assert_same_agent, safety_model, setup};
use prudence_agent::{Algorithm, Error};
use prudence_core::Spec;
use prudence_env::{Env, MakeEnv, Step};

const SEEDS: [u64; 3] = [1, 2, 3];

#[test]
fn an_agent_that_diverges_stops_alone() {
    // Rewards whose square, whose gradient's square, and which themselves exceed the largest f32.
    for (reward, algorithm) in
        [(1e38, Algorithm::SafesacH), (3e21, Algorithm::SafesacNonlb), (1e38, Algorithm::Sac), (1e39, Algorithm::Sac)]
    {
        let what = format!("{} with a reward of {reward}", algorithm.name());
        let mut setup = setup(algorithm, &[safety_model(1, 1)], &[]);
        setup.env = Arc::new(move || Walk::absurd_for(SEEDS[1], 12, reward));
        let together = Training::complete(setup.clone(), &SEEDS);
        for (agent, seed) in SEEDS.into_iter().enumerate() {
            let alone = Training::complete(setup.clone(), &[seed]);
            if agent == 1 {
                assert_same(&together.traces[1].episodes, &alone.traces[0].episodes, &what);
                assert_same(&together.traces[1].error, &alone.traces[0].error, &what);
            } else {
                assert_same_agent(&together, agent, &alone, 0, &format!("{what}, agent {agent}"));
                assert!(together.population.done(agent));
            }
        }
        let (error, step) = (together.traces[1].error.as_ref(), together.population.counters(1).step);
        let Some(Error::Diverged { step: at, what: number, value }) = error else { panic!("{what}: {error:?}") };
        assert!(!value.is_finite() && *at == step && step < 200, "{what}: {number} is {value} at step {at} of {step}");
        let episodes = together.traces[1].episodes.len();
        assert!((12..15).contains(&episodes), "{what}: {number} after {episodes} episodes, not soon");
        let updates = together.population.counters(1).update;
        assert!(updates < together.population.counters(0).update, "no further updates");
    }
}

/// With one transition per batch, the last update of an episode often has a finite loss after an earlier one had not.
#[test]
fn divergence_that_the_last_loss_does_not_show_is_found() {
    let mut hidden = 0;
    for seed in 0..10 {
        let mut setup = setup(Algorithm::Sac, &[], &[]);
        setup.settings.agent.batch = 1;
        setup.settings.train.random_steps = 1;
        setup.env = Arc::new(move || Walk::absurd_for(seed, 3, 1e25));
        let training = Training::complete(setup, &[seed]);
        let error = training.traces[0].error.as_ref().map(ToString::to_string).unwrap();
        assert!(training.traces[0].episodes.len() < 8, "seed {seed}: {error}");
        if training.population.counters(0).metrics.losses[0].is_finite() {
            hidden += 1;
            assert!(error.starts_with("training diverged: the mean squared gradient of the "), "{error}");
        }
    }
    assert!(hidden > 0);
}

/// Fails at its second step, from its third episode on.
struct Failing {
    walk: Walk,
    episodes: usize,
    steps: usize,
    fails: bool,
}

impl Env for Failing {
    fn spec(&self) -> &Spec {
        self.walk.spec()
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), prudence_env::Error> {
        (self.episodes, self.steps) = (self.episodes + 1, 0);
        self.walk.reset(seed, observation)
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, prudence_env::Error> {
        self.steps += 1;
        if self.fails && self.episodes >= 12 && self.steps == 2 {
            return Err(prudence_env::Error::Simulator("out of fuel".to_owned()));
        }
        self.walk.step(action, observation)
    }

    fn signals(&self) -> &[f64] {
        self.walk.signals()
    }
}

/// The environments of three agents, of which the second's fails, and of their tests.
#[derive(Default)]
struct MakeFailing(AtomicUsize);

impl MakeEnv for MakeFailing {
    fn make(&self) -> Result<Box<dyn Env>, prudence_env::Error> {
        let index = self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Failing { walk: Walk::new(), episodes: 0, steps: 0, fails: index == 1 }))
    }

    fn describe(&self) -> String {
        "failing".to_owned()
    }
}

#[test]
fn an_agent_whose_environment_fails_stops_alone() {
    let mut failing = setup(Algorithm::SafesacH, &[safety_model(1, 1)], &[]);
    let sound = failing.clone();
    failing.env = Arc::new(MakeFailing::default());
    let together = Training::complete(failing, &SEEDS);
    assert!(matches!(together.traces[1].error, Some(Error::Env(_))), "{:?}", together.traces[1].error);
    assert!(together.traces[1].episodes.len() < 20 && together.population.counters(1).step < 12 * HORIZON as u64);
    for agent in [0, 2] {
        let alone = Training::complete(sound.clone(), &[SEEDS[agent]]);
        assert_same_agent(&together, agent, &alone, 0, &format!("agent {agent}"));
    }
}

#[test]
fn a_stopped_agent_completes_its_episode_and_starts_no_other() {
    let mut training = Training::new(setup(Algorithm::SafesacH, &[safety_model(1, 1)], &[]), &SEEDS);
    (0..100).for_each(|_| drop(training.lockstep()));
    training.population.stop(1);
    let episodes = training.traces[1].episodes.len();
    while !(training.over(0) && training.over(2)) {
        training.lockstep();
    }
    assert!(training.between_episodes(1) && (episodes..=episodes + 1).contains(&training.traces[1].episodes.len()));
    assert!(training.lockstep().is_empty(), "nothing more happens");
}
