//! Errors of all stages. They state facts (paths, keys, values); the command line adds what a user can do about them.

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
    /// An error of the environment.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// An error about stored episodes, labels or files.
    #[error(transparent)]
    Data(#[from] DataError),
    /// An error about the safety model.
    #[error(transparent)]
    Safety(#[from] SafetyError),
    /// An error of training or testing.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// An error about the physics engines.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A setting that is out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A rule that cannot be parsed.
    #[error("rule = {rule:?}\n{problem}")]
    Rule {
        /// The text of the rule.
        rule: String,
        /// What is wrong with it.
        problem: RuleError,
    },
    /// A task that does not exist.
    #[error("unknown task `{name}`")]
    UnknownTask {
        /// The name that was given.
        name: String,
    },
    /// Settings that cannot be parsed.
    #[error("{origin}: {problem}")]
    Unreadable {
        /// The source of the settings: a task, a file or a single setting.
        origin: String,
        /// What is wrong.
        problem: String,
    },
    /// A file or folder with invalid or missing content.
    #[error("{}: {problem}", .path.display())]
    Content {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A file that was written when a run was created, and changed since.
    #[error("{}: its content does not match the hash in command.json; it was edited or damaged", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Arrays that would not fit into memory; nothing was allocated.
    #[error("not enough memory{place} for {what}: about {} needed, {} available", bytes(*needed), bytes(*available))]
    TooMuchMemory {
        /// Nothing, or ` on the graphics card`.
        place: &'static str,
        /// What the arrays are for, with the settings that determine their sizes.
        what: String,
        /// Bytes.
        needed: u128,
        /// Bytes.
        available: u64,
    },
    /// Another error, with the file or folder that it is about.
    #[error("{}: {source}", .path.display())]
    In {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        source: Box<Error>,
    },
    /// An I/O error.
    #[error("{}: cannot {doing}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was attempted, such as `open`.
        doing: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The training of an agent failed.
    #[error("{}, seed {seed}: {source}", .algorithm.name())]
    Training {
        /// The algorithm of the agent.
        algorithm: crate::Algorithm,
        /// The seed of the agent.
        seed: u64,
        /// The reason.
        source: Box<Error>,
    },
    /// A replica failed.
    #[error("replica {replica}: {source}")]
    Replica {
        /// Its number.
        replica: u64,
        /// The reason.
        source: Box<Error>,
    },
    /// The user asked to stop, and a checkpoint was written.
    #[error("stopped at a checkpoint")]
    Stopped,
    /// No graphics card can be used.
    #[error("no graphics card can be used: {0}")]
    Card(#[from] prudence_cuda::Missing),
    /// The threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(String),
}

/// Whether an error is due to the input.
///
/// ```
/// use prudence::{Error, ErrorKind};
///
/// assert_eq!(Error::Stopped.kind(), ErrorKind::Stopped);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The input is invalid: a file, a setting, a name.
    Input,
    /// The input is valid, but the work failed.
    Failure,
    /// The user asked to stop.
    Stopped,
}

impl Error {
    /// Whether the error is due to the input.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Stopped
            | Self::Data(DataError::Stopped)
            | Self::Safety(SafetyError::Episodes(DataError::Stopped))
            | Self::Agent(AgentError::Episodes(DataError::Stopped))
            | Self::Agent(AgentError::Safety(SafetyError::Episodes(DataError::Stopped))) => ErrorKind::Stopped,
            Self::In { source, .. } | Self::Training { source, .. } | Self::Replica { source, .. } => source.kind(),
            Self::Threads(_) | Self::Engine(EngineError::Fetch { .. }) => ErrorKind::Failure,
            Self::Safety(SafetyError::Diverged { .. } | SafetyError::Device(_)) => ErrorKind::Failure,
            Self::Safety(SafetyError::Episodes(DataError::Io { source, .. }))
            | Self::Agent(AgentError::Episodes(DataError::Io { source, .. })) => of_io(source),
            Self::Agent(error) => match error {
                AgentError::Diverged { .. } | AgentError::Device(_) => ErrorKind::Failure,
                AgentError::Safety(SafetyError::Diverged { .. } | SafetyError::Device(_)) => ErrorKind::Failure,
                _ => ErrorKind::Input,
            },
            Self::Io { source, .. } | Self::Data(DataError::Io { source, .. }) => of_io(source),
            _ => ErrorKind::Input,
        }
    }

    /// Whether the user asked to stop.
    pub(crate) fn is_stop(&self) -> bool {
        self.kind() == ErrorKind::Stopped
    }

    pub(crate) fn io(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), doing, source }
    }

    pub(crate) fn content(path: &Path, problem: impl Into<String>) -> Self {
        Self::Content { path: path.to_owned(), problem: problem.into() }
    }
}

/// A number of bytes for people, such as `22.8 GiB`.
fn bytes(bytes: impl Into<u128>) -> String {
    let (mut size, mut units) = (bytes.into() as f64 / 1024.0, ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].iter());
    let mut unit = units.next();
    while size >= 1024.0 && units.len() > 0 {
        (size, unit) = (size / 1024.0, units.next());
    }
    format!("{size:.1} {}", unit.unwrap_or(&"KiB"))
}

/// The kind of an I/O error: errors about a path are due to the input, others (such as a full disk) are not.
fn of_io(error: &std::io::Error) -> ErrorKind {
    use std::io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    let named_by_the_user = [AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied];
    if named_by_the_user.contains(&error.kind()) { ErrorKind::Input } else { ErrorKind::Failure }
}

/// Adds to an error the file that it is about.
pub(crate) trait InFile<T> {
    fn in_file(self, path: &Path) -> Result<T, Error>;
}

impl<T, E: Into<Error>> InFile<T> for Result<T, E> {
    fn in_file(self, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::In { path: path.to_owned(), source: Box::new(error.into()) })
    }
}
