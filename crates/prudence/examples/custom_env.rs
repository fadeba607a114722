//! From the definition of your own environment to a trained agent that keeps a rule it was never told.
//!
//! A runner is rewarded for speed and sees only its position. It must not run faster than half its top speed on average
//! over any five steps: a rule about the history, which no single observation reveals. Plain SAC breaks it; SafeSAC-H
//! learns to keep it from one safe/unsafe label per episode.
//!
//!     cargo run --release -p prudence --example custom_env

use prudence::random::{Stream, stream};
use prudence::{Agent, BoxSpace, Env, EnvError, Labeller, RunFolder, Session, Spec, Step, Task};
use rand::RngExt as _;

struct Runner {
    spec: Spec,
    wind: Stream,
    steps: usize,
    position: f64,
    speed: f64,
}

impl Runner {
    fn new() -> Self {
        let spec = Spec {
            observation: BoxSpace::uniform(1, 0.0, 20.0),
            action: BoxSpace::uniform(1, 0.0, 1.0),
            signals: vec!["speed".into()], // for the rule; the agent does not see it
            horizon: 20,
        };
        Self { spec, wind: stream(0, "wind", 0), steps: 0, position: 0.0, speed: 0.0 }
    }
}

impl Env for Runner {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), EnvError> {
        *self = Self { wind: stream(seed, "wind", 0), ..Self::new() };
        observation[0] = self.position;
        Ok(())
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, EnvError> {
        self.speed = (action[0].clamp(0.0, 1.0) + self.wind.random_range(-0.1..0.1)).max(0.0);
        self.position = (self.position + self.speed).min(20.0);
        self.steps += 1;
        observation[0] = self.position;
        Ok(Step { reward: self.speed, terminated: false, truncated: self.steps == self.spec.horizon })
    }

    fn signals(&self) -> &[f64] {
        std::slice::from_ref(&self.speed)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = [
        "agent.hidden=[32,32]",
        "collect.steps=10000",
        "train.steps=16000",
        "train.random_steps=2000",
        "train.record_every=2000",
        "safety.steps=1500",
        "safety.batch=64",
        "run.seeds=1",
        "run.algo=[\"safesac-h\"]",
    ];
    let task = Task::with_env("runner", Runner::new, "mean(speed, 5) <= 0.5")?.with(&settings)?;
    let (dir, session) = (tempfile::tempdir()?, Session::new(0)?);
    let [episodes, model, agents] = ["episodes", "model", "agents"].map(|name| dir.path().join(name));

    let collected = prudence::collect(&task, &episodes, &session)?; // by SAC, which has no constraint
    let labelled = prudence::label(&episodes, &Labeller::of(&task))?;
    println!("SAC collected {} episodes; {} of them are safe", labelled.episodes, labelled.safe);

    let (model, fitted) = prudence::fit(&task, &collected.stores, &model, 0, &session)?;
    println!("the safety model is right on {:.1} % of held-out episodes", 100.0 * fitted.held_out.accuracy);

    prudence::train(&task, Some(&model), &collected.stores, &agents, &session)?;
    let load = |run, algorithm| Agent::load(&RunFolder::at(run).agent(0, algorithm, 0).policy());
    let sac = test("SAC", &load(&episodes, prudence::Algorithm::Sac)?, &task)?;
    let safesac = test("SafeSAC-H", &load(&agents, prudence::Algorithm::SafesacH)?, &task)?;
    assert!(sac <= 10, "SAC should break the rule");
    assert!(safesac >= 90, "SafeSAC-H should keep the rule");
    Ok(())
}

/// Plays 100 test episodes and returns how many were safe.
fn test(name: &str, agent: &Agent, task: &Task) -> Result<usize, prudence::Error> {
    let tests = agent.test(task, 0..100, None)?;
    let safe = tests.iter().filter(|test| test.safe).count();
    let mean = tests.iter().map(|test| test.total_reward).sum::<f64>() / tests.len() as f64;
    println!("{name}: {safe} of 100 test episodes are safe, mean return {mean:.2}");
    Ok(safe)
}
