//! The spaces of an environment.

/// A product of closed intervals; a missing bound is infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct BoxSpace {
    /// `[dim]`
    pub low: Vec<f64>,
    /// `[dim]`
    pub high: Vec<f64>,
}

impl BoxSpace {
    /// The same interval in every dimension.
    pub fn uniform(dim: usize, low: f64, high: f64) -> Self {
        Self { low: vec![low; dim], high: vec![high; dim] }
    }

    /// No bounds in any dimension.
    pub fn unbounded(dim: usize) -> Self {
        Self::uniform(dim, f64::NEG_INFINITY, f64::INFINITY)
    }

    /// The number of dimensions.
    pub fn dim(&self) -> usize {
        self.low.len()
    }
}

/// The fixed description of an environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The space observations lie in.
    pub observation: BoxSpace,
    /// The space actions lie in; it is always bounded.
    pub action: BoxSpace,
    /// The names of the signals that a rule may use, in the environment's order.
    pub signals: Vec<String>,
    /// An episode is truncated after this many steps.
    pub horizon: usize,
}
