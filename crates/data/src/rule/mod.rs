//! The rule language: what "safe" means, as a line of text over an environment's signals.
//!
//! ```text
//! mean(speed, 50) <= 2.34            fraction(outside or too_fast, 20) <= 0.15
//! count(in_danger) <= 1              run(hot) < 2 and not (abs(x) > 3 and y < 0)
//! ```
//!
//! From loose to tight: `or`, `and`, `not`, one comparison (`< <= > >= == !=`, which does not chain), `+ -`, `* /`,
//! unary `-`; then parentheses, numbers, signals by name, `abs(a)`, `min(a, b)`, `max(a, b)` and the aggregates:
//!
//! | aggregate        | value at a step                                                                              |
//! |------------------|----------------------------------------------------------------------------------------------|
//! | `mean(a, n)`     | the mean of `a` over the last n steps; undefined before step n                               |
//! | `fraction(p, n)` | at how many of the last n steps `p` held, divided by n; from the first step on               |
//! | `count(p)`       | at how many steps `p` held so far                                                            |
//! | `count(p, n)`    | at how many of the last n steps `p` held                                                     |
//! | `run(p)`         | for how many steps `p` has held without a break                                              |
//!
//! Aggregates do not stand inside each other. A number where a condition is expected counts as true unless it is 0.
//!
//! A trajectory is safe when the rule holds at every step. The signals of a step are read on the state after its action;
//! the start state is not judged. What is computed from something undefined is undefined, except that `false and ...` is
//! false and `true or ...` is true (Kleene's logic); a rule that is undefined at a step holds there.
//!
//! A number that is not finite (a signal that is NaN or infinite, a division by zero, an overflow) is no measurement: a
//! step at which the rule meets one, anywhere in it, does not hold. A mean meets it as long as its window covers it.

mod error;
mod judge;
mod parser;
mod program;

use std::ops::Range;
use std::sync::Arc;

pub use error::RuleError;
pub use judge::Judge;
use program::Node;

/// A rule that has been read and checked.
#[derive(Clone, Debug)]
pub struct Rule {
    text: String,
    signals: usize,
    program: Arc<[Node]>,
}

impl Rule {
    /// Reads a rule over signals with these names, in the order in which they will be given to the judge.
    pub fn parse<S: AsRef<str>>(text: &str, signals: &[S]) -> Result<Rule, RuleError> {
        let names: Vec<&str> = signals.iter().map(AsRef::as_ref).collect();
        let program = parser::parse(text, &names)?.into();
        Ok(Rule { text: text.to_owned(), signals: names.len(), program })
    }

    /// The text it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A judge at the start of a trajectory. Judging allocates nothing any more.
    pub fn judge(&self) -> Judge {
        Judge::new(Arc::clone(&self.program))
    }

    /// The first step of `range` at which the rule does not hold, judged as if the trajectory began at `range.start`.
    ///
    /// `signals` is `[T, signal]`; rows that are missing count as not finite.
    pub fn first_violation(&self, signals: &[f64], range: Range<usize>) -> Option<usize> {
        let mut judge = self.judge();
        range.into_iter().find(|t| {
            let row = signals.get(t * self.signals..(t + 1) * self.signals).unwrap_or_default(); // [signal]
            !judge.step(row)
        })
    }
}
