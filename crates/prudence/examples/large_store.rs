//! Labels and fits a store of 40,000 episodes of 1,000 steps of 23 numbers, about 4 GB, and prints the time and the memory
//! that it took. It needs about 9 GB of disk space in FOLDER, which it removes again.
//!
//!     cargo run --release -p prudence --example large_store -- FOLDER [EPISODES]

use std::path::Path;

use prudence::random::{StreamId, stream, subseed};
use prudence::{
    BoxSpace, Env, EnvError, Episode, Labeller, Schema, Session, Spec, Step, Stopwatch, Store, Task, files,
};
use rand::RngExt as _;

const OBSERVATION: usize = 17;
const ACTION: usize = 6;
const STEPS: usize = 1000;
/// Episodes per shard: as many steps as between two checkpoints of a training.
const SHARD: usize = 50;

/// A task of these shapes; only its spec is used.
struct Shapes(Spec);

impl Env for Shapes {
    fn spec(&self) -> &Spec {
        &self.0
    }

    fn reset(&mut self, _seed: u64, observation: &mut [f64]) -> Result<(), EnvError> {
        observation.fill(0.0);
        Ok(())
    }

    fn step(&mut self, _action: &[f64], observation: &mut [f64]) -> Result<Step, EnvError> {
        observation.fill(0.0);
        Ok(Step { reward: 0.0, terminated: false, truncated: true })
    }
}

fn spec() -> Spec {
    Spec {
        observation: BoxSpace::unbounded(OBSERVATION),
        action: BoxSpace::uniform(ACTION, -1.0, 1.0),
        signals: vec!["speed".into()],
        horizon: STEPS,
    }
}

fn episode(number: u64) -> Episode {
    let numbers = |purpose: &str, n: usize| {
        let mut all = vec![0.0; n];
        StreamId::new(number, purpose, 0).normals(0, &mut all);
        all
    };
    let fast = stream(number, "fast", 0).random_range(0.0..1.0) < 0.5;
    let observations = numbers("observations", (STEPS + 1) * OBSERVATION);
    let speed = |t: usize| f64::from(observations[(t + 1) * OBSERVATION]) + if fast { 3.0 } else { 0.0 };
    Episode {
        signals: (0..STEPS).map(speed).collect(),
        actions: numbers("actions", STEPS * ACTION),
        rewards: numbers("rewards", STEPS),
        observations,
        ..Episode::new(OBSERVATION, ACTION)
    }
}

/// The most memory that this process has used so far, in MiB.
fn peak() -> f64 {
    let status = files::read_limited("/proc/self/status".as_ref(), 1 << 20).unwrap_or_default();
    let status = String::from_utf8_lossy(&status).into_owned();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().to_owned();
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap_or(f64::NAN) / 1024.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: large_store FOLDER [EPISODES]")?;
    let episodes = arguments.next().map_or(Ok(40_000), |n| n.parse::<usize>())?;
    let folder = Path::new(&folder).join("large-store");
    let (path, model) = (folder.join("episodes-seed-0"), folder.join("model"));
    let schema = Schema {
        task: "large".into(),
        observation_dim: OBSERVATION,
        action_dim: ACTION,
        signals: vec!["speed".into()],
    };
    let watch = Stopwatch::start();
    let mut store = Store::create(&path, schema)?;
    for first in (0..episodes).step_by(SHARD) {
        let shard: Vec<Episode> =
            (first..episodes.min(first + SHARD)).map(|n| episode(subseed(0, "episode", n as u64))).collect();
        store.append(&shard)?;
    }
    let steps = store.steps() as f64;
    println!("wrote {episodes} episodes in {:.0} s; peak {:.0} MiB", watch.seconds(), peak());

    let watch = Stopwatch::start();
    let rule = Labeller::Rule { rule: "mean(speed, 50) <= 1.5".into(), extra_starts: 3, seed: 0 };
    let labelled = prudence::label(&path, &rule)?;
    println!(
        "labelled {} of them, {} safe: {:.2} million steps per second; peak {:.0} MiB",
        labelled.episodes,
        labelled.safe,
        steps / 1e6 / watch.seconds(),
        peak()
    );

    let task =
        Task::with_env("large", || Shapes(spec()), "speed < 2")?.with(&["safety.steps=100", "safety.batch=32"])?;
    let watch = Stopwatch::start();
    let (_, fitted) = prudence::fit(&task, &[path], &model, 0, &Session::new(2)?)?;
    println!(
        "fitted {} segments, 100 steps of 32, in {:.0} s; peak {:.0} MiB; right on {} of the held-out episodes",
        fitted.data_segments,
        watch.seconds(),
        peak(),
        prudence::percent(fitted.held_out.accuracy)
    );
    files::remove(&folder)?;
    Ok(())
}
