//! What a person at the command line can do about an error: the library states facts, flags and commands live here.

use prudence::{AgentError, Error, SafetyError, tasks};

/// The remedy, where one is known.
pub fn of(error: &Error) -> Option<String> {
    match error {
        Error::In { source, .. } | Error::Training { source, .. } => of(source),
        Error::UnknownTask { .. } => {
            let names = tasks::names().collect::<Vec<_>>().join(", ");
            Some(format!("expected one of {names}, or the path of a task file"))
        }
        Error::Env(prudence::EnvError::Missing(_)) => Some("run: prudence engines install".to_owned()),
        Error::Agent(AgentError::NoSafetyModel { .. }) => {
            Some("pass --safety MODEL (made by `prudence fit`)".to_owned())
        }
        Error::Agent(AgentError::Diverged { .. }) => Some("try a smaller agent.learning_rate".to_owned()),
        Error::Agent(AgentError::Safety(error)) | Error::Safety(error) => of_safety(error),
        Error::Content { problem, .. } if problem.starts_with("no stored episodes") => {
            Some("`prudence collect` makes some".to_owned())
        }
        Error::Stopped => Some("`prudence resume` continues from there".to_owned()),
        _ => None,
    }
}

fn of_safety(error: &SafetyError) -> Option<String> {
    match error {
        SafetyError::Dimensions { .. } => Some("fit a model on this task's episodes (`prudence fit`)".to_owned()),
        SafetyError::Diverged { .. } => Some("try a smaller safety.learning_rate".to_owned()),
        SafetyError::Data(problem) if problem.starts_with("no labelled episode") => {
            Some("run `prudence label` first".to_owned())
        }
        _ => None,
    }
}
