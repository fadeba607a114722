//! Whole updates against PyTorch's autograd and optimisers (`tests/golden/make_golden.py`), in f64.

use std::path::PathBuf;
use std::sync::Arc;

use prudence_agent::Algorithm;
use prudence_agent::population::{Parallel, Population, Setup};
use prudence_agent::replay::Stored;
use prudence_agent::safesac::{Head, Learner, Networks, Steering};
use prudence_agent::settings::{AgentSettings, TrainSettings, TrainingSettings};
use prudence_core::random::stream;
use prudence_data::files::write_atomic;
use prudence_data::{Episode, Rule};
use prudence_env::MakeEnv as _;
use prudence_env::rddl::RddlSettings;
use prudence_nn::weights::{Writer, from_pytorch};
use prudence_nn::work::{Batch, Columns, Input, Pass};
use prudence_nn::{Bank, Cpu, Device as _, Scalar};
use prudence_safety::fit::initial_model;
use prudence_safety::{FitSettings, Scorer};
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
    initial: Parameters,
    updates: Vec<Update>,
}

#[derive(Deserialize)]
struct Parameters {
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
    after: Parameters,
    metrics: Metrics,
}

#[derive(Deserialize)]
struct Metrics {
    q_reward: f64,
    q_safety: f64,
    reward_critic_loss: f64,
    safety_critic_loss: f64,
    entropy: f64,
}

#[derive(Deserialize)]
struct StoredBatch {
    state: Vec<f64>,
    action: Vec<f64>,
    reward: Vec<f64>,
    score: Vec<f64>,
    next_state: Vec<f64>,
    not_terminal: Vec<f64>,
    /// At s', then at s.
    noise: [Vec<f64>; 2],
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../tests/golden/learner.json")).unwrap();
    assert_eq!(cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["sac", "safesac-h", "safesac-noh"]);
    assert!(cases.iter().all(|case| case.updates.len() >= 5));
    // Matrices lie the other way round in PyTorch.
    cases.into_iter().map(Case::in_our_layout).collect()
}

impl Case {
    fn in_our_layout(mut self) -> Self {
        let networks = networks(&self);
        for parameters in std::iter::once(&mut self.initial).chain(self.updates.iter_mut().map(|u| &mut u.after)) {
            for (name, numbers) in [
                ("policy", &mut parameters.policy),
                ("averaged_policy", &mut parameters.averaged_policy),
                ("critics", &mut parameters.critics),
                ("target_critics", &mut parameters.target_critics),
            ] {
                *numbers = from_pytorch(&networks.tensors(name, numbers.len()), numbers);
            }
        }
        self
    }
}

fn cast<T: Scalar>(to: &mut [T], from: &[f64]) {
    assert_eq!(to.len(), from.len());
    to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of(*from));
}

fn networks(case: &Case) -> Networks {
    let mut heads = vec![Head::reward(!case.safety)];
    if case.safety {
        heads.push(Head::safety(case.agent.score_floor));
    }
    Networks::new(1, case.state, case.action, &case.agent.hidden, heads)
}

fn learner<T: Scalar>(case: &Case) -> Learner<Cpu<T>> {
    let networks = networks(case);
    let mut learner = Learner::new(&Cpu::<T>::new(), networks, &case.agent, [stream(0, "golden", 0)]).unwrap();
    let agents = &mut learner.agents;
    cast(&mut agents.policy.values, &case.initial.policy);
    cast(&mut agents.average, &case.initial.averaged_policy);
    cast(&mut agents.critics.values, &case.initial.critics);
    cast(&mut agents.target_critics, &case.initial.target_critics);
    cast(&mut agents.temperature.values, &case.initial.log_temperature);
    learner
}

/// Makes update number `k` of a case.
fn update<T: Scalar>(learner: &mut Learner<Cpu<T>>, case: &Case, k: usize) {
    let Update { batch: stored, multiplier, rate, .. } = &case.updates[k];
    let mut batch = Batch::new(&Cpu::<T>::new(), 1, case.agent.batch, case.state, case.action).unwrap();
    cast(&mut batch.state, &stored.state);
    cast(&mut batch.action, &stored.action);
    cast(&mut batch.reward, &stored.reward);
    cast(&mut batch.score, &stored.score);
    cast(&mut batch.next_state, &stored.next_state);
    cast(&mut batch.not_terminal, &stored.not_terminal);
    cast(&mut batch.next_noise, &stored.noise[0]);
    cast(&mut batch.noise, &stored.noise[1]);
    let multipliers = if case.safety { vec![*multiplier] } else { Vec::new() };
    learner.steer(0, Some(&Steering { rate: *rate, update: k as u64 + 1, multipliers }));
    learner.update(&batch).unwrap();
}

#[test]
fn whole_updates_equal_pytorchs() {
    for case in cases() {
        let mut learner = learner::<f64>(&case);
        for (k, Update { after, metrics, .. }) in case.updates.iter().enumerate() {
            update(&mut learner, &case, k);
            let what = |part: &str| format!("{}, update {k}: {part}", case.name);
            let (measured, agents) = (learner.measurements(), &learner.agents);
            let of_safety = |x: &[f64]| if case.safety { x.to_vec() } else { Vec::new() };
            let firsts = |buffers: &[prudence_nn::cpu::Buffer<f64>]| buffers.iter().map(|x| x[0]).collect::<Vec<_>>();
            let expected = [vec![metrics.q_reward], of_safety(&[metrics.q_safety])].concat();
            assert_close(&what("values"), &firsts(&measured.values), &expected);
            let expected = [vec![metrics.reward_critic_loss], of_safety(&[metrics.safety_critic_loss])].concat();
            assert_close(&what("losses"), &firsts(&measured.losses), &expected);
            assert_close(&what("entropy"), &measured.entropy, &[metrics.entropy]);
            assert_close(&what("critics"), &agents.critics.values, &after.critics);
            assert_close(&what("target critics"), &agents.target_critics, &after.target_critics);
            assert_close(&what("policy"), &agents.policy.values, &after.policy);
            assert_close(&what("averaged policy"), &agents.average, &after.averaged_policy);
            assert_close(&what("log temperature"), &agents.temperature.values, &after.log_temperature);
        }
    }
}

/// In the product's type, relative to how far the parameters went.
#[test]
fn the_f32_learner_follows_the_f64_one() {
    for case in cases() {
        let mut learner = learner::<f32>(&case);
        (0..case.updates.len()).for_each(|k| update(&mut learner, &case, k));
        let (agents, last) = (&learner.agents, &case.updates[case.updates.len() - 1].after);
        for (what, ours, exact, start) in [
            ("critics", &agents.critics.values, &last.critics, &case.initial.critics),
            ("target critics", &agents.target_critics, &last.target_critics, &case.initial.target_critics),
            ("policy", &agents.policy.values, &last.policy, &case.initial.policy),
            ("averaged policy", &agents.average, &last.averaged_policy, &case.initial.averaged_policy),
            ("temperature", &agents.temperature.values, &last.log_temperature, &case.initial.log_temperature),
        ] {
            let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let apart = norm(&mut ours.iter().zip(exact).map(|(a, b)| f64::from(*a) - b));
            let moved = norm(&mut exact.iter().zip(start).map(|(a, b)| a - b));
            assert!(apart < 1e-3 * moved, "{}, {what}: {apart:e} apart, {moved:e} moved", case.name);
        }
    }
}

/// An agent's networks under the names of its checkpoint and its policy's file, and what they compute, for PyTorch to
/// load: see `tests/golden/check_torch_loads.py`.
#[test]
#[ignore = "writes files into the folder named by PRUDENCE_TORCH"]
fn write_files_for_torch() {
    let folder = PathBuf::from(std::env::var("PRUDENCE_TORCH").expect("PRUDENCE_TORCH names a folder"));
    let device = Cpu::<f32>::new();
    let env = RddlSettings::builtin("navigation");
    let spec = env.make().unwrap().spec().clone();
    let (s, a) = (spec.observation.dim(), spec.action.dim());

    let mut rng = stream(6, "torch", 0);
    let steps = 12;
    let mut numbers = |n: usize| (0..n).map(|_| rng.random_range(-1.0f32..1.0)).collect::<Vec<_>>();
    let episode = Episode {
        observations: numbers((steps + 1) * s),
        actions: numbers(steps * a),
        rewards: vec![0.0; steps],
        ..Episode::new(s, a)
    };
    let model =
        Arc::new(initial_model(&[&episode][..], &[0], [s, a], spec.horizon, &FitSettings::default(), 3).unwrap());
    let agent = AgentSettings { hidden: vec![32, 16], batch: 32, ..AgentSettings::default() };
    let scorer = Scorer::new(&device, std::slice::from_ref(&model), agent.score_floor).unwrap();
    let score = scorer.score(&[&episode]).unwrap().remove(0).log_prob;
    write_atomic(&folder.join("safety.safetensors"), &model.to_bytes().unwrap()).unwrap();

    let train = TrainSettings { steps: 400, random_steps: 100, test_episodes: 1, ..TrainSettings::default() };
    let scaling = prudence_agent::Scaling::new(&spec);
    let setup = Setup {
        algorithm: Algorithm::SafesacH,
        settings: TrainingSettings { agent, train, ..TrainingSettings::default() },
        rule: Rule::parse("count(in_danger) <= 1", &spec.signals).unwrap(),
        env: Arc::new(env),
        spec: Arc::new(spec),
        models: vec![model.clone()],
        stored: Arc::new(Stored::empty(&device, &scaling, Some(&scorer)).unwrap()),
        parallel: Parallel::default(),
    };
    let mut population = Population::new(&device, setup, &[1]).unwrap();
    while !population.done(0) {
        population.lockstep().unwrap();
    }
    let (networks, policy) = (population.networks(), population.policy(0).unwrap());
    let mut file = Writer::default();
    for (name, numbers) in population.state(0).unwrap().tensors {
        file.network("", &networks.tensors(name, numbers.len()), &numbers);
    }
    write_atomic(&folder.join("checkpoint.safetensors"), &file.finish().unwrap()).unwrap();
    let mut file = Writer::default();
    file.network("", &networks.policy_tensors("policy"), &policy);
    model.write(&mut file, "safety.");
    write_atomic(&folder.join("policy.safetensors"), &file.finish().unwrap()).unwrap();

    let bank = Bank::dense(networks.policy.shape.clone(), 1);
    let states: Vec<Vec<f32>> = (0..5).map(|_| numbers(networks.state)).collect();
    let actions = states.iter().map(|state| {
        let (mut pass, mut action) = (Pass::new(&device, &bank, 1).unwrap(), device.buffer(a).unwrap());
        let state = state.as_slice().into();
        let input = Input { first: Columns::new(&state, 1, networks.state, 1), second: None };
        device.forward(&bank, &policy.as_slice().into(), input, &mut pass);
        device.mode(&pass, &mut action);
        action.to_vec()
    });
    let expected = serde_json::json!({
        "observation": s, "action": a, "hidden": model.shape().gru.hidden,
        "actions": actions.collect::<Vec<_>>(), "states": states, "score": score,
        "episode": { "observations": episode.observations, "actions": episode.actions },
    });
    write_atomic(&folder.join("expected.json"), expected.to_string().as_bytes()).unwrap();
}
