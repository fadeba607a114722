//! Progress bars on stderr, if it is a terminal.

use std::io::IsTerminal as _;
use std::sync::Arc;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress bars of a command.
#[derive(Clone)]
pub struct Bars {
    bars: MultiProgress,
    quiet: bool,
}

impl Bars {
    /// Creates bars, which are visible if stderr is a terminal and `quiet` is not set.
    pub fn new(quiet: bool) -> Self {
        let visible = !quiet && std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { bars: MultiProgress::with_draw_target(target), quiet }
    }
}

impl prudence::Progress for Bars {
    fn begin(&self, label: &str, total: u64) -> Box<dyn prudence::Bar> {
        let bar = self.bars.add(ProgressBar::new(total));
        let style = ProgressStyle::with_template("{prefix:28} {bar:24} {human_pos:>9}/{human_len} {eta:>4} {msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(label.to_owned());
        Box::new(Bar(bar))
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            self.bars.suspend(|| eprintln!("{line}"));
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

/// Creates a session that shows its progress, and handles Ctrl-C: the first one stops training at the next checkpoint,
/// the second one exits at once.
pub fn session(threads: Option<u16>, quiet: bool) -> anyhow::Result<prudence::Session> {
    let session = prudence::Session::new(threads.map_or(0, usize::from))?.with_progress(Arc::new(Bars::new(quiet)));
    let interrupted = session.clone();
    ctrlc::set_handler(move || {
        if interrupted.stopping() {
            std::process::exit(130);
        }
        interrupted.stop();
        eprintln!("stopping at the next checkpoint; press Ctrl-C again to stop at once");
    })?;
    Ok(session)
}
