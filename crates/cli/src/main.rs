//! The binary `prudence`: parses arguments, runs the command and sets the exit code.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

/// Like std's, but exits quietly if the reader of a pipe has closed it, as in `prudence tasks | head`.
macro_rules! println {
    ($($text:tt)*) => { $crate::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Like std's, but ignores a closed stderr: training must not end because nobody reads its messages.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::complain(format_args!("{}\n", format_args!($($text)*))) };
}

prudence_physics::bullet_symbols!();

mod advice;
mod args;
mod commands;
mod progress;
mod text;

use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use prudence::ErrorKind;

use args::{Cli, Command};

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Some errors already include their cause.
            let message = error.chain().skip(1).map(ToString::to_string).fold(error.to_string(), |message, cause| {
                if message.contains(&cause) { message } else { format!("{message}: {cause}") }
            });
            let cause = error.chain().find_map(|cause| cause.downcast_ref::<prudence::Error>());
            let advice = cause.and_then(advice::of).map_or(String::new(), |advice| format!("; {advice}"));
            eprintln!("{}", text::of_error(&format!("error: {message}{advice}")));
            ExitCode::from(match cause.map(prudence::Error::kind) {
                Some(ErrorKind::Failure | ErrorKind::Stopped) => 1,
                Some(ErrorKind::Input) | None => 2,
            })
        }
    }
}

/// Prints to stderr.
fn complain(text: std::fmt::Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// Prints to stdout.
fn print(text: std::fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().lock().write_fmt(text) {
        unwritable(&error)
    }
}

/// Standard output for many lines. A reader that has gone away ends the program silently.
struct Stdout(BufWriter<std::io::StdoutLock<'static>>);

impl Stdout {
    fn new() -> Self {
        Self(BufWriter::new(std::io::stdout().lock()))
    }
}

impl std::io::Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes).or_else(|error| unwritable(&error))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush().or_else(|error| unwritable(&error))
    }
}

impl Drop for Stdout {
    fn drop(&mut self) {
        let _ = std::io::Write::flush(self);
    }
}

/// Ends the program because standard output takes no more.
fn unwritable<T>(error: &std::io::Error) -> T {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    eprintln!("error: cannot write to stdout: {error}");
    std::process::exit(1);
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => commands::run(args),
        Command::Tasks(args) => commands::tasks(args),
        Command::Collect(args) => commands::collect(args),
        Command::Label(args) => commands::label(args),
        Command::Fit(args) => commands::fit(args),
        Command::Train(args) => commands::train(args),
        Command::Resume(args) => commands::resume(args),
        Command::Eval(args) => commands::eval(args),
        Command::Plot(args) => commands::plot(args),
        Command::Rollout(args) => commands::rollout(args),
        Command::Data(command) => commands::data(command),
        Command::Engines(args) => commands::engines(args),
        Command::Devices { json } => commands::devices(json),
        Command::Rddl(args) => commands::rddl(args),
        Command::Bench(args) => commands::bench(args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "prudence", &mut script);
            print(format_args!("{}", String::from_utf8_lossy(&script)));
            Ok(())
        }
    }
}
