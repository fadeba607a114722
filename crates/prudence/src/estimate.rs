//! How long a run will take on this machine, from short measurements of its stages.

use std::sync::Arc;

use prudence_agent::population::{Parallel, Population, Setup};
use prudence_agent::replay::Stored;
use prudence_core::clock::Stopwatch;
use prudence_core::random::stream;
use prudence_data::{Episode, Segment};
use prudence_nn::{Cpu, Device};
use prudence_safety::fit::{Fitter, initial_model};
use prudence_safety::{SafetyModel, Scorer};
use rand::RngExt as _;

use crate::provenance::duration;
use crate::session::Session;
use crate::{Algorithm, Error, Task};

/// The time that [`run`](crate::run()) will take, by stage, in seconds.
///
/// ```
/// use prudence::{Estimate, Session, Task};
///
/// let task = Task::named("navigation")?.with(&["agent.hidden=[8,8]", "safety.batch=2"])?;
/// let estimate = Estimate::of(&task, &Session::new(2)?)?;
/// println!("{estimate}");
/// assert!(estimate.seconds() > 0.0);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Collecting episodes.
    pub collect: f64,
    /// Fitting safety models, in all rounds and trainings.
    pub fit: f64,
    /// Training agents, in all rounds.
    pub train: f64,
    /// The threads that work.
    pub threads: usize,
}

/// The length of each measurement in seconds.
const SECONDS: f64 = 0.25;

impl Estimate {
    /// Measures each stage for a fraction of a second.
    pub fn of(task: &Task, session: &Session) -> Result<Self, Error> {
        let settings = task.settings();
        let (run, train) = (&settings.run, &settings.train);
        let threads = session.pool().current_num_threads() as f64;
        // A step of a training, and one of a test episode.
        let measure = |algorithm: Algorithm, updates_per_step: f64| {
            let sizes = TrainSizes { algorithm, population: 1, updates_per_step };
            seconds_per_step(&Cpu::<f32>::new(), task, &sizes, Parallel::default(), SECONDS)
        };
        let acting = measure(Algorithm::Sac, 0.0)?;
        let per_step = |algorithm: Algorithm, steps: u64| -> Result<f64, Error> {
            let tests = settings.run.episodes * 2 + steps / train.record_every * train.test_episodes;
            let tests = tests as f64 * task.spec().horizon as f64 * acting;
            Ok(steps as f64 * measure(algorithm, train.updates_per_step)? + tests)
        };
        // Agents on fewer threads than there are, one after the other.
        let on_threads = |agents: u64, seconds: f64| seconds * (agents as f64 / threads).ceil().max(1.0);
        let (replicas, rounds) = (run.replicas, run.rounds as f64 + 1.0);
        let safe: Vec<_> = run.algo.iter().copied().filter(|algorithm| algorithm.constraint().is_some()).collect();
        let collect = on_threads(run.seeds * replicas, per_step(Algorithm::Sac, settings.collect.steps)?);
        let train = match safe.first() {
            None => 0.0,
            Some(first) => {
                let agents = safe.len() as u64 * run.seeds * replicas;
                rounds * on_threads(agents, per_step(*first, train.steps)?)
            }
        };
        let fit_step = session.pool().install(|| fit_step(task))?;
        let fits = if safe.is_empty() { 1.0 } else { rounds };
        let fit = fits * settings.safety.steps as f64 * fit_step * replicas as f64;
        let agents = (safe.len() as u64 * run.seeds * replicas) as f64 * rounds;
        let refits = settings.train.steps.checked_div(settings.refit.every).unwrap_or(0) as f64;
        let refit = agents * refits * settings.refit.steps as f64 * fit_step;
        Ok(Self { collect, fit: fit + refit, train, threads: threads as usize })
    }

    /// The whole time.
    pub fn seconds(&self) -> f64 {
        self.collect + self.fit + self.train
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { collect, fit, train, threads } = self;
        let [all, collect, fit, train] = [self.seconds(), *collect, *fit, *train].map(duration);
        let plural = if *threads == 1 { "" } else { "s" };
        write!(f, "about {all} on {threads} thread{plural} (collect {collect}, fit {fit}, train {train})")
    }
}

fn model(task: &Task, episodes: &[Episode]) -> Result<SafetyModel, Error> {
    let (spec, used) = (task.spec(), (0..episodes.len()).collect::<Vec<_>>());
    let widths = [spec.observation.dim(), spec.action.dim()];
    Ok(initial_model(episodes, &used, widths, spec.horizon, &task.settings().safety, 0)?)
}

/// The training that [`seconds_per_step`] measures.
pub(crate) struct TrainSizes {
    pub algorithm: Algorithm,
    /// Agents that train in lockstep.
    pub population: usize,
    /// Updates of each agent per environment step.
    pub updates_per_step: f64,
}

/// Seconds per environment step of a population, measured for about `seconds`. There are no stored episodes; the safety
/// model is an untrained one.
pub(crate) fn seconds_per_step<D: Device>(
    device: &D,
    task: &Task,
    sizes: &TrainSizes,
    parallel: Parallel,
    seconds: f64,
) -> Result<f64, Error> {
    let TrainSizes { algorithm, population, updates_per_step } = *sizes;
    let mut settings = task.settings().training();
    settings.train.random_steps = 0;
    settings.train.updates_per_step = updates_per_step;
    let models = if algorithm.constraint().is_some() { vec![Arc::new(model(task, &[])?)] } else { Vec::new() };
    let floor = settings.agent.score_floor;
    let scorer = models.first().map(|model| Scorer::new(device, std::slice::from_ref(model), floor)).transpose()?;
    let stored = Stored::empty(device, &task.scaling(), scorer.as_ref()).map_err(Error::from)?;
    let setup = Setup {
        algorithm,
        settings,
        env: task.env().clone(),
        spec: task.spec().clone(),
        rule: task.rule().clone(),
        models,
        stored: Arc::new(stored),
        parallel,
    };
    let seeds: Vec<u64> = (0..population as u64).collect();
    let mut population = Population::new(device, setup, &seeds)?;
    // A device records what it replays later.
    let lockstep = |population: &mut Population<D>| -> Result<(), Error> {
        for ended in population.lockstep()? {
            ended.episode?;
        }
        Ok(())
    };
    for _ in 0..3 {
        lockstep(&mut population)?;
    }
    let (watch, mut steps) = (Stopwatch::start(), 0);
    while watch.seconds() < seconds && !population.done(0) {
        lockstep(&mut population)?;
        steps += 1;
    }
    Ok(watch.seconds() / f64::from(steps.max(1)))
}

/// Seconds per step of the fit, on segments as long as episodes can be.
fn fit_step(task: &Task) -> Result<f64, Error> {
    let (settings, spec) = (&task.settings().safety, task.spec());
    let (s, a, steps) = (spec.observation.dim(), spec.action.dim(), spec.horizon);
    let mut rng = stream(0, "bench-fit", 0);
    let mut numbers = |n: usize| (0..n).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f32>>();
    let episode = Episode {
        observations: numbers((steps + 1) * s),
        actions: numbers(steps * a),
        rewards: vec![0.0; steps],
        ..Episode::new(s, a)
    };
    let episodes = [episode];
    let segment = Segment { episode: 0, start: 0, end: steps, safe: false, at: Some(steps / 2) };
    let batches = vec![vec![&segment; settings.batch]; settings.ensemble];
    let mut fitter = Fitter::new(&Cpu::<f32>::new(), vec![model(task, &episodes)?], settings)?;
    let mut step = || fitter.step(&[&episodes[..]], &batches, 1e-3);
    step()?;
    let (watch, mut steps) = (Stopwatch::start(), 0);
    while watch.seconds() < SECONDS {
        step()?;
        steps += 1;
    }
    Ok(watch.seconds() / f64::from(steps))
}
