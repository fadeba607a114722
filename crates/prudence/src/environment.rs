//! The kinds of environments that a task file can choose from.

use prudence_core::SettingError;
use prudence_env::{Env, FileSetting, MakeEnv, rddl};
use prudence_physics::{bullet, mujoco};
use serde::{Deserialize, Serialize};

/// An environment and its settings: the section `[env]` of a task file.
///
/// ```
/// let task = prudence::Task::named("half-cheetah");
/// # if let Ok(task) = task {
/// assert!(matches!(task.settings().env, prudence::EnvSettings::Mujoco(_)));
/// # }
/// ```
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EnvSettings {
    /// A domain and an instance in RDDL.
    Rddl(rddl::RddlSettings),
    /// Hopper, Walker2d or HalfCheetah in MuJoCo.
    Mujoco(mujoco::MujocoSettings),
    /// Ball or Car of Bullet Safety Gym, in Bullet.
    Bullet(bullet::BulletSettings),
    /// An environment defined by the program that created the run; only that program can create it again.
    Program {
        /// The description that distinguishes it from other environments, from [`MakeEnv::describe`].
        describe: String,
    },
}

impl EnvSettings {
    /// The keys of `[env]` that name files, of all kinds.
    pub(crate) const FILE_KEYS: [&str; 3] = ["domain", "instance", "xml_file"];

    /// The files that the settings name.
    pub(crate) fn files(&mut self) -> Vec<FileSetting<'_>> {
        match self {
            Self::Rddl(settings) => settings.files(),
            Self::Mujoco(settings) => settings.files(),
            Self::Bullet(_) | Self::Program { .. } => Vec::new(),
        }
    }
}

impl MakeEnv for EnvSettings {
    fn make(&self) -> Result<Box<dyn Env>, prudence_env::Error> {
        match self {
            Self::Rddl(settings) => settings.make(),
            Self::Mujoco(settings) => settings.make(),
            Self::Bullet(settings) => settings.make(),
            Self::Program { describe } => Err(SettingError {
                key: "env.kind".into(),
                value: format!("\"program\" ({describe})"),
                expected: "only the program that created this run can create its environment".into(),
            }
            .into()),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Rddl(settings) => settings.describe(),
            Self::Mujoco(settings) => settings.describe(),
            Self::Bullet(settings) => settings.describe(),
            Self::Program { describe } => describe.clone(),
        }
    }
}
