//! The tasks on Bullet.

mod common;

use common::{prudence, refused, small, succeed, text};
use serde_json::{Value, json};

const TASKS: [&str; 4] = ["ball-circle", "ball-run", "car-circle", "car-run"];

fn install() {
    succeed(prudence(&["engines", "install", "--quiet"]));
}

#[test]
fn a_missing_engine_is_reported_with_the_command_that_installs_it() {
    let dir = tempfile::tempdir().unwrap();
    let bare = |args: &[&str]| {
        let mut command = prudence(args);
        command.env("PRUDENCE_ENGINES", dir.path().join("engines"));
        command
    };
    let out = dir.path().join("out");
    for task in TASKS {
        refused(
            bare(&["run", task, "--out", text(&out)]),
            &["Bullet 3.2.7 is not installed", "pybullet.so", "run: prudence engines install"],
        );
        assert!(!out.exists());
        assert!(succeed(bare(&["tasks", task])).contains("run: prudence engines install"));
    }
    assert!(succeed(bare(&["engines"])).contains("pybullet.so                      missing"));
}

#[test]
fn an_unknown_variant_is_rejected_with_the_accepted_ones() {
    refused(
        prudence(&["rollout", "car-run", "--actions", "x.csv", "--out", "x.jsonl", "--set", "env.variant=\"pypi\""]),
        &["env", "variant", "pypi", "`original`", "`pypi-1.4`"],
    );
}

#[test]
fn a_rollout_lasts_for_the_variants_horizon_and_is_reproducible() {
    install();
    let dir = tempfile::tempdir().unwrap();
    let actions = dir.path().join("a.csv");
    std::fs::write(&actions, "1,-0.25\n".repeat(600)).unwrap();
    for (task, variant, steps) in [("ball-circle", "original", 250), ("car-run", "pypi-1.4", 200)] {
        let set = format!("env.variant=\"{variant}\"");
        let rollout = |name: &str, more: &[&str]| -> Vec<Value> {
            let out = dir.path().join(name);
            let args = ["rollout", task, "--actions", text(&actions), "--set", &set, "--out", text(&out)];
            succeed(prudence(&[&args, more].concat()));
            let lines = std::fs::read_to_string(&out).unwrap();
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let name = |what: &str| format!("{task}-{what}.jsonl");
        let lines = rollout(&name("one"), &["--seed", "3"]);
        assert_eq!(lines.len(), 1 + steps);
        assert_eq!((&lines[steps]["truncated"], &lines[steps]["terminated"]), (&json!(true), &json!(false)));
        assert_eq!(lines, rollout(&name("two"), &["--seed", "3"]));
        let state = dir.path().join(name("state"));
        std::fs::write(&state, lines[5]["state"].to_string()).unwrap();
        let on = rollout(&name("three"), &["--state", text(&state)]);
        assert_eq!(on[0]["observation"], lines[5]["observation"]);
    }
}

#[test]
fn the_whole_pipeline_runs_on_each_task() {
    install();
    for task in TASKS {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let args = ["run", task, "--out", text(&out), "--seeds", "1", "--rounds", "0", "--episodes", "3", "--quiet"];
        succeed(small(&args, &["env.horizon=100", "train.steps=2000", "rule=\"fraction(speed > 0.2, 20) <= 0.15\""]));
        let report = std::fs::read_to_string(out.join("report.html")).unwrap();
        assert!(report.contains("Where the agents go") && out.join("evaluation.json").is_file());
    }
}
