//! The safety model: from a bit per trajectory to a score per step.
//!
//! A GRU carries the history in its memory h; a decoder reads `(s_t, h_t, a_t)` and gives `log P(psi_t = 1)`; the sum over
//! the steps is the log-probability that the whole (sub)trajectory is safe (paper, section 3). [`fit()`] trains it on
//! labelled segments, [`SafetyModel::score`] rates stored episodes, [`SafetyModel::step`] rates one step while acting, and
//! [`quality`] says how far to trust it. [`Tracker`] keeps the running sum that the agent sees.

pub mod fit;
mod model;
pub mod quality;
mod sequences;

pub use fit::{FitSettings, fit};
pub use model::{Error, SafetyModel, Tracker};
