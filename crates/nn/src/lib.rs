//! Banks of small networks, the operations that a learner needs from a device, and the CPU device.
//!
//! A tour: [`Mlp`] and [`Gru`] are shapes. A [`Bank`] is G networks of one shape with their parameters in one buffer; an
//! agent's four critics are one bank. [`Device`] lists the operations, one for each line of the paper's algorithm, and
//! [`work`] holds their inputs and outputs. [`Cpu`] runs them on [`Scalar`] numbers: f32 in the product, f64 where the
//! hand-derived gradients are checked against central differences. [`weights`] reads and writes safetensors files with
//! PyTorch's names. Backward passes overwrite gradients; nothing accumulates between calls.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod adam;
pub mod cpu;
mod device;
mod scalar;
mod shapes;
pub mod weights;
pub mod work;

pub use adam::{AdamNumbers, AdamSettings};
pub use cpu::Cpu;
pub use device::{Device, DeviceError, Precision};
pub use scalar::Scalar;
pub use shapes::{Bank, Gru, GruParameters, Layer, Mlp, Shape};
