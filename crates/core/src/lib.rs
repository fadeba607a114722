//! What every crate of prudence shares, and which depends on none of them.
//!
//! [`random`] is the only source of randomness and [`clock`] the only clock. [`Spec`] describes an environment's spaces;
//! [`Scene`] and [`Limb`] are what pictures of an episode are drawn from; [`SettingError`] is how a crate refuses a value.

pub mod clock;
pub mod random;
mod scene;
mod setting;
mod space;

pub use scene::{Limb, Scene, Zone};
pub use setting::SettingError;
pub use space::{BoxSpace, Spec};
