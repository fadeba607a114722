//! The promises of `prudence-data`: each is a test named after it. They share one binary for faster builds.

mod damage;
mod dataset;
mod labels;
mod rule;
mod rule_semantics;
mod segments;
mod store;
mod tables;
mod untrusted;

use std::path::Path;

use prudence_data::{Episode, Label, Schema, files};

/// Two observations, one action, signals `a` and `b`.
pub fn schema() -> Schema {
    Schema { task: "toy".to_owned(), observation_dim: 2, action_dim: 1, signals: vec!["a".to_owned(), "b".to_owned()] }
}

/// An episode of `steps` steps whose numbers all differ.
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
        ..Episode::new(2, 1)
    }
}

/// A label by anna.
pub fn label(episode: u64, start: u32, end: u32, safe: bool, at: Option<u32>) -> Label {
    Label { episode, start, end, safe, at, by: "anna".to_owned(), when: "2026-11-16T07:00:00Z".to_owned() }
}

/// Writes a file as a crash, a faulty disk or an untrusted source might have left it.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    files::write_atomic(path.as_ref(), content.as_ref()).unwrap();
}
