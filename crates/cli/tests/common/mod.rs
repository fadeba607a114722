//! Helpers to run the binary in tests.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Settings with which training takes seconds.
pub const SMALL: &[&str] = &[
    "agent.hidden=[16,16]",
    "agent.batch=32",
    "collect.steps=4000",
    "train.steps=4000",
    "train.random_steps=1000",
    "train.record_every=1000",
    "train.checkpoint_every=500",
    "train.test_episodes=5",
    "safety.steps=150",
    "refit.every=600",
    "refit.steps=10",
    "safety.hidden=8",
    "safety.decoder=[16]",
];

pub fn prudence(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prudence"));
    command.args(args);
    command
}

/// A command with the small settings and others.
pub fn small(args: &[&str], more: &[&str]) -> Command {
    let mut command = prudence(args);
    for set in SMALL.iter().chain(more) {
        command.args(["--set", set]);
    }
    command
}

pub fn run(mut command: Command) -> Output {
    command.output().expect("the binary starts")
}

pub fn succeed(command: Command) -> String {
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "failed: {text}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that a command exits with code 2 and an error that contains all `words`; returns the error.
pub fn refused(command: Command, words: &[&str]) -> String {
    let shown = format!("{command:?}");
    let output = run(command);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{shown}\n{message}");
    for word in words {
        assert!(message.contains(word), "{shown}\n`{word}` is not in: {message}");
    }
    message
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// How the names of files begin that depend on the clock.
const OF_THE_CLOCK: [&str; 4] = ["timing", "events", "labels", "sessions"];

/// All files below a folder, with their bytes, except locks and those that depend on the clock.
pub fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(place) = open.pop() {
        for entry in std::fs::read_dir(place).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                open.push(path);
            } else if !(name.ends_with("lock") || OF_THE_CLOCK.iter().any(|start| name.starts_with(start))) {
                let bytes = std::fs::read(&path).unwrap();
                found.push((path.strip_prefix(dir).unwrap().to_path_buf(), bytes));
            }
        }
    }
    found.sort();
    found
}

/// Labelled episodes and a safety model, created by the commands.
pub fn prepared(dir: &Path) -> (PathBuf, PathBuf) {
    let (episodes, model) = (dir.join("episodes"), dir.join("model"));
    succeed(small(&["collect", "navigation", "--out", text(&episodes), "--quiet"], &[]));
    succeed(small(&["label", text(&episodes)], &[]));
    succeed(small(&["fit", text(&episodes), "--out", text(&model), "--quiet"], &[]));
    (episodes, model)
}
