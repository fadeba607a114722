//! What all crates of prudence share. This crate depends on none of the others.
//!
//! [`random`] is the only source of randomness and [`clock`] the only clock. [`Spec`] describes the spaces of an
//! environment, [`Scene`] and [`Limb`] describe how to draw it, a [`SettingError`] reports a setting that is out of range,
//! and [`nearest`] finds the name that was meant.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod clock;
mod names;
pub mod random;
mod scene;
mod setting;
mod space;

pub use names::nearest;
pub use scene::{Limb, Scene, Zone};
pub use setting::SettingError;
pub use space::{BoxSpace, Spec};
