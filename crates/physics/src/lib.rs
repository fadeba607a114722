//! The physics engines and their environments.
//!
//! [`engines`] installs the engines; [`mujoco`] has Hopper, Walker2d and HalfCheetah on MuJoCo; [`bullet`] has Bullet
//! Safety Gym's Ball and Car on Bullet. The libraries are loaded at run time, so building needs neither of them. Unsafe
//! code is limited to `foreign.rs`, `mujoco/engine.rs` and `bullet/engine.rs`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod bullet;
pub mod engines;
mod foreign;
pub mod mujoco;
