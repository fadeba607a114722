//! All settings of an agent's training, with their defaults.

use prudence_core::SettingError;
use prudence_nn::Precision;
use prudence_nn::work::LogStd;
use serde::{Deserialize, Serialize};

/// The four algorithms. They differ in two switches: [`Algorithm::history`] and [`Algorithm::constraint`].
///
/// ```
/// use prudence_agent::Algorithm;
/// use prudence_agent::settings::Constraint;
///
/// let algorithm = Algorithm::SafesacNoh;
/// assert_eq!(algorithm.name(), "safesac-noh");
/// assert!(!algorithm.history());
/// assert_eq!(algorithm.constraint(), Some(Constraint::LowerBound));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Soft actor-critic, unconstrained.
    Sac,
    /// The paper's algorithm: policy and critics see h, and the constraint is Jensen's lower bound.
    SafesacH,
    /// SafeSAC-H without h.
    SafesacNoh,
    /// SafeSAC-H with the original constraint.
    SafesacNonlb,
}

/// The constraint that the multiplier enforces.
///
/// ```
/// use prudence_agent::Algorithm;
/// use prudence_agent::settings::Constraint;
///
/// assert_eq!(Algorithm::Sac.constraint(), None);
/// assert_eq!(Algorithm::SafesacNonlb.constraint(), Some(Constraint::Original));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// On `E[sum log P]`, a lower bound of `log E[P]` by Jensen's inequality.
    LowerBound,
    /// On `E[exp(sum log P)]`, the expected probability that an episode is safe.
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

    /// The name in commands, folders and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sac => "sac",
            Self::SafesacH => "safesac-h",
            Self::SafesacNoh => "safesac-noh",
            Self::SafesacNonlb => "safesac-nonlb",
        }
    }
}

/// The settings of a training, by section.
///
/// ```
/// use prudence_agent::settings::{TrainSettings, TrainingSettings};
///
/// let train = TrainSettings { steps: 40_000, ..TrainSettings::default() };
/// let settings = TrainingSettings { train, ..TrainingSettings::default() };
/// settings.check()?;
/// # Ok::<(), prudence_core::SettingError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingSettings {
    /// The share of episodes that should be safe.
    pub target: f64,
    /// Networks and their optimisation.
    pub agent: AgentSettings,
    /// The multiplier lambda.
    pub multiplier: MultiplierSettings,
    /// The training loop.
    pub train: TrainSettings,
}

/// Networks and their optimisation: section `[agent]`.
///
/// ```
/// use prudence_agent::AgentSettings;
///
/// let settings = AgentSettings { hidden: vec![64, 64], batch: 128, ..AgentSettings::default() };
/// settings.check()?;
/// let wrong = AgentSettings { discount: 1.5, ..settings };
/// assert_eq!(wrong.check().unwrap_err().to_string(), "agent.discount = 1.5: must lie in [0, 1]");
/// # Ok::<(), prudence_core::SettingError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// Hidden layers of policy and critics.
    pub hidden: Vec<usize>,
    /// Adam's learning rate at the start.
    pub learning_rate: f64,
    /// The final learning rate as a share of the initial one; it decreases linearly. 1: constant.
    pub final_rate: f64,
    /// Transitions per update.
    pub batch: usize,
    /// Discount factor of both kinds of critics.
    pub discount: f64,
    /// The step of target networks towards the critics, per update.
    pub polyak: f64,
    /// Initial entropy temperature alpha, in units of discounted returns, which is then learned.
    pub temperature: f64,
    /// Target entropy per dimension of the action: the target is this times |A|.
    pub entropy: f64,
    /// Lower bound of the policy's log standard deviation.
    pub log_std_min: f64,
    /// Upper bound of the policy's log standard deviation.
    pub log_std_max: f64,
    /// Floor of the running sum of log-probabilities that the agent sees.
    pub score_floor: f64,
    /// The step of the averaged policy, which is tested and selected, towards the learned one, per update. 1: no
    /// averaging.
    pub averaging: f64,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            hidden: vec![256, 256],
            learning_rate: 3e-4,
            final_rate: 0.1,
            batch: 256,
            discount: 0.99,
            polyak: 0.005,
            temperature: 0.01,
            entropy: -1.0,
            log_std_min: -20.0,
            log_std_max: 2.0,
            score_floor: -7.0,
            averaging: 0.005,
        }
    }
}

fn positive(x: f64) -> bool {
    x > 0.0 && x.is_finite()
}

impl Default for TrainingSettings {
    fn default() -> Self {
        Self {
            target: 0.9,
            agent: AgentSettings::default(),
            multiplier: MultiplierSettings::default(),
            train: TrainSettings::default(),
        }
    }
}

impl TrainingSettings {
    /// Checks that all values are in range.
    pub fn check(&self) -> Result<(), SettingError> {
        let target = self.target > 0.0 && self.target < 1.0;
        SettingError::unless(target, "target", &self.target, "must be above 0 and below 1")?;
        self.agent.check()?;
        self.multiplier.check()?;
        self.train.check()
    }
}

impl AgentSettings {
    /// Checks that all values are in range.
    pub fn check(&self) -> Result<(), SettingError> {
        let unless = SettingError::unless;
        let layers = !self.hidden.is_empty() && self.hidden.iter().all(|n| (1..=8192).contains(n));
        unless(layers, "agent.hidden", &format!("{:?}", self.hidden), "must be layers of 1 to 8192 units")?;
        unless(positive(self.learning_rate), "agent.learning_rate", &self.learning_rate, "must be above 0")?;
        unless(positive(self.temperature), "agent.temperature", &self.temperature, "must be above 0")?;
        unless(self.entropy.is_finite(), "agent.entropy", &self.entropy, "must be finite")?;
        let floor = self.score_floor < 0.0 && self.score_floor.is_finite();
        unless(floor, "agent.score_floor", &self.score_floor, "must be finite and below 0")?;
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

    /// The range that the policy's log standard deviation is clipped to.
    pub fn log_std(&self) -> LogStd {
        LogStd { min: self.log_std_min, max: self.log_std_max }
    }
}

/// The multiplier lambda: section `[multiplier]`.
///
/// ```
/// use prudence_agent::MultiplierSettings;
///
/// let settings = MultiplierSettings { fixed: Some(2.0), ..MultiplierSettings::default() };
/// settings.check()?;
/// let wrong = MultiplierSettings { initial: 0.0, ..settings };
/// assert_eq!(wrong.check().unwrap_err().key, "multiplier.initial");
/// # Ok::<(), prudence_core::SettingError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MultiplierSettings {
    /// A constant multiplier instead of a learned one.
    pub fixed: Option<f64>,
    /// The initial value, in units of discounted returns.
    pub initial: f64,
}

impl Default for MultiplierSettings {
    fn default() -> Self {
        Self { fixed: None, initial: 1.0 }
    }
}

impl MultiplierSettings {
    /// Checks that all values are in range.
    pub fn check(&self) -> Result<(), SettingError> {
        let unless = SettingError::unless;
        unless(positive(self.initial), "multiplier.initial", &self.initial, "must be above 0")?;
        let fixed = self.fixed.unwrap_or(0.0);
        unless(fixed >= 0.0 && fixed.is_finite(), "multiplier.fixed", &fixed, "must be 0 or more")
    }
}

/// Where replay buffers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayPlace {
    /// In memory.
    #[default]
    Memory,
    /// In temporary files; the operating system keeps in memory what is in use.
    File,
}

impl ReplayPlace {
    /// Whether replay buffers are in files.
    pub fn in_file(self) -> bool {
        self == Self::File
    }
}

/// The training loop: section `[train]`.
///
/// ```
/// use prudence_agent::TrainSettings;
///
/// let settings = TrainSettings { steps: 40_000, random_steps: 4_000, ..TrainSettings::default() };
/// settings.check()?;
/// let wrong = TrainSettings { record_every: 0, ..settings };
/// assert_eq!(wrong.check().unwrap_err().to_string(), "train.record_every = 0: must be 1 or more");
/// # Ok::<(), prudence_core::SettingError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainSettings {
    /// Environment steps.
    pub steps: u64,
    /// Steps with random actions before the first update, if there are no stored episodes to learn from.
    pub random_steps: u64,
    /// Updates per environment step; may be a fraction.
    pub updates_per_step: f64,
    /// Share of each batch that is drawn from the agent's own steps where there are stored episodes, too. 0: as all
    /// others, so that the share grows with their number.
    pub own_share: f64,
    /// Of so many training episodes of a safe agent, one plays the policy's mode instead of drawn actions. What is tested
    /// is then also learned from and labelled. 0: none.
    pub mode_every: u64,
    /// Capacity of the replay buffer, in transitions.
    pub capacity: usize,
    /// Where replay buffers are kept.
    pub replay: ReplayPlace,
    /// The precision of the updates' large products on a graphics card. A CPU always computes in f32.
    pub precision: Precision,
    /// Environment steps between records.
    pub record_every: u64,
    /// Test episodes per record.
    pub test_episodes: u64,
    /// Fresh labelled episodes on which a safe agent's policy is accepted at the end of training. 0: none.
    pub accept_episodes: u64,
    /// Environment steps between checkpoints.
    pub checkpoint_every: u64,
}

impl Default for TrainSettings {
    fn default() -> Self {
        Self {
            steps: 1_000_000,
            random_steps: 10_000,
            updates_per_step: 1.0,
            own_share: 0.5,
            mode_every: 4,
            capacity: 1_000_000,
            replay: ReplayPlace::Memory,
            precision: Precision::Tf32,
            record_every: 10_000,
            test_episodes: 20,
            accept_episodes: 30,
            checkpoint_every: 50_000,
        }
    }
}

impl TrainSettings {
    /// Checks that all values are in range.
    pub fn check(&self) -> Result<(), SettingError> {
        let updates = (0.0..=1000.0).contains(&self.updates_per_step);
        SettingError::unless(updates, "train.updates_per_step", &self.updates_per_step, "must lie in [0, 1000]")?;
        let share = (0.0..=1.0).contains(&self.own_share);
        SettingError::unless(share, "train.own_share", &self.own_share, "must lie in [0, 1]")?;
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
