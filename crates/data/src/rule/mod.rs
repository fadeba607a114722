//! The rule language: a line of text over an environment's signals that defines what "safe" means.
//!
//! ```text
//! mean(speed, 50) <= 2.34            fraction(outside or too_fast, 20) <= 0.15
//! count(in_danger) <= 1              run(hot) < 2 and not (abs(x) > 3 and y < 0)
//! ```
//!
//! Operators, from lowest to highest precedence: `or`, `and`, `not`, comparison (`< <= > >= == !=`, no chains), `+ -`,
//! `* /`, unary `-`; then parentheses, numbers, signals by name, `abs(a)`, `min(a, b)`, `max(a, b)` and the aggregates:
//!
//! | aggregate        | value at a step                                                                              |
//! |------------------|----------------------------------------------------------------------------------------------|
//! | `mean(a, n)`     | the mean of `a` over the last n steps; undefined before step n                               |
//! | `fraction(p, n)` | at how many of the last n steps `p` held, divided by n; defined from the first step on       |
//! | `count(p)`       | at how many steps so far `p` held                                                            |
//! | `count(p, n)`    | at how many of the last n steps `p` held                                                     |
//! | `run(p)`         | for how many consecutive steps, up to this one, `p` has held                                 |
//!
//! Aggregates cannot be nested. A number where a condition is expected counts as true unless it is 0.
//!
//! A trajectory is safe if the rule holds at every step. The signals of a step are measured on the state after its
//! action; the initial state is not judged. An expression with an undefined operand is undefined, except that
//! `false and ...` is false and `true or ...` is true (Kleene's logic). A rule that is undefined at a step holds there.
//!
//! A number that is not finite (a NaN or infinite signal, a division by zero, an overflow) is not a measurement: the
//! rule does not hold at a step where any part of it has such a value. For a mean, that is as long as its window covers
//! one.

mod error;
mod judge;
mod parser;
mod program;

use std::ops::Range;
use std::sync::Arc;

pub use error::RuleError;
pub use judge::Judge;
use program::Node;

/// A parsed rule: the text, and the program that [`Judge`] runs.
///
/// ```
/// use prudence_data::Rule;
///
/// let rule = Rule::parse("count(hot) <= 1", &["hot"])?;
/// assert_eq!(rule.first_violation(&[0.0, 1.0, 0.0, 1.0], 0..4), Some(3)); // the second hot step
/// assert_eq!(rule.first_violation(&[0.0, 1.0, 0.0, 1.0], 2..4), None); // judged from step 2 on
/// # Ok::<(), prudence_data::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    text: String,
    signals: usize,
    program: Arc<[Node]>,
}

impl Rule {
    /// Parses a rule over signals with these names, in the order in which the judge will receive them.
    pub fn parse<S: AsRef<str>>(text: &str, signals: &[S]) -> Result<Rule, RuleError> {
        let names: Vec<&str> = signals.iter().map(AsRef::as_ref).collect();
        let program = parser::parse(text, &names)?.into();
        Ok(Rule { text: text.to_owned(), signals: names.len(), program })
    }

    /// The text that the rule was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Creates a judge at the start of a trajectory. Only this allocates; judging does not.
    pub fn judge(&self) -> Judge {
        Judge::new(Arc::clone(&self.program))
    }

    /// The first step of `range` at which the rule does not hold, judged as if the trajectory began at `range.start`.
    ///
    /// `signals` is `[T, signal]`; missing rows count as not finite.
    pub fn first_violation(&self, signals: &[f64], range: Range<usize>) -> Option<usize> {
        let mut judge = self.judge();
        range.into_iter().find(|t| {
            let row = signals.get(t * self.signals..(t + 1) * self.signals).unwrap_or_default(); // [signal]
            !judge.step(row)
        })
    }
}
