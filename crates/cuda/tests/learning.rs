//! Whole algorithms on the device beside the CPU: an update, a fit, scores, and a population in training. On the emulator
//! or, with `PRUDENCE_TEST_GPU=1`, on the first card.
#![allow(missing_docs)]

mod emulator;

use std::sync::Arc;

use prudence_agent::population::{AgentState, Counters, Parallel, Population, Refits, Setup};
use prudence_agent::replay::{ReplicaEpisodes, Stored};
use prudence_agent::safesac::{Head, Learner, Networks, Steering};
use prudence_agent::settings::{AgentSettings, MultiplierSettings, TrainSettings, TrainingSettings};
use prudence_agent::{Algorithm, Scaling};
use prudence_core::random::stream;
use prudence_core::{BoxSpace, Spec};
use prudence_cuda::Cuda;
use prudence_data::{Episode, Rule, Segment};
use prudence_env::{Env, Step};
use prudence_nn::work::Batch;
use prudence_nn::{Cpu, Device, Precision};
use prudence_safety::fit::{Fitter, initial_model};
use prudence_safety::{Fit, FitData, FitSettings, SafetyModel, Scorer};
use rand::RngExt as _;

/// Whether there is a card: what the emulator can do in seconds is smaller.
fn on_card() -> bool {
    std::env::var_os("PRUDENCE_TEST_GPU").is_some()
}

fn cuda() -> Cuda {
    if !on_card() {
        return emulator::cuda();
    }
    let cards = prudence_cuda::cards().unwrap();
    let kernels = cards[0].compile_kernels().unwrap();
    cards[0].open(&kernels).unwrap()
}

fn numbers<D: Device>(device: &D, buffer: &D::Buf, n: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; n];
    device.read(buffer, 0, &mut numbers).unwrap();
    numbers
}

fn norm(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|x| x * x).sum::<f64>().sqrt()
}

/// `|x - exact| / |exact|`
fn distance(x: &[f32], exact: &[f32]) -> f64 {
    let [x, exact] = [x, exact].map(|x| x.iter().map(|x| f64::from(*x)));
    norm(x.zip(exact.clone()).map(|(x, exact)| x - exact)) / norm(exact)
}

fn cosine(x: &[f32], y: &[f32]) -> f64 {
    let [x, y] = [x, y].map(|x| x.iter().map(|x| f64::from(*x)));
    let product: f64 = x.clone().zip(y.clone()).map(|(x, y)| x * y).sum();
    product / (norm(x) * norm(y))
}

const STATE: usize = 21;
const ACTION: usize = 3;

fn small() -> AgentSettings {
    AgentSettings { hidden: vec![40, 36], batch: 24, temperature: 0.2, ..AgentSettings::default() }
}

/// As large as in the MuJoCo tasks, on a card.
fn settings() -> AgentSettings {
    if on_card() { AgentSettings { hidden: vec![256; 2], batch: 256, ..small() } } else { small() }
}

fn learner<D: Device>(device: &D, settings: &AgentSettings, seeds: &[u64]) -> Learner<D> {
    let heads = vec![Head::reward(false), Head::safety(settings.score_floor)];
    let networks = Networks::new(seeds.len(), STATE, ACTION, &settings.hidden, heads);
    Learner::new(device, networks, settings, seeds.iter().map(|seed| stream(*seed, "networks", 0))).unwrap()
}

/// Random transitions of each agent, drawn from its seed.
fn batch<D: Device>(device: &D, size: usize, seeds: &[u64]) -> Batch<D> {
    let mut batch = Batch::new(device, seeds.len(), size, STATE, ACTION).unwrap();
    for (agent, seed) in seeds.iter().enumerate() {
        let mut rng = stream(*seed, "batch", 0);
        let mut put = |buffer: &mut D::Buf, width: usize, low: f32, high: f32| {
            let n = size * width;
            let numbers: Vec<f32> = (0..n).map(|_| rng.random_range(low..high)).collect();
            device.write(buffer, agent * n, &numbers);
        };
        put(&mut batch.state, STATE, -1.5, 1.5);
        put(&mut batch.next_state, STATE, -1.5, 1.5);
        put(&mut batch.action, ACTION, -1.0, 1.0);
        put(&mut batch.reward, 1, -1.0, 1.0);
        put(&mut batch.score, 1, -0.5, 0.0);
        put(&mut batch.noise, ACTION, -2.0, 2.0);
        put(&mut batch.next_noise, ACTION, -2.0, 2.0);
    }
    let not_terminal: Vec<f32> =
        (0..seeds.len() * size).map(|i| if (i % size).is_multiple_of(3) { 0.0 } else { 1.0 }).collect();
    device.write(&mut batch.not_terminal, 0, &not_terminal);
    batch
}

/// Policy and critics of all agents: the gradients of an update, how it changed the parameters, and the parameters.
fn one_update<D: Device>(device: &D, seeds: &[u64]) -> [Vec<f32>; 6] {
    let mut learner = learner(device, &settings(), seeds);
    let batch = batch(device, settings().batch, seeds);
    let read = |learner: &Learner<D>| {
        let (policy, critics) = (&learner.agents.policy, &learner.agents.critics);
        [policy, critics].map(|p| {
            let n = p.each * seeds.len();
            [numbers(device, &p.values, n), numbers(device, &p.gradients, n)]
        })
    };
    let [[policy, _], [critics, _]] = read(&learner);
    for agent in 0..seeds.len() {
        learner.steer(agent, Some(&Steering { rate: 3e-4, update: 1, multipliers: vec![0.7] }));
    }
    learner.update(&batch).unwrap();
    let [[new_policy, policy_gradient], [new_critics, critics_gradient]] = read(&learner);
    let change = |new: &[f32], old: Vec<f32>| new.iter().zip(old).map(|(new, old)| new - old).collect();
    let (policy, critics) = (change(&new_policy, policy), change(&new_critics, critics));
    [policy_gradient, critics_gradient, policy, critics, new_policy, new_critics]
}

#[test]
fn an_update_agrees_with_double_precision() {
    let seeds = [1, 2, 3];
    let exact = one_update(&Cpu::<f64>::new(), &seeds);
    let full = one_update(&cuda().with_precision(Precision::Fp32), &seeds);
    let reduced = one_update(&cuda().with_precision(Precision::Tf32), &seeds);
    let names = ["policy gradient", "critics' gradient", "policy change", "critics' change"];
    for (k, name) in names.iter().enumerate() {
        let off = distance(&full[k], &exact[k]);
        assert!(off < 1e-4, "{name} in fp32: {off:e}");
        let (off, cosine) = (distance(&reduced[k], &exact[k]), cosine(&reduced[k], &exact[k]));
        // Adam's first step has the sign of each gradient, however small.
        let (far, near) = if k < 2 { (5e-2, 0.998) } else { (0.25, 0.97) };
        assert!(off < far && cosine > near, "{name} in tf32: {off:e}, cosine {cosine}");
        assert!(off > 1e-6, "{name}: tf32 is not in use");
    }
}

#[test]
fn an_agent_learns_the_same_alone_and_in_company() {
    let device = cuda();
    let together = one_update(&device, &[1, 2, 3]);
    let alone = one_update(&device, &[2]);
    for (k, (together, alone)) in together.iter().zip(&alone).enumerate() {
        let off = distance(&together[alone.len()..][..alone.len()], alone);
        // Adam's first step has the sign of each gradient, however small: changes differ more than parameters.
        assert!(off < 1e-5 || k == 2 || k == 3, "{k}: {off:e}");
    }
}

/// The logarithms of the losses of the reward's and the safety critics while they learn a fixed batch, as means over tenths
/// of the updates.
fn log_losses<D: Device>(device: &D, seed: u64, updates: u64) -> [Vec<f64>; 2] {
    let mut learner = learner(device, &small(), &[seed]);
    let batch = batch(device, small().batch, &[100]);
    let mut losses = [Vec::new(), Vec::new()];
    for update in 1..=updates {
        learner.steer(0, Some(&Steering { rate: 3e-4, update, multipliers: vec![0.7] }));
        learner.update(&batch).unwrap();
        let metrics = learner.metrics().unwrap().remove(0);
        losses.iter_mut().zip(&metrics.losses).for_each(|(losses, loss)| losses.push(loss.ln()));
    }
    losses.map(|l| l.chunks(updates as usize / 10).map(|l| l.iter().sum::<f64>() / l.len() as f64).collect())
}

#[test]
fn reduced_precision_learns_as_well() {
    let (updates, seeds) = (if on_card() { 2000 } else { 30 }, 0..5);
    let device = cuda().with_precision(Precision::Tf32);
    let full: Vec<_> = seeds.clone().map(|seed| log_losses(&Cpu::<f32>::new(), seed, updates)).collect();
    let reduced: Vec<_> = seeds.map(|seed| log_losses(&device, seed, updates)).collect();
    for (head, tenth) in (0..2).flat_map(|head| (0..10).map(move |tenth| (head, tenth))) {
        let full = full.iter().map(|seed| seed[head][tenth]);
        let (low, high) = (full.clone().fold(f64::INFINITY, f64::min), full.fold(f64::NEG_INFINITY, f64::max));
        let mean = reduced.iter().map(|seed| seed[head][tenth]).sum::<f64>() / 5.0;
        assert!((low..=high).contains(&mean), "head {head}, tenth {tenth}: {mean}, the CPU's seeds {low} to {high}");
    }
}

/// Random episodes of a walk on a line, with segments that are unsafe from a step on in every second one.
fn episodes(n: usize, steps: usize) -> (Vec<Episode>, Vec<Segment>) {
    let mut rng = stream(3, "episodes", 0);
    let one = |index: usize| {
        let steps = steps - index % 3;
        let mut numbers = |n: usize| (0..n).map(|_| rng.random_range(-1.0f32..1.0)).collect::<Vec<_>>();
        Episode {
            observations: numbers((steps + 1) * 2),
            actions: numbers(steps),
            rewards: vec![0.0; steps],
            ..Episode::new(2, 1)
        }
    };
    let episodes: Vec<Episode> = (0..n).map(one).collect();
    let segment = |(episode, one): (usize, &Episode)| {
        let at = (episode % 2 == 1).then_some(one.len() / 2);
        Segment { episode, start: 0, end: one.len(), safe: at.is_none(), at }
    };
    let segments = episodes.iter().enumerate().map(segment).collect();
    (episodes, segments)
}

fn fit_settings() -> FitSettings {
    FitSettings { hidden: 12, encoder: vec![20, 9], decoder: vec![24, 20], batch: 6, ..FitSettings::default() }
}

fn model(episodes: &[Episode], seed: u64) -> SafetyModel {
    let all: Vec<usize> = (0..episodes.len()).collect();
    initial_model(episodes, &all, [2, 1], 20, &fit_settings(), seed).unwrap()
}

#[test]
fn the_gradient_of_a_safety_model_agrees_with_double_precision() {
    let steps = if on_card() { 300 } else { 30 };
    let (episodes, segments) = episodes(6, steps);
    let settings = fit_settings();
    fn gradient<D: Device>(device: &D, data: &[Episode], segments: &[Segment], settings: &FitSettings) -> Vec<f32> {
        let models: Vec<SafetyModel> = (0..2).map(|seed| model(data, seed)).collect();
        let mut fitter = Fitter::new(device, models, settings).unwrap();
        let batch: Vec<&Segment> = segments.iter().collect();
        fitter.gradients(&[data, data], &[batch.clone(), batch]).unwrap();
        numbers(device, &fitter.parameters.gradients, 2 * fitter.parameters.each)
    }
    let exact = gradient(&Cpu::<f64>::new(), &episodes, &segments, &settings);
    let off = distance(&gradient(&cuda(), &episodes, &segments, &settings), &exact);
    assert!(off < 1e-4, "{off:e}");
}

#[test]
fn a_fit_gives_nearly_the_cpus_model() {
    let (episodes, segments) = episodes(12, 20);
    let settings = FitSettings { steps: 12, ..fit_settings() };
    fn fitted<D: Device>(device: &D, data: &[Episode], segments: &[Segment], settings: &FitSettings) -> Vec<Vec<u8>> {
        let of = |seed| FitData { episodes: data, training: segments, seed };
        let mut fit = Fit::new(device, vec![of(1), of(2)], 20, settings).unwrap();
        while !fit.done() {
            fit.step().unwrap();
        }
        // Parameters as numbers, so that they can be compared.
        (0..2)
            .map(|replica| fit.state(replica).unwrap().parameters.iter().flat_map(|x| x.to_le_bytes()).collect())
            .collect()
    }
    let floats =
        |bytes: &[u8]| bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<f32>>();
    let here = fitted(&Cpu::<f32>::new(), &episodes, &segments, &settings);
    let there = fitted(&cuda(), &episodes, &segments, &settings);
    for (here, there) in here.iter().zip(&there) {
        let off = distance(&floats(there), &floats(here));
        assert!(off < 1e-3, "{off:e}");
    }
    assert!(there == fitted(&cuda(), &episodes, &segments, &settings), "the same bits twice");
}

#[test]
fn scores_by_step_are_those_of_a_whole_pass() {
    let (episodes, _) = episodes(5, 20);
    let device = cuda();
    let scorer = Scorer::new(&device, &[Arc::new(model(&episodes, 4))], -7.0).unwrap();
    let whole = scorer.score(&episodes.iter().collect::<Vec<_>>()).unwrap();
    for (episode, whole) in episodes.iter().zip(whole) {
        let mut tracker = scorer.tracker(1).unwrap();
        let (mut observation, mut action, mut active) =
            (device.buffer(2).unwrap(), device.buffer(1).unwrap(), device.buffer(1).unwrap());
        device.fill(&mut active, 0, 1, 1.0);
        let width = scorer.memory_width();
        for t in 0..episode.len() {
            device.write(&mut observation, 0, episode.observation(t));
            device.write(&mut action, 0, episode.action(t));
            scorer.step(&mut tracker, &observation, &action, &active);
            let near = |x: f32, y: f32| assert!((x - y).abs() < 1e-5, "step {t}: {x} and {y}");
            near(numbers(&device, &tracker.log_prob, 1)[0], whole.log_prob[t]);
            near(numbers(&device, &tracker.score, 1)[0], whole.score[t]);
            let memory = numbers(&device, &tracker.memory, width);
            memory.iter().zip(&whole.memory[(t + 1) * width..]).for_each(|(x, y)| near(*x, *y));
        }
    }
}

/// A walk on a line whose episodes end early at times.
struct Walk {
    spec: Spec,
    place: f64,
    t: usize,
    length: usize,
}

impl Walk {
    fn new() -> Self {
        let spec = Spec {
            observation: BoxSpace::unbounded(2),
            action: BoxSpace::uniform(1, -2.0, 2.0),
            signals: vec!["place".into()],
            horizon: 14,
        };
        Self { spec, place: 0.0, t: 0, length: 0 }
    }

    fn observe(&self, observation: &mut [f64]) {
        observation.copy_from_slice(&[self.place, self.t as f64 / 14.0]);
    }
}

impl Env for Walk {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), prudence_env::Error> {
        let mut rng = stream(seed, "walk", 0);
        (self.place, self.t, self.length) = (rng.random_range(-1.0..1.0), 0, rng.random_range(4..20));
        self.observe(observation);
        Ok(())
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, prudence_env::Error> {
        self.t += 1;
        self.place += 0.2 * action[0];
        self.observe(observation);
        let terminated = self.t == self.length;
        Ok(Step { reward: -self.place.powi(2), terminated, truncated: !terminated && self.t == 14 })
    }

    fn signals(&self) -> &[f64] {
        std::slice::from_ref(&self.place)
    }
}

fn setup<D: Device>(device: &D, algorithm: Algorithm, steps: u64) -> Setup<D> {
    let (episodes, _) = episodes(6, 14);
    let spec = Walk::new().spec;
    // A rate that does not depend on the number of steps, because some trainings are continued beyond theirs.
    let agent = AgentSettings {
        hidden: vec![12, 10],
        batch: 8,
        learning_rate: 1e-3,
        final_rate: 1.0,
        ..AgentSettings::default()
    };
    let scaling = Scaling::new(&spec);
    let models: Vec<Arc<SafetyModel>> = (0..2).map(|seed| Arc::new(model(&episodes, seed))).collect();
    let scorers: Vec<Scorer<D>> = models
        .iter()
        .map(|model| Scorer::new(device, std::slice::from_ref(model), agent.score_floor).unwrap())
        .collect();
    let replicas: Vec<_> =
        scorers.iter().map(|scorer| ReplicaEpisodes { scorer: Some(scorer), episodes: &episodes[..] }).collect();
    Setup {
        algorithm,
        settings: TrainingSettings {
            agent,
            multiplier: MultiplierSettings::default(),
            target: 0.9,
            train: TrainSettings {
                steps,
                updates_per_step: 0.5,
                test_episodes: 3,
                precision: Precision::Fp32,
                ..TrainSettings::default()
            },
        },
        env: Arc::new(Walk::new),
        rule: Rule::parse("place < 0.5", &spec.signals).unwrap(),
        spec: Arc::new(spec),
        stored: Arc::new(Stored::of_replicas(device, &scaling, &replicas).unwrap()),
        models,
        parallel: Parallel { tests: 2, ..Parallel::default() },
    }
}

const SEEDS: [u64; 4] = [5, 6, 7, 8];

/// A population in training, and the episodes of each agent.
struct Training<D: Device> {
    population: Population<D>,
    episodes: Vec<Vec<Episode>>,
}

impl<D: Device> Training<D> {
    fn new(device: &D, algorithm: Algorithm, steps: u64) -> Self {
        let population = Population::new(device, setup(device, algorithm, steps), &SEEDS).unwrap();
        Self { population, episodes: vec![Vec::new(); SEEDS.len()] }
    }

    /// Until every agent has taken its steps, and is between two episodes.
    fn run(mut self) -> Self {
        while (0..SEEDS.len()).any(|agent| !self.population.done(agent)) || self.running() {
            for ended in self.population.lockstep().unwrap() {
                self.episodes[ended.agent].push(ended.episode.unwrap());
            }
        }
        self
    }

    fn running(&self) -> bool {
        let taken = |agent: usize| self.episodes[agent].iter().map(|e| e.len() as u64).sum::<u64>();
        (0..SEEDS.len()).any(|agent| taken(agent) != self.population.counters(agent).step)
    }

    fn states(&self) -> Vec<AgentState> {
        (0..SEEDS.len()).map(|agent| self.population.state(agent).unwrap()).collect()
    }

    fn restored(
        device: &D,
        algorithm: Algorithm,
        steps: u64,
        states: &[AgentState],
        episodes: &[Vec<Episode>],
    ) -> Self {
        let mut training = Self::new(device, algorithm, steps);
        for (agent, state) in states.iter().enumerate() {
            training.population.restore(agent, state.clone(), &episodes[agent]).unwrap();
        }
        training.episodes = episodes.to_vec();
        training
    }
}

fn parameters(states: &[AgentState]) -> Vec<f32> {
    states.iter().flat_map(|state| state.tensors.iter().flat_map(|(_, numbers)| numbers.clone())).collect()
}

#[test]
fn a_population_trains_as_on_the_cpu() {
    for algorithm in [Algorithm::SafesacH, Algorithm::SafesacNonlb] {
        let here = Training::new(&Cpu::<f32>::new(), algorithm, 40).run();
        let there = Training::new(&cuda(), algorithm, 40).run();
        for (agent, (here, there)) in here.episodes.iter().zip(&there.episodes).enumerate() {
            for (here, there) in here.iter().zip(there) {
                let off = distance(&there.observations, &here.observations);
                assert!(off < 1e-3, "{}, agent {agent}: {off:e}", algorithm.name());
            }
        }
        let off = distance(&parameters(&there.states()), &parameters(&here.states()));
        assert!(off < 1e-3, "{}: {off:e}", algorithm.name());
        let (mut here, mut there) = (here.population, there.population);
        let agents = [0, 2];
        let tests = here.test(&agents, 0..3, true).unwrap().into_iter().zip(there.test(&agents, 0..3, true).unwrap());
        for (here, there) in tests {
            let (here, there) = (here.unwrap(), there.unwrap());
            assert!(here.len() == 3 && there.len() == 3);
            for (here, there) in here.iter().zip(&there) {
                let off = distance(&there.episode.observations, &here.episode.observations);
                assert!(off < 1e-3, "{}: a test is off by {off:e}", algorithm.name());
                let off = distance(&there.log_probs, &here.log_probs);
                assert!(off < 1e-3, "{}: the scores of a test are off by {off:e}", algorithm.name());
            }
        }
    }
}

#[test]
fn the_same_population_has_the_same_bits_twice() {
    let once = Training::new(&cuda(), Algorithm::SafesacH, 30).run();
    let again = Training::new(&cuda(), Algorithm::SafesacH, 30).run();
    assert!(once.episodes == again.episodes && once.states() == again.states());
}

#[test]
fn a_training_continues_on_another_device() {
    let (algorithm, cpu) = (Algorithm::SafesacH, Cpu::<f32>::new());
    let first = Training::new(&cpu, algorithm, 14).run();
    let whole = Training::restored(&cpu, algorithm, 28, &first.states(), &first.episodes).run();
    let moved = Training::restored(&cuda(), algorithm, 28, &first.states(), &first.episodes).run();
    let off = distance(&parameters(&moved.states()), &parameters(&whole.states()));
    assert!(off < 2e-3, "from the CPU to the card: {off:e}");
    let first = Training::new(&cuda(), algorithm, 14).run();
    let whole = Training::new(&cuda(), algorithm, 28).run();
    let resumed = Training::restored(&cuda(), algorithm, 28, &first.states(), &first.episodes).run();
    assert!(whole.episodes == resumed.episodes && whole.states() == resumed.states(), "the same bits after a resume");
    let back = Training::restored(&cpu, algorithm, 28, &first.states(), &first.episodes).run();
    let off = distance(&parameters(&back.states()), &parameters(&whole.states()));
    assert!(off < 2e-3, "from the card to the CPU: {off:e}");
}

/// Episodes before a refit were scored in whole passes and those after it step by step; a resumed training repeats both.
#[test]
fn a_training_with_a_refit_resumes_to_the_same_bits() {
    let (device, seeds) = (cuda(), &SEEDS[..2]);
    let refitted = Arc::new(model(&episodes(6, 14).0, 9));
    let begin = || Population::new(&device, setup(&device, Algorithm::SafesacH, 60), seeds).unwrap();
    let mut whole = begin();
    let mut played = vec![Vec::new(); seeds.len()];
    let mut states: Vec<Option<AgentState>> = vec![None; seeds.len()];
    let mut kept = vec![Vec::new(); seeds.len()];
    let finish = |population: &mut Population<Cuda>, played: &mut [Vec<Episode>]| {
        let taken = |of_agent: &Vec<Episode>| of_agent.iter().map(|e| e.len() as u64).sum::<u64>();
        while (0..seeds.len()).any(|a| !population.done(a) || taken(&played[a]) != population.counters(a).step) {
            for ended in population.lockstep().unwrap() {
                played[ended.agent].push(ended.episode.unwrap());
            }
        }
    };
    while states.iter().any(Option::is_none) {
        for ended in whole.lockstep().unwrap() {
            let agent = ended.agent;
            played[agent].push(ended.episode.unwrap());
            let Counters { step, episode, .. } = *whole.counters(agent);
            if agent == 0 && episode == 2 {
                whole.refit(0, refitted.clone()).unwrap();
                whole.set_refits(0, Refits { count: 1, step, episode, ..Refits::default() });
            }
            if episode == 4 {
                states[agent] = Some(whole.state(agent).unwrap());
                kept[agent] = played[agent].clone();
            }
        }
    }
    finish(&mut whole, &mut played);
    let mut resumed = begin();
    resumed.replace_models(&[(0, refitted)]).unwrap();
    for (agent, state) in states.into_iter().enumerate() {
        resumed.restore(agent, state.unwrap(), &kept[agent]).unwrap();
    }
    resumed.score_restored().unwrap();
    let sums = |population: &Population<Cuda>| population.recent_sums(0, 3);
    assert!(sums(&resumed).iter().all(|sum| *sum < 0.0), "all are scored before the first step");
    finish(&mut resumed, &mut kept);
    for agent in 0..seeds.len() {
        assert!(kept[agent] == played[agent], "agent {agent}: other episodes");
        assert!(resumed.state(agent).unwrap() == whole.state(agent).unwrap(), "agent {agent}: another state");
    }
}
