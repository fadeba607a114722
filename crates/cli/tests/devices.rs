//! The option `--device` on a machine without a graphics card; where there is one, it is hidden from the program.

mod common;

use std::process::Command;

use common::{contents, prudence, refused, small, succeed, text};
use serde_json::Value;

fn without_card(mut command: Command) -> Command {
    command.env("CUDA_VISIBLE_DEVICES", "");
    command
}

#[test]
fn a_card_that_is_not_there_is_an_error_that_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    for command in
        [vec!["run", "navigation"], vec!["collect", "navigation"], vec!["train", "navigation", "--algo", "sac"]]
    {
        let args = [&command[..], &["--out", text(&out), "--device", "cuda"]].concat();
        let words = ["no graphics card can be used", "`prudence devices`", "`--device cpu`"];
        refused(without_card(prudence(&args)), &words);
        assert!(!out.exists(), "{command:?} must create nothing");
    }
    refused(without_card(prudence(&["bench", "update", "--device", "cuda"])), &["no graphics card can be used"]);
}

#[test]
fn auto_is_the_cpu_where_there_is_no_card() {
    let dir = tempfile::tempdir().unwrap();
    let collected = |device: &str| {
        let out = dir.path().join(device);
        let args = ["collect", "navigation", "--out", text(&out), "--seeds", "1", "--device", device, "--quiet"];
        succeed(without_card(small(&args, &["collect.steps=1500"])));
        contents(&out)
    };
    assert!(collected("auto") == collected("cpu"));
}

#[test]
fn devices_says_what_there_is() {
    let found: Value = serde_json::from_str(&succeed(without_card(prudence(&["devices", "--json"])))).unwrap();
    assert!(found["cores"].as_u64().is_some_and(|cores| cores > 0));
    assert_eq!(found["cards"].as_array().map(Vec::len), Some(0));
    assert!(found["problem"].as_str().is_some_and(|problem| problem.contains("NVIDIA")));
    assert!(succeed(without_card(prudence(&["devices"]))).contains("no graphics card can be used"));
}
