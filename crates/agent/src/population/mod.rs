//! Training: P agents in lockstep that share nothing but the episodes they start from.
//!
//! A lockstep is one environment step of every running agent and the updates that follow. Episodes end at different times,
//! and so do warm-ups; an agent whose training diverges stops alone. Between two episodes of an agent its whole state is an
//! [`AgentState`] and its own stored episodes: random numbers come from streams named by agent, episode and update, so
//! nothing else needs saving, and agents may be resumed at different steps.

use std::sync::Arc;

use prudence_core::Spec;
use prudence_core::random::{Stream, StreamId, stream, subseed};
use prudence_data::{Episode, Rule};
use prudence_env::MakeEnv;
use prudence_nn::Device;
use prudence_nn::work::{Batch, Columns, Drawn, Input, Pass, Recalled};
use prudence_safety::{Rating, SafetyModel, Scorer};
use rand::RngExt as _;
use rand::seq::SliceRandom as _;

use crate::actor::{Actor, Choose};
use crate::evaluate::{Player, PolicyShape, TestEpisode};
use crate::multiplier::{Estimate, Multiplier};
use crate::records::Record;
use crate::recorder::Recorder;
use crate::replay::{Replay, ReplaySettings, Stored};
use crate::safesac::{Head, Learner, Networks, Steering, UpdateMetrics};
use crate::scaling::Scaling;
use crate::settings::{Constraint, TrainingSettings};
use crate::{Algorithm, Error};

/// All that the agents of a population have in common.
pub struct Setup<D: Device> {
    /// Which of the four.
    pub algorithm: Algorithm,
    /// The agents' settings.
    pub settings: TrainingSettings,
    /// The environment.
    pub env: Arc<dyn MakeEnv>,
    /// Its description, made once.
    pub spec: Arc<Spec>,
    /// The true rule, for tests alone.
    pub rule: Rule,
    /// The safety models, one per replica: agents are divided among them in order. Every algorithm but SAC needs one; SAC
    /// may have one for the record.
    pub models: Vec<Arc<SafetyModel>>,
    /// Episodes to learn from, scored by those models.
    pub stored: Arc<Stored<D>>,
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
        }
    }
}

impl<D: Device> Setup<D> {
    /// Between the environment's units and the networks'.
    pub fn scaling(&self) -> Scaling {
        Scaling::new(&self.spec, self.settings.agent.reward_scale)
    }

    /// Whether a safety critic and a multiplier take part.
    fn constrained(&self) -> bool {
        self.algorithm.constraint().is_some()
    }
}

/// How far an agent has come.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Environment steps.
    pub step: u64,
    /// Episodes.
    pub episode: u64,
    /// Updates.
    pub update: u64,
    /// Updates still to be made: the fraction carried from step to step.
    pub pending_updates: f64,
    /// Sum of returns since the last record, and their number.
    pub returns: (f64, u64),
    /// What the last update said.
    pub metrics: UpdateMetrics,
    /// What the multiplier last compared.
    pub estimate: Option<Estimate>,
}

/// A policy that met the constraint when it was last tested, as the safety model judges; with that model.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectedPolicy {
    /// When that was.
    pub step: u64,
    /// Its parameters.
    pub policy: Vec<f32>,
}

/// Everything an agent is between two of its episodes, but for the stored episodes themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentState {
    /// How far it has come.
    pub counters: Counters,
    /// Its multiplier.
    pub multiplier: Multiplier,
    /// Its networks and their optimisers' moments, by name and in a fixed order.
    pub tensors: Vec<(&'static str, Vec<f32>)>,
    /// The policy selected so far.
    pub selected: Option<SelectedPolicy>,
    /// The safety model it acts with.
    pub model: Option<Arc<SafetyModel>>,
}

/// An agent's episode that ended, or why the agent stopped.
pub struct Ended {
    /// Which agent.
    pub agent: usize,
    /// The episode.
    pub episode: Result<Episode, Error>,
}

/// One agent, as far as the host knows it.
struct Member {
    seed: u64,
    counters: Counters,
    multiplier: Multiplier,
    selected: Option<SelectedPolicy>,
    recorder: Recorder,
    /// The draws of the running episode's random actions, while it is a warm-up.
    warm_up: Option<Stream>,
    /// What random actions of the running episode lie around.
    centre: Vec<f32>,
    stopped: bool,
}

/// Agents in training.
pub struct Population<D: Device> {
    device: D,
    setup: Setup<D>,
    scorer: Option<Scorer<D>>,
    learner: Learner<D>,
    replay: Replay<D>,
    actor: Actor<D>,
    tests: Tests<D>,
    members: Vec<Member>,
    batch: Batch<D>,
    rows: Vec<u32>,
    rows_on_device: D::Rows,
    /// `[P, 6]`: where the noise of an update is drawn from, for actions at s' and at s
    next_noise: D::Rows,
    noise: D::Rows,
    estimator: Estimator<D>,
    actions: Vec<f32>,
}

/// The environment that tests are played in, and a scorer for each replica.
struct Tests<D: Device> {
    player: Player<D>,
    scorers: Vec<Scorer<D>>,
}

/// Room for lambda's estimate: fresh actions at recent states, and what the model says of them.
struct Estimator<D: Device> {
    recalled: Recalled<D>,
    rows: Vec<u32>,
    rows_on_device: D::Rows,
    /// `[P, 6]`: where the noise is drawn from
    addresses: D::Rows,
    noise: D::Buf,
    pass: Pass<D>,
    drawn: Drawn<D>,
    actions: D::Buf,
    rating: Option<Rating<D>>,
}

/// The stored episodes that leave room for the agent's own: all of them, or as many drawn at random, in their order.
fn stored_that_fit(lengths: &[u64], capacity: u64, steps: u64, seed: u64) -> Vec<usize> {
    let room = capacity.saturating_sub(steps).max(capacity / 2);
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    let mut total: u64 = lengths.iter().sum();
    if total > room {
        order.shuffle(&mut stream(seed, "stored", 0));
        while let Some(last) = order.last().filter(|_| total > room) {
            total -= lengths[*last];
            order.pop();
        }
        order.sort_unstable();
    }
    order
}

impl<D: Device> Population<D> {
    /// One agent per seed, at the very start: fresh networks.
    pub fn new(device: &D, setup: Setup<D>, seeds: &[u64]) -> Result<Self, Error> {
        let TrainingSettings { agent, multiplier, train } = &setup.settings;
        let (s, a, p) = (setup.spec.observation.dim(), setup.spec.action.dim(), seeds.len());
        for model in &setup.models {
            model.check(s, a)?;
        }
        let constrained = setup.constrained();
        if constrained && setup.models.is_empty() {
            return Err(Error::NoSafetyModel { algorithm: setup.algorithm });
        }
        if !setup.models.is_empty() && !p.is_multiple_of(setup.models.len()) {
            return Err(Error::Replicas { agents: p, models: setup.models.len() });
        }
        let scorer = |models: &[Arc<SafetyModel>]| Scorer::new(device, models, agent.score_floor);
        let whole = (!setup.models.is_empty()).then(|| scorer(&setup.models)).transpose()?;
        let each: Result<Vec<_>, _> = setup.models.iter().map(|model| scorer(std::slice::from_ref(model))).collect();
        let history = setup.algorithm.history();
        let scaling = setup.scaling();
        let lengths: Vec<u64> = setup.stored.lengths().collect();
        let fit = |seed: &u64| stored_that_fit(&lengths, train.capacity as u64, train.steps, *seed);
        let settings = ReplaySettings {
            capacity: train.capacity,
            own_steps: train.steps as usize + setup.spec.horizon,
            horizon: setup.spec.horizon,
            history,
            floor: agent.score_floor,
        };
        let chosen: Vec<Vec<usize>> = seeds.iter().map(fit).collect();
        let replay = Replay::new(device, &scaling, setup.stored.clone(), &settings, &chosen)?;
        let mut heads = vec![Head::reward()];
        if constrained {
            heads.push(Head::safety(agent.score_floor));
        }
        let networks = Networks::new(p, replay.state_width(), a, &agent.hidden, heads);
        let learner =
            Learner::new(device, networks, agent, seeds.iter().map(|seed| stream(*seed, "networks", 0)))?;
        let member = |seed: &u64| -> Result<Member, Error> {
            Ok(Member {
                seed: *seed,
                counters: Counters::default(),
                multiplier: if constrained { Multiplier::new(multiplier) } else { Multiplier::off() },
                selected: None,
                recorder: Recorder::new(setup.env.make()?),
                warm_up: None,
                centre: Vec::new(),
                stopped: false,
            })
        };
        let policy = learner.networks().policy.clone();
        let shape = PolicyShape { network: policy.shape.clone(), scaling, clip: agent.log_std(), history };
        let pairs = multiplier.batch;
        Ok(Self {
            actor: Actor::new(device, &shape.scaling, &policy, shape.clip, history, whole.as_ref())?,
            members: seeds.iter().map(member).collect::<Result<_, _>>()?,
            tests: Tests {
                player: Player::new(device, setup.env.make()?, &shape, each.as_ref().ok().and_then(|s| s.first()))?,
                scorers: each?,
            },
            batch: Batch::new(device, p, agent.batch, replay.state_width(), a)?,
            rows: vec![0; p * agent.batch],
            rows_on_device: device.rows(p * agent.batch)?,
            next_noise: device.rows(p * 6)?,
            noise: device.rows(p * 6)?,
            estimator: Estimator {
                recalled: Recalled::new(device, p, pairs, replay.state_width(), s, replay.memory_width())?,
                rows: vec![0; p * pairs],
                rows_on_device: device.rows(p * pairs)?,
                addresses: device.rows(p * 6)?,
                noise: device.buffer(p * pairs * a)?,
                pass: Pass::new(device, &policy, pairs)?,
                drawn: Drawn::new(device, p * pairs, a)?,
                actions: device.buffer(p * pairs * a)?,
                rating: whole.as_ref().filter(|_| constrained).map(|scorer| scorer.rating(p * pairs)).transpose()?,
            },
            actions: vec![0.0; p * a],
            device: device.clone(),
            scorer: whole,
            learner,
            replay,
            setup,
        })
    }

    /// What its agents have in common.
    pub fn setup(&self) -> &Setup<D> {
        &self.setup
    }

    /// The shapes of their networks.
    pub fn networks(&self) -> &Networks {
        self.learner.networks()
    }

    /// How many agents.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no agent.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// How far an agent has come.
    pub fn counters(&self, agent: usize) -> &Counters {
        &self.members[agent].counters
    }

    /// Whether an agent has taken all its steps.
    pub fn done(&self, agent: usize) -> bool {
        self.members[agent].counters.step >= self.setup.settings.train.steps
    }

    /// Takes an agent out: at the end of its episode it starts no other.
    pub fn stop(&mut self, agent: usize) {
        self.members[agent].stopped = true;
    }

    /// Whether an agent's multiplier is at its limit.
    pub fn multiplier_at_limit(&self, agent: usize) -> bool {
        self.members[agent].multiplier.at_limit(&self.setup.settings.multiplier)
    }

    /// The policy to use: the averaged one of the last record whose test episodes met the original constraint, `E[P] >= d`,
    /// as the safety model judges; without such a record the averaged one of now. Lambda swings about its balance, and so
    /// does what the very last steps leave behind. (The lower bound, which lambda may compare, implies `E[P] >= d`; on a
    /// few episodes, one of which may weigh the floor, it says too little.)
    pub fn policy(&self, agent: usize) -> Result<Vec<f32>, Error> {
        match &self.members[agent].selected {
            Some(selected) => Ok(selected.policy.clone()),
            None => self.average(agent),
        }
    }

    /// The step of the record that [`Population::policy`] is from, where one met the constraint.
    pub fn selected_step(&self, agent: usize) -> Option<u64> {
        self.members[agent].selected.as_ref().map(|selected| selected.step)
    }

    /// The safety model an agent acts with.
    pub fn model(&self, agent: usize) -> Option<&Arc<SafetyModel>> {
        self.setup.models.get(self.replica(agent))
    }

    fn replica(&self, agent: usize) -> usize {
        agent * self.setup.models.len() / self.members.len()
    }

    fn average(&self, agent: usize) -> Result<Vec<f32>, Error> {
        let each = self.learner.agents.policy.each;
        let mut policy = vec![0.0; each];
        self.device.read(&self.learner.agents.average, agent * each, &mut policy)?;
        Ok(policy)
    }

    /// One environment step of every running agent, and the updates that follow. Gives the agents whose episode ended;
    /// nothing at all happens once every agent is done or stopped.
    pub fn lockstep(&mut self) -> Result<Vec<Ended>, Error> {
        let mut ended = Vec::new();
        let mut active = vec![false; self.members.len()];
        for agent in 0..self.members.len() {
            let idle = self.members[agent].recorder.done();
            if idle && (self.members[agent].stopped || self.done(agent)) {
                continue;
            }
            active[agent] = true;
            if idle && let Err(error) = self.start(agent) {
                self.fail(agent, error, &mut active, &mut ended);
            }
        }
        if !active.contains(&true) {
            return Ok(ended);
        }
        self.choose(&active)?;
        let a = self.setup.spec.action.dim();
        let mut steps = vec![None; self.members.len()];
        for agent in 0..self.members.len() {
            if active[agent] {
                match self.members[agent].recorder.step(&self.actions[agent * a..][..a]) {
                    Ok(step) => steps[agent] = Some(step),
                    Err(error) => self.fail(agent, error.into(), &mut active, &mut ended),
                }
            }
        }
        self.actor.score(self.scorer.as_ref(), &self.actions, &active);
        for (agent, step) in steps.iter().enumerate() {
            let Some(step) = step else { continue };
            let member = &mut self.members[agent];
            let next = member.recorder.stored_observation();
            let tracker = self.actor.tracker.as_ref().filter(|_| self.setup.constrained());
            let action = &self.actions[agent * a..][..a];
            self.replay.step(agent, action, step.reward as f32, step.terminated, next, tracker);
            member.counters.step += 1;
            if member.warm_up.is_none() {
                member.counters.pending_updates += self.setup.settings.train.updates_per_step;
            }
        }
        self.update(&active)?;
        let finished: Vec<usize> =
            (0..self.members.len()).filter(|agent| active[*agent] && self.members[*agent].recorder.done()).collect();
        if !finished.is_empty() {
            self.finish(&finished, &mut ended)?;
        }
        Ok(ended)
    }

    fn fail(&mut self, agent: usize, error: Error, active: &mut [bool], ended: &mut Vec<Ended>) {
        active[agent] = false;
        self.members[agent].stopped = true;
        self.members[agent].recorder.finish();
        ended.push(Ended { agent, episode: Err(error) });
    }

    /// Starts an agent's next episode.
    fn start(&mut self, agent: usize) -> Result<(), Error> {
        let member = &mut self.members[agent];
        let (seed, index) = (member.seed, member.counters.episode);
        let random = self.setup.stored.is_empty() && member.counters.step < self.setup.settings.train.random_steps;
        member.warm_up = random.then(|| stream(seed, "warm-up", index));
        member.centre.clear();
        member.recorder.start(subseed(seed, "train", index))?;
        self.actor.start(agent, self.scorer.as_ref());
        let tracker = self.actor.tracker.as_ref().filter(|_| self.setup.constrained());
        self.replay.start(agent, member.recorder.stored_observation(), tracker);
        Ok(())
    }

    /// Chooses every active agent's action: from its policy or, in a warm-up, at random around a point that stays the same
    /// for the whole episode (uniform noise alone hardly moves an agent, and hardly ever gave a safe episode to learn from).
    fn choose(&mut self, active: &[bool]) -> Result<(), Error> {
        let a = self.setup.spec.action.dim();
        let mut policies = false;
        for (agent, member) in self.members.iter().enumerate().filter(|(agent, _)| active[*agent]) {
            self.actor.show(agent, member.recorder.stored_observation());
            if member.warm_up.is_none() {
                let stream = StreamId::new(member.seed, "actions", member.counters.episode);
                self.actor.draw_from(agent, stream, member.recorder.steps());
                policies = true;
            }
        }
        if policies {
            self.actor.choose(&self.learner.agents.policy.values, Choose::Drawn, &mut self.actions)?;
        }
        let scaling = self.setup.scaling();
        let mut unit = vec![0.0; a];
        for (agent, member) in self.members.iter_mut().enumerate().filter(|(agent, _)| active[*agent]) {
            let Some(stream) = &mut member.warm_up else { continue };
            if member.centre.is_empty() {
                member.centre.extend((0..a).map(|_| stream.random_range(-1.0f32..1.0)));
            }
            for (unit, centre) in unit.iter_mut().zip(&member.centre) {
                *unit = (centre + stream.random_range(-1.0f32..1.0)).clamp(-1.0, 1.0);
            }
            scaling.to_env(&unit, &mut self.actions[agent * a..][..a]);
        }
        Ok(())
    }

    /// Makes the updates that are pending, those of all agents at the same time.
    fn update(&mut self, active: &[bool]) -> Result<(), Error> {
        let TrainingSettings { agent: settings, train, .. } = &self.setup.settings;
        let (b, a) = (settings.batch, self.setup.spec.action.dim());
        loop {
            let mut any = false;
            for agent in 0..self.members.len() {
                let member = &mut self.members[agent];
                if !active[agent] || member.counters.pending_updates < 1.0 {
                    self.learner.steer(agent, None);
                    continue;
                }
                member.counters.pending_updates -= 1.0;
                any = true;
                let along = (member.counters.step as f64 / train.steps as f64).min(1.0);
                let stream = |purpose: &str| StreamId::new(member.seed, purpose, member.counters.update);
                self.replay.draw(agent, &mut self.rows[agent * b..][..b], stream("batch"));
                for (addresses, purpose) in [(&mut self.next_noise, "next-actions"), (&mut self.noise, "new-actions")] {
                    self.device.write_rows(addresses, agent * 6, &stream(purpose).address(0));
                }
                member.counters.update += 1;
                let steering = Steering {
                    rate: settings.learning_rate * (1.0 - (1.0 - settings.final_rate) * along),
                    update: member.counters.update,
                    multipliers: if self.setup.algorithm.constraint().is_some() {
                        vec![member.multiplier.value()]
                    } else {
                        Vec::new()
                    },
                };
                self.learner.steer(agent, Some(&steering));
            }
            if !any {
                return Ok(());
            }
            self.device.write_rows(&mut self.rows_on_device, 0, &self.rows);
            self.device.gather(&self.replay.tables(), &self.rows_on_device, &mut self.batch);
            self.device.normals(&self.next_noise, b * a, &mut self.batch.next_noise);
            self.device.normals(&self.noise, b * a, &mut self.batch.noise);
            self.learner.update(&self.batch)?;
        }
    }

    /// Ends the episodes of these agents: looks at their updates, moves their multipliers.
    fn finish(&mut self, finished: &[usize], ended: &mut Vec<Ended>) -> Result<(), Error> {
        let mut moving = Vec::new();
        for agent in finished {
            let sum = self.actor.sum(*agent)?;
            self.replay.end(*agent, sum.unwrap_or(0.0));
            let member = &mut self.members[*agent];
            let episode = member.recorder.finish();
            member.counters.episode += 1;
            member.counters.returns.0 += episode.total_reward();
            member.counters.returns.1 += 1;
            let mut outcome = Ok(episode);
            if member.warm_up.is_none() {
                member.counters.metrics = self.learner.metrics(*agent)?;
                match self.diverged(*agent) {
                    Some(error) => {
                        self.members[*agent].stopped = true;
                        outcome = Err(error);
                    }
                    None => moving.push(*agent),
                }
            }
            ended.push(Ended { agent: *agent, episode: outcome });
        }
        self.move_multipliers(&moving)
    }

    /// Whether an agent's last update left numbers that are not finite.
    fn diverged(&self, agent: usize) -> Option<Error> {
        let Counters { metrics, step, .. } = &self.members[agent].counters;
        let heads = &self.learner.networks().heads;
        let losses = heads.iter().zip(&metrics.losses).map(|(head, loss)| (format!("the {} critics' loss", head.name), *loss));
        let numbers = losses.chain([("the policy's entropy".to_owned(), metrics.entropy)]);
        let (what, value) = numbers.into_iter().find(|(_, number)| !number.is_finite())?;
        Some(Error::Diverged { step: *step, what, value })
    }

    /// The paper's equation for lambda, on each agent's recent episodes.
    fn move_multipliers(&mut self, agents: &[usize]) -> Result<(), Error> {
        let Some(constraint) = self.setup.algorithm.constraint() else { return Ok(()) };
        if agents.is_empty() {
            return Ok(());
        }
        let settings = self.setup.settings.multiplier.clone();
        let window = |member: &Member| (member.counters.episode as usize).min(settings.window);
        let threshold = Multiplier::threshold(constraint, &settings);
        let estimates: Vec<f64> = match constraint {
            Constraint::LowerBound => self.expected_log_prob(agents)?,
            Constraint::Original => agents
                .iter()
                .map(|agent| {
                    let sums = self.replay.recent_sums(*agent, window(&self.members[*agent]));
                    sums.iter().map(|c| f64::from(*c).exp()).sum::<f64>() / sums.len() as f64
                })
                .collect(),
        };
        for (agent, estimate) in agents.iter().zip(estimates) {
            let member = &mut self.members[*agent];
            member.multiplier.update(estimate, threshold, &settings);
            member.counters.estimate = Some(Estimate { estimate, threshold });
        }
        Ok(())
    }

    /// `E[sum_t log P]` with fresh actions at recent (s, h): the mean score times the horizon.
    fn expected_log_prob(&mut self, agents: &[usize]) -> Result<Vec<f64>, Error> {
        let TrainingSettings { agent: settings, multiplier, .. } = &self.setup.settings;
        let (n, a) = (multiplier.batch, self.setup.spec.action.dim());
        let (d, work) = (&self.device, &mut self.estimator);
        let (Some(scorer), Some(rating)) = (&self.scorer, &mut work.rating) else { return Ok(vec![0.0; agents.len()]) };
        for agent in agents {
            let member = &self.members[*agent];
            let stream = |purpose: &str| StreamId::new(member.seed, purpose, member.counters.episode);
            let window = (member.counters.episode as usize).min(multiplier.window);
            let rows = &mut work.rows[agent * n..][..n];
            self.replay.draw_recent(*agent, window, rows, stream("multiplier-states"));
            d.write_rows(&mut work.addresses, agent * 6, &stream("multiplier-actions").address(0));
        }
        d.write_rows(&mut work.rows_on_device, 0, &work.rows);
        d.recall(&self.replay.tables(), &work.rows_on_device, &mut work.recalled);
        let nets = self.learner.networks();
        let input = Input { first: Columns::new(&work.recalled.state, n, nets.state, 1), second: None };
        d.forward(&nets.policy, &self.learner.agents.policy.values, input, &mut work.pass);
        d.normals(&work.addresses, n * a, &mut work.noise);
        d.sample(&work.pass, &work.noise, settings.log_std(), &mut work.drawn);
        d.to_env(self.replay.units(), &work.drawn.action, &mut work.actions);
        scorer.rate(rating, &mut work.recalled, &work.actions);
        let horizon = self.setup.spec.horizon as f64;
        let mut scores = vec![0.0; n];
        agents
            .iter()
            .map(|agent| {
                d.read(&rating.score, agent * n, &mut scores)?;
                Ok(scores.iter().map(|score| f64::from(*score)).sum::<f64>() / n as f64 * horizon)
            })
            .collect()
    }

    /// Test episodes with [`Population::policy`].
    pub fn test(
        &mut self,
        agent: usize,
        episodes: std::ops::Range<u64>,
        sampled: bool,
    ) -> Result<Vec<TestEpisode>, Error> {
        let policy = self.policy(agent)?;
        self.play(agent, &policy, episodes, sampled)
    }

    fn play(
        &mut self,
        agent: usize,
        policy: &[f32],
        episodes: std::ops::Range<u64>,
        sampled: bool,
    ) -> Result<Vec<TestEpisode>, Error> {
        let replica = self.replica(agent);
        let Tests { player, scorers } = &mut self.tests;
        player.load(policy);
        player.test(scorers.get(replica), &self.setup.rule, episodes, self.members[agent].seed, sampled)
    }

    /// Tests the averaged policy, selects it where it meets the constraint, and says how things are.
    pub fn record(&mut self, agent: usize) -> Result<Record, Error> {
        let member = &mut self.members[agent];
        let (sum, n) = std::mem::take(&mut member.counters.returns);
        let Counters { step, episode, update, metrics, estimate, .. } = member.counters.clone();
        let of_head = |numbers: &[f64], k: usize| numbers.get(k).copied().unwrap_or(0.0);
        let mut log_temperature = [0.0];
        self.device.read(&self.learner.agents.temperature.values, agent, &mut log_temperature)?;
        let mut record = Record {
            step,
            episodes: episode,
            updates: update,
            training_return: sum / n.max(1) as f64,
            multiplier: member.multiplier.value(),
            constraint: estimate.map(|e| e.estimate),
            threshold: estimate.map(|e| e.threshold),
            q_reward: of_head(&metrics.values, 0),
            q_safety: of_head(&metrics.values, 1),
            reward_critic_loss: of_head(&metrics.losses, 0),
            safety_critic_loss: of_head(&metrics.losses, 1),
            entropy: metrics.entropy,
            temperature: f64::from(log_temperature[0]).exp(),
            ..Record::default()
        };
        let average = self.average(agent)?;
        let tests = self.play(agent, &average, 0..self.setup.settings.train.test_episodes, false)?;
        record.tests(&tests);
        let settings = &self.setup.settings.multiplier;
        let free = self.setup.constrained() && self.members[agent].multiplier.is_free(settings);
        if free && record.mean_predicted() >= settings.target {
            self.members[agent].selected = Some(SelectedPolicy { step, policy: average });
        }
        Ok(record)
    }

    /// Everything an agent is between two of its episodes.
    pub fn state(&self, agent: usize) -> Result<AgentState, Error> {
        let tensors = self.tensors().into_iter().map(|(name, buffer, each)| {
            let mut numbers = vec![0.0; each];
            self.device.read(buffer, agent * each, &mut numbers)?;
            Ok((name, numbers))
        });
        let member = &self.members[agent];
        Ok(AgentState {
            counters: member.counters.clone(),
            multiplier: member.multiplier.clone(),
            tensors: tensors.collect::<Result<_, Error>>()?,
            selected: member.selected.clone(),
            model: self.model(agent).cloned(),
        })
    }

    /// The names and lengths of [`AgentState::tensors`].
    pub fn tensor_sizes(&self) -> Vec<(&'static str, usize)> {
        self.tensors().into_iter().map(|(name, _, each)| (name, each)).collect()
    }

    fn tensors(&self) -> Vec<(&'static str, &D::Buf, usize)> {
        let agents = &self.learner.agents;
        let (policy, critics, temperature) = (&agents.policy, &agents.critics, &agents.temperature);
        vec![
            ("policy", &policy.values, policy.each),
            ("averaged_policy", &agents.average, policy.each),
            ("critics", &critics.values, critics.each),
            ("target_critics", &agents.target_critics, critics.each),
            ("log_temperature", &temperature.values, 1),
            ("optimiser.policy.moment0", &policy.moments[0], policy.each),
            ("optimiser.policy.moment1", &policy.moments[1], policy.each),
            ("optimiser.critics.moment0", &critics.moments[0], critics.each),
            ("optimiser.critics.moment1", &critics.moments[1], critics.each),
            ("optimiser.temperature.moment0", &temperature.moments[0], 1),
            ("optimiser.temperature.moment1", &temperature.moments[1], 1),
        ]
    }

    /// Puts an agent where a checkpoint was; `episodes` are its own so far.
    pub fn restore(&mut self, agent: usize, state: AgentState, episodes: &[Episode]) -> Result<(), Error> {
        let agents = &mut self.learner.agents;
        let d = &self.device;
        for (name, numbers) in &state.tensors {
            let buffer = match *name {
                "policy" => &mut agents.policy.values,
                "averaged_policy" => &mut agents.average,
                "critics" => &mut agents.critics.values,
                "target_critics" => &mut agents.target_critics,
                "log_temperature" => &mut agents.temperature.values,
                "optimiser.policy.moment0" => &mut agents.policy.moments[0],
                "optimiser.policy.moment1" => &mut agents.policy.moments[1],
                "optimiser.critics.moment0" => &mut agents.critics.moments[0],
                "optimiser.critics.moment1" => &mut agents.critics.moments[1],
                "optimiser.temperature.moment0" => &mut agents.temperature.moments[0],
                _ => &mut agents.temperature.moments[1],
            };
            d.write(buffer, agent * numbers.len(), numbers);
        }
        let member = &mut self.members[agent];
        member.counters = state.counters;
        member.multiplier = state.multiplier;
        member.selected = state.selected;
        let scorer = self.tests.scorers.get(agent * self.setup.models.len() / self.members.len());
        let scorer = scorer.filter(|_| self.setup.algorithm.constraint().is_some());
        episodes.iter().try_for_each(|episode| self.replay.restore(agent, episode, scorer))
    }

    /// Puts other models in place of those acted with so far, in the middle of a training: the replay is scored again, and
    /// running episodes go on with the memory that the new model has of them. `stored` holds the same episodes as before,
    /// scored by the new models.
    pub fn replace_models(&mut self, models: Vec<Arc<SafetyModel>>, stored: Arc<Stored<D>>) -> Result<(), Error> {
        if models.len() != self.setup.models.len() || models.is_empty() {
            return Err(Error::Replicas { agents: self.members.len(), models: models.len() });
        }
        let floor = self.setup.settings.agent.score_floor;
        let scorer = Scorer::new(&self.device, &models, floor)?;
        let each: Vec<Scorer<D>> = models
            .iter()
            .map(|model| Scorer::new(&self.device, std::slice::from_ref(model), floor))
            .collect::<Result<_, _>>()?;
        let of_agent: Vec<&Scorer<D>> =
            (0..self.members.len()).map(|agent| &each[agent * models.len() / self.members.len()]).collect();
        let running = self.replay.score_again(stored.clone(), &of_agent)?;
        for (agent, scores) in running.iter().enumerate() {
            if !self.members[agent].recorder.done() {
                self.actor.continue_from(agent, &scorer, scores);
            }
        }
        self.scorer = Some(scorer);
        self.tests.scorers = each;
        self.setup.models = models;
        self.setup.stored = stored;
        Ok(())
    }
}
