//! How a command works: its threads, who hears of its progress, and when it should stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;

/// Hears how work is going. Everything has an empty default.
///
/// ```
/// use std::sync::Arc;
///
/// struct Lines;
///
/// impl prudence::Progress for Lines {
///     fn say(&self, line: &str) {
///         eprintln!("{line}");
///     }
/// }
///
/// let session = prudence::Session::new(1)?.with_progress(Arc::new(Lines));
/// # Ok::<(), prudence::Error>(())
/// ```
pub trait Progress: Send + Sync {
    /// A piece of work of `total` steps begins.
    fn begin(&self, label: &str, total: u64) -> Box<dyn Bar> {
        let _ = (label, total);
        Box::new(Silent)
    }

    /// One line that a person should read.
    fn say(&self, line: &str) {
        let _ = line;
    }
}

/// Hears how far a piece of work is; it is over when the bar is dropped.
///
/// ```
/// struct Percent(u64);
///
/// impl prudence::Bar for Percent {
///     fn set(&self, position: u64) {
///         eprintln!("{} %", 100 * position / self.0.max(1));
///     }
/// }
/// ```
pub trait Bar: Send + Sync {
    /// Steps done so far.
    fn set(&self, position: u64) {
        let _ = position;
    }

    /// The latest news.
    fn message(&self, text: &str) {
        let _ = text;
    }
}

/// Hears nothing.
///
/// ```
/// let session = prudence::Session::new(1)?.with_progress(std::sync::Arc::new(prudence::Silent)); // as it is by default
/// # Ok::<(), prudence::Error>(())
/// ```
pub struct Silent;

impl Progress for Silent {}
impl Bar for Silent {}

/// How commands work.
///
/// ```
/// let session = prudence::Session::new(2)?; // two threads, silently
/// session.stop();
/// assert!(session.stopping());
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone)]
pub struct Session {
    pool: Arc<rayon::ThreadPool>,
    progress: Arc<dyn Progress>,
    stop: Arc<AtomicBool>,
}

impl Session {
    /// With this many threads (0: as many as there are cores), silent.
    pub fn new(threads: usize) -> Result<Self, Error> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        Ok(Self {
            pool: Arc::new(pool.map_err(|e| Error::Threads(e.to_string()))?),
            progress: Arc::new(Silent),
            stop: Arc::default(),
        })
    }

    /// Somebody hears its progress.
    pub fn with_progress(self, progress: Arc<dyn Progress>) -> Self {
        Self { progress, ..self }
    }

    /// Asks it to stop: every agent in training reaches a checkpoint at its episode's end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to stop.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn progress(&self) -> &dyn Progress {
        &*self.progress
    }

    pub(crate) fn pool(&self) -> &rayon::ThreadPool {
        &self.pool
    }
}
