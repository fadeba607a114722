//! A single episode, step by step, with given actions or with a trained agent.

use std::path::Path;

use prudence_agent::evaluate::Player;
use prudence_core::random::stream;
use prudence_data::Judge;
use prudence_env::{Env, Step};
use prudence_nn::Cpu;
use rand::RngExt as _;
use serde_json::Value;

use crate::agent::Agent;
use crate::evaluation::load;
use crate::folder::AgentFolder;
use crate::{Error, Task};

/// An episode in progress.
///
/// ```
/// use prudence::{Actions, Rollout, Task};
///
/// let task = Task::named("navigation")?;
/// let mut rollout = Rollout::with_actions(&task, Actions::List(vec![vec![1.0, 1.0]; 20]), 7, None)?;
/// let mut total = 0.0;
/// while let Some(step) = rollout.step()? {
///     total += step.step.reward;
/// }
/// assert!(total < 0.0);
/// # Ok::<(), prudence::Error>(())
/// ```
pub struct Rollout {
    source: ActionSource,
    judge: Judge,
    steps: usize,
}

/// The actions of an episode without an agent, in the environment's units.
///
/// ```
/// use prudence::{Actions, Rollout, Task};
///
/// let mut rollout = Rollout::with_actions(&Task::named("navigation")?, Actions::Zero, 7, None)?;
/// assert_eq!(rollout.step()?.expect("Zero and Random never run out of actions").action, [0.0, 0.0]);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Actions {
    /// These, in order.
    List(Vec<Vec<f64>>),
    /// Uniform in the action space.
    Random,
    /// As close to zero as the action space allows.
    Zero,
}

enum ActionSource {
    Given { env: Box<dyn Env>, observation: Vec<f64>, actions: Box<dyn Iterator<Item = Vec<f64>> + Send> },
    Agent(Box<Player<Cpu<f32>>>),
}

/// The outcome of one step.
///
/// ```
/// use prudence::{Actions, Rollout, Task};
///
/// let task = Task::named("navigation")?;
/// let mut rollout = Rollout::with_actions(&task, Actions::Zero, 7, None)?;
/// let step = rollout.step()?.expect("there is always a next action");
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
    pub fn with_actions(task: &Task, actions: Actions, seed: u64, state: Option<&Value>) -> Result<Self, Error> {
        let mut env = task.make_env()?;
        let mut observation = vec![0.0; task.spec().observation.dim()];
        env.reset(seed, &mut observation)?;
        if let Some(state) = state {
            let Some(env) = env.settable() else {
                return Err(prudence_env::Error::State("this environment's state cannot be set".into()).into());
            };
            env.set_state(state, &mut observation)?;
        }
        let space = env.spec().action.clone();
        let actions: Box<dyn Iterator<Item = Vec<f64>> + Send> = match actions {
            Actions::List(list) => Box::new(list.into_iter()),
            Actions::Random => {
                let mut rng = stream(seed, "rollout", 0);
                let draw = move || {
                    let bounds = space.low.iter().zip(&space.high);
                    bounds.map(|(low, high)| rng.random_range(*low..=*high)).collect()
                };
                Box::new(std::iter::repeat_with(draw))
            }
            Actions::Zero => {
                let bounds = space.low.iter().zip(&space.high);
                Box::new(std::iter::repeat(bounds.map(|(low, high)| 0f64.clamp(*low, *high)).collect()))
            }
        };
        let source = ActionSource::Given { env, observation, actions };
        Ok(Self { source, judge: task.rule().judge(), steps: 0 })
    }

    /// Starts the environment of a trained agent's run from a seed. Actions are the mode of the agent's policy. Also
    /// returns the run's task.
    pub fn of_agent(dir: &Path, seed: u64) -> Result<(Task, Self), Error> {
        let (run, folder) = AgentFolder::open(dir)?;
        let task = Task::open(run.root())?;
        let agent: Agent = load(&folder)?;
        let mut player = agent.play(task.make_env()?)?;
        player.start(0, seed)?;
        let judge = task.rule().judge();
        Ok((task, Self { source: ActionSource::Agent(Box::new(player)), judge, steps: 0 }))
    }

    /// The environment in its current state.
    pub fn env(&self) -> &dyn Env {
        match &self.source {
            ActionSource::Given { env, .. } => &**env,
            ActionSource::Agent(player) => player.recorder(0).env(),
        }
    }

    fn env_mut(&mut self) -> &mut dyn Env {
        match &mut self.source {
            ActionSource::Given { env, .. } => &mut **env,
            ActionSource::Agent(player) => player.env_mut(0),
        }
    }

    /// The latest observation.
    pub fn observation(&self) -> &[f64] {
        match &self.source {
            ActionSource::Given { observation, .. } => observation,
            ActionSource::Agent(player) => player.recorder(0).observation(),
        }
    }

    /// Takes the next step; `None` if there are no more given actions.
    pub fn step(&mut self) -> Result<Option<RolloutStep>, Error> {
        let (action, step) = match &mut self.source {
            ActionSource::Given { env, observation, actions } => {
                let Some(action) = actions.next() else { return Ok(None) };
                let step = env.step(&action, observation)?;
                (action, step)
            }
            ActionSource::Agent(player) => {
                let Some(step) = player.step(&[true], None)?.into_iter().flatten().next() else { return Ok(None) };
                (player.recorder(0).action().to_vec(), step?)
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
