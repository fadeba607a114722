//! Training: P agents in lockstep that share nothing but the stored episodes they start from.
//!
//! A lockstep is one environment step of every running agent and the updates that follow. Episodes and warm-ups end at
//! different times, and an agent that diverges stops alone. Between two of its episodes an agent is described completely by
//! its [`AgentState`] and its own stored episodes, because every random number has an address that does not depend on what
//! else is drawn (see [`prudence_core::random`]); agents may therefore be resumed at different steps.
//!
//! | what is drawn                                       | purpose                | index    | element                    |
//! |-----------------------------------------------------|------------------------|----------|----------------------------|
//! | initial networks                                    | `networks`             | 0        | in order                   |
//! | stored episodes, where not all fit                  | `stored`               | 0        | in order                   |
//! | seed of training episode e                          | `train`                | e        | 0                          |
//! | random actions of training episode e (warm-up)      | `warm-up`              | e        | in order                   |
//! | noise of the action at step t of training episode e | `actions`              | e        | from block t * `blocks(A)` |
//! | transitions of update u                             | `batch`                | u        | 0 ..                       |
//! | noise of the actions at s' in update u              | `next-actions`         | u        | 0 .. `B * A`               |
//! | noise of the actions at s in update u               | `new-actions`          | u        | 0 .. `B * A`               |
//! | seed of test episode i, the same for all agents     | `test`                 | i        | 0                          |
//! | noise of the action at step t of test episode i     | `test-actions`         | i        | from block t * `blocks(A)` |

mod estimate;
mod lockstep;
mod records;
mod state;
mod updates;

use std::sync::Arc;

use prudence_core::Spec;
use prudence_core::random::{Stream, stream};
use prudence_data::{Episode, Rule};
use prudence_env::MakeEnv;
use prudence_nn::Device;
use prudence_safety::{SafetyModel, Scorer};
use rand::seq::SliceRandom as _;

pub use self::records::{Accepted, SelectedPolicy};
pub use self::state::AgentState;

use self::records::Tests;
use self::updates::Updates;
use crate::actor::Actor;
use crate::multiplier::{ConstraintEstimate, Multiplier, SumsByLabel};
use crate::recorder::Recorder;
use crate::replay::{Chosen, Replay, ReplaySettings, Stored};
use crate::safesac::{Head, Learner, Networks, UpdateMetrics};
use crate::settings::TrainingSettings;
use crate::units::{AgentUnits, Scaling};
use crate::{Algorithm, Error, Threads};

/// What the agents of a population have in common.
pub struct Setup<D: Device> {
    /// Which of the four algorithms.
    pub algorithm: Algorithm,
    /// The agents' settings.
    pub settings: TrainingSettings,
    /// Makes the environments.
    pub env: Arc<dyn MakeEnv>,
    /// The environment's spec.
    pub spec: Arc<Spec>,
    /// The true rule: it judges test episodes, which no learner reads, and labels those on which a policy is accepted.
    pub rule: Rule,
    /// The safety models, one per replica: agents are divided among them in order. Every algorithm but SAC needs one; SAC
    /// may have one for its records.
    pub models: Vec<Arc<SafetyModel>>,
    /// Episodes to learn from, scored by those models.
    pub stored: Arc<Stored<D>>,
    /// What happens at the same time; results do not depend on it.
    pub parallel: Parallel,
}

/// What a population does at the same time.
#[derive(Clone, Debug)]
pub struct Parallel {
    /// The threads in which environments step.
    pub threads: Threads,
    /// Test episodes of an agent that are played at the same time, each in its own environment.
    pub tests: usize,
}

impl Default for Parallel {
    /// One thing after the other.
    fn default() -> Self {
        Self { threads: Threads::default(), tests: 1 }
    }
}

impl<D: Device> Clone for Setup<D> {
    fn clone(&self) -> Self {
        Self {
            algorithm: self.algorithm,
            settings: self.settings.clone(),
            env: self.env.clone(),
            spec: self.spec.clone(),
            rule: self.rule.clone(),
            models: self.models.clone(),
            stored: self.stored.clone(),
            parallel: self.parallel.clone(),
        }
    }
}

impl<D: Device> Setup<D> {
    /// Between the environment's actions and the policy's.
    pub fn scaling(&self) -> Scaling {
        Scaling::new(&self.spec)
    }

    /// Whether training episode `index` plays the policy's mode, if it is not random.
    fn plays_mode(&self, index: u64) -> bool {
        let every = self.settings.train.mode_every;
        self.constrained() && every > 0 && (index + 1).is_multiple_of(every)
    }

    /// Whether there is a safety critic and a multiplier.
    fn constrained(&self) -> bool {
        self.algorithm.constraint().is_some()
    }

    /// Refuses a population of this size whose models or stored episodes do not match.
    fn check(&self, agents: usize) -> Result<(), Error> {
        let models = self.models.len();
        for model in &self.models {
            model.check(self.spec.observation.dim(), self.spec.action.dim())?;
        }
        if self.constrained() && models == 0 {
            return Err(Error::NoSafetyModel { algorithm: self.algorithm });
        }
        for replicas in [models.max(1), self.stored.replicas()] {
            if replicas == 0 || !agents.is_multiple_of(replicas) {
                return Err(Error::Replicas { agents, replicas });
            }
        }
        let widths_differ = self.models.iter().any(|model| model.memory_width() != self.stored.memory_width());
        if self.constrained() && (widths_differ || self.stored.replicas() != models) {
            return Err(Error::StoredScores { replicas: self.stored.replicas(), width: self.stored.memory_width() });
        }
        Ok(())
    }
}

/// An agent's progress.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Environment steps.
    pub step: u64,
    /// Completed episodes.
    pub episode: u64,
    /// Updates.
    pub update: u64,
    /// Updates still to be made: the fraction carried from step to step.
    pub pending_updates: f64,
    /// Sum of returns since the last record, and their number.
    pub returns: (f64, u64),
    /// What the last update measured.
    pub metrics: UpdateMetrics,
    /// What the multiplier last compared.
    pub estimate: Option<ConstraintEstimate>,
    /// The refits of the safety model.
    pub refits: Refits,
    /// The step at which the units were last measured on the agent's own episodes.
    pub measured: Option<u64>,
}

/// The refits of an agent's safety model so far.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Refits {
    /// Their number.
    pub count: u64,
    /// The agent's environment steps and completed episodes at the last one.
    pub step: u64,
    /// See `step`.
    pub episode: u64,
    /// Labels of the agent's own episodes that they used: one per labelled span.
    pub labels: u64,
    /// Verdicts on prefixes that those labels imply.
    pub verdicts: u64,
    /// What models gave to the agent's latest labelled episodes.
    pub sums: SumsByLabel,
    /// How the model before the last refit judged the agent's episodes since the refit before it, which it had not been
    /// fitted to.
    pub judged: Judged,
}

/// A model's verdicts on labelled episodes, where P >= 0.5 counts as "safe".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Judged {
    /// Safe episodes.
    pub safe: u64,
    /// Those that the model calls unsafe.
    pub safe_called_unsafe: u64,
    /// Episodes that are not safe.
    pub not_safe: u64,
    /// Those that the model calls safe.
    pub unsafe_called_safe: u64,
}

impl Judged {
    /// Of pairs of log P and the label.
    pub fn of(predictions: impl IntoIterator<Item = (f32, bool)>) -> Self {
        let mut judged = Self::default();
        for (log_prob, safe) in predictions {
            let called_safe = log_prob >= 0.5f32.ln();
            let (cases, errors) = match safe {
                true => (&mut judged.safe, &mut judged.safe_called_unsafe),
                false => (&mut judged.not_safe, &mut judged.unsafe_called_safe),
            };
            *cases += 1;
            *errors += u64::from(called_safe != safe);
        }
        judged
    }
}

/// The end of an agent's episode, or of the agent's training by an error.
pub struct Ended {
    /// Which agent.
    pub agent: usize,
    /// The episode.
    pub episode: Result<Episode, Error>,
}

/// The part of an agent that is not on the device.
struct Member {
    seed: u64,
    units: AgentUnits,
    counters: Counters,
    multiplier: Multiplier,
    /// The latest policies that met the constraint, the oldest first.
    selected: Vec<SelectedPolicy>,
    /// The one of these that was accepted, and what was asked for it.
    accepted: Option<(usize, Accepted)>,
    recorder: Recorder,
    /// The stream of the running episode's random actions, in a warm-up.
    warm_up: Option<Stream>,
    /// The centre of the running episode's random actions.
    centre: Vec<f32>,
    /// Whether the running episode plays the policy's mode.
    plays_mode: bool,
    /// No further episode is started.
    stopped: bool,
    /// No further episode is started for now.
    paused: bool,
    /// Episodes of a restored state that have not been scored yet, the oldest first.
    unscored: Vec<Episode>,
    /// The place of the first of them among the agent's own episodes.
    first_unscored: usize,
    /// The last update's measurements have not been read from the device yet.
    unread_metrics: bool,
}

/// Agents in training.
pub struct Population<D: Device> {
    device: D,
    setup: Setup<D>,
    /// One per replica, for whole episodes.
    scorers: Vec<Scorer<D>>,
    learner: Learner<D>,
    replay: Replay<D>,
    actor: Actor<D>,
    tests: Tests<D>,
    members: Vec<Member>,
    updates: Updates<D>,
    /// `[P, A]`, in the environment's units
    actions: Vec<f32>,
    modes: Vec<f32>,
    /// `[P]`
    summed: D::Buf,
}

/// The stored episodes that leave enough of the capacity to the agent's own: all, or as many drawn at random, in order.
fn stored_that_fit(lengths: &[u64], capacity: u64, steps: u64, seed: u64) -> Vec<usize> {
    let share = capacity.saturating_sub(steps).max(capacity / 2);
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    let mut total: u64 = lengths.iter().sum();
    if total > share {
        order.shuffle(&mut stream(seed, "stored", 0));
        while let Some(last) = order.last().filter(|_| total > share) {
            total -= lengths[*last];
            order.pop();
        }
        order.sort_unstable();
    }
    order
}

impl<D: Device> Population<D> {
    /// One agent per seed, with initial networks.
    pub fn new(device: &D, setup: Setup<D>, seeds: &[u64]) -> Result<Self, Error> {
        setup.check(seeds.len())?;
        let TrainingSettings { agent, multiplier, train, .. } = &setup.settings;
        let (a, p) = (setup.spec.action.dim(), seeds.len());
        let (constrained, history) = (setup.constrained(), setup.algorithm.history());
        let scorers =
            setup.models.iter().map(|model| Scorer::new(device, std::slice::from_ref(model), agent.score_floor));
        let scorers: Vec<Scorer<D>> = scorers.collect::<Result<_, _>>()?;
        let scorer = match setup.models.as_slice() {
            [] => None,
            models => Some(Scorer::new(device, models, agent.score_floor)?),
        };
        let scaling = setup.scaling();
        let chosen = seeds.iter().enumerate().map(|(index, seed)| {
            let replica = index * setup.stored.replicas() / p;
            let lengths: Vec<u64> = setup.stored.lengths(replica).collect();
            Chosen { replica, episodes: stored_that_fit(&lengths, train.capacity as u64, train.steps, *seed) }
        });
        let settings = ReplaySettings {
            capacity: train.capacity,
            own_steps: train.steps as usize + setup.spec.horizon,
            horizon: setup.spec.horizon,
            history,
        };
        let replay = Replay::new(device, &scaling, setup.stored.clone(), &settings, &chosen.collect::<Vec<_>>())?;
        let mut heads = vec![Head::reward(!constrained)];
        if constrained {
            heads.push(Head::safety(agent.score_floor));
        }
        let networks = Networks::new(p, replay.state_width(), a, &agent.hidden, heads);
        let streams = seeds.iter().map(|seed| stream(*seed, "networks", 0));
        let learner = Learner::new(&device.with_precision(train.precision), networks, agent, streams)?;
        let member = |seed: &u64| -> Result<Member, Error> {
            Ok(Member {
                seed: *seed,
                units: AgentUnits::of_environment(setup.spec.observation.dim()),
                counters: Counters::default(),
                multiplier: if constrained { Multiplier::new(multiplier) } else { Multiplier::off() },
                selected: Vec::new(),
                accepted: None,
                recorder: Recorder::new(setup.env.make()?),
                warm_up: None,
                centre: Vec::new(),
                plays_mode: false,
                stopped: false,
                paused: false,
                unscored: Vec::new(),
                first_unscored: 0,
                unread_metrics: false,
            })
        };
        let policy = learner.networks().policy.clone();
        let mut population = Self {
            actor: Actor::new(device, &scaling, &policy, 1, agent.log_std(), history, scorer)?,
            members: seeds.iter().map(member).collect::<Result<_, _>>()?,
            updates: Updates::new(device, learner.networks(), agent.batch)?,
            tests: Tests::default(),
            actions: vec![0.0; p * a],
            modes: vec![0.0; p * a],
            summed: device.buffer(p)?,
            device: device.clone(),
            scorers,
            learner,
            replay,
            setup,
        };
        for agent in 0..p {
            let replica = agent * population.setup.stored.replicas() / p;
            if !population.setup.stored.is_empty(replica) {
                let units = population.setup.stored.units(replica, population.setup.settings.agent.discount);
                population.set_units(agent, units);
            }
        }
        Ok(population)
    }

    /// Sets the units in which an agent's networks see observations and rewards.
    fn set_units(&mut self, agent: usize, units: AgentUnits) {
        self.actor.set_units(agent, &units);
        self.replay.set_units(agent, &units);
        self.members[agent].units = units;
    }

    /// The units in which an agent's networks see observations and rewards.
    pub fn units(&self, agent: usize) -> &AgentUnits {
        &self.members[agent].units
    }

    /// What its agents have in common.
    pub fn setup(&self) -> &Setup<D> {
        &self.setup
    }

    /// The shapes of their networks.
    pub fn networks(&self) -> &Networks {
        self.learner.networks()
    }

    /// Their replay buffers.
    pub fn replay(&self) -> &Replay<D> {
        &self.replay
    }

    /// The number of agents.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no agent.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// An agent's progress.
    pub fn counters(&self, agent: usize) -> &Counters {
        &self.members[agent].counters
    }

    /// Whether an agent has taken all its steps.
    pub fn done(&self, agent: usize) -> bool {
        self.members[agent].counters.step >= self.setup.settings.train.steps
    }

    /// Stops an agent: its running episode is completed, but no further one is started.
    pub fn stop(&mut self, agent: usize) {
        self.members[agent].stopped = true;
    }

    /// Lets an agent wait after its running episode, or continue.
    pub fn pause(&mut self, agent: usize, paused: bool) {
        self.members[agent].paused = paused;
    }

    /// Whether an agent's multiplier is at its limit.
    pub fn multiplier_at_limit(&self, agent: usize) -> bool {
        self.members[agent].multiplier.at_limit(&self.setup.settings.multiplier)
    }

    /// The safety model that an agent is trained with.
    pub fn model(&self, agent: usize) -> Option<&Arc<SafetyModel>> {
        self.setup.models.get(self.replica(agent))
    }

    /// The index of that model.
    fn replica(&self, agent: usize) -> usize {
        agent * self.setup.models.len() / self.members.len()
    }

    /// The averaged policy.
    fn average(&self, agent: usize) -> Result<Vec<f32>, Error> {
        let each = self.learner.agents.policy.each;
        let mut policy = vec![0.0; each];
        self.device.read(&self.learner.agents.average, agent * each, &mut policy)?;
        Ok(policy)
    }
}
