//! The error for a setting that is out of range.

/// A setting whose value is not accepted.
///
/// ```
/// use prudence_core::SettingError;
///
/// let steps = 0;
/// let error = SettingError::unless(steps > 0, "train.steps", &steps, "must be 1 or more").unwrap_err();
/// assert_eq!(error.to_string(), "train.steps = 0: must be 1 or more");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: {expected}")]
pub struct SettingError {
    /// The section and key as a task file spells them, such as `agent.batch`.
    pub key: String,
    /// The value that was given.
    pub value: String,
    /// What would be accepted, as in `must be 1 or more`.
    pub expected: String,
}

impl SettingError {
    /// Returns an error about `value` unless `accepted`.
    pub fn unless(accepted: bool, key: &str, value: &dyn std::fmt::Display, expected: &str) -> Result<(), Self> {
        if accepted {
            Ok(())
        } else {
            Err(Self { key: key.to_owned(), value: value.to_string(), expected: expected.to_owned() })
        }
    }
}
