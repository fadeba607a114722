//! A trained agent: its policy and everything it needs to act, in one file.

use std::path::Path;
use std::sync::Arc;

use prudence_agent::actor::{Actor, Choose};
use prudence_agent::evaluate::{Player, PolicyShape};
use prudence_agent::population::Population;
use prudence_agent::{AgentUnits, Scaling, Threads};
use prudence_core::{BoxSpace, Spec};
use prudence_data::files::{read_limited, write_atomic};
use prudence_env::Env;
use prudence_nn::cpu::Buffer;
use prudence_nn::weights::{Reader, Writer};
use prudence_nn::work::LogStd;
use prudence_nn::{Bank, Cpu, Device, Mlp};
use prudence_safety::{SafetyModel, Scorer};
use serde::{Deserialize, Serialize};

use crate::error::InFile as _;
use crate::{Algorithm, Error, Task, TestEpisode};

const FORMAT: &str = "prudence agent 2";
const LIMIT: u64 = 1 << 32;
const HEADER: &str = "prudence";
const SAFETY: &str = "safety.";

/// A trained policy with its safety model and the scaling of its observations and actions.
///
/// ```
/// use prudence::{Agent, Session, Task};
///
/// # let dir = tempfile::tempdir()?;
/// # let small = ["run.seeds=1", "train.steps=200", "train.random_steps=100", "train.test_episodes=2"];
/// let task = Task::named("navigation")?.with(&small)?.with(&["run.algo=[\"sac\"]", "agent.hidden=[8,8]"])?;
/// let agents = prudence::train(&task, None, &[], &dir.path().join("run"), &Session::new(1)?)?;
/// agents[0].save(&dir.path().join("agent.safetensors"))?;
/// let agent = Agent::load(&dir.path().join("agent.safetensors"))?;
/// let tests = agent.test(&task, 0..5, None)?;
/// println!("{} of 5 test episodes are safe", tests.iter().filter(|test| test.safe).count());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Agent {
    header: Header,
    policy: Vec<f32>,
    model: Option<Arc<SafetyModel>>,
}

/// The part of an agent's file that is not a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    format: String,
    algorithm: Algorithm,
    /// The training step that the policy comes from.
    step: u64,
    /// Whether the policy was selected at that step because it met the constraint according to the safety model.
    selected: bool,
    hidden: Vec<usize>,
    log_std: [f64; 2],
    score_floor: f64,
    /// What its networks see of observations and rewards.
    units: AgentUnits,
    /// The lower and upper bound of each dimension of an action.
    action: Vec<[f64; 2]>,
}

impl Agent {
    /// The policy that training selected for an agent, as it is saved.
    pub(crate) fn of<D: Device>(population: &Population<D>, agent: usize) -> Result<Self, Error> {
        let setup = population.setup();
        let settings = &setup.settings.agent;
        let selected = population.selected_step(agent);
        Ok(Self {
            header: Header {
                format: FORMAT.into(),
                algorithm: setup.algorithm,
                step: selected.unwrap_or(population.counters(agent).step),
                selected: selected.is_some(),
                hidden: settings.hidden.clone(),
                log_std: [settings.log_std_min, settings.log_std_max],
                score_floor: settings.score_floor,
                units: population.units(agent).clone(),
                action: setup.spec.action.low.iter().zip(&setup.spec.action.high).map(|(l, h)| [*l, *h]).collect(),
            },
            policy: population.policy(agent)?,
            model: population.policy_model(agent).filter(|_| setup.algorithm.constraint().is_some()).cloned(),
        })
    }

    /// The algorithm that trained it.
    pub fn algorithm(&self) -> Algorithm {
        self.header.algorithm
    }

    /// The training step that its policy comes from.
    pub fn step(&self) -> u64 {
        self.header.step
    }

    /// The training step of the last record that met the constraint according to the safety model, which is where the
    /// policy comes from. `None` if no record met the constraint.
    pub fn selected_step(&self) -> Option<u64> {
        self.header.selected.then_some(self.header.step)
    }

    /// The safety model that it acts with; `None` for SAC.
    pub fn model(&self) -> Option<&Arc<SafetyModel>> {
        self.model.as_ref()
    }

    fn network(&self) -> Mlp {
        let (s, a) = (self.header.units.observation.len(), self.header.action.len());
        let memory = self.model.as_ref().filter(|_| self.header.algorithm.history());
        Mlp::new(s + memory.map_or(0, |model| model.memory_width()), &self.header.hidden, 2 * a)
    }

    fn shape(&self) -> PolicyShape {
        let side = |side: usize| self.header.action.iter().map(|pair| pair[side]).collect();
        let spec = Spec {
            observation: BoxSpace::uniform(self.header.units.observation.len(), f64::NEG_INFINITY, f64::INFINITY),
            action: BoxSpace { low: side(0), high: side(1) },
            signals: Vec::new(),
            horizon: 1,
        };
        let [min, max] = self.header.log_std;
        PolicyShape {
            network: self.network(),
            scaling: Scaling::new(&spec),
            clip: LogStd { min, max },
            history: self.header.algorithm.history(),
        }
    }

    /// Writes the agent to a safetensors file, which PyTorch can load.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let mut file = Writer::default();
        file.network("policy.", &self.network().tensors(), &self.policy);
        if let Some(model) = &self.model {
            model.write(&mut file, SAFETY);
        }
        let header = serde_json::to_string(&self.header).map_err(|e| Error::content(path, e.to_string()))?;
        file.metadata(HEADER, header);
        let bytes = file.finish().map_err(|e| Error::content(path, e.to_string()))?;
        Ok(write_atomic(path, &bytes)?)
    }

    /// Reads an agent from a file that [`Agent::save`] wrote.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let bytes = read_limited(path, LIMIT)?;
        let problem = |problem: String| Error::content(path, problem);
        let file = Reader::new(&bytes).map_err(|e| problem(e.to_string()))?;
        let header = file.metadata(HEADER).ok_or_else(|| problem("not an agent (no prudence header)".into()))?;
        let value: serde_json::Value =
            serde_json::from_str(header).map_err(|e| problem(format!("invalid header: {e}")))?;
        if value["format"] != FORMAT {
            return Err(problem(format!("the format is {}, expected \"{FORMAT}\"", value["format"])));
        }
        let header: Header = serde_json::from_value(value).map_err(|e| problem(format!("invalid header: {e}")))?;
        let sound = !header.hidden.is_empty() && header.hidden.iter().all(|n| (1..=8192).contains(n));
        if !sound || header.action.iter().any(|[low, high]| low >= high) || header.score_floor >= 0.0 {
            return Err(problem("invalid header: the layers, the action bounds or the floor are out of range".into()));
        }
        let safety = header.algorithm.constraint().is_some();
        let model = safety.then(|| SafetyModel::read(&file, SAFETY)).transpose().in_file(path)?.map(Arc::new);
        let mut agent = Self { header, policy: Vec::new(), model };
        agent.policy = file.network("policy.", &agent.network().tensors()).map_err(|e| problem(e.to_string()))?;
        Ok(agent)
    }

    /// Checks that the safety model fits the dimensions of an environment.
    pub(crate) fn check(&self, spec: &Spec) -> Result<(), Error> {
        if let Some(model) = &self.model {
            model.check(spec.observation.dim(), spec.action.dim())?;
        }
        Ok(())
    }

    fn scorer(&self) -> Result<Option<Scorer<Cpu<f32>>>, Error> {
        let one =
            |model: &Arc<SafetyModel>| Scorer::new(&Cpu::new(), std::slice::from_ref(model), self.header.score_floor);
        Ok(self.model.as_ref().map(one).transpose()?)
    }

    /// Puts the agent into an environment.
    pub(crate) fn play(&self, env: Box<dyn Env>) -> Result<Player<Cpu<f32>>, Error> {
        self.check(env.spec())?;
        let mut player = Player::new(&Cpu::new(), vec![env], 1, &self.shape(), self.scorer()?, &Threads::default())?;
        player.load(0, &self.policy, &self.header.units);
        Ok(player)
    }

    /// Plays test episodes in the task's environment and judges them by its rule. Actions are the policy's mode or, with a
    /// seed for their noise, sampled from it. Test episode i starts the same way whichever agent is tested.
    pub fn test(
        &self,
        task: &Task,
        episodes: std::ops::Range<u64>,
        sampled: Option<u64>,
    ) -> Result<Vec<TestEpisode>, Error> {
        let mut player = self.play(task.make_env()?)?;
        let seeds = sampled.map(|seed| [seed]);
        let tests = player.test(&[true], task.rule(), episodes, seeds.as_ref().map(|seeds| &seeds[..]))?;
        Ok(tests.into_iter().collect::<Result<Vec<_>, _>>()?.remove(0))
    }

    /// Prepares the agent to act in your own loop.
    pub fn pilot(&self) -> Result<Pilot, Error> {
        let shape = self.shape();
        let bank = Bank::dense(shape.network.clone(), 1);
        let mut actor = Actor::new(&Cpu::new(), &shape.scaling, &bank, 1, shape.clip, shape.history, self.scorer()?)?;
        actor.set_units(0, &self.header.units);
        Ok(Pilot { actor, policy: self.policy.as_slice().into(), action: vec![0.0; self.header.action.len()] })
    }
}

/// An agent that acts, step by step, on the observations it is given.
///
/// ```no_run
/// let agent = prudence::Agent::load("runs/navigation-1/round-2/safesac-h/seed-0/policy.safetensors".as_ref())?;
/// let mut pilot = agent.pilot()?;
/// pilot.reset(); // at the start of each episode
/// let action = pilot.act(&[1.0, 1.0])?;
/// println!("{action:?}");
/// println!("safe so far with probability {:?}", pilot.safe_probability()?);
/// # Ok::<(), prudence::Error>(())
/// ```
pub struct Pilot {
    actor: Actor<Cpu<f32>>,
    policy: Buffer<f32>,
    action: Vec<f32>,
}

impl Pilot {
    /// Starts an episode: clears the history.
    pub fn reset(&mut self) {
        self.actor.start(0);
    }

    /// Chooses the action for an observation, both in the environment's units. The history assumes that this action is
    /// then taken.
    pub fn act(&mut self, observation: &[f32]) -> Result<&[f32], Error> {
        self.actor.show(0, observation);
        self.actor.choose(&self.policy, Choose::Mode, &mut self.action)?;
        self.actor.score(&self.action, &[true])?;
        Ok(&self.action)
    }

    /// The probability, according to the safety model, that the episode so far is safe; `None` without a model. It is
    /// never below `exp(score_floor)`.
    pub fn safe_probability(&self) -> Result<Option<f64>, Error> {
        let mut sums = Vec::new();
        self.actor.sums(&mut sums)?;
        Ok(sums.first().map(|sum| f64::from(*sum).exp()))
    }
}
