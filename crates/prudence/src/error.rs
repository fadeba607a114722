//! What can go wrong, as facts: paths, keys, values. Whoever talks to people adds what they can do about it.

use std::path::{Path, PathBuf};

use prudence_agent::Error as AgentError;
use prudence_core::SettingError;
use prudence_data::{Error as DataError, RuleError};
use prudence_env::Error as EnvError;
use prudence_physics::engines::Error as EngineError;
use prudence_safety::Error as SafetyError;

/// An error of any stage.
///
/// ```
/// use prudence::{Error, ErrorKind, Task};
///
/// let Err(error) = Task::named("navigatoin") else { panic!("there is no such task") };
/// assert!(matches!(error, Error::UnknownTask { .. }));
/// assert_eq!(error.kind(), ErrorKind::Input);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// Stored episodes, labels or files.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The safety model.
    #[error(transparent)]
    Safety(#[from] SafetyError),
    /// Training or testing.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The physics engines.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A setting out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A rule that cannot be read.
    #[error("rule = {rule:?}\n{problem}")]
    Rule {
        /// The rule's text.
        rule: String,
        /// What is wrong with it.
        problem: RuleError,
    },
    /// A task that does not exist.
    #[error("unknown task `{name}`")]
    UnknownTask {
        /// The name given.
        name: String,
    },
    /// Settings that cannot be read.
    #[error("{origin}: {problem}")]
    Unreadable {
        /// Where they come from: a task, a file, a single setting.
        origin: String,
        /// What is wrong.
        problem: String,
    },
    /// A file or folder that does not hold what it should.
    #[error("{}: {problem}", .path.display())]
    Content {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Something in a file is wrong.
    #[error("{}: {source}", .path.display())]
    In {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        source: Box<Error>,
    },
    /// The system refused.
    #[error("{}: cannot {doing}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An agent failed.
    #[error("{}, seed {seed}: {source}", .algorithm.name())]
    Training {
        /// Its algorithm.
        algorithm: crate::Algorithm,
        /// Its seed.
        seed: u64,
        /// Why.
        source: Box<Error>,
    },
    /// The user asked to stop; a checkpoint was written.
    #[error("stopped at a checkpoint")]
    Stopped,
    /// A thread pool could not be made.
    #[error("cannot start threads: {0}")]
    Threads(String),
}

/// Whose fault an error is.
///
/// ```
/// use prudence::{Error, ErrorKind};
///
/// assert_eq!(Error::Stopped.kind(), ErrorKind::Stopped);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was given: a file, a setting, a name.
    Input,
    /// The work itself failed.
    Failure,
    /// The user asked to stop.
    Stopped,
}

impl Error {
    /// Whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Stopped => ErrorKind::Stopped,
            Self::In { source, .. } | Self::Training { source, .. } => source.kind(),
            Self::Threads(_) | Self::Engine(EngineError::Fetch { .. }) => ErrorKind::Failure,
            Self::Safety(SafetyError::Diverged { .. } | SafetyError::Device(_)) => ErrorKind::Failure,
            Self::Agent(error) => match error {
                AgentError::Diverged { .. } | AgentError::Device(_) => ErrorKind::Failure,
                AgentError::Safety(SafetyError::Diverged { .. } | SafetyError::Device(_)) => ErrorKind::Failure,
                _ => ErrorKind::Input,
            },
            Self::Io { source, .. } | Self::Data(DataError::Io { source, .. }) => of_io(source),
            _ => ErrorKind::Input,
        }
    }

    pub(crate) fn io(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), doing, source }
    }

    pub(crate) fn content(path: &Path, problem: impl Into<String>) -> Self {
        Self::Content { path: path.to_owned(), problem: problem.into() }
    }
}

/// A name that the user gave is the user's to mend; a full disk is not.
fn of_io(error: &std::io::Error) -> ErrorKind {
    use std::io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    let named_by_the_user = [AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied];
    if named_by_the_user.contains(&error.kind()) { ErrorKind::Input } else { ErrorKind::Failure }
}

/// Says which file an error is about.
pub(crate) trait InFile<T> {
    fn in_file(self, path: &Path) -> Result<T, Error>;
}

impl<T, E: Into<Error>> InFile<T> for Result<T, E> {
    fn in_file(self, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::In { path: path.to_owned(), source: Box::new(error.into()) })
    }
}
