//! The promises of `prudence-data`, each a test that carries its name. One binary, for faster builds.

mod labels;
mod rule;
mod rule_semantics;
mod segments;
mod store;
mod strangers;

use std::path::Path;

use prudence_data::{Episode, Schema, files};

/// Two observations, one action, signals `a` and `b`.
pub fn schema() -> Schema {
    Schema { task: "toy".to_owned(), observation_dim: 2, action_dim: 1, signals: vec!["a".to_owned(), "b".to_owned()] }
}

/// An episode of `steps` steps with numbers that differ from place to place.
pub fn episode(steps: usize, seed: u32) -> Episode {
    let numbers = |n: usize, salt: u32| {
        (0..n).map(move |i| {
            let mixed = (i as u32 + 1).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503) + salt);
            f64::from(mixed) / f64::from(u32::MAX) - 0.5
        })
    };
    Episode {
        observations: numbers(2 * (steps + 1), 1).map(|x| x as f32).collect(),
        actions: numbers(steps, 2).map(|x| x as f32).collect(),
        rewards: numbers(steps, 3).map(|x| x as f32).collect(),
        signals: numbers(2 * steps, 4).collect(),
        terminated: seed.is_multiple_of(2),
    }
}

/// Puts a file there as a crash, a disk or a stranger might have left it.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    files::write_atomic(path.as_ref(), content.as_ref()).unwrap();
}
