//! One episode: its observations, actions and rewards, and the signals that a rule may read.

/// A complete trajectory of T steps. It never changes once it is stored; its labels are kept in the label log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Episode {
    /// `[T + 1, observation]`: the observation after the reset, then the one after each step.
    pub observations: Vec<f32>,
    /// `[T, action]`, in the environment's units.
    pub actions: Vec<f32>,
    /// `[T]`
    pub rewards: Vec<f32>,
    /// `[T, signal]`: measured on the state after each step. Signals are for rules and people; learners never read
    /// them.
    pub signals: Vec<f64>,
    /// Whether the last step was terminal. Otherwise the episode was truncated at the horizon.
    pub terminated: bool,
}

impl Episode {
    /// T, the number of steps.
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether the episode has no steps.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// The undiscounted return.
    pub fn total_reward(&self) -> f64 {
        self.rewards.iter().map(|r| f64::from(*r)).sum()
    }
}
