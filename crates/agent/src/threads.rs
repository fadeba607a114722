//! Environments that step in parallel.

use std::sync::Arc;

use rayon::iter::{IndexedParallelIterator as _, IntoParallelRefMutIterator as _, ParallelIterator as _};

/// The threads in which environments step; one after the other without any. Results do not depend on it.
#[derive(Clone, Debug, Default)]
pub struct Threads(Option<Arc<rayon::ThreadPool>>);

impl Threads {
    /// The threads of a pool. A population that uses them must not run in one of them.
    pub fn of(pool: Arc<rayon::ThreadPool>) -> Self {
        Self(Some(pool))
    }

    /// Applies a function to every item.
    pub fn map<T: Send, R: Send>(&self, items: &mut [T], work: impl Fn(usize, &mut T) -> R + Sync) -> Vec<R> {
        match &self.0 {
            Some(pool) if items.len() > 1 => {
                let one = |(index, item): (usize, &mut T)| work(index, item);
                pool.install(|| items.par_iter_mut().enumerate().map(one).collect())
            }
            _ => items.iter_mut().enumerate().map(|(index, item)| work(index, item)).collect(),
        }
    }
}
