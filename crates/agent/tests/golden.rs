//! Whole updates against PyTorch's autograd and optimisers (`tests/golden/make_golden.py`), in f64.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use prudence_agent::Algorithm;
use prudence_agent::multiplier::Multiplier;
use prudence_agent::run::{self, Folders};
use prudence_agent::safesac::{Batch, Dimensions, Learner, UpdateMetrics};
use prudence_agent::settings::{AgentSettings, Constraint, MultiplierSettings, Settings, TrainSettings};
use prudence_agent::trainer::Setup;
use prudence_data::files::write_atomic;
use prudence_data::{Episode, Rule};
use prudence_core::random::stream;
use prudence_env::{EnvSettings, MakeEnv as _, rddl};
use prudence_nn::{Mlp, Scalar, gaussian};
use prudence_safety::FitSettings;
use prudence_safety::fit::initial_model;
use rand::RngExt as _;
use serde::Deserialize;

/// Relative to the larger of 1 and the number.
const LIMIT: f64 = 1e-9;

#[track_caller]
fn assert_close(what: &str, ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() < LIMIT * b.abs().max(1.0), "{what} [{i}]: {a}, PyTorch {b}");
    }
}

#[derive(Deserialize)]
struct Case {
    name: String,
    state: usize,
    action: usize,
    safety: bool,
    agent: AgentSettings,
    initial: Networks,
    updates: Vec<Update>,
}

#[derive(Deserialize)]
struct Networks {
    policy: Vec<f64>,
    averaged_policy: Vec<f64>,
    critics: Vec<f64>,
    target_critics: Vec<f64>,
    log_temperature: Vec<f64>,
}

#[derive(Deserialize)]
struct Update {
    batch: StoredBatch,
    multiplier: f64,
    rate: f64,
    after: Networks,
    metrics: UpdateMetrics,
}

#[derive(Deserialize)]
struct StoredBatch {
    state: Vec<f64>,
    action: Vec<f64>,
    reward: Vec<f64>,
    score: Vec<f64>,
    next_state: Vec<f64>,
    goes_on: Vec<f64>,
    noise: [Vec<f64>; 2],
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../tests/golden/learner.json")).unwrap();
    assert_eq!(cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["sac", "safesac-h", "safesac-noh"]);
    assert!(cases.iter().all(|case| case.updates.len() >= 5));
    cases
}

fn cast<T: Scalar>(x: &[f64]) -> Vec<T> {
    x.iter().map(|x| T::of(*x)).collect()
}

fn learner<T: Scalar>(case: &Case) -> Learner<T> {
    let d = Dimensions { state: case.state, action: case.action, population: 1, safety: case.safety };
    let mut learner = Learner::<T>::new(d, &case.agent, &mut stream(0, "golden", 0));
    assert_eq!(learner.critics.len(), case.initial.critics.len(), "{}", case.name);
    learner.policy = cast(&case.initial.policy);
    learner.averaged_policy = cast(&case.initial.averaged_policy);
    learner.critics = cast(&case.initial.critics);
    learner.target_critics = cast(&case.initial.target_critics);
    learner.log_temperature = cast(&case.initial.log_temperature);
    learner
}

fn batch<T: Scalar>(stored: &StoredBatch) -> Batch<T> {
    Batch {
        state: cast(&stored.state),
        action: cast(&stored.action),
        reward: cast(&stored.reward),
        score: cast(&stored.score),
        next_state: cast(&stored.next_state),
        goes_on: cast(&stored.goes_on),
        noise: [cast(&stored.noise[0]), cast(&stored.noise[1])],
    }
}

#[test]
fn whole_updates_equal_pytorchs() {
    for case in cases() {
        let mut learner = learner::<f64>(&case);
        for (k, update) in case.updates.iter().enumerate() {
            let metrics = learner.update(&batch(&update.batch), &[update.multiplier], update.rate);
            let what = |part: &str| format!("{}, update {k}: {part}", case.name);
            let numbers = |m: &UpdateMetrics| {
                [m.q_reward, m.q_safety, m.reward_critic_loss, m.safety_critic_loss, m.entropy].to_vec()
            };
            assert_close(&what("metrics"), &numbers(&metrics), &numbers(&update.metrics));
            assert_close(&what("critics"), &learner.critics, &update.after.critics);
            assert_close(&what("target critics"), &learner.target_critics, &update.after.target_critics);
            assert_close(&what("policy"), &learner.policy, &update.after.policy);
            assert_close(&what("averaged policy"), &learner.averaged_policy, &update.after.averaged_policy);
            assert_close(&what("log temperature"), &learner.log_temperature, &update.after.log_temperature);
        }
    }
}

/// In the product's type, relative to how far the parameters went.
#[test]
fn the_f32_learner_follows_the_f64_one() {
    for case in cases() {
        let mut learner = learner::<f32>(&case);
        for update in &case.updates {
            learner.update(&batch(&update.batch), &[update.multiplier as f32], update.rate);
        }
        let last = &case.updates[case.updates.len() - 1].after;
        for (what, ours, exact, start) in [
            ("critics", &learner.critics, &last.critics, &case.initial.critics),
            ("target critics", &learner.target_critics, &last.target_critics, &case.initial.target_critics),
            ("policy", &learner.policy, &last.policy, &case.initial.policy),
            ("averaged policy", &learner.averaged_policy, &last.averaged_policy, &case.initial.averaged_policy),
            ("temperature", &learner.log_temperature, &last.log_temperature, &case.initial.log_temperature),
        ] {
            let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let apart = norm(&mut ours.iter().zip(exact).map(|(a, b)| f64::from(*a) - b));
            let moved = norm(&mut exact.iter().zip(start).map(|(a, b)| a - b));
            assert!(apart < 1e-3 * moved, "{}, {what}: {apart:e} apart, {moved:e} moved", case.name);
        }
    }
}

#[derive(Deserialize)]
struct MultiplierCase {
    constraint: String,
    settings: MultiplierSettings,
    threshold: f64,
    estimates: Vec<Option<f64>>,
    values: Vec<f64>,
}

#[test]
fn the_multiplier_moves_as_projected_adam_does_in_pytorch() {
    let cases: Vec<MultiplierCase> =
        serde_json::from_str(include_str!("../../../tests/golden/multiplier.json")).unwrap();
    assert_eq!(cases.len(), 3);
    for case in cases {
        let constraint = match case.constraint.as_str() {
            "lower-bound" => Constraint::LowerBound,
            "original" => Constraint::Original,
            other => panic!("{other}"),
        };
        let threshold = Multiplier::threshold(constraint, &case.settings);
        assert_close("threshold", &[threshold], &[case.threshold]);
        let mut multiplier = Multiplier::new(&case.settings);
        let values: Vec<f64> = case
            .estimates
            .iter()
            .map(|estimate| {
                multiplier.update(estimate.unwrap_or(f64::NAN), threshold, &case.settings);
                multiplier.value()
            })
            .collect();
        assert_close(&case.constraint, &values, &case.values);
    }
}

/// A run's own files and what they answer, for PyTorch to load: see `tests/golden/check_torch_loads.py`.
#[test]
#[ignore = "writes files into the folder named by PRUDENCE_TORCH"]
fn write_files_for_torch() {
    let folder = PathBuf::from(std::env::var("PRUDENCE_TORCH").expect("PRUDENCE_TORCH names a folder"));
    let env = EnvSettings::Rddl(rddl::Settings::builtin("navigation"));
    let spec = env.build().unwrap().spec().clone();
    let (s, a) = (spec.observation.dim(), spec.action.dim());

    let mut rng = stream(6, "torch", 0);
    let steps = 12;
    let mut numbers = |n: usize| (0..n).map(|_| rng.random_range(-1.0f32..1.0)).collect::<Vec<_>>();
    let episode = Episode {
        observations: numbers((steps + 1) * s),
        actions: numbers(steps * a),
        rewards: vec![0.0; steps],
        ..Episode::default()
    };
    let model = Arc::new(initial_model(&[&episode], s, a, spec.horizon, &FitSettings::default(), 3));
    let score = model.score(&[&episode]).remove(0);
    write_atomic(&folder.join("safety.safetensors"), &model.to_bytes().unwrap()).unwrap();

    let agent = AgentSettings { hidden: vec![32, 16], batch: 32, ..AgentSettings::default() };
    let train = TrainSettings { steps: 400, random_steps: 100, test_episodes: 1, ..TrainSettings::default() };
    let setup = Setup {
        algorithm: Algorithm::SafesacH,
        settings: Settings { agent, train, ..Settings::default() },
        rule: Rule::parse("count(in_danger) <= 1", &spec.signals).unwrap(),
        env: Arc::new(env),
        safety: Some(model.clone()),
        stored: Arc::default(),
        seed: 1,
    };
    let folders = Folders { run: folder.clone(), episodes: folder.join("episodes"), task: "navigation".into() };
    let trainer = run::train(setup, &folders, &AtomicBool::new(false), &|_| ()).unwrap();

    let shape = Mlp::new(s + model.memory(), &[32, 16], 2 * a);
    let states: Vec<Vec<f32>> = (0..5).map(|_| numbers(shape.inputs())).collect();
    let actions: Vec<Vec<f32>> = states
        .iter()
        .map(|state| {
            let (mut head, mut action) = (vec![0.0; 2 * a], vec![0.0; a]);
            shape.forward_one(trainer.policy(), state, &mut head, &mut Default::default());
            gaussian::mode(&head, &mut action);
            action
        })
        .collect();
    let expected = serde_json::json!({
        "observation": s, "action": a, "hidden": model.hidden(), "states": states, "actions": actions,
        "episode": { "observations": episode.observations, "actions": episode.actions }, "score": score,
    });
    write_atomic(&folder.join("expected.json"), expected.to_string().as_bytes()).unwrap();
}
