//! A rule in the form that the judge runs: a list of nodes, each after those it reads; the last node is the rule
//! itself.

/// An expression with one value per step; operands are indices of earlier nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Node {
    Number(f64),
    Signal(usize),
    Negate(usize),
    Abs(usize),
    Arithmetic(Arithmetic, usize, usize),
    Compare(Comparison, usize, usize),
    Not(usize),
    And(usize, usize),
    Or(usize, usize),
    /// The aggregate, the node it reads, and the index of its state among the judge's memories.
    Aggregate(Aggregate, usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Min,
    Max,
}

impl Arithmetic {
    pub(super) fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
            Arithmetic::Divide => a / b,
            Arithmetic::Min => a.min(b),
            Arithmetic::Max => a.max(b),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Comparison {
    pub(super) fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Comparison::Less => a < b,
            Comparison::LessOrEqual => a <= b,
            Comparison::Greater => a > b,
            Comparison::GreaterOrEqual => a >= b,
            Comparison::Equal => a == b,
            Comparison::NotEqual => a != b,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aggregate {
    Mean(usize),
    Fraction(usize),
    CountLast(usize),
    Count,
    Run,
}
