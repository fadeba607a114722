//! Progress on stderr, and only where a person is watching.

use std::io::IsTerminal as _;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bars of one command.
#[derive(Clone)]
pub struct Progress {
    bars: MultiProgress,
    quiet: bool,
}

impl Progress {
    /// Bars if stderr is a terminal and nobody asked for quiet.
    pub fn new(quiet: bool) -> Self {
        let visible = !quiet && std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { bars: MultiProgress::with_draw_target(target), quiet }
    }

    /// A bar of `total` steps that is gone when it is dropped.
    pub fn bar(&self, label: &str, total: u64) -> Bar {
        let bar = self.bars.add(ProgressBar::new(total));
        let style = ProgressStyle::with_template("{prefix:28} {bar:24} {human_pos:>9}/{human_len} {eta:>4} {msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(label.to_owned());
        Bar(bar)
    }

    /// A line about how things go.
    pub fn say(&self, line: &str) {
        if !self.quiet {
            self.bars.suspend(|| eprintln!("{line}"));
        }
    }
}

/// One bar.
pub struct Bar(ProgressBar);

impl Bar {
    /// Moves it.
    pub fn set(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Moves it on by one.
    pub fn advance(&self) {
        self.0.inc(1);
    }

    /// What stands behind it.
    pub fn message(&self, text: String) {
        self.0.set_message(text);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
