//! How a crate refuses the value of a setting.

/// A setting out of range. `section.key`, as a task file spells it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: {expected}")]
pub struct SettingError {
    /// The section and the key, such as `agent.batch`.
    pub key: String,
    /// The value given.
    pub value: String,
    /// What would be accepted, as in `must be 1 or more`.
    pub expected: String,
}

impl SettingError {
    /// Refuses `value` unless `accepted`.
    pub fn unless(accepted: bool, key: &str, value: &dyn std::fmt::Display, expected: &str) -> Result<(), Self> {
        if accepted {
            Ok(())
        } else {
            Err(Self { key: key.to_owned(), value: value.to_string(), expected: expected.to_owned() })
        }
    }
}
