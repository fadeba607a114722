//! NVIDIA GPUs as a [`prudence_nn::Device`]: a population's networks, replay and scoring on one card.
//!
//! Nothing of CUDA is needed to build or to start the program: the driver and the compiler of kernels (NVRTC) are opened
//! when a card is asked for. The kernels are CUDA C without headers (`kernels/`), compiled for the card at hand and kept in
//! a cache. Kernels that work element by element compute exactly what the CPU computes; sums have a fixed order, so the same
//! card gives the same bits twice, and an agent's bits do not depend on who else is in its population.
//!
//! [`Queue`] is all that the device needs of a GPU. `tests/emulator` implements it on the CPU, so that every kernel is
//! tested on machines without a card.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod arguments;
mod compiler;
mod device;
mod driver;
mod layers;
mod memory;
mod queue;
mod staging;

pub use device::{Cuda, Sequence};
pub use driver::{Card, Missing, cards};
pub use memory::Array;
pub use queue::{Graph, Launch, Queue};

/// The source of all kernels, in CUDA C.
pub fn source() -> String {
    [
        include_str!("kernels/common.cu"),
        arguments::DECLARATIONS,
        include_str!("kernels/random.cu"),
        include_str!("kernels/dense.cu"),
        include_str!("kernels/gru.cu"),
        include_str!("kernels/policy.cu"),
        include_str!("kernels/critic.cu"),
        include_str!("kernels/adam.cu"),
        include_str!("kernels/replay.cu"),
        include_str!("kernels/scoring.cu"),
    ]
    .join("\n")
}
