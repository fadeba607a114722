//! Which policy a training leaves behind: the last that met the constraint as the safety model judges.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use prudence_agent::Algorithm;
use prudence_agent::run::{self, Event, Folders};
use prudence_agent::settings::{AgentSettings, MultiplierSettings, Settings, TrainSettings};
use prudence_agent::trainer::{Setup, Trainer};
use prudence_data::{Episode, Rule};
use prudence_env::{EnvSettings, MakeEnv as _, rddl};
use prudence_safety::FitSettings;
use prudence_safety::fit::initial_model;

const STEPS: u64 = 1000;

/// A short training whose lambda is frozen, so that `target` decides about nothing but what is kept; the steps of its
/// records and the shares that the model calls safe, and its warnings.
fn train(target: f64) -> (Trainer, Vec<(u64, f64)>, Vec<String>) {
    let env = EnvSettings::Rddl(rddl::Settings::builtin("navigation"));
    let spec = env.build().unwrap().spec().clone();
    let (s, a) = (spec.observation.dim(), spec.action.dim());
    let episode =
        Episode { observations: vec![0.5; 2 * s], actions: vec![0.1; a], rewards: vec![0.0], ..Episode::default() };
    let model = initial_model(&[&episode], s, a, spec.horizon, &FitSettings::default(), 3);
    let settings = Settings {
        agent: AgentSettings { hidden: vec![16, 16], batch: 16, learning_rate: 1e-2, ..AgentSettings::default() },
        multiplier: MultiplierSettings { target, freeze: STEPS, ..MultiplierSettings::default() },
        train: TrainSettings {
            steps: STEPS,
            random_steps: 100,
            record_every: 100,
            test_episodes: 3,
            ..TrainSettings::default()
        },
    };
    let setup = Setup {
        algorithm: Algorithm::SafesacH,
        settings,
        rule: Rule::parse("count(in_danger) <= 1", &spec.signals).unwrap(),
        env: Arc::new(env),
        safety: Some(Arc::new(model)),
        stored: Arc::default(),
        seed: 1,
    };
    let dir = tempfile::tempdir().unwrap();
    let folders = Folders { run: dir.path().join("run"), episodes: dir.path().join("data"), task: "navigation".into() };
    let (shares, warnings) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let tell = |event: Event<'_>| match event {
        Event::Record(record) => shares.borrow_mut().push((record.step, record.predicted_share())),
        Event::Warning(text) => warnings.borrow_mut().push(text),
        Event::Step(_) => {}
    };
    let trainer = run::train(setup, &folders, &AtomicBool::new(false), &tell).unwrap();
    (trainer, shares.into_inner(), warnings.into_inner())
}

#[test]
fn the_last_policy_that_meets_the_constraint_is_kept() {
    let (every, shares, warnings) = train(1e-9);
    assert_eq!((every.policy_step(), warnings.len()), (STEPS, 0), "all meet it, so the last does");
    let (best, most) = shares[1..].iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!(best < STEPS, "the best one is the last: take another seed");

    let (one, again, warnings) = train(most);
    assert_eq!(again, shares, "what is asked for changed the training");
    assert_eq!(one.policy_step(), best);
    assert_ne!(one.policy(), every.policy());
    assert!(warnings[0].contains(&format!("step {best} is kept")), "{warnings:?}");

    let (none, _, warnings) = train(1.0 - 1e-12);
    assert_eq!((none.policy_step(), none.policy()), (STEPS, every.policy()), "none meets it: the last");
    assert!(warnings[0].contains("no policy met"), "{warnings:?}");
}
