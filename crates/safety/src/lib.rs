//! The safety model, which turns one label per trajectory into a score per step.
//!
//! A GRU stores the history in its memory h. A decoder reads `(s_t, h_t, a_t)` and returns `log P(psi_t = 1)`. The sum
//! over the steps is the log-probability that the whole (sub)trajectory is safe (paper, section 3).
//!
//! A tour: a [`SafetyModel`] is an ensemble of such networks as stored in a file. A [`Fit`] fits one to labelled
//! segments. A [`Scorer`] is one or more models on a device; it scores steps while acting, and stored
//! episodes. [`quality`] measures how accurate and how well calibrated a model is.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod fit;
mod model;
pub mod quality;
mod scorer;
mod sequences;
mod settings;

pub use fit::{Fit, FitData, FitState, RefitData};
pub use model::{Error, ModelShape, SafetyModel};
pub use quality::Quality;
pub use scorer::{EpisodeScores, Scorer, Tracker};
pub use settings::FitSettings;
