//! One episode: what was seen, done and earned, and the signals a rule may read.

/// A whole trajectory of T steps. Immutable once stored; labels live beside it, in the label log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Episode {
    /// `[T + 1, observation]`: the start, then the observation after each step.
    pub observations: Vec<f32>,
    /// `[T, action]`, in the environment's units.
    pub actions: Vec<f32>,
    /// `[T]`
    pub rewards: Vec<f32>,
    /// `[T, signal]`: read on the state after the step. For rules and people; learners never read it.
    pub signals: Vec<f64>,
    /// The task ended it (else the horizon did).
    pub terminated: bool,
}

impl Episode {
    /// T, the number of steps.
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether not a single step was taken.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// The undiscounted return.
    pub fn total_reward(&self) -> f64 {
        self.rewards.iter().map(|r| f64::from(*r)).sum()
    }
}
