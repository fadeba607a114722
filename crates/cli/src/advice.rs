//! What a user can do about an error. The libraries' errors state facts; only this module knows flags and commands.

use prudence::{AgentError, DataError, EnvError, Error, SafetyError, nearest, tasks};
use prudence_physics::engines::Error as EngineError;

/// The remedy for an error, if there is one.
pub fn of(error: &Error) -> Option<String> {
    match error {
        Error::In { source, .. } | Error::Training { source, .. } | Error::Replica { source, .. } => of(source),
        Error::UnknownTask { name } => {
            if let Some(near) = nearest(name, tasks::names()) {
                return Some(format!("did you mean `{near}`?"));
            }
            let names = tasks::names().collect::<Vec<_>>().join(", ");
            Some(format!("expected one of {names}, or the path of a task file"))
        }
        Error::Env(EnvError::Missing(_)) | Error::Agent(AgentError::Env(EnvError::Missing(_))) => {
            Some("run: prudence engines install".to_owned())
        }
        Error::Card(_) => Some("`prudence devices` lists what can be used; `--device cpu` needs no card".to_owned()),
        Error::Env(EnvError::NotReal { .. }) => {
            Some("such domains can be simulated with `prudence rddl simulate`".to_owned())
        }
        Error::Engine(EngineError::NoWheel { requirement, .. }) => Some(format!(
            "fetch it on a machine with network access:\npython3 -m pip download --no-deps --only-binary=:all: \
             --python-version=3.11 --abi=cp311 --platform=manylinux_2_28_x86_64 --platform=manylinux2014_x86_64 \
             {requirement}"
        )),
        Error::Engine(EngineError::Fetch { file, .. }) => Some(format!(
            "without a network, put {file} into a folder DIR and run: prudence engines install --from DIR"
        )),
        Error::Agent(AgentError::NoSafetyModel { .. }) => {
            Some("pass --safety MODEL, a model from `prudence fit`".to_owned())
        }
        Error::Agent(AgentError::Diverged { .. }) => Some("try a smaller agent.learning_rate".to_owned()),
        Error::Agent(AgentError::Safety(error)) | Error::Safety(error) => of_safety(error),
        Error::Content { problem, .. } if problem.starts_with("no stored episodes") => {
            Some("collect some with `prudence collect`".to_owned())
        }
        Error::Data(DataError::NotFresh { path }) if path.join("command.json").is_file() => {
            Some(format!("or continue it with `prudence resume {}`", path.display()))
        }
        Error::Data(DataError::Locked { .. }) => Some("wait until it has finished, or stop it".to_owned()),
        Error::Changed { .. } => Some("restore it, or start a new run with the changed file".to_owned()),
        Error::Data(DataError::Torn { path }) if path.ends_with("labels.jsonl") => {
            Some("label again with `prudence label`, which removes it".to_owned())
        }
        Error::Data(DataError::Torn { .. }) => {
            Some("continue the run with `prudence resume`, which removes it".to_owned())
        }
        _ => None,
    }
}

fn of_safety(error: &SafetyError) -> Option<String> {
    match error {
        SafetyError::Dimensions { .. } => Some("fit a model to episodes of this task with `prudence fit`".to_owned()),
        SafetyError::Diverged { .. } => Some("try a smaller safety.learning_rate".to_owned()),
        SafetyError::Data(problem) if problem.starts_with("no labelled episode") => {
            Some("label some with `prudence label`".to_owned())
        }
        _ => None,
    }
}
