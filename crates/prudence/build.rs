//! Records the commit that the program is built from, so that a run can name it.

use std::process::Command;

fn main() {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = git(&["describe", "--always", "--abbrev=7", "--exclude=*", "--dirty"])
        .map_or(String::new(), |commit| format!(" ({commit})"));
    println!("cargo:rustc-env=PRUDENCE_VERSION={version}{commit}");
    if let Some(folder) = git(&["rev-parse", "--absolute-git-dir"]) {
        println!("cargo:rerun-if-changed={folder}/HEAD");
        println!("cargo:rerun-if-changed={folder}/logs/HEAD"); // changes with every commit
    }
    println!("cargo:rerun-if-changed=.."); // what makes the tree dirty
}
