//! Benchmarks of updates, fitting, acting and environments, with an upper bound on the speed where one is known.

use prudence_agent::AgentSettings;
use prudence_agent::actor::{Actor, Choose};
use prudence_agent::population::Parallel;
use prudence_agent::safesac::{Head, Learner, Networks, Steering};
use prudence_core::clock::Stopwatch;
use prudence_core::random::{StreamId, stream};
use prudence_core::{BoxSpace, Spec};
use prudence_data::{Episode, Segment};
use prudence_env::Env;
use prudence_nn::cpu::matrix::{Then, View, product};
use prudence_nn::work::{Batch, Columns, Input, Pass, Table, Tables};
use prudence_nn::{Bank, Cpu, Device, Mlp, Precision};
use prudence_safety::fit::initial_model;
use prudence_safety::{Fit, FitData, FitSettings, Scorer};
use rand::RngExt as _;
use rand_distr::{Distribution as _, StandardNormal};
use serde::Serialize;

use prudence_agent::Scaling;

use crate::estimate::{TrainSizes, seconds_per_step};
use crate::{Algorithm, DeviceName, Error, Session, Task, device};

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
    /// Milliseconds for an update of all agents of a thread.
    pub milliseconds: f64,
    /// An upper bound on `per_second`: as if an update were only its matrix products, at the peak of this machine's kernels
    /// for large matrices.
    pub floor_per_second: f64,
}

/// What [`update`] measures.
///
/// ```no_run
/// use prudence::bench::{UpdateSizes, update};
/// use prudence::{Algorithm, DeviceName, Precision};
///
/// let sizes = UpdateSizes { algo: Algorithm::SafesacH, hidden: 256, batch: 256, population: 1, threads: 1 };
/// let measured = update(&sizes, DeviceName::Cpu, Precision::Fp32, 3.0)?; // for about 3 s
/// println!("{:.0} updates per second", measured.per_second);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct UpdateSizes {
    /// The algorithm.
    pub algo: Algorithm,
    /// Units of each of the two hidden layers.
    pub hidden: usize,
    /// Transitions per batch.
    pub batch: usize,
    /// Agents per thread.
    pub population: usize,
    /// The number of threads, each with its own agents; on a card each has its own queue.
    pub threads: usize,
}

/// The number of stored rows to draw from, as in the comparison scripts in `benches/`.
const ROWS: usize = 100_000;

/// The widths of observation, action and memory, as in the comparison scripts in `benches/`.
const SIZES: (usize, usize, usize) = (17, 6, 64);

/// Runs updates on random data for about `seconds`.
pub fn update(
    sizes: &UpdateSizes,
    device: DeviceName,
    precision: Precision,
    seconds: f64,
) -> Result<UpdateBench, Error> {
    match device::open(device)? {
        None => update_on(&Cpu::<f32>::new(), sizes, peak_multiply_adds(), seconds),
        Some(card) => {
            let card = card.with_precision(precision);
            let peak = peak_of(&card)?;
            // Threads share a card, and each of the CPU's has a core.
            update_on(&card, sizes, peak / sizes.threads as f64, seconds)
        }
    }
}

fn update_on<D: Device>(device: &D, sizes: &UpdateSizes, peak: f64, seconds: f64) -> Result<UpdateBench, Error> {
    let UpdateSizes { algo, hidden, batch, population, threads } = *sizes;
    let results: Vec<Result<(f64, usize), Error>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads as u64)
            .map(|thread| {
                scope.spawn(move || {
                    let device = device.fork().map_err(prudence_agent::Error::from)?;
                    update_thread(&device, sizes, thread, seconds)
                })
            })
            .collect();
        handles.into_iter().filter_map(|h| h.join().ok()).collect()
    });
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let work = results.first().map_or(1, |r| r.1);
    let per_second = results.iter().map(|r| r.0).sum();
    Ok(UpdateBench {
        bench: "update",
        algo,
        hidden,
        batch,
        population,
        threads,
        per_second,
        milliseconds: 1e3 * (threads * population) as f64 / per_second,
        floor_per_second: threads as f64 * peak / work as f64,
    })
}

/// Updates per second of one thread, and the multiply-adds of one update.
fn update_thread<D: Device>(device: &D, sizes: &UpdateSizes, thread: u64, seconds: f64) -> Result<(f64, usize), Error> {
    let UpdateSizes { algo, hidden, batch, population, .. } = *sizes;
    let (s, a, h) = SIZES;
    let state = s + if algo.history() { h } else { 0 };
    let settings = AgentSettings { hidden: vec![hidden; 2], batch, ..AgentSettings::default() };
    let mut heads = vec![Head::reward(algo.constraint().is_none())];
    if algo.constraint().is_some() {
        heads.push(Head::safety(settings.score_floor));
    }
    let multipliers = vec![0.5; heads.len() - 1];
    let networks = Networks::new(population, state, a, &settings.hidden, heads);
    let work = networks.multiply_adds(batch);
    let streams = (0..population as u64).map(|p| stream(thread, "bench", p));
    let agent = prudence_agent::Error::from;
    let mut learner = Learner::new(device, networks, &settings, streams).map_err(agent)?;
    let mut data = Batch::new(device, population, batch, state, a).map_err(agent)?;
    let mut rng = stream(0, "bench", thread);
    // Sampling the batch is part of an update, as in the comparison scripts in `benches/`.
    let mut table = Table::new(device, ROWS, s, h, a).map_err(agent)?;
    let mut normals = |n: usize| (0..n).map(|_| StandardNormal.sample(&mut rng)).collect::<Vec<f32>>();
    for (column, width) in
        [(&mut table.observation, s), (&mut table.memory, h), (&mut table.action, a), (&mut table.reward, 1)]
    {
        device.write(column, 0, &normals(ROWS * width));
    }
    device.write(&mut table.score, 0, &normals(ROWS).iter().map(|x| -x.abs()).collect::<Vec<_>>());
    device.fill(&mut table.not_terminal, 0, ROWS, 1.0);
    let own = Table::new(device, population, s, h, a).map_err(agent)?;
    let spec = Spec {
        observation: BoxSpace::unbounded(s),
        action: BoxSpace::uniform(a, -1.0, 1.0),
        signals: Vec::new(),
        horizon: 1000,
    };
    let units = Scaling::new(&spec).units(device, population).map_err(agent)?;
    let tables =
        Tables { shared: &table, own: &own, population, units: &units, memory_width: h, history: algo.history() };
    let (mut rows, mut rows_there) = (vec![0; population * batch], device.rows(population * batch).map_err(agent)?);
    let mut addresses = device.rows(6 * population).map_err(agent)?;
    let mut t = 0;
    let mut step = |rng: StreamId| -> Result<(), Error> {
        rng.below(0, ROWS as u32 - 1, &mut rows);
        device.write_rows(&mut rows_there, 0, &rows);
        device.gather(&tables, &rows_there, &mut data);
        for (noise, purpose) in [(&mut data.next_noise, "next-actions"), (&mut data.noise, "new-actions")] {
            let ids = (0..population as u64).map(|agent| StreamId::new(agent, purpose, t));
            device.write_rows(&mut addresses, 0, &ids.flat_map(|id| id.address(0)).collect::<Vec<_>>());
            device.normals(&addresses, batch * a, noise);
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
    // Reading waits for all work on the device.
    let finished = || device.read(&units.action_half, 0, &mut [0.0]).map_err(agent);
    finished()?;
    let watch = Stopwatch::start();
    let mut n = 0;
    while watch.seconds() < seconds {
        for _ in 0..CHUNK {
            step(StreamId::new(thread, "batch", n as u64))?;
            n += population;
        }
        finished()?;
    }
    Ok((n as f64 / watch.seconds(), work))
}

/// Updates between two looks at the clock.
const CHUNK: usize = 10;

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

/// The highest number of multiply-adds per second that a device reaches in a bank of large layers.
fn peak_of<D: Device>(device: &D) -> Result<f64, Error> {
    let (n, groups) = (2048, 8);
    let agent = prudence_agent::Error::from;
    let net = Bank::dense(Mlp::new(n, &[], n), groups);
    let (weights, x) = (device.buffer(groups * net.stride), device.buffer(groups * n * n));
    let (weights, x) = (weights.map_err(agent)?, x.map_err(agent)?);
    let mut pass = Pass::new(device, &net, n).map_err(agent)?;
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let watch = Stopwatch::start();
        device.forward(&net, &weights, Input { first: Columns::new(&x, n, n, 1), second: None }, &mut pass);
        device.read(pass.output(), 0, &mut [0.0]).map_err(agent)?;
        best = best.min(watch.seconds());
    }
    Ok((groups * n * n * n) as f64 / best)
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
    /// Models fitted at the same time.
    pub models: usize,
    /// The widths of observation and action.
    pub sizes: (usize, usize),
    /// Steps of the fit before the measurement.
    pub warm_steps: u64,
    /// Milliseconds per step of the fit.
    pub milliseconds: f64,
}

/// What [`fit`] measures.
///
/// ```
/// use prudence::DeviceName;
/// use prudence::bench::{FitSizes, fit};
///
/// let sizes = FitSizes { batch: 4, steps: 5, models: 1, inputs: (2, 2), warm_steps: 1 };
/// let measured = fit(&sizes, DeviceName::Cpu, 0.01)?;
/// println!("{:.3} ms per step of the fit", measured.milliseconds);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FitSizes {
    /// Segments per step and model.
    pub batch: usize,
    /// Steps of each segment.
    pub steps: usize,
    /// Models fitted at the same time, each to its own segments.
    pub models: usize,
    /// The widths of observation and action.
    pub inputs: (usize, usize),
    /// Steps of the fit before the measurement.
    pub warm_steps: u64,
}

/// Times a step of fitting a safety model to random segments with labels on all prefixes.
pub fn fit(sizes: &FitSizes, device: DeviceName, seconds: f64) -> Result<FitBench, Error> {
    match device::open(device)? {
        None => fit_on(&Cpu::<f32>::new(), sizes, seconds),
        Some(card) => fit_on(&card, sizes, seconds),
    }
}

fn fit_on<D: Device>(device: &D, sizes: &FitSizes, seconds: f64) -> Result<FitBench, Error> {
    let FitSizes { batch, steps, models, inputs: (s, a), warm_steps } = *sizes;
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
    // The learning rate falls during a fit: the measurement is to be at its start.
    let settings = FitSettings { batch, steps: usize::MAX, ..FitSettings::default() };
    let data = (0..models as u64).map(|seed| FitData { episodes: &episodes[..], training: &segments, seed });
    let mut fit = Fit::new(device, data.collect(), steps, &settings)?;
    for _ in 0..warm_steps {
        fit.step()?;
    }
    fit.state(0)?; // waits for the device
    let watch = Stopwatch::start();
    let mut n = 0;
    while watch.seconds() < seconds {
        for _ in 0..CHUNK {
            fit.step()?;
            n += 1;
        }
        fit.state(0)?;
    }
    let milliseconds = 1e3 * watch.seconds() / f64::from(n);
    Ok(FitBench { bench: "fit", batch, steps, models, sizes: (s, a), warm_steps, milliseconds })
}

/// The result of [`act`].
///
/// ```
/// let measured = prudence::bench::act(16, 1, 1, prudence::DeviceName::Cpu, 0.01)?; // 16 units per hidden layer
/// println!("{:.1} us per step", measured.microseconds);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct ActBench {
    /// Always `act`.
    pub bench: &'static str,
    /// Agents that act at the same time.
    pub population: usize,
    /// Units of each of the policy's two hidden layers.
    pub hidden: usize,
    /// Members of the safety model's ensemble.
    pub ensemble: usize,
    /// Steps of the whole population per second.
    pub per_second: f64,
    /// Microseconds per step of the whole population.
    pub microseconds: f64,
}

/// Times acting: the policy's forward pass and one step of the scorer, for each agent of a population.
pub fn act(
    hidden: usize,
    ensemble: usize,
    population: usize,
    device: DeviceName,
    seconds: f64,
) -> Result<ActBench, Error> {
    match device::open(device)? {
        None => act_on(&Cpu::<f32>::new(), hidden, ensemble, population, seconds),
        Some(card) => act_on(&card, hidden, ensemble, population, seconds),
    }
}

fn act_on<D: Device>(
    device: &D,
    hidden: usize,
    ensemble: usize,
    population: usize,
    seconds: f64,
) -> Result<ActBench, Error> {
    let (s, a, h) = SIZES;
    let settings = FitSettings { hidden: (h - 1) / ensemble, ensemble, ..FitSettings::default() };
    let model = initial_model::<[Episode]>(&[], &[], [s, a], 1000, &settings, 0)?;
    let scorer = Scorer::new(device, &[model.into()], -7.0)?;
    let policy = Bank::dense(Mlp::new(s + scorer.memory_width(), &[hidden; 2], 2 * a), population);
    let mut rng = stream(0, "bench", 0);
    let mut initial = vec![0.0; policy.shape.parameters()];
    policy.shape.init(&mut initial, &mut |bound| rng.random_range(-bound..bound));
    let mut weights = device.buffer(population * initial.len()).map_err(prudence_agent::Error::from)?;
    device.write(&mut weights, 0, &initial.repeat(population));
    let spec = Spec {
        observation: BoxSpace::unbounded(s),
        action: BoxSpace::uniform(a, -1.0, 1.0),
        signals: Vec::new(),
        horizon: 1000,
    };
    let clip = AgentSettings::default().log_std();
    let mut actor = Actor::new(device, &Scaling::new(&spec), &policy, 1, clip, true, Some(scorer))?;
    let (observation, mut actions) = (vec![0.1f32; s], vec![0.0f32; population * a]);
    let active = vec![true; population];
    let watch = Stopwatch::start();
    let mut n = 0u64;
    while watch.seconds() < seconds {
        for _ in 0..100 {
            (0..population).for_each(|row| actor.show(row, &observation));
            actor.choose(&weights, Choose::Mode, &mut actions)?;
            actor.score(&actions, &active)?;
        }
        n += 100;
    }
    let per_second = n as f64 / watch.seconds();
    let microseconds = 1e6 / per_second;
    Ok(ActBench { bench: "act", population, hidden, ensemble, per_second, microseconds })
}

/// The result of [`train`].
///
/// ```no_run
/// use prudence::{Algorithm, DeviceName, Task};
///
/// let task = Task::named("navigation")?;
/// let measured = prudence::bench::train(&task, Algorithm::Sac, 1, DeviceName::Cpu, 0, 3.0)?;
/// println!("{:.3} ms per step, {:.3} without updates", measured.milliseconds, measured.without_updates);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct TrainBench {
    /// Always `train`.
    pub bench: &'static str,
    /// The task's name.
    pub task: String,
    /// The algorithm.
    pub algo: Algorithm,
    /// Agents that train in lockstep.
    pub population: usize,
    /// Milliseconds for a step of all agents: acting, environments, scoring and updates.
    pub milliseconds: f64,
    /// The same without updates.
    pub without_updates: f64,
    /// Environment steps per second, of all agents.
    pub per_second: f64,
}

/// Times training: a population's steps and updates, without tests and checkpoints. The environments step on this many
/// threads (0: the number of cores); on a CPU one after the other.
pub fn train(
    task: &Task,
    algo: Algorithm,
    population: usize,
    device: DeviceName,
    threads: usize,
    seconds: f64,
) -> Result<TrainBench, Error> {
    let session = Session::new(threads)?.on(device)?;
    let parallel = Parallel { threads: session.threads().unwrap_or_default(), tests: 1 };
    let measure = |updates_per_step: f64| {
        let sizes = TrainSizes { algorithm: algo, population, updates_per_step };
        match session.card() {
            None => seconds_per_step(&Cpu::<f32>::new(), task, &sizes, parallel.clone(), seconds),
            Some(card) => seconds_per_step(card, task, &sizes, parallel.clone(), seconds),
        }
    };
    let (one, without_updates) = (measure(task.settings().train.updates_per_step)?, measure(0.0)?);
    Ok(TrainBench {
        bench: "train",
        task: task.name().to_owned(),
        algo,
        population,
        milliseconds: 1e3 * one,
        without_updates: 1e3 * without_updates,
        per_second: population as f64 / one,
    })
}

/// The result of [`env()`].
///
/// ```
/// let mut env = prudence::Task::named("navigation")?.make_env()?;
/// let measured = prudence::bench::env("navigation", &mut *env, 0.01)?;
/// println!("{:.0} steps per second", measured.per_second);
/// # Ok::<(), prudence::Error>(())
/// ```
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
