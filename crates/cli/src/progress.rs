//! Progress on stderr: bars on a terminal, otherwise a line every ten seconds.

use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use prudence::Stopwatch;

use crate::text;

/// The progress of a command.
enum Shown {
    Bars(MultiProgress),
    Lines,
    Nothing,
}

/// Reports the progress of a command on stderr.
pub struct Progress(Shown);

impl Progress {
    /// Shows progress unless `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self(if quiet {
            Shown::Nothing
        } else if std::io::stderr().is_terminal() {
            Shown::Bars(MultiProgress::with_draw_target(ProgressDrawTarget::stderr()))
        } else {
            Shown::Lines
        })
    }
}

impl prudence::Progress for Progress {
    fn begin(&self, label: &str, total: u64) -> Box<dyn prudence::Bar> {
        match &self.0 {
            Shown::Nothing => Box::new(prudence::Silent),
            Shown::Bars(bars) => {
                let bar = bars.add(ProgressBar::new(total));
                let style = ProgressStyle::with_template("{prefix:20!} {wide_bar} {percent:>3} % {eta:>4} {msg:28!}");
                if let Ok(style) = style {
                    bar.set_style(style.progress_chars("=> "));
                }
                bar.set_prefix(label.to_owned());
                Box::new(Bar(bar))
            }
            Shown::Lines => Box::new(Line(Mutex::new(Work {
                label: label.to_owned(),
                total,
                position: 0,
                first: None,
                message: String::new(),
                watch: Stopwatch::start(),
                printed: 0.0,
            }))),
        }
    }

    fn is_watched(&self) -> bool {
        !matches!(self.0, Shown::Nothing)
    }

    fn say(&self, line: &str) {
        match &self.0 {
            Shown::Nothing => {}
            Shown::Bars(bars) => bars.suspend(|| eprintln!("{}", text::wrap(line))),
            Shown::Lines => eprintln!("{}", text::wrap(line)),
        }
    }
}

/// A progress bar, which is removed when it is dropped.
struct Bar(ProgressBar);

impl prudence::Bar for Bar {
    fn set(&self, position: u64) {
        self.0.set_position(position);
    }

    fn message(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Seconds between two lines about the same work.
const EVERY: f64 = 10.0;

/// How far a piece of work is, and when that was reported.
struct Work {
    label: String,
    total: u64,
    position: u64,
    /// Where it started, which is not 0 after a resume.
    first: Option<u64>,
    message: String,
    watch: Stopwatch,
    /// When the last line was printed, in seconds.
    printed: f64,
}

impl Work {
    /// The next line, if it is due.
    fn line(&mut self) -> Option<String> {
        let seconds = self.watch.seconds();
        if seconds - self.printed < EVERY {
            return None;
        }
        self.printed = seconds;
        let done = self.position.saturating_sub(self.first.unwrap_or(0));
        let left = match done {
            0 => String::new(),
            done => {
                let left = self.total.saturating_sub(self.position) as f64 * seconds / done as f64;
                format!(", {} left", prudence::duration(left))
            }
        };
        let percent = 100 * self.position / self.total.max(1);
        let message = if self.message.is_empty() { String::new() } else { format!("; {}", self.message) };
        Some(format!("{}: {percent} %{left}{message}", self.label))
    }
}

/// A piece of work that is reported in lines.
struct Line(Mutex<Work>);

impl Line {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl prudence::Bar for Line {
    fn set(&self, position: u64) {
        let mut work = self.work();
        work.position = position;
        work.first.get_or_insert(position);
        if let Some(line) = work.line() {
            eprintln!("{line}");
        }
    }

    fn message(&self, text: &str) {
        text.clone_into(&mut self.work().message);
    }
}

/// Creates a session that shows its progress.
pub fn session(threads: Option<u16>, quiet: bool) -> anyhow::Result<prudence::Session> {
    Ok(prudence::Session::new(threads.map_or(0, usize::from))?.with_progress(Arc::new(Progress::new(quiet))))
}

/// Creates a session that also handles Ctrl-C and SIGTERM: the first one stops at the next checkpoint, the second one at
/// once. `resume` is the command that continues.
pub fn resumable(threads: Option<u16>, quiet: bool, resume: String) -> anyhow::Result<prudence::Session> {
    let session = session(threads, quiet)?;
    let interrupted = session.clone();
    ctrlc::set_handler(move || {
        if interrupted.stopping() {
            std::process::exit(130);
        }
        interrupted.stop();
        let then = format!("stopping at the next checkpoint (press again to stop at once); to continue, run: {resume}");
        eprintln!("{}", text::wrap(&then));
    })?;
    Ok(session)
}
