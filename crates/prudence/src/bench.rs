//! Benchmarks of updates, fitting, acting and environments, with an upper bound on the speed where one is known.

use prudence_agent::AgentSettings;
use prudence_agent::actor::{Actor, Choose};
use prudence_agent::safesac::{Head, Learner, Networks, Steering};
use prudence_core::clock::Stopwatch;
use prudence_core::random::{StreamId, stream};
use prudence_core::{BoxSpace, Spec};
use prudence_data::{Episode, Segment};
use prudence_env::Env;
use prudence_nn::cpu::Buffer;
use prudence_nn::cpu::matrix::{Then, View, product};
use prudence_nn::work::{Batch, Table, Tables};
use prudence_nn::{Bank, Cpu, Device as _, Mlp};
use prudence_safety::fit::{Fitter, initial_model};
use prudence_safety::{FitSettings, Scorer};
use rand::RngExt as _;
use rand_distr::{Distribution as _, StandardNormal};
use serde::Serialize;

use prudence_agent::Scaling;

use crate::{Algorithm, Error};

/// The result of [`update`].
#[derive(Clone, Debug, Serialize)]
pub struct UpdateBench {
    /// Always `update`.
    pub bench: &'static str,
    /// The algorithm that was updated.
    pub algo: Algorithm,
    /// Units of each of the two hidden layers.
    pub hidden: usize,
    /// Transitions per batch.
    pub batch: usize,
    /// Agents per thread.
    pub population: usize,
    /// The number of threads, each with its own agents.
    pub threads: usize,
    /// Updates per second, summed over all agents and threads.
    pub per_second: f64,
    /// An upper bound on `per_second`: as if an update were only its matrix products, at this machine's measured peak.
    pub floor_per_second: f64,
}

/// The number of stored rows to draw from, as in the comparison scripts in `benches/`.
const ROWS: usize = 100_000;

/// The widths of observation, action and memory, as in the comparison scripts in `benches/`.
const SIZES: (usize, usize, usize) = (17, 6, 64);

/// Runs updates on random data for about `seconds` on each of `threads` threads.
pub fn update(
    algo: Algorithm,
    hidden: usize,
    batch: usize,
    population: usize,
    threads: usize,
    seconds: f64,
) -> Result<UpdateBench, Error> {
    let results: Vec<Result<(f64, usize), Error>> = std::thread::scope(|scope| {
        let one = |thread: u64| update_thread(algo, hidden, batch, population, thread, seconds);
        let handles: Vec<_> = (0..threads as u64).map(|i| scope.spawn(move || one(i))).collect();
        handles.into_iter().filter_map(|h| h.join().ok()).collect()
    });
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let work = results.first().map_or(1, |r| r.1);
    Ok(UpdateBench {
        bench: "update",
        algo,
        hidden,
        batch,
        population,
        threads,
        per_second: results.iter().map(|r| r.0).sum(),
        floor_per_second: threads as f64 * peak_multiply_adds() / work as f64,
    })
}

/// Updates per second of one thread, and the multiply-adds of one update.
fn update_thread(
    algo: Algorithm,
    hidden: usize,
    batch: usize,
    population: usize,
    thread: u64,
    seconds: f64,
) -> Result<(f64, usize), Error> {
    let (s, a, h) = SIZES;
    let state = s + if algo.history() { h } else { 0 };
    let settings = AgentSettings { hidden: vec![hidden; 2], batch, ..AgentSettings::default() };
    let mut heads = vec![Head::reward()];
    if algo.constraint().is_some() {
        heads.push(Head::safety(settings.score_floor));
    }
    let multipliers = vec![0.5; heads.len() - 1];
    let device = Cpu::<f32>::new();
    let networks = Networks::new(population, state, a, &settings.hidden, heads);
    let work = networks.multiply_adds(batch);
    let streams = (0..population as u64).map(|p| stream(thread, "bench", p));
    let agent = prudence_agent::Error::from;
    let mut learner = Learner::new(&device, networks, &settings, streams).map_err(agent)?;
    let mut data = Batch::new(&device, population, batch, state, a).map_err(agent)?;
    let mut rng = stream(0, "bench", thread);
    // Sampling the batch is part of an update, as in the comparison scripts in `benches/`.
    let mut table = Table::new(&device, ROWS, s, h, a).map_err(agent)?;
    for column in [&mut table.observation, &mut table.memory, &mut table.action, &mut table.reward, &mut table.score] {
        column.iter_mut().for_each(|x| *x = StandardNormal.sample(&mut rng));
    }
    table.score.iter_mut().for_each(|x| *x = -x.abs());
    table.not_terminal.fill(1.0);
    let own = Table::new(&device, population, s, h, a).map_err(agent)?;
    let spec = Spec {
        observation: BoxSpace::unbounded(s),
        action: BoxSpace::uniform(a, -1.0, 1.0),
        signals: Vec::new(),
        horizon: 1000,
    };
    let units = Scaling::new(&spec, 1.0).units(&device).map_err(agent)?;
    let tables = Tables {
        shared: &table,
        own: &own,
        population,
        units: &units,
        memory_width: h,
        history: algo.history(),
        floor: settings.score_floor,
    };
    let mut rows = vec![0; population * batch];
    let mut t = 0;
    let mut step = |rng: StreamId| -> Result<(), Error> {
        rng.below(0, ROWS as u32 - 1, &mut rows);
        device.gather(&tables, &rows, &mut data);
        for (noise, purpose) in [(&mut data.next_noise, "next-actions"), (&mut data.noise, "new-actions")] {
            let ids = (0..population as u64).map(|agent| StreamId::new(agent, purpose, t));
            device.normals(&ids.flat_map(|id| id.address(0)).collect(), batch * a, noise);
        }
        t += 1;
        for agent in 0..population {
            learner.steer(agent, Some(&Steering { rate: 3e-4, update: t, multipliers: multipliers.clone() }));
        }
        Ok(learner.update(&data).map_err(agent)?)
    };
    for i in 0..10 {
        step(StreamId::new(thread, "warm-up", i))?;
    }
    let watch = Stopwatch::start();
    let mut n = 0;
    while watch.seconds() < seconds {
        step(StreamId::new(thread, "batch", n as u64))?;
        n += population;
    }
    Ok((n as f64 / watch.seconds(), work))
}

/// The highest number of multiply-adds per second that the matrix kernel reaches on this core.
fn peak_multiply_adds() -> f64 {
    let n = 384;
    let (a, b) = (vec![1.0f32; n * n], vec![1.0f32; n * n]);
    let mut out = vec![0.0f32; n * n];
    let mut best = f64::INFINITY;
    for _ in 0..30 {
        let watch = Stopwatch::start();
        product(&mut out, View::new(&a, n, n), View::new(&b, n, n), Then::Store);
        best = best.min(watch.seconds());
    }
    (n * n * n) as f64 / best
}

/// The result of [`fit`].
#[derive(Clone, Debug, Serialize)]
pub struct FitBench {
    /// Always `fit`.
    pub bench: &'static str,
    /// Segments per step.
    pub batch: usize,
    /// Steps of each segment.
    pub steps: usize,
    /// The widths of observation and action.
    pub sizes: (usize, usize),
    /// Steps of the fit before the measurement.
    pub warm_steps: u64,
    /// Milliseconds per step of the fit.
    pub milliseconds: f64,
}

/// Times a step of fitting a safety model to random segments with labels on all prefixes.
pub fn fit(
    batch: usize,
    steps: usize,
    sizes: (usize, usize),
    warm_steps: u64,
    seconds: f64,
) -> Result<FitBench, Error> {
    let (s, a) = sizes;
    let mut rng = stream(0, "bench-fit", 0);
    let mut numbers = |n: usize| (0..n).map(|_| StandardNormal.sample(&mut rng)).collect::<Vec<f32>>();
    let episodes: Vec<Episode> = (0..2 * batch)
        .map(|_| Episode {
            observations: numbers((steps + 1) * s),
            actions: numbers(steps * a),
            rewards: vec![0.0; steps],
            ..Episode::new(s, a)
        })
        .collect();
    let segment = |episode: usize| {
        let at = (episode % 2 == 1).then_some(steps / 2);
        Segment { episode, start: 0, end: steps, safe: at.is_none(), at }
    };
    let segments: Vec<Segment> = (0..episodes.len()).map(segment).collect();
    let settings = FitSettings { batch, ..FitSettings::default() };
    let all: Vec<usize> = (0..episodes.len()).collect();
    let model = initial_model(&episodes[..], &all, [s, a], steps, &settings, 0)?;
    let mut fitter = Fitter::new(&Cpu::<f32>::new(), model, &settings)?;
    let mut draw = stream(0, "bench-fit", 1);
    let mut step = || -> Result<(), Error> {
        let batch: Vec<&Segment> = (0..batch).map(|_| &segments[draw.random_range(0..segments.len())]).collect();
        Ok(fitter.step(&episodes[..], &[batch], 5e-3)?)
    };
    for _ in 0..warm_steps {
        step()?;
    }
    let watch = Stopwatch::start();
    let mut n = 0;
    while watch.seconds() < seconds {
        step()?;
        n += 1;
    }
    Ok(FitBench { bench: "fit", batch, steps, sizes, warm_steps, milliseconds: 1e3 * watch.seconds() / f64::from(n) })
}

/// The result of [`act`].
#[derive(Clone, Debug, Serialize)]
pub struct ActBench {
    /// Always `act`.
    pub bench: &'static str,
    /// Units of each of the policy's two hidden layers.
    pub hidden: usize,
    /// Members of the safety model's ensemble.
    pub ensemble: usize,
    /// Steps per second.
    pub per_second: f64,
    /// Microseconds per step.
    pub microseconds: f64,
}

/// Times acting: the policy's forward pass and one step of the scorer.
pub fn act(hidden: usize, ensemble: usize, seconds: f64) -> Result<ActBench, Error> {
    let (s, a, h) = SIZES;
    let device = Cpu::<f32>::new();
    let settings = FitSettings { hidden: (h - 1) / ensemble, ensemble, ..FitSettings::default() };
    let model = initial_model::<[Episode]>(&[], &[], [s, a], 1000, &settings, 0)?;
    let scorer = Scorer::new(&device, &[model.into()], -7.0)?;
    let policy = Bank::dense(Mlp::new(s + scorer.memory_width(), &[hidden; 2], 2 * a), 1);
    let mut rng = stream(0, "bench", 0);
    let mut weights = Buffer::zeros(policy.shape.parameters());
    policy.shape.init(&mut weights, &mut |bound| rng.random_range(-bound..bound));
    let spec = Spec {
        observation: BoxSpace::unbounded(s),
        action: BoxSpace::uniform(a, -1.0, 1.0),
        signals: Vec::new(),
        horizon: 1000,
    };
    let clip = AgentSettings::default().log_std();
    let mut actor = Actor::new(&device, &Scaling::new(&spec, 1.0), &policy, clip, true, Some(&scorer))?;
    let (observation, mut action) = (vec![0.1f32; s], vec![0.0f32; a]);
    let watch = Stopwatch::start();
    let mut n = 0u64;
    while watch.seconds() < seconds {
        for _ in 0..100 {
            actor.show(0, &observation);
            actor.choose(&weights, Choose::Mode, &mut action)?;
            actor.score(Some(&scorer), &action, &[true]);
        }
        n += 100;
    }
    let per_second = n as f64 / watch.seconds();
    Ok(ActBench { bench: "act", hidden, ensemble, per_second, microseconds: 1e6 / per_second })
}

/// The result of [`env()`].
#[derive(Clone, Debug, Serialize)]
pub struct EnvBench {
    /// Always `env`.
    pub bench: &'static str,
    /// The task's name.
    pub task: String,
    /// Steps per second on one core, resets included.
    pub per_second: f64,
    /// Microseconds per step.
    pub microseconds: f64,
    /// Microseconds per step of the bare physics engine on the same episodes, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_microseconds: Option<f64>,
}

/// Times an environment with random actions drawn beforehand, then the bare engine on the same episodes.
pub fn env(task: &str, env: &mut dyn Env, seconds: f64) -> Result<EnvBench, Error> {
    let space = env.spec().action.clone();
    let mut rng = stream(0, "bench", 0);
    let mut draw = |(low, high): (&f64, &f64)| rng.random_range(*low..=*high);
    let actions: Vec<Vec<f64>> =
        (0..50_000).map(|_| space.low.iter().zip(&space.high).map(&mut draw).collect()).collect();
    let action = |step: usize| &actions[step % actions.len()]; // the sequence continues across episodes
    let mut observation = vec![0.0; env.spec().observation.dim()];
    let (mut steps, mut spent, mut bare) = (0, 0.0, Some(0.0));
    let mut ends = vec![0]; // the first entry is the start of the first episode
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
                let Some(engine) = env.bare_engine() else {
                    moved = false;
                    break;
                };
                moved &= (ends[episode - 1]..ends[episode]).all(|step| engine.bare_step(action(step)));
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
