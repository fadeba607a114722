//! A population on plain Hopper, whose episodes end when it falls: agents have the bits they have alone, and after a resume.
//!
//! The engine is the user's, or installed here as `prudence engines install` does.

mod common;

use std::sync::{Arc, OnceLock};

use common::{Device, Training, assert_as_alone, assert_resumes};
use prudence_agent::Algorithm;
use prudence_agent::population::{Parallel, Setup};
use prudence_agent::replay::Stored;
use prudence_agent::settings::{AgentSettings, MultiplierSettings, TrainSettings, TrainingSettings};
use prudence_data::{Episode, Rule};
use prudence_env::Env as _;
use prudence_physics::engines::Engines;
use prudence_physics::mujoco::{Model, Mujoco, MujocoSettings};
use prudence_safety::fit::initial_model;
use prudence_safety::{FitSettings, Scorer};

const SEEDS: [u64; 3] = [1, 2, 3];

fn engines() -> &'static Engines {
    static ENGINES: OnceLock<Engines> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let engines = Engines::from_environment().unwrap();
        engines.install(None, &mut |_, _| {}).unwrap();
        engines
    })
}

fn hopper() -> Mujoco {
    let settings = MujocoSettings { terminate_when_unhealthy: Some(true), ..MujocoSettings::new(Model::Hopper) };
    Mujoco::with_engines(&settings, engines()).unwrap()
}

fn setup(algorithm: Algorithm) -> Setup<Device> {
    let (device, spec) = (Device::new(), hopper().spec().clone());
    let (s, a) = (spec.observation.dim(), spec.action.dim());
    let fit = FitSettings { encoder: vec![8], hidden: 6, decoder: vec![8], ensemble: 2, ..FitSettings::default() };
    let model = Arc::new(initial_model::<[Episode]>(&[], &[], [s, a], 100, &fit, 5).unwrap());
    let agent = AgentSettings { hidden: vec![24, 24], batch: 24, learning_rate: 1e-3, ..AgentSettings::default() };
    let scorer = Scorer::new(&device, std::slice::from_ref(&model), agent.score_floor).unwrap();
    let scaling = prudence_agent::Scaling::new(&spec);
    Setup {
        algorithm,
        rule: Rule::parse("x_velocity < 1", &spec.signals).unwrap(),
        stored: Arc::new(Stored::empty(&device, &scaling, Some(&scorer)).unwrap()),
        parallel: Parallel::default(),
        settings: TrainingSettings {
            agent,
            multiplier: MultiplierSettings::default(),
            target: 0.9,
            train: TrainSettings { steps: 1200, random_steps: 300, capacity: 700, ..TrainSettings::default() },
        },
        env: Arc::new(hopper),
        spec: Arc::new(spec),
        models: vec![model],
    }
}

fn assert_episodes_of_different_lengths(training: &Training) {
    for agent in 0..3 {
        let (trace, counters) = (&training.traces[agent], training.population.counters(agent));
        assert!(trace.episodes.iter().all(|e| e.terminated), "it falls");
        let lengths = trace.episodes.iter().map(Episode::len);
        assert!(lengths.clone().max() > lengths.min(), "episodes of different lengths");
        assert!(counters.update > 500 && counters.episode > 15, "{counters:?}");
    }
}

#[test]
fn agents_on_hopper_have_the_bits_they_have_alone() {
    for algorithm in [Algorithm::Sac, Algorithm::SafesacH, Algorithm::SafesacNonlb] {
        let together = assert_as_alone(setup(algorithm), &SEEDS, algorithm.name());
        assert_episodes_of_different_lengths(&together);
    }
}

#[test]
fn a_resumed_training_on_hopper_equals_an_uninterrupted_one() {
    assert_resumes(setup(Algorithm::SafesacH), &SEEDS, &[3, 14, 20], "three agents");
    assert_resumes(setup(Algorithm::SafesacH), &SEEDS[1..2], &[17], "one agent");
}
