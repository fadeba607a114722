//! The training loop of one agent: act, store, update, move the multiplier; an episode at a time.
//!
//! Its whole state between two episodes is the learner, the multiplier, the replay's episodes and a few counters: random
//! numbers come from streams named by episode and update, so nothing else needs saving (see `checkpoint`).

use std::sync::Arc;

use prudence_data::{Episode, Rule};
use prudence_env::MakeEnv;
use prudence_env::random::{stream, subseed};
use prudence_nn::MlpWork;
use prudence_nn::gaussian;
use prudence_safety::SafetyModel;
use rand::seq::SliceRandom as _;
use rand_distr::{Distribution as _, StandardNormal};

use crate::evaluate::{TestEpisode, test};
use crate::multiplier::{Estimate, Multiplier};
use crate::player::{Choose, Player};
use crate::records::Record;
use crate::replay::{Recent, Replay};
use crate::safesac::{Batch, Dimensions, Learner, UpdateMetrics};
use crate::scaling::Scaling;
use crate::settings::{Constraint, Settings};
use crate::{Algorithm, Error};

/// All that a training run depends on.
#[derive(Clone)]
pub struct Setup {
    /// Which of the four.
    pub algorithm: Algorithm,
    /// The agent's settings.
    pub settings: Settings,
    /// The environment.
    pub env: Arc<dyn MakeEnv>,
    /// The true rule, for tests alone.
    pub rule: Rule,
    /// The safety model; every algorithm but SAC needs it, SAC may have it for the record.
    pub safety: Option<Arc<SafetyModel>>,
    /// Stored episodes to learn from, enriched by the safety model.
    pub stored: Arc<Vec<Episode>>,
    /// The seed of everything random.
    pub seed: u64,
}

/// An agent in training.
pub struct Trainer {
    setup: Setup,
    pub(crate) learner: Learner<f32>,
    pub(crate) multiplier: Multiplier,
    pub(crate) counters: Counters,
    pub(crate) kept: Option<Kept>,
    replay: Replay,
    player: Player,
    tester: Player,
    batch: Batch<f32>,
    lambda: LambdaWork,
}

/// An averaged policy that met the constraint when it was last tested, as the safety model judges.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    /// When that was.
    pub step: u64,
    /// Its parameters.
    pub policy: Vec<f32>,
}

/// How far training has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Environment steps.
    pub step: u64,
    /// Episodes.
    pub episode: u64,
    /// Updates.
    pub update: u64,
    /// Updates owed: the fraction carried from step to step.
    pub owed: f64,
    /// Sum of returns since the last record, and their number.
    pub returns: (f64, u64),
    /// What the last update said.
    pub metrics: UpdateMetrics,
    /// What the multiplier last compared.
    pub estimate: Option<Estimate>,
}

fn to_use<'a>(kept: &'a Option<Kept>, learner: &'a Learner<f32>) -> &'a [f32] {
    kept.as_ref().map_or(&learner.averaged_policy, |kept| &kept.policy)
}

/// The stored episodes that leave room for the agent's own: all of them, or as many drawn at random, in their order.
fn stored_that_fit(stored: &[Episode], capacity: u64, steps: u64, seed: u64) -> Vec<usize> {
    let room = capacity.saturating_sub(steps).max(capacity / 2);
    let mut order: Vec<usize> = (0..stored.len()).collect();
    let mut total: u64 = stored.iter().map(|episode| episode.len() as u64).sum();
    if total > room {
        order.shuffle(&mut stream(seed, "stored", 0));
        while let Some(last) = order.last().filter(|_| total > room) {
            total -= stored[*last].len() as u64;
            order.pop();
        }
        order.sort_unstable();
    }
    order
}

/// Room for the multiplier's estimate.
struct LambdaWork {
    recent: Recent,
    noise: Vec<f32>,
    unit: Vec<f32>,
    actions: Vec<f32>,
    log_prob: Vec<f32>,
    policy: MlpWork<f32>,
    decoder: Option<MlpWork<f32>>,
    rows: Vec<f32>,
    scores: Vec<f32>,
}

impl Trainer {
    /// At the very start: fresh networks, the stored episodes enriched.
    pub fn new(setup: Setup) -> Result<Self, Error> {
        let Settings { agent, multiplier, train } = &setup.settings;
        let env = setup.env.build()?;
        let scaling = Scaling::new(env.spec());
        let (s, a) = scaling.sizes();
        let history = setup.algorithm.history();
        let safety = setup.safety.clone();
        if let Some(model) = &safety {
            model.check(s, a)?;
        }
        let constrained = setup.algorithm.constraint().is_some();
        if constrained && safety.is_none() {
            let expected = "needs a safety model: pass --safety MODEL (made by `prudence fit`)";
            return Err(Error::Setting { key: "algo", value: setup.algorithm.name().into(), expected });
        }
        let mut replay = Replay::new(
            scaling,
            safety.clone().filter(|_| constrained),
            history,
            agent.score_floor,
            agent.reward_scale,
            train.capacity,
        );
        for index in stored_that_fit(&setup.stored, train.capacity as u64, train.steps, setup.seed) {
            replay.push(&setup.stored[index]);
        }
        let dimensions = Dimensions { state: replay.state_width(), action: a, population: 1, safety: constrained };
        let learner = Learner::new(dimensions, agent, &mut stream(setup.seed, "networks", 0));
        let player = |env| {
            let shape = learner.shapes().0.clone();
            Player::new(env, shape, agent.log_std(), safety.clone(), history, agent.score_floor)
        };
        let pairs = multiplier.batch;
        Ok(Self {
            batch: Batch::new(dimensions, agent.batch),
            multiplier: if constrained { Multiplier::new(multiplier) } else { Multiplier::off() },
            counters: Counters::default(),
            kept: None,
            player: player(env),
            tester: player(setup.env.build()?),
            lambda: LambdaWork {
                recent: Recent::default(),
                noise: vec![0.0; pairs * a],
                unit: vec![0.0; pairs * a],
                actions: vec![0.0; pairs * a],
                log_prob: vec![0.0; pairs],
                policy: MlpWork::new(learner.shapes().0, 1, pairs),
                decoder: safety.as_ref().map(|m| m.decoder_work(pairs)),
                rows: Vec::new(),
                scores: Vec::new(),
            },
            learner,
            replay,
            setup,
        })
    }

    /// What it was made from.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// How far it has come.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether all steps are taken.
    pub fn done(&self) -> bool {
        self.counters.step >= self.setup.settings.train.steps
    }

    /// Whether the multiplier stands at its limit.
    pub fn multiplier_at_limit(&self) -> bool {
        self.multiplier.at_limit(&self.setup.settings.multiplier)
    }

    /// The policy to use: the averaged one of the last record whose test episodes met the original constraint, `E[P] >= d`,
    /// as the safety model judges; without such a record the averaged one of now. Lambda swings about its balance, and so
    /// does what the very last steps leave behind. (The lower bound, which lambda may compare, implies `E[P] >= d`; on a
    /// few episodes, one of which may weigh the floor, it says too little.)
    pub fn policy(&self) -> &[f32] {
        to_use(&self.kept, &self.learner)
    }

    /// The step of the record that [`Trainer::policy`] is from, where one met the constraint.
    pub fn kept_step(&self) -> Option<u64> {
        self.kept.as_ref().map(|kept| kept.step)
    }

    /// Takes up an episode of its own that it lived through before it was interrupted.
    pub(crate) fn remember(&mut self, episode: &Episode) {
        self.replay.push(episode);
    }

    /// Lives through one episode, updating on the way, and returns it. After an error the trainer is of no more use: its
    /// replay holds part of an episode.
    pub fn episode(&mut self) -> Result<Episode, Error> {
        let seed = self.setup.seed;
        let index = self.counters.episode;
        let mut noise = stream(seed, "actions", index);
        let warm_up = self.setup.stored.is_empty() && self.counters.step < self.setup.settings.train.random_steps;
        self.player.start(subseed(seed, "train", index))?;
        self.replay.start(&self.player.episode().observations);
        while !self.player.done() {
            let mut choose = match warm_up {
                true => Choose::Random(&mut noise),
                false => Choose::Policy(&self.learner.policy, Some(&mut noise)),
            };
            let step = self.player.step(&mut choose)?;
            let (s, a) = self.replay.scaling().sizes();
            let Episode { observations, actions, .. } = self.player.episode();
            let (action, next) = (&actions[actions.len() - a..], &observations[observations.len() - s..]);
            self.replay.step(action, step.reward as f32, step.terminated, next);
            self.counters.step += 1;
            if !warm_up {
                self.counters.owed += self.setup.settings.train.updates_per_step;
                while self.counters.owed >= 1.0 {
                    self.counters.owed -= 1.0;
                    self.update()?;
                }
            }
        }
        let (episode, _) = self.player.finish();
        self.counters.episode += 1;
        self.counters.returns.0 += episode.total_reward();
        self.counters.returns.1 += 1;
        if !warm_up {
            self.move_multiplier();
        }
        Ok(episode)
    }

    fn update(&mut self) -> Result<(), Error> {
        if self.replay.is_empty() {
            return Ok(());
        }
        let Settings { agent, train, .. } = &self.setup.settings;
        let along = (self.counters.step as f64 / train.steps as f64).min(1.0);
        let rate = agent.learning_rate * (1.0 - (1.0 - agent.final_rate) * along);
        let mut rng = stream(self.setup.seed, "update", self.counters.update);
        self.replay.sample(&mut self.batch, &mut rng);
        self.batch.draw_noise(&mut rng);
        let metrics = self.learner.update(&self.batch, &[self.multiplier.value() as f32], rate);
        self.counters.metrics = metrics;
        self.counters.update += 1;
        let finite = [
            (metrics.reward_critic_loss, "the reward critics' loss"),
            (metrics.safety_critic_loss, "the safety critics' loss"),
            (metrics.entropy, "the policy's entropy"),
        ];
        match finite.iter().find(|(x, _)| !x.is_finite()) {
            Some((_, what)) => Err(Error::Diverged { step: self.counters.step, what }),
            None => Ok(()),
        }
    }

    /// The paper's equation for lambda, on recent episodes of its own.
    fn move_multiplier(&mut self) {
        let Some(constraint) = self.setup.algorithm.constraint() else { return };
        let window = (self.counters.episode as usize).min(self.setup.settings.multiplier.window);
        let estimate = match constraint {
            Constraint::LowerBound => self.expected_log_prob(window),
            Constraint::Original => {
                let sums = self.replay.recent_sums(window);
                sums.iter().map(|c| f64::from(*c).exp()).sum::<f64>() / sums.len() as f64
            }
        };
        let settings = &self.setup.settings.multiplier;
        let threshold = Multiplier::threshold(constraint, settings);
        self.multiplier.update(estimate, threshold, settings);
        self.counters.estimate = Some(Estimate { estimate, threshold });
    }

    /// `E[sum_t log P]` with fresh actions at recent (s, h): the mean score times the horizon.
    fn expected_log_prob(&mut self, window: usize) -> f64 {
        let Settings { agent, multiplier, .. } = &self.setup.settings;
        let n = multiplier.batch;
        let mut rng = stream(self.setup.seed, "multiplier", self.counters.episode);
        let work = &mut self.lambda;
        let (Some(model), Some(decoder)) = (&self.setup.safety, &mut work.decoder) else { return 0.0 };
        self.replay.sample_recent(window, n, &mut rng, &mut work.recent);
        work.noise.iter_mut().for_each(|e| *e = StandardNormal.sample(&mut rng));
        let shape = self.learner.shapes().0;
        shape.forward(&self.learner.policy, &work.recent.states, 1, &mut work.policy);
        gaussian::sample(work.policy.output(), &work.noise, agent.log_std(), &mut work.unit, &mut work.log_prob);
        let a = self.learner.dimensions().action;
        for (unit, action) in work.unit.chunks_exact(a).zip(work.actions.chunks_exact_mut(a)) {
            self.replay.scaling().to_env(unit, action);
        }
        let memory = &work.recent.memory;
        let width = model.memory();
        model.decode(
            &work.recent.observations,
            memory,
            width,
            &work.actions,
            &mut work.rows,
            decoder,
            &mut work.scores,
        );
        let used = memory.iter().skip(width - 1).step_by(width);
        let floor = agent.score_floor as f32;
        let sum: f64 = used.zip(&work.scores).map(|(u, l)| f64::from(Replay::floored(*u, *l, floor))).sum();
        sum / n as f64 * self.player.env().spec().horizon as f64
    }

    /// Test episodes with [`Trainer::policy`].
    pub fn test(&mut self, episodes: std::ops::Range<u64>, sampled: bool) -> Result<Vec<TestEpisode>, Error> {
        let Setup { rule, seed, .. } = &self.setup;
        test(&mut self.tester, rule, to_use(&self.kept, &self.learner), episodes, *seed, sampled)
    }

    /// Tests the averaged policy, keeps it where it meets the constraint, and writes down how things stand.
    pub fn record(&mut self) -> Result<Record, Error> {
        let (sum, n) = std::mem::take(&mut self.counters.returns);
        let Counters { step, episode, update, metrics, estimate, .. } = self.counters;
        let mut record = Record {
            step,
            episodes: episode,
            updates: update,
            training_return: sum / n.max(1) as f64,
            multiplier: self.multiplier.value(),
            constraint: estimate.map(|e| e.estimate),
            threshold: estimate.map(|e| e.threshold),
            q_reward: metrics.q_reward,
            q_safety: metrics.q_safety,
            reward_critic_loss: metrics.reward_critic_loss,
            safety_critic_loss: metrics.safety_critic_loss,
            entropy: metrics.entropy,
            temperature: self.learner.temperature(),
            ..Record::default()
        };
        let Setup { rule, seed, settings, .. } = &self.setup;
        let averaged = &self.learner.averaged_policy;
        let tests = test(&mut self.tester, rule, averaged, 0..settings.train.test_episodes, *seed, false)?;
        record.tests(&tests);
        let constrained = self.setup.algorithm.constraint().is_some() && self.multiplier.is_free(&settings.multiplier);
        if constrained && record.mean_predicted() >= settings.multiplier.target {
            self.kept = Some(Kept { step, policy: averaged.clone() });
        }
        Ok(record)
    }
}
