//! Shapes of banks of small networks, the operations a learner needs of a device, and the CPU as one.
//!
//! The tour: [`Mlp`] and [`Gru`] are shapes, a [`Bank`] is G networks of one shape with their parameters in one buffer (an
//! agent's four critics are one bank). [`Device`] lists the operations, one for each line of the paper's listing;
//! [`work`] holds what they read and write. [`Cpu`] runs them over [`Scalar`] numbers: f32 in the product, f64 where
//! gradients, derived by hand, are checked against central differences. [`weights`] reads and writes safetensors under
//! PyTorch's names. Backward passes overwrite gradients; nothing accumulates between calls.

mod adam;
pub mod cpu;
mod device;
mod scalar;
mod shapes;
pub mod weights;
pub mod work;

pub use adam::{AdamNumbers, AdamSettings};
pub use cpu::Cpu;
pub use device::{Device, DeviceError};
pub use scalar::Scalar;
pub use shapes::{Bank, Gru, Mlp, Shape};
