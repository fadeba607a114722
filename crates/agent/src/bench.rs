//! How fast an update is, and how fast it could be.

use prudence_env::random::stream;
use prudence_env::{Env, Error};
use prudence_nn::kernels::{View, matmul};
use prudence_nn::{Mlp, gaussian};
use prudence_safety::FitSettings;
use prudence_safety::fit::initial_model;
use serde::Serialize;

use crate::clock::Stopwatch;
use crate::safesac::{Batch, Dimensions, Learner};
use crate::{AgentSettings, Algorithm};

/// One line of `bench update`.
#[derive(Clone, Debug, Serialize)]
pub struct UpdateBench {
    /// Always `update`.
    pub bench: &'static str,
    /// Which algorithm.
    pub algo: Algorithm,
    /// Units in both hidden layers.
    pub hidden: usize,
    /// Transitions.
    pub batch: usize,
    /// Agents.
    pub population: usize,
    /// Threads.
    pub threads: usize,
    /// Agents' updates a second, all threads together.
    pub per_second: f64,
    /// The same if matrix products at this machine's measured peak were all there is.
    pub floor_per_second: f64,
}

/// Observation, action and memory of the benchmark, as in the peers' scripts.
const SIZES: (usize, usize, usize) = (17, 6, 64);

/// Runs updates on random data for about `seconds` on each of `threads` threads.
pub fn update(
    algo: Algorithm,
    hidden: usize,
    batch: usize,
    population: usize,
    threads: usize,
    seconds: f64,
) -> UpdateBench {
    let (s, a, h) = SIZES;
    let state = s + if algo.history() { h } else { 0 };
    let d = Dimensions { state, action: a, population, safety: algo.constraint().is_some() };
    let settings = AgentSettings { hidden: vec![hidden; 2], batch, ..AgentSettings::default() };
    let one = |thread: u64| {
        let mut rng = stream(0, "bench", thread);
        let mut learner = Learner::<f32>::new(d, &settings, &mut rng);
        let mut data = Batch::new(d, batch);
        // The draw of the batch is part of an update, as it is in the peers' scripts.
        let rows = 10_000;
        let mut table = vec![0.0f32; rows * (2 * state + a + 2)];
        table.iter_mut().for_each(|x| *x = rand_distr::Distribution::sample(&rand_distr::StandardNormal, &mut rng));
        let width = 2 * state + a + 2;
        let multiplier = vec![0.5; population];
        let mut step = |rng: &mut _| {
            for i in 0..population * batch {
                let row = &table[rand::RngExt::random_range(rng, 0..rows) * width..][..width];
                data.state[i * state..][..state].copy_from_slice(&row[..state]);
                data.next_state[i * state..][..state].copy_from_slice(&row[state..2 * state]);
                data.action[i * a..][..a].copy_from_slice(&row[2 * state..][..a]);
                data.reward[i] = row[width - 2];
                data.score[i] = -row[width - 1].abs();
                data.goes_on[i] = 1.0;
            }
            data.draw_noise(rng);
            learner.update(&data, &multiplier, 3e-4);
        };
        for _ in 0..10 {
            step(&mut rng);
        }
        let watch = Stopwatch::start();
        let mut n = 0;
        while watch.seconds() < seconds {
            step(&mut rng);
            n += population;
        }
        (n as f64 / watch.seconds(), learner.multiply_adds())
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads as u64).map(|i| scope.spawn(move || one(i))).collect();
        handles.into_iter().filter_map(|h| h.join().ok()).collect()
    });
    let work = results.first().map_or(1, |r| r.1);
    UpdateBench {
        bench: "update",
        algo,
        hidden,
        batch,
        population,
        threads,
        per_second: results.iter().map(|r| r.0).sum(),
        floor_per_second: threads as f64 * peak_multiply_adds() / work as f64,
    }
}

/// Multiply-adds a second of the matrix kernel at its best on this core.
fn peak_multiply_adds() -> f64 {
    let n = 384;
    let (a, b) = (vec![1.0f32; n * n], vec![1.0f32; n * n]);
    let mut out = vec![0.0f32; n * n];
    let mut best = f64::INFINITY;
    for _ in 0..30 {
        let watch = Stopwatch::start();
        matmul(&mut out, false, View::new(&a, n, n), View::new(&b, n, n));
        best = best.min(watch.seconds());
    }
    (n * n * n) as f64 / best
}

/// One line of `bench act`: a policy step and a safety step at batch one.
#[derive(Clone, Debug, Serialize)]
pub struct ActBench {
    /// Always `act`.
    pub bench: &'static str,
    /// Units in both hidden layers of the policy.
    pub hidden: usize,
    /// Steps a second.
    pub per_second: f64,
    /// Microseconds a step.
    pub microseconds: f64,
}

/// Times acting: the policy's forward pass and one step of the safety model.
pub fn act(hidden: usize, seconds: f64) -> ActBench {
    let (s, a, h) = SIZES;
    let mut rng = stream(0, "bench", 0);
    let policy = Mlp::new(s + h, &[hidden; 2], 2 * a);
    let mut weights = vec![0.0f32; policy.parameters()];
    policy.init(&mut weights, &mut rng);
    let settings = FitSettings { hidden: h - 1, ..FitSettings::default() };
    let model = initial_model(&[], s, a, 1000, &settings, 0);
    let mut tracker = model.tracker(-7.0);
    let mut state = vec![0.1f32; s + h];
    let (mut head, mut action) = (vec![0.0f32; 2 * a], vec![0.0f32; a]);
    let mut scratch = Default::default();
    let watch = Stopwatch::start();
    let mut n = 0u64;
    while watch.seconds() < seconds {
        for _ in 0..100 {
            tracker.write_memory(&mut state[s..]);
            policy.forward_one(&weights, &state, &mut head, &mut scratch);
            gaussian::mode(&head, &mut action);
            let log_prob = model.step(&mut tracker, &state[..s], &action);
            tracker.score(log_prob);
        }
        n += 100;
    }
    let per_second = n as f64 / watch.seconds();
    ActBench { bench: "act", hidden, per_second, microseconds: 1e6 / per_second }
}

/// One line of `bench env`.
#[derive(Clone, Debug, Serialize)]
pub struct EnvBench {
    /// Always `env`.
    pub bench: &'static str,
    /// The task's name.
    pub task: String,
    /// Steps a second on one core, resets included.
    pub per_second: f64,
    /// Microseconds a step.
    pub microseconds: f64,
    /// Microseconds of the bare engine for the same episodes, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_microseconds: Option<f64>,
}

/// Times an environment under random actions, drawn beforehand; the same episodes then again with the bare engine.
pub fn env(task: &str, env: &mut dyn Env, seconds: f64) -> Result<EnvBench, Error> {
    let space = env.spec().action.clone();
    let mut rng = stream(0, "bench", 0);
    let mut draw = |(low, high): (&f64, &f64)| rand::RngExt::random_range(&mut rng, *low..=*high);
    let actions: Vec<Vec<f64>> =
        (0..50_000).map(|_| space.low.iter().zip(&space.high).map(&mut draw).collect()).collect();
    let action = |step: usize| &actions[step % actions.len()]; // they go on from one episode to the next
    let mut observation = vec![0.0; env.spec().observation.dim()];
    let (mut steps, mut spent, mut bare) = (0, 0.0, Some(0.0));
    let mut ends = vec![0]; // the first is a beginning
    while spent < seconds {
        let block = ends.len() - 1;
        let watch = Stopwatch::start();
        while steps < ends[block] + 1000 {
            env.reset(ends.len() as u64, &mut observation)?;
            let mut over = false;
            while !over {
                let step = env.step(action(steps), &mut observation)?;
                over = step.terminated || step.truncated;
                steps += 1;
            }
            ends.push(steps);
        }
        spent += watch.seconds();
        if let Some(before) = bare {
            let watch = Stopwatch::start();
            let mut moved = true;
            for episode in block + 1..ends.len() {
                env.reset(episode as u64, &mut observation)?;
                moved &= (ends[episode - 1]..ends[episode]).all(|step| env.bare_step(action(step)));
            }
            bare = moved.then_some(before + watch.seconds());
        }
    }
    let each = |seconds: f64| 1e6 * seconds / steps as f64;
    Ok(EnvBench {
        bench: "env",
        task: task.to_owned(),
        per_second: steps as f64 / spent,
        microseconds: each(spent),
        bare_microseconds: bare.map(each),
    })
}
