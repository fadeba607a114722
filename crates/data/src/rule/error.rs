//! What is wrong with a rule, and where.

use std::fmt;
use std::ops::Range;

/// A rule that cannot be parsed: what is wrong, where, and what would be accepted.
///
/// It is displayed with the line of the text and carets under the place.
///
/// ```
/// use prudence_data::Rule;
///
/// let error = Rule::parse("count(hto) <= 1", &["hot"]).unwrap_err();
/// assert_eq!(&error.text[error.span.clone()], "hto");
/// println!("{error}");
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct RuleError {
    /// What is wrong and what would be accepted.
    pub message: String,
    /// The byte range of the text that is wrong; empty at the end of the text.
    pub span: Range<usize>,
    /// The text of the whole rule.
    pub text: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.span.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        let marked = self.text.get(self.span.clone()).and_then(|span| span.lines().next()).unwrap_or_default();
        let carets = "^".repeat(marked.chars().count().max(1));
        write!(f, "rule, column {}: {}\n  {line}\n  {:column$}{carets}", column + 1, self.message, "")
    }
}
