//! A single episode, step by step, with given actions or with a trained agent.

use std::path::Path;

use prudence_agent::recorder::Recorder;
use prudence_data::Judge;
use prudence_env::{Env, Step};
use serde_json::Value;

use crate::agent::{Agent, Playing};
use crate::evaluation::load;
use crate::folder::AgentFolder;
use crate::{Error, Task};

/// An episode in progress.
///
/// ```
/// use prudence::{Rollout, Task};
///
/// let task = Task::named("navigation")?;
/// let mut rollout = Rollout::with_actions(&task, vec![vec![1.0, 1.0]; 20], 7, None)?;
/// let mut total = 0.0;
/// while let Some(step) = rollout.step()? {
///     total += step.step.reward;
/// }
/// assert!(total < 0.0);
/// # Ok::<(), prudence::Error>(())
/// ```
pub struct Rollout {
    actor: Actor,
    judge: Judge,
    steps: usize,
}

enum Actor {
    Given { env: Box<dyn Env>, observation: Vec<f64>, actions: std::vec::IntoIter<Vec<f64>> },
    Agent(Box<Playing>),
}

/// The outcome of one step.
///
/// ```
/// use prudence::{Rollout, Task};
///
/// let task = Task::named("navigation")?;
/// let mut rollout = Rollout::with_actions(&task, vec![vec![0.0, 0.0]], 7, None)?;
/// let step = rollout.step()?.expect("one action was given");
/// assert_eq!((step.t, step.signals.len()), (1, task.spec().signals.len()));
/// assert!(step.safe);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutStep {
    /// The number of the step, from 1.
    pub t: usize,
    /// The action, in the environment's units.
    pub action: Vec<f64>,
    /// The observation after the step.
    pub observation: Vec<f64>,
    /// The reward, and whether the episode ended.
    pub step: Step,
    /// The signals after the step, in the order of `Spec::signals`.
    pub signals: Vec<f64>,
    /// The state after the step; null if the environment does not expose its state.
    pub state: Value,
    /// Whether the true rule has held so far.
    pub safe: bool,
}

impl Rollout {
    /// Starts the task's environment from a seed, or in a given state, to take these actions.
    pub fn with_actions(task: &Task, actions: Vec<Vec<f64>>, seed: u64, state: Option<&Value>) -> Result<Self, Error> {
        let mut env = task.make_env()?;
        let mut observation = vec![0.0; task.spec().observation.dim()];
        env.reset(seed, &mut observation)?;
        if let Some(state) = state {
            let Some(env) = env.settable() else {
                return Err(prudence_env::Error::State("this environment's state cannot be set".into()).into());
            };
            env.set_state(state, &mut observation)?;
        }
        let actor = Actor::Given { env, observation, actions: actions.into_iter() };
        Ok(Self { actor, judge: task.rule().judge(), steps: 0 })
    }

    /// Starts the environment of a trained agent's run from a seed. Actions are the mode of the agent's policy. Also
    /// returns the run's task.
    pub fn of_agent(dir: &Path, seed: u64) -> Result<(Task, Self), Error> {
        let (run, folder) = AgentFolder::open(dir)?;
        let task = Task::open(run.root())?;
        let agent: Agent = load(&folder)?;
        let mut playing = agent.play(task.make_env()?)?;
        playing.player.start(seed, playing.scorer.as_ref())?;
        let judge = task.rule().judge();
        Ok((task, Self { actor: Actor::Agent(Box::new(playing)), judge, steps: 0 }))
    }

    /// The environment in its current state.
    pub fn env(&self) -> &dyn Env {
        match &self.actor {
            Actor::Given { env, .. } => &**env,
            Actor::Agent(playing) => playing.player.recorder().env(),
        }
    }

    fn env_mut(&mut self) -> &mut dyn Env {
        match &mut self.actor {
            Actor::Given { env, .. } => &mut **env,
            Actor::Agent(playing) => playing.player.env_mut(),
        }
    }

    /// The latest observation.
    pub fn observation(&self) -> &[f64] {
        match &self.actor {
            Actor::Given { observation, .. } => observation,
            Actor::Agent(playing) => playing.player.recorder().observation(),
        }
    }

    /// The number of given actions that have not been taken.
    pub fn actions_left(&self) -> usize {
        match &self.actor {
            Actor::Given { actions, .. } => actions.len(),
            Actor::Agent(_) => 0,
        }
    }

    /// Takes the next step; `None` if there are no more given actions.
    pub fn step(&mut self) -> Result<Option<RolloutStep>, Error> {
        let (action, step) = match &mut self.actor {
            Actor::Given { env, observation, actions } => {
                let Some(action) = actions.next() else { return Ok(None) };
                let step = env.step(&action, observation)?;
                (action, step)
            }
            Actor::Agent(playing) => {
                let Playing { player, scorer } = &mut **playing;
                let step = player.step(scorer.as_ref(), None)?;
                let recorder: &Recorder = player.recorder();
                (recorder.action().to_vec(), step)
            }
        };
        self.steps += 1;
        let signals = self.env().signals().to_vec();
        self.judge.step(&signals);
        Ok(Some(RolloutStep {
            t: self.steps,
            action,
            observation: self.observation().to_vec(),
            step,
            signals,
            state: self.env_mut().settable().map_or(Value::Null, |env| env.state()),
            safe: self.judge.safe(),
        }))
    }
}
