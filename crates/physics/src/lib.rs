//! The physics engines and the environments made on them.
//!
//! [`engines`] installs them; [`mujoco`] is Hopper, Walker2d and HalfCheetah on MuJoCo; [`bullet`] is Bullet Safety Gym's
//! Ball and Car on Bullet. The libraries are opened at run time, so that building needs neither. The unsafe files are
//! `foreign.rs`, `mujoco/engine.rs` and `bullet/engine.rs`.

pub mod bullet;
pub mod engines;
mod foreign;
pub mod mujoco;
