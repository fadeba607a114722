//! The context that commands run in: threads, progress reports and the request to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prudence_agent::Threads;
use prudence_cuda::Cuda;

use crate::footprint::Memory;
use crate::{DeviceName, Error, device};

/// Receives progress reports. Every method does nothing by default.
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
    /// Begins a piece of work of `total` steps and returns its progress bar.
    fn begin(&self, label: &str, total: u64) -> Box<dyn Bar> {
        let _ = (label, total);
        Box::new(Silent)
    }

    /// Whether somebody reads the reports, so that a short measurement for an estimate of the time is worthwhile.
    fn is_watched(&self) -> bool {
        false
    }

    /// Reports one line for the user.
    fn say(&self, line: &str) {
        let _ = line;
    }
}

/// The progress of a piece of work, which ends when the bar is dropped.
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
    /// Sets the number of steps done so far.
    fn set(&self, position: u64) {
        let _ = position;
    }

    /// Sets a short text, such as the current loss.
    fn message(&self, text: &str) {
        let _ = text;
    }
}

/// Ignores all progress reports.
///
/// ```
/// let session = prudence::Session::new(1)?.with_progress(std::sync::Arc::new(prudence::Silent)); // the default
/// # Ok::<(), prudence::Error>(())
/// ```
pub struct Silent;

impl Progress for Silent {}
impl Bar for Silent {}

/// Puts a label in front of all progress reports.
struct Labelled {
    label: String,
    progress: Arc<dyn Progress>,
}

impl Progress for Labelled {
    fn begin(&self, label: &str, total: u64) -> Box<dyn Bar> {
        self.progress.begin(&format!("{}: {label}", self.label), total)
    }

    fn is_watched(&self) -> bool {
        self.progress.is_watched()
    }

    fn say(&self, line: &str) {
        self.progress.say(&format!("{}: {line}", self.label));
    }
}

/// The context that commands run in: threads, progress reports and the request to stop.
///
/// ```
/// let session = prudence::Session::new(2)?; // two threads, no progress reports
/// session.stop();
/// assert!(session.stopping());
/// # Ok::<(), prudence::Error>(())
/// ```
#[derive(Clone)]
pub struct Session {
    pool: Arc<rayon::ThreadPool>,
    progress: Arc<dyn Progress>,
    stop: Arc<AtomicBool>,
    /// The graphics card that holds the networks; the CPU where there is none.
    card: Option<Cuda>,
}

impl Session {
    /// Creates a session with this number of threads (0: the number of cores) and without progress reports.
    pub fn new(threads: usize) -> Result<Self, Error> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        Ok(Self {
            pool: Arc::new(pool.map_err(|e| Error::Threads(e.to_string()))?),
            progress: Arc::new(Silent),
            stop: Arc::default(),
            card: None,
        })
    }

    /// Chooses the device that holds the networks of agents in training and of safety models in fits.
    pub fn on(self, device: DeviceName) -> Result<Self, Error> {
        Ok(Self { card: device::open(device)?, ..self })
    }

    /// Sets the receiver of progress reports.
    pub fn with_progress(self, progress: Arc<dyn Progress>) -> Self {
        Self { progress, ..self }
    }

    /// Asks for a stop: every agent in training completes its episode, writes a checkpoint and stops.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Set once a stop was requested.
    pub(crate) fn stop_flag(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// The same session, whose progress reports begin with `label`.
    pub(crate) fn labelled(&self, label: &str) -> Self {
        let progress = Arc::new(Labelled { label: label.to_owned(), progress: self.progress.clone() });
        Self { progress, ..self.clone() }
    }

    pub(crate) fn progress(&self) -> &dyn Progress {
        &*self.progress
    }

    /// The number of agents that are in training at a time, of `jobs` in all: one per thread, or on a graphics card all.
    pub(crate) fn agents(&self, jobs: u64) -> usize {
        let jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
        if self.card.is_some() { jobs } else { jobs.min(self.pool.current_num_threads()) }
    }

    /// The memory of the device that does the work.
    pub(crate) fn memory(&self) -> Result<Memory, Error> {
        Memory::of(self.card.as_ref())
    }

    /// The threads in which the environments of a population step. On the CPU each agent has a thread to itself.
    pub(crate) fn threads(&self) -> Option<Threads> {
        self.card.as_ref().map(|_| Threads::of(self.pool.clone()))
    }

    pub(crate) fn card(&self) -> Option<&Cuda> {
        self.card.as_ref()
    }

    pub(crate) fn pool(&self) -> &rayon::ThreadPool {
        &self.pool
    }
}
