//! What is learned does not depend on the environment's units.

use prudence::{Agent, BoxSpace, Env, EnvError, Labeller, Session, Spec, Step, Task};

/// A runner whose observations and rewards are multiplied by numbers.
struct Runner {
    spec: Spec,
    unit: Units,
    position: f64,
    speed: f64,
    steps: usize,
}

#[derive(Clone, Copy)]
struct Units {
    observation: f64,
    reward: f64,
}

impl Runner {
    fn new(unit: Units) -> Self {
        let spec = Spec {
            observation: BoxSpace::unbounded(2),
            action: BoxSpace::uniform(1, -1.0, 1.0),
            signals: vec!["speed".into()],
            horizon: 20,
        };
        Self { spec, unit, position: 0.0, speed: 0.0, steps: 0 }
    }
}

impl Env for Runner {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), EnvError> {
        (self.position, self.speed, self.steps) = ((seed % 16) as f64 / 16.0, 0.0, 0);
        observation.copy_from_slice(&[self.position * self.unit.observation, 0.0]);
        Ok(())
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, EnvError> {
        self.speed = 0.5 * self.speed + 0.5 * action[0];
        self.position += self.speed;
        self.steps += 1;
        observation.copy_from_slice(&[self.position, self.speed].map(|x| x * self.unit.observation));
        let reward = self.speed * self.unit.reward;
        Ok(Step { reward, terminated: false, truncated: self.steps == self.spec.horizon })
    }

    fn signals(&self) -> &[f64] {
        std::slice::from_ref(&self.speed)
    }
}

/// The actions of a safe agent in test episodes, and its returns. Everything is learned from the start, refits included.
fn learned(unit: Units) -> (Vec<Vec<f32>>, Vec<f64>) {
    let settings = [
        "agent.hidden=[16,16]",
        "agent.batch=32",
        "collect.steps=2500",
        "train.steps=1500",
        "train.random_steps=500",
        "train.record_every=500",
        "train.test_episodes=3",
        "train.accept_episodes=4",
        "refit.every=500",
        "refit.steps=20",
        "safety.steps=60",
        "safety.batch=16",
        "run.seeds=1",
        "run.algo=[\"safesac-h\"]",
    ];
    let task = Task::with_env("runner", move || Runner::new(unit), "mean(speed, 4) <= 0.3").unwrap();
    let task = task.with(&settings).unwrap();
    let (dir, session) = (tempfile::tempdir().unwrap(), Session::new(1).unwrap());
    let [episodes, model, agents] = ["episodes", "model", "agents"].map(|name| dir.path().join(name));
    let collected = prudence::collect(&task, &episodes, &session).unwrap();
    prudence::label(&episodes, &Labeller::of(&task)).unwrap();
    let (model, _) = prudence::fit(&task, &collected.stores, &model, 0, &session).unwrap();
    let agents: Vec<Agent> = prudence::train(&task, Some(&model), &collected.stores, &agents, &session).unwrap();
    let tests = agents[0].test(&task, 0..5, None).unwrap();
    let returns = tests.iter().map(|test| test.total_reward).collect();
    (tests.into_iter().map(|test| test.episode.actions).collect(), returns)
}

#[test]
fn powers_of_two_in_the_environments_units_change_no_bit() {
    let (actions, returns) = learned(Units { observation: 1.0, reward: 1.0 });
    assert!(actions.iter().flatten().any(|a| *a != actions[0][0]), "the policy depends on what it sees");
    for (observation, reward) in [(128.0, 1.0), (1.0, 128.0), (1.0 / 128.0, 1.0 / 128.0)] {
        let (same, scaled) = learned(Units { observation, reward });
        assert_eq!(same, actions, "observations times {observation}, rewards times {reward}");
        assert_eq!(scaled, returns.iter().map(|x| x * reward).collect::<Vec<_>>());
    }
}
