//! Named random streams: the only source of randomness in prudence.
//!
//! A stream is ChaCha8 keyed by (seed, purpose, index). Streams of different purposes or indices are independent, so what
//! one part of the program draws never shifts what another part sees, and a resumed run needs no saved generator.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// The generator behind every stream.
pub type Stream = ChaCha8Rng;

/// The stream for `(seed, purpose, index)`.
pub fn stream(seed: u64, purpose: &str, index: u64) -> Stream {
    let mut key = [0u8; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&index.to_le_bytes());
    key[16..24].copy_from_slice(&fnv1a(purpose.as_bytes()).to_le_bytes());
    key[24..].copy_from_slice(b"prudence");
    ChaCha8Rng::from_seed(key)
}

/// A seed for something that keeps its own generator, such as an environment's episode.
pub fn subseed(seed: u64, purpose: &str, index: u64) -> u64 {
    stream(seed, purpose, index).next_u64()
}

/// FNV-1a, 64 bits: purposes are few and short, and the hash must stay the same for ever.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
