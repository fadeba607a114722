//! When, where and by which program a run was made. None of it enters any result.

use prudence_core::clock::{Stopwatch, timestamp};
use prudence_data::files::{append_json_lines, read_json_lines, read_limited};
use prudence_nn::cpu::Vectors;
use serde::{Deserialize, Serialize};

use crate::Task;
use crate::folder::{MAX_RECORD_BYTES, RunFolder};
use crate::session::Session;

/// The version and, if the program was built in a repository, its commit: `0.1.0 (1234567)`.
///
/// ```
/// assert!(prudence::version().starts_with(env!("CARGO_PKG_VERSION")));
/// ```
pub fn version() -> &'static str {
    env!("PRUDENCE_VERSION")
}

/// One process that worked on a run: a line of `sessions.jsonl`.
#[derive(Serialize, Deserialize)]
struct Work {
    started: String,
    seconds: f64,
    version: String,
    machine: String,
    /// The vector extension in use; it affects the speed but not the results.
    vectors: String,
    threads: usize,
}

/// The work of this process on a run, which is recorded when it is dropped.
pub(crate) struct Working<'a> {
    folder: &'a RunFolder,
    started: String,
    watch: Stopwatch,
    threads: usize,
}

impl<'a> Working<'a> {
    pub(crate) fn on(folder: &'a RunFolder, session: &Session) -> Self {
        let threads = session.pool().current_num_threads();
        Self { folder, started: timestamp(), watch: Stopwatch::start(), threads }
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let work = Work {
            started: self.started.clone(),
            seconds: self.watch.seconds(),
            version: version().to_owned(),
            machine: machine(),
            vectors: Vectors::current().name().to_owned(),
            threads: self.threads,
        };
        // The results do not depend on this record, and a destructor cannot return an error.
        let _ = append_json_lines(&self.folder.sessions(), &[work]);
    }
}

/// The last line of a report: the rule, the program, the date, the duration and the machine.
pub(crate) fn foot(task: &Task, folder: &RunFolder, now: &Working<'_>) -> String {
    // No result depends on these lines, so a damaged one must not keep a run from being finished.
    let when = match read_json_lines::<Work>(&folder.sessions(), MAX_RECORD_BYTES) {
        Ok(earlier) => {
            let seconds = earlier.values.iter().map(|work| work.seconds).sum::<f64>() + now.watch.seconds();
            let started = earlier.values.first().map_or(&now.started, |work| &work.started);
            format!("started {started}; {}", duration(seconds))
        }
        Err(_) => "start and duration unknown, because sessions.jsonl is damaged".to_owned(),
    };
    format!(
        "Rule: {}. prudence {}; {when} on {} with {}.",
        task.rule().text(),
        version(),
        machine(),
        count(now.threads, "thread")
    )
}

/// A duration in words.
///
/// ```
/// assert_eq!([40.0, 720.0, 12_000.0].map(prudence::duration), ["40 s", "12 min", "3 h 20 min"]);
/// ```
pub fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        _ if minutes < 90 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// The processor and the number of its cores.
fn machine() -> String {
    let text = read_limited("/proc/cpuinfo".as_ref(), 1 << 24).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let name = text.and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {}", name.unwrap_or_else(|| std::env::consts::ARCH.to_owned()), count(cores, "core"))
}

/// A number of things, such as `1 core` and `2 cores`.
pub(crate) fn count(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}
