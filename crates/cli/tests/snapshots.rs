//! Help and errors, word for word. After a change that is meant, record them again and read the difference:
//!
//!     TRYCMD=overwrite cargo test --release -p prudence-cli --test snapshots && git diff crates/cli/tests/snapshots

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Every file in this crate with its size and the time of its last change.
fn files() -> Vec<(PathBuf, u64, SystemTime)> {
    let (mut found, mut folders) = (Vec::new(), vec![Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let (path, metadata) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            if metadata.is_dir() {
                folders.push(path);
            } else {
                found.push((path, metadata.len(), metadata.modified().unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn help_and_errors_are_as_recorded_and_wrong_input_changes_nothing() {
    let before = files();
    trycmd::TestCases::new().env("COLUMNS", "80").case("tests/snapshots/*.trycmd");
    assert!(files() == before || std::env::var_os("TRYCMD").is_some(), "a command wrote into the working folder");
}
