//! Banks of small networks and the kernels they run on.
//!
//! The tour: [`Scalar`] is the number type; [`kernels`] touch arrays; [`Mlp`] and [`Gru`] know shapes and how parameters
//! lie in a flat slice, and run forward and backward over a workspace that the caller keeps, so that an update allocates
//! nothing; [`gaussian`] is the squashed policy head; [`loss`] the losses; [`Adam`] the optimiser; [`weights`] reads and
//! writes safetensors under PyTorch's names. Gradients are derived by hand and checked against central differences in f64.
//!
//! A *bank* is G networks of one shape with their parameters one after the other, `[G, parameters]`: the four critics are
//! one bank. Backward passes overwrite gradients; nothing accumulates between calls.

mod adam;
pub mod gaussian;
mod gru;
pub mod kernels;
pub mod loss;
mod mlp;
mod scalar;
pub mod weights;

pub use adam::{Adam, AdamSettings};
pub use gru::{Gru, GruWork};
pub use mlp::{Mlp, MlpWork};
pub use scalar::Scalar;

use rand::{Rng, RngExt as _};

/// PyTorch's default for layers: uniform in +-1/sqrt(fan_in).
pub(crate) fn init_uniform<T: Scalar>(out: &mut [T], fan_in: usize, rng: &mut impl Rng) {
    let bound = (fan_in as f64).sqrt().recip();
    out.fill_with(|| T::of(rng.random_range(-bound..bound)));
}
