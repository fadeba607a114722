//! Which policy a training leaves behind: the last that met the constraint as the safety model judges.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prudence_agent::records::Record;
use prudence_agent::run::{self, Event, Folders};
use prudence_agent::settings::{AgentSettings, MultiplierSettings, Settings, TrainSettings};
use prudence_agent::trainer::{Setup, Trainer};
use prudence_agent::{Algorithm, Error};
use prudence_data::files::read_limited;
use prudence_data::{Episode, Rule};
use prudence_env::{EnvSettings, MakeEnv as _, rddl};
use prudence_nn::Mlp;
use prudence_nn::weights::Reader;
use prudence_safety::FitSettings;
use prudence_safety::fit::initial_model;

const STEPS: u64 = 1000;

/// A short training whose lambda is fixed, so that `target` decides about nothing but what is kept.
fn setup(target: f64, seed: u64) -> Setup {
    let env = EnvSettings::Rddl(rddl::Settings::builtin("navigation"));
    let spec = env.build().unwrap().spec().clone();
    let (s, a) = (spec.observation.dim(), spec.action.dim());
    let episode =
        Episode { observations: vec![0.5; 2 * s], actions: vec![0.1; a], rewards: vec![0.0], ..Episode::default() };
    let model = initial_model(&[&episode], s, a, spec.horizon, &FitSettings::default(), 3);
    let train = TrainSettings {
        steps: STEPS,
        random_steps: 100,
        record_every: 100,
        test_episodes: 3,
        checkpoint_every: 100,
        ..TrainSettings::default()
    };
    Setup {
        algorithm: Algorithm::SafesacH,
        settings: Settings {
            agent: AgentSettings { hidden: vec![16, 16], batch: 16, learning_rate: 1e-2, ..AgentSettings::default() },
            multiplier: MultiplierSettings { target, fixed: Some(0.0), ..MultiplierSettings::default() },
            train,
        },
        rule: Rule::parse("count(in_danger) <= 1", &spec.signals).unwrap(),
        env: Arc::new(env),
        safety: Some(Arc::new(model)),
        stored: Arc::default(),
        seed,
    }
}

/// What a training told: the records' steps and constraints, its warnings. It is stopped at the record of step `until`.
#[derive(Default, Debug, PartialEq)]
struct Told {
    constraints: Vec<(u64, f64)>,
    warnings: Vec<String>,
}

fn train(setup: Setup, dir: &Path, until: u64) -> (Result<Trainer, Error>, Told) {
    let folders = Folders { run: dir.join("run"), episodes: dir.join("data"), task: "navigation".into() };
    let (told, stop) = (RefCell::new(Told::default()), AtomicBool::new(false));
    let tell = |event: Event<'_>| match event {
        Event::Record(record) => {
            let value = record.mean_predicted();
            told.borrow_mut().constraints.push((record.step, value));
            stop.store(record.step == until, Ordering::Relaxed);
        }
        Event::Warning(text) => told.borrow_mut().warnings.push(text),
        Event::Step(_) => {}
    };
    let trainer = run::train(setup, &folders, &stop, &tell);
    (trainer, told.into_inner())
}

/// The policy that was written, and the step its file says.
fn written(dir: &Path) -> (Vec<u8>, u64) {
    let bytes = read_limited(&dir.join("run/policy.safetensors"), 1 << 30).unwrap();
    let step = Reader::new(&bytes).unwrap().metadata("step").unwrap().parse().unwrap();
    (bytes, step)
}

#[test]
fn the_last_policy_that_meets_the_constraint_is_kept() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let whole = |target: f64, seed: u64, dir: &Path| {
        let (trainer, told) = train(setup(target, seed), dir, u64::MAX);
        (trainer.unwrap(), told)
    };
    let others_best =
        |told: &Told| told.constraints.iter().rev().skip(1).map(|record| record.1).fold(f64::MIN, f64::max);
    // Whatever a machine's rounding makes of it, in one of these the last is not the best.
    let (seed, every, told, last) = (1..20)
        .find_map(|seed| {
            let (trainer, told) = whole(1e-9, seed, tempfile::tempdir().unwrap().path());
            let last = told.constraints.last()?.1;
            (others_best(&told) > last).then_some((seed, trainer, told, last))
        })
        .unwrap();
    assert_eq!((every.kept_step(), told.warnings.len()), (Some(STEPS), 0), "all meet it, so the last does");

    let target = 0.5 * (others_best(&told) + last);
    let expected = told.constraints.iter().rev().find(|(_, value)| *value >= target).unwrap().0;
    let (mut one, again) = whole(target, seed, dirs[0].path());
    assert_eq!(again.constraints, told.constraints, "what is asked for changed the training");
    assert_eq!(one.kept_step(), Some(expected));
    assert_ne!(one.policy(), every.policy());
    assert!(again.warnings[0].contains(&format!("after step {expected} ")), "{again:?}");
    let (bytes, step) = written(dirs[0].path());
    let inputs =
        one.setup().env.build().unwrap().spec().observation.dim() + one.setup().safety.as_ref().unwrap().memory();
    let shape = Mlp::new(inputs, &[16, 16], 4);
    let kept: Vec<f32> = {
        let file = Reader::new(&bytes).unwrap();
        file.network("policy.", &shape.tensors()).unwrap()
    };
    assert_eq!((kept.as_slice(), step), (one.policy(), expected));
    let (tests, before) =
        (one.test(0..3, false).unwrap(), again.constraints.iter().find(|(s, _)| *s == expected).unwrap());
    let mean = tests.iter().map(|test| f64::from(test.log_prob().unwrap().exp() as f32)).sum::<f64>() / 3.0;
    assert_eq!(mean, before.1, "the kept policy is the one that is tested");

    // Killed after it was kept: the same file in the end.
    let (stopped, _) = train(setup(target, seed), dirs[1].path(), expected + 100);
    assert!(stopped.is_err());
    train(setup(target, seed), dirs[1].path(), u64::MAX).0.unwrap();
    assert_eq!(written(dirs[1].path()), (bytes, expected));

    let (none, told) = whole(1.0 - 1e-12, seed, dirs[2].path());
    assert_eq!((none.kept_step(), none.policy()), (None, every.policy()), "none meets it: the last");
    assert!(told.warnings[0].contains("no policy met"), "{told:?}");
}

#[test]
fn the_mean_prediction_is_one_of_probabilities() {
    let record = Record { predicted: vec![1.0, 0.5, 0.0], ..Record::default() };
    assert_eq!(record.mean_predicted(), 0.5);
    assert!(Record::default().mean_predicted().is_nan());
}
