//! A task: the environment, the rule that makes an episode safe, and all settings.

use std::path::Path;
use std::sync::Arc;

use prudence_agent::Scaling;
use prudence_core::{Scene, SettingError, Spec};
use prudence_data::Rule;
use prudence_env::{Env, MakeEnv};

use crate::environment::EnvSettings;
use crate::folder::RunFolder;
use crate::settings::TaskSettings;
use crate::{Error, settings};

/// A task with its environment, rule and settings, all of which have been checked.
///
/// ```
/// use prudence::Task;
///
/// let task = Task::named("navigation")?.with(&["train.steps=2000", "agent.hidden=[32,32]"])?;
/// assert_eq!(task.spec().horizon, 20);
/// assert_eq!(task.settings().agent.hidden, [32, 32]);
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone)]
pub struct Task {
    settings: TaskSettings,
    env: Arc<dyn MakeEnv>,
    spec: Arc<Spec>,
    rule: Rule,
    scene: Option<Scene>,
}

impl Task {
    /// Creates a built-in task; see [`crate::tasks::names`].
    pub fn named(name: &str) -> Result<Self, Error> {
        Self::new(TaskSettings::resolve(name, &[], &[])?)
    }

    /// Creates the task of a task file.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        Self::new(TaskSettings::from_file(path)?)
    }

    /// Creates a task from its settings, which are checked. This also creates the environment once.
    pub fn new(settings: TaskSettings) -> Result<Self, Error> {
        let env = Arc::new(settings.env.clone());
        Self::build(settings, env)
    }

    /// Creates a task in your own environment, with the default settings.
    ///
    /// The rule is an expression over the environment's signals. It labels episodes and judges tests, but no learner
    /// sees it.
    ///
    /// ```
    /// use prudence::{BoxSpace, Env, EnvError, Spec, Step, Task};
    ///
    /// struct Still(Spec);
    ///
    /// impl Env for Still {
    ///     fn spec(&self) -> &Spec {
    ///         &self.0
    ///     }
    ///     fn reset(&mut self, _seed: u64, observation: &mut [f64]) -> Result<(), EnvError> {
    ///         observation.fill(0.0);
    ///         Ok(())
    ///     }
    ///     fn step(&mut self, _action: &[f64], observation: &mut [f64]) -> Result<Step, EnvError> {
    ///         observation.fill(0.0);
    ///         Ok(Step { reward: 0.0, terminated: false, truncated: true })
    ///     }
    ///     fn signals(&self) -> &[f64] {
    ///         &[1.0]
    ///     }
    /// }
    ///
    /// let spec = || Spec {
    ///     observation: BoxSpace::uniform(1, -1.0, 1.0),
    ///     action: BoxSpace::uniform(1, -1.0, 1.0),
    ///     signals: vec!["height".into()],
    ///     horizon: 1,
    /// };
    /// let task = Task::with_env("still", move || Still(spec()), "height < 2")?;
    /// assert_eq!(task.name(), "still");
    /// # Ok::<(), prudence::Error>(())
    /// ```
    pub fn with_env(name: &str, env: impl MakeEnv + 'static, rule: &str) -> Result<Self, Error> {
        let settings = TaskSettings {
            name: name.to_owned(),
            summary: String::new(),
            rule: rule.to_owned(),
            target: 0.9,
            env: EnvSettings::Program { describe: env.describe() },
            run: settings::RunSettings::default(),
            collect: settings::CollectSettings::default(),
            label: settings::LabelSettings::default(),
            safety: prudence_safety::FitSettings::default(),
            refit: settings::RefitSettings::default(),
            agent: prudence_agent::AgentSettings::default(),
            multiplier: prudence_agent::MultiplierSettings::default(),
            train: prudence_agent::TrainSettings::default(),
            reference: Vec::new(),
        };
        Self::build(settings, Arc::new(env))
    }

    fn build(settings: TaskSettings, env: Arc<dyn MakeEnv>) -> Result<Self, Error> {
        settings.check()?;
        let one = env.make()?;
        let spec = Arc::new(one.spec().clone());
        let scene = one.drawable().and_then(|env| env.scene());
        let rule = Rule::parse(&settings.rule, &spec.signals)
            .map_err(|problem| Error::Rule { rule: settings.rule.clone(), problem })?;
        Ok(Self { settings, env, spec, rule, scene })
    }

    /// The same task with some settings changed, each by `section.key=value`.
    pub fn with(self, sets: &[impl AsRef<str>]) -> Result<Self, Error> {
        let settings = self.settings.with(sets)?;
        if settings.env == self.settings.env { Self::build(settings, self.env) } else { Self::new(settings) }
    }

    /// Opens the task of a run's folder.
    pub fn open(run: &Path) -> Result<Self, Error> {
        let (folder, _) = RunFolder::open(run)?; // verifies its files
        Self::from_file(&folder.config())
    }

    /// The name of the task.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// All settings of the task.
    pub fn settings(&self) -> &TaskSettings {
        &self.settings
    }

    /// The dimensions, bounds, signals and horizon of the environment.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    /// The true rule, which labels episodes and judges tests.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The plane in which paths are drawn, if the task has one.
    pub fn scene(&self) -> Option<&Scene> {
        self.scene.as_ref()
    }

    /// Creates a new instance of the environment.
    pub fn make_env(&self) -> Result<Box<dyn Env>, Error> {
        Ok(self.env.make()?)
    }

    pub(crate) fn env(&self) -> &Arc<dyn MakeEnv> {
        &self.env
    }

    pub(crate) fn scaling(&self) -> Scaling {
        Scaling::new(&self.spec)
    }

    /// Checks that an agent without stored episodes takes more steps than its random ones, so that it learns at all.
    /// `steps` is the value of the setting `key`.
    pub fn check_warm_up(&self, key: &str, steps: u64) -> Result<(), Error> {
        let random = self.settings.train.random_steps;
        let horizon = self.spec.horizon as u64; // an episode that begins with random actions has only random actions
        let learns = random.div_ceil(horizon).saturating_mul(horizon) < steps;
        let expected = format!("must be below {key} = {steps} by an episode ({horizon} steps), or nothing is learned");
        Ok(SettingError::unless(learns, "train.random_steps", &random, &expected)?)
    }
}
