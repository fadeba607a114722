//! The binary `prudence`: parse, run, exit code.

/// std's, but for a reader that went away: `prudence tasks | head` ends there.
macro_rules! println {
    ($($text:tt)*) => { $crate::print(format_args!("{}\n", format_args!($($text)*))) };
}

prudence_env::bullet_symbols!();

mod args;
mod commands;
mod config;
mod experiment;
mod folder;
mod progress;
mod reporting;
mod stages;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Some errors say their cause, too.
            let message = error.chain().skip(1).map(ToString::to_string).fold(error.to_string(), |message, cause| {
                if message.contains(&cause) { message } else { format!("{message}: {cause}") }
            });
            eprintln!("error: {message}");
            ExitCode::from(exit_code(&error))
        }
    }
}

/// To stdout.
fn print(text: std::fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().lock().write_fmt(text) {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("error: stdout: {error}");
        std::process::exit(1);
    }
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
        Command::Engines(args) => commands::engines(args),
        Command::Rddl(args) => commands::rddl(args),
        Command::Bench(args) => commands::bench(args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "prudence", &mut std::io::stdout());
            Ok(())
        }
    }
}

/// 1 where the work failed, 2 where what was given is at fault.
fn exit_code(error: &anyhow::Error) -> u8 {
    use std::io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    let named_by_the_user = [AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied];
    let work_failed = error.chain().any(|cause| {
        use prudence_agent::Error as Agent;
        use prudence_safety::Error as Safety;
        matches!(cause.downcast_ref(), Some(Agent::Diverged { .. } | Agent::Stopped | Agent::Io { .. }))
            || matches!(cause.downcast_ref(), Some(Safety::Diverged { .. }))
            || matches!(cause.downcast_ref(), Some(prudence_env::engines::Error::Fetch { .. }))
            || cause.downcast_ref::<std::io::Error>().is_some_and(|io| !named_by_the_user.contains(&io.kind()))
    });
    if work_failed { 1 } else { 2 }
}
