//! Test episodes in their own environment, judged by the true rule.
//!
//! The rule is for people: no learner reads what is computed here. Where a policy is accepted by labelled episodes at the end
//! of a training, the rule gives these labels.

use std::ops::Range;

use prudence_core::random::{StreamId, subseed};
use prudence_data::{Episode, Rule};
use prudence_env::{Env, Error as EnvError, Step};
use prudence_nn::work::LogStd;
use prudence_nn::{Bank, Device, Mlp};
use prudence_safety::Scorer;

use crate::Error;
use crate::actor::{Actor, Choose};
use crate::recorder::Recorder;
use crate::threads::Threads;
use crate::units::{AgentUnits, Scaling};

/// The seed of the test episodes' starts, the same for everything that is tested.
const TEST_STARTS: u64 = 0;

/// A test episode with its judgement.
///
/// ```
/// use prudence_agent::evaluate::TestEpisode;
/// use prudence_data::{Episode, Rule};
///
/// let rule = Rule::parse("count(hot) <= 1", &["hot"])?;
/// let episode = Episode {
///     observations: vec![0.0; 5],
///     actions: vec![0.0; 4],
///     rewards: vec![1.0; 4],
///     signals: vec![1.0, 0.0, 1.0, 0.0],
///     ..Episode::new(1, 1)
/// };
/// let test = TestEpisode::new(episode, vec![0.0], Vec::new(), &rule);
/// assert_eq!((test.safe, test.total_reward, test.steps_kept), (false, 4.0, 0.5));
/// # Ok::<(), prudence_data::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TestEpisode {
    /// The trajectory.
    pub episode: Episode,
    /// The signals of the initial state; rules do not read them.
    pub start: Vec<f64>,
    /// The undiscounted sum of unscaled rewards.
    pub total_reward: f64,
    /// Whether the true rule held throughout.
    pub safe: bool,
    /// Share of the steps at which it held (the paper's second metric).
    pub steps_kept: f64,
    /// The safety model's log P of each step; empty without a model.
    pub log_probs: Vec<f32>,
}

impl TestEpisode {
    /// An episode, judged by a rule.
    pub fn new(episode: Episode, start: Vec<f64>, log_probs: Vec<f32>, rule: &Rule) -> Self {
        let mut judge = rule.judge();
        let width = episode.signals.len() / episode.len();
        let kept = (0..episode.len()).filter(|t| judge.step(&episode.signals[t * width..][..width])).count();
        Self {
            total_reward: episode.total_reward(),
            safe: judge.safe(),
            steps_kept: kept as f64 / episode.len() as f64,
            log_probs,
            start,
            episode,
        }
    }

    /// The safety model's log-probability that the whole episode is safe; `None` without a model.
    pub fn log_prob(&self) -> Option<f64> {
        (!self.log_probs.is_empty()).then(|| self.log_probs.iter().map(|l| f64::from(*l)).sum())
    }
}

/// Everything about a policy except its parameters.
#[derive(Clone, Debug)]
pub struct PolicyShape {
    /// The shape of its network.
    pub network: Mlp,
    /// Between the environment's actions and the policy's.
    pub scaling: Scaling,
    /// The bounds of its log standard deviation.
    pub clip: LogStd,
    /// Whether it reads the safety model's memory.
    pub history: bool,
}

/// Policies in environments: N rows, divided evenly among the policies, in order.
pub struct Player<D: Device> {
    recorders: Vec<Recorder>,
    policies: usize,
    actor: Actor<D>,
    /// `[policies, parameters]`
    weights: D::Buf,
    device: D,
    threads: Threads,
    /// `[N, A]`, in the environment's units
    actions: Vec<f32>,
    /// `[N]`: the safety model's log P of each row's last step; empty without a model.
    last_log_prob: Vec<f32>,
}

/// A row's test episode in progress.
struct Running {
    index: u64,
    /// The signals of the initial state.
    start: Vec<f64>,
    log_probs: Vec<f32>,
}

impl<D: Device> Player<D> {
    /// For these environments. The parameters of each policy must then be loaded with [`Player::load`].
    pub fn new(
        device: &D,
        envs: Vec<Box<dyn Env>>,
        policies: usize,
        shape: &PolicyShape,
        scorer: Option<Scorer<D>>,
        threads: &Threads,
    ) -> Result<Self, Error> {
        let (rows, a) = (envs.len(), shape.scaling.action_width());
        let bank = Bank::dense(shape.network.clone(), policies);
        Ok(Self {
            recorders: envs.into_iter().map(Recorder::new).collect(),
            policies,
            actor: Actor::new(device, &shape.scaling, &bank, rows / policies, shape.clip, shape.history, scorer)?,
            weights: device.buffer(policies * shape.network.parameters())?,
            device: device.clone(),
            threads: threads.clone(),
            actions: vec![0.0; rows * a],
            last_log_prob: Vec::new(),
        })
    }

    /// Loads a policy's parameters and units.
    pub fn load(&mut self, policy: usize, parameters: &[f32], units: &AgentUnits) {
        self.actor.set_units(policy, units);
        self.device.write(&mut self.weights, policy * parameters.len(), parameters);
    }

    /// Replaces the scorer by one of the same shape; no episode may be in progress.
    pub fn replace_scorer(&mut self, scorer: Scorer<D>) {
        self.actor.replace_scorer(scorer);
    }

    /// A row's environment with its running episode.
    pub fn recorder(&self, row: usize) -> &Recorder {
        &self.recorders[row]
    }

    /// A row's environment, mutably.
    pub fn env_mut(&mut self, row: usize) -> &mut dyn Env {
        self.recorders[row].env_mut()
    }

    /// The safety model's log P of a row's last step; `None` without a model.
    pub fn log_prob(&self, row: usize) -> Option<f32> {
        self.last_log_prob.get(row).copied()
    }

    /// Starts an episode in a row.
    pub fn start(&mut self, row: usize, seed: u64) -> Result<(), Error> {
        self.recorders[row].start(seed)?;
        self.actor.start(row);
        Ok(())
    }

    /// Takes one step in every active row. Actions are sampled from the policies with the noise of the rows' streams;
    /// without streams, they are the policies' modes.
    pub fn step(
        &mut self,
        active: &[bool],
        noise: Option<&[StreamId]>,
    ) -> Result<Vec<Option<Result<Step, EnvError>>>, Error> {
        for (row, recorder) in self.recorders.iter().enumerate().filter(|(row, _)| active[*row]) {
            self.actor.show(row, recorder.stored_observation());
            if let Some(noise) = noise {
                self.actor.draw_from(row, noise[row], recorder.steps());
            }
        }
        let choose = if noise.is_some() { Choose::Drawn } else { Choose::Mode };
        self.actor.choose(&self.weights, choose, &mut self.actions)?;
        let a = self.actions.len() / self.recorders.len();
        let actions = &self.actions;
        let step = |row: usize, recorder: &mut Recorder| active[row].then(|| recorder.step(&actions[row * a..][..a]));
        let steps = self.threads.map(&mut self.recorders, step);
        self.actor.score(&self.actions, active)?;
        self.actor.log_probs(&mut self.last_log_prob)?;
        Ok(steps)
    }

    /// Plays test episodes with every policy in `wanted`, and returns those of each policy, or the error that ended them.
    /// Actions are the policies' modes or, with a seed per policy for their noise, sampled from them.
    ///
    /// Test episode i starts the same way whichever policy is tested, so that all algorithms, rounds and replicas have
    /// the same starts.
    pub fn test(
        &mut self,
        wanted: &[bool],
        rule: &Rule,
        episodes: Range<u64>,
        sampled: Option<&[u64]>,
    ) -> Result<Vec<Result<Vec<TestEpisode>, Error>>, Error> {
        let rows = self.recorders.len();
        let policy_of = |row: usize| row * self.policies / rows;
        let of_policies = self.policies;
        let mut tests: Vec<Result<Vec<(u64, TestEpisode)>, Error>> = (0..of_policies).map(|_| Ok(Vec::new())).collect();
        let mut next: Vec<u64> = vec![episodes.start; of_policies];
        let mut running: Vec<Option<Running>> = (0..rows).map(|_| None).collect();
        let mut noise = vec![StreamId::new(0, "test-actions", 0); rows];
        let policies: Vec<usize> = (0..rows).map(policy_of).collect();
        loop {
            for (row, policy) in policies.iter().copied().enumerate() {
                let more = wanted[policy] && next[policy] < episodes.end && tests[policy].is_ok();
                if running[row].is_none() && more {
                    let index = next[policy];
                    next[policy] += 1;
                    if let Some(seeds) = sampled {
                        noise[row] = StreamId::new(seeds[policy], "test-actions", index);
                    }
                    match self.start(row, subseed(TEST_STARTS, "test", index)) {
                        Ok(()) => {
                            let start = self.recorders[row].env().signals().to_vec();
                            running[row] = Some(Running { index, start, log_probs: Vec::new() });
                        }
                        Err(error) => tests[policy] = Err(error),
                    }
                }
            }
            let active: Vec<bool> = running.iter().map(Option::is_some).collect();
            if !active.contains(&true) {
                break;
            }
            for (row, step) in self.step(&active, sampled.map(|_| &noise[..]))?.into_iter().enumerate() {
                let (Some(step), Some(one)) = (step, &mut running[row]) else { continue };
                one.log_probs.extend(self.last_log_prob.get(row));
                let over = match step {
                    Ok(_) => self.recorders[row].done(),
                    Err(error) => {
                        tests[policies[row]] = Err(error.into());
                        true
                    }
                };
                if over {
                    let episode = self.recorders[row].finish();
                    if let (Some(Running { index, start, log_probs }), Ok(tests)) =
                        (running[row].take(), &mut tests[policies[row]])
                    {
                        tests.push((index, TestEpisode::new(episode, start, log_probs, rule)));
                    }
                }
            }
        }
        let in_order = |mut tests: Vec<(u64, TestEpisode)>| {
            tests.sort_by_key(|(index, _)| *index);
            tests.into_iter().map(|(_, test)| test).collect()
        };
        Ok(tests.into_iter().map(|tests| tests.map(in_order)).collect())
    }
}
