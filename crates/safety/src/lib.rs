//! The safety model: from a bit per trajectory to a score per step.
//!
//! A GRU carries the history in its memory h; a decoder reads `(s_t, h_t, a_t)` and gives `log P(psi_t = 1)`; the sum over
//! the steps is the log-probability that the whole (sub)trajectory is safe (paper, section 3).
//!
//! The tour: a [`SafetyModel`] is an ensemble of such networks as a file holds it; [`fit()`] makes one from labelled
//! segments; a [`Scorer`] is one or more models on a device, which rates steps while acting, stored episodes and recalled
//! states alike; [`quality`] says how far a model can be trusted.

pub mod fit;
mod model;
pub mod quality;
mod scorer;
mod sequences;
mod settings;

pub use fit::fit;
pub use model::{Error, ModelShape, SafetyModel};
pub use quality::Quality;
pub use scorer::{EpisodeScores, Rating, Scorer, Tracker};
pub use settings::FitSettings;
