//! The spaces of an environment.

/// A product of closed intervals; a missing bound is infinite.
///
/// ```
/// use prudence_core::BoxSpace;
///
/// let space = BoxSpace::uniform(2, -1.0, 1.0); // two dimensions, each from -1 to 1
/// assert_eq!((space.dim(), space.high[1]), (2, 1.0));
/// let half_bounded = BoxSpace { low: vec![0.0], high: vec![f64::INFINITY] };
/// assert_eq!(half_bounded.dim(), 1);
/// ```
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
///
/// ```
/// use prudence_core::{BoxSpace, Spec};
///
/// let spec = Spec {
///     observation: BoxSpace::uniform(1, 0.0, 20.0),
///     action: BoxSpace::uniform(1, 0.0, 1.0),
///     signals: vec!["speed".into()], // for rules; the agent does not see it
///     horizon: 20,
/// };
/// assert_eq!((spec.observation.dim(), spec.action.dim()), (1, 1));
/// ```
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
