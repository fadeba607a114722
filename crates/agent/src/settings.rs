//! Every setting of the agent, with its default and its reason.

use prudence_core::SettingError;
use prudence_nn::work::LogStd;
use serde::{Deserialize, Serialize};

/// The four algorithms: one program, two switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Soft actor-critic, unconstrained.
    Sac,
    /// The paper's: policy and critics see h, the multiplier follows Jensen's lower bound.
    SafesacH,
    /// Without h.
    SafesacNoh,
    /// With h, the multiplier on the original constraint.
    SafesacNonlb,
}

/// What the multiplier follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// `E[sum log P] >= log d`: implies the original (Jensen).
    LowerBound,
    /// `E[exp(sum log P)] >= d`
    Original,
}

impl Algorithm {
    /// All four, in the paper's order.
    pub const ALL: [Algorithm; 4] = [Self::Sac, Self::SafesacH, Self::SafesacNoh, Self::SafesacNonlb];

    /// Whether policy and critics see the safety model's memory.
    pub fn history(self) -> bool {
        matches!(self, Self::SafesacH | Self::SafesacNonlb)
    }

    /// The constraint, if any.
    pub fn constraint(self) -> Option<Constraint> {
        match self {
            Self::Sac => None,
            Self::SafesacH | Self::SafesacNoh => Some(Constraint::LowerBound),
            Self::SafesacNonlb => Some(Constraint::Original),
        }
    }

    /// The name used in commands, folders and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sac => "sac",
            Self::SafesacH => "safesac-h",
            Self::SafesacNoh => "safesac-noh",
            Self::SafesacNonlb => "safesac-nonlb",
        }
    }
}

/// Everything a training run can be told, a section each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingSettings {
    /// Networks and their learning.
    pub agent: AgentSettings,
    /// The multiplier.
    pub multiplier: MultiplierSettings,
    /// The loop.
    pub train: TrainSettings,
}

/// Networks and their learning. Section `[agent]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// Hidden layers of policy and critics.
    pub hidden: Vec<usize>,
    /// Adam's learning rate at the start.
    pub learning_rate: f64,
    /// The share of it that is left at the end; it falls linearly. 1: constant.
    pub final_rate: f64,
    /// Transitions an update.
    pub batch: usize,
    /// Discount of both critics.
    pub discount: f64,
    /// How fast target networks follow.
    pub polyak: f64,
    /// Entropy temperature at the start; learned from there on.
    pub temperature: f64,
    /// The entropy aimed at, a dimension of the action: the target is this times |A|.
    pub entropy: f64,
    /// Lower end of the policy's log standard deviation.
    pub log_std_min: f64,
    /// Upper end.
    pub log_std_max: f64,
    /// Rewards are multiplied by this for learning (never in reports).
    pub reward_scale: f64,
    /// Floor of the running sum of log-probabilities that the agent sees.
    pub score_floor: f64,
    /// How fast the averaged policy, the one tested, follows the learned one. 1: no averaging.
    pub averaging: f64,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            hidden: vec![256, 256],
            learning_rate: 3e-4,
            final_rate: 1.0,
            batch: 256,
            discount: 0.99,
            polyak: 0.005,
            temperature: 1.0,
            entropy: -1.0,
            log_std_min: -20.0,
            log_std_max: 2.0,
            reward_scale: 1.0,
            score_floor: -7.0,
            averaging: 0.005,
        }
    }
}

fn positive(x: f64) -> bool {
    x > 0.0 && x.is_finite()
}

impl TrainingSettings {
    /// Refuses values that no training can work with.
    pub fn check(&self) -> Result<(), SettingError> {
        self.agent.check()?;
        self.multiplier.check()?;
        self.train.check()
    }
}

impl AgentSettings {
    /// Refuses values that no training can work with.
    pub fn check(&self) -> Result<(), SettingError> {
        let unless = SettingError::unless;
        let layers = !self.hidden.is_empty() && self.hidden.iter().all(|n| (1..=8192).contains(n));
        unless(layers, "agent.hidden", &format!("{:?}", self.hidden), "must be layers of 1 to 8192 units")?;
        unless(positive(self.learning_rate), "agent.learning_rate", &self.learning_rate, "must be above 0")?;
        unless(positive(self.temperature), "agent.temperature", &self.temperature, "must be above 0")?;
        unless(positive(self.reward_scale), "agent.reward_scale", &self.reward_scale, "must be above 0")?;
        unless(self.entropy.is_finite(), "agent.entropy", &self.entropy, "must be finite")?;
        let floor = self.score_floor < 0.0 && self.score_floor.is_finite();
        unless(floor, "agent.score_floor", &self.score_floor, "must be below 0, and finite")?;
        unless(self.batch > 0, "agent.batch", &self.batch, "must be 1 or more")?;
        for (key, x) in [
            ("agent.discount", self.discount),
            ("agent.polyak", self.polyak),
            ("agent.averaging", self.averaging),
            ("agent.final_rate", self.final_rate),
        ] {
            unless((0.0..=1.0).contains(&x), key, &x, "must lie in [0, 1]")?;
        }
        let ordered = self.log_std_min <= self.log_std_max;
        unless(ordered, "agent.log_std_min", &self.log_std_min, "must not exceed agent.log_std_max")
    }

    /// The clipping of the policy's spread.
    pub fn log_std(&self) -> LogStd {
        LogStd { min: self.log_std_min, max: self.log_std_max }
    }
}

/// The multiplier's way. Section `[multiplier]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MultiplierSettings {
    /// d, the safe share the constraint asks the MODEL for; above the task's `target`, which is about the truth.
    pub target: f64,
    /// A constant multiplier instead of a learned one.
    pub fixed: Option<f64>,
    /// Where it starts.
    pub initial: f64,
    /// Adam's learning rate.
    pub learning_rate: f64,
    /// Episodes before it starts to move: first the safety critic must know something.
    pub freeze: u64,
    /// Most recent own episodes the constraint is estimated on.
    pub window: usize,
    /// (s, h) pairs drawn from them for one estimate.
    pub batch: usize,
    /// It never passes this; reaching it is warned about.
    pub max: f64,
}

impl Default for MultiplierSettings {
    fn default() -> Self {
        Self {
            target: 0.95,
            fixed: None,
            initial: 0.0,
            learning_rate: 0.01,
            freeze: 100,
            window: 40,
            batch: 256,
            max: 100.0,
        }
    }
}

impl MultiplierSettings {
    /// Refuses values that no training can work with.
    pub fn check(&self) -> Result<(), SettingError> {
        let unless = SettingError::unless;
        let at_least_0 = |x: f64| x >= 0.0 && x.is_finite();
        let share = self.target > 0.0 && self.target < 1.0;
        unless(share, "multiplier.target", &self.target, "must be above 0 and below 1")?;
        unless(positive(self.max), "multiplier.max", &self.max, "must be above 0")?;
        unless(at_least_0(self.initial), "multiplier.initial", &self.initial, "must be 0 or more")?;
        let fixed = self.fixed.unwrap_or(0.0);
        unless(at_least_0(fixed), "multiplier.fixed", &fixed, "must be 0 or more")?;
        unless(self.window > 0, "multiplier.window", &self.window, "must be 1 or more")?;
        unless(self.batch > 0, "multiplier.batch", &self.batch, "must be 1 or more")?;
        unless(positive(self.learning_rate), "multiplier.learning_rate", &self.learning_rate, "must be above 0")
    }
}

/// The training loop. Section `[train]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainSettings {
    /// Environment steps.
    pub steps: u64,
    /// Steps with random actions before the first update (without stored episodes to learn from).
    pub random_steps: u64,
    /// Updates an environment step; may be a fraction.
    pub updates_per_step: f64,
    /// Transitions the replay holds.
    pub capacity: usize,
    /// Environment steps between records.
    pub record_every: u64,
    /// Test episodes a record.
    pub test_episodes: u64,
    /// Environment steps between checkpoints.
    pub checkpoint_every: u64,
}

impl Default for TrainSettings {
    fn default() -> Self {
        Self {
            steps: 1_000_000,
            random_steps: 10_000,
            updates_per_step: 1.0,
            capacity: 1_000_000,
            record_every: 10_000,
            test_episodes: 20,
            checkpoint_every: 50_000,
        }
    }
}

impl TrainSettings {
    /// Refuses values that no training can work with.
    pub fn check(&self) -> Result<(), SettingError> {
        let updates = (0.0..=1000.0).contains(&self.updates_per_step);
        SettingError::unless(updates, "train.updates_per_step", &self.updates_per_step, "must lie in [0, 1000]")?;
        for (key, n) in [
            ("train.steps", self.steps),
            ("train.record_every", self.record_every),
            ("train.checkpoint_every", self.checkpoint_every),
            ("train.test_episodes", self.test_episodes),
            ("train.capacity", self.capacity as u64),
        ] {
            SettingError::unless(n > 0, key, &n, "must be 1 or more")?;
        }
        Ok(())
    }
}
