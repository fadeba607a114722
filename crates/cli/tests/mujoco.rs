//! The tasks on MuJoCo, and the command that installs the engines.

mod common;

use std::path::Path;
use std::process::Command;

use common::{prudence, refused, run, small, succeed, text};
use serde_json::{Value, json};

const TASKS: [&str; 3] = ["hopper", "walker2d", "half-cheetah"];

fn install() -> Value {
    serde_json::from_str(&succeed(prudence(&["engines", "install", "--json"]))).unwrap()
}

/// A command with an empty cache of engines.
fn bare(dir: &Path, args: &[&str]) -> Command {
    let mut command = prudence(args);
    command.env("PRUDENCE_ENGINES", dir.join("engines"));
    command
}

fn lines(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_missing_engine_is_reported_with_the_command_that_installs_it() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    for task in TASKS {
        let args = ["run", task, "--out", text(&out)];
        refused(bare(dir.path(), &args), &["MuJoCo 3.3.7", "libmujoco.so.3.3.7", "run: prudence engines install"]);
        assert!(!out.exists());
        assert!(succeed(bare(dir.path(), &["tasks", task])).contains("run: prudence engines install"));
    }
    assert!(succeed(bare(dir.path(), &["tasks"])).contains("half-cheetah"));
    assert!(succeed(bare(dir.path(), &["engines"])).contains("libmujoco.so.3.3.7  missing"));
    let nowhere = dir.path().join("nowhere");
    refused(
        bare(dir.path(), &["engines", "install", "--from", text(&nowhere)]),
        &["nowhere", "mujoco-3.3.7-cp311", "pip download"],
    );
    let mut no_python = bare(dir.path(), &["engines", "install"]);
    let output = run({
        no_python.env("PYTHON", "/no/such/python");
        no_python
    });
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/python -m pip download"));
}

#[test]
fn the_status_of_an_installed_engine_has_its_version_and_path() {
    let status = install();
    assert_eq!((&status[0]["version"], &status[0]["installed"]), (&json!("3.3.7"), &json!(true)));
    assert!(Path::new(status[0]["path"].as_str().unwrap()).join("libmujoco.so.3.3.7").is_file());
    assert_eq!(serde_json::from_str::<Value>(&succeed(prudence(&["engines", "--json"]))).unwrap(), status);
}

#[test]
fn a_rollout_starts_from_the_given_state() {
    install();
    let dir = tempfile::tempdir().unwrap();
    let (actions, state, out) = (dir.path().join("a.csv"), dir.path().join("s.json"), dir.path().join("o.jsonl"));
    std::fs::write(&actions, "0.5,-0.5,1\n".repeat(20)).unwrap();
    let given = json!({ "qpos": [3.0, 1.3, 0.05, -0.1, -0.1, 0.1], "qvel": [0.5, 0.0, 0.0, 11.0, 0.0, 0.0] });
    std::fs::write(&state, given.to_string()).unwrap();
    let rollout = |state: &Path| {
        prudence(&["rollout", "hopper", "--actions", text(&actions), "--state", text(state), "--out", text(&out)])
    };
    succeed(rollout(&state));
    let lines = lines(&out);
    assert_eq!(lines.len(), 21);
    let start = json!([1.3, 0.05, -0.1, -0.1, 0.1, 0.5, 0.0, 0.0, 10.0, 0.0, 0.0]);
    assert_eq!(lines[0]["observation"], start, "the observation omits the distance and clips velocities to 10");
    let at = |line: &Value, key: &str, i: usize| line["state"][key][i].as_f64().unwrap();
    let moved = (at(&lines[2], "qpos", 0) - at(&lines[1], "qpos", 0)) / 0.008;
    assert!((lines[2]["signals"]["x_velocity"].as_f64().unwrap() - moved).abs() < 1e-12);
    for (name, bad) in [
        ("short", json!({ "qpos": [0.0], "qvel": given["qvel"] })),
        ("huge", json!({ "qpos": [0.0, 1e11, 0.0, 0.0, 0.0, 0.0], "qvel": given["qvel"] })),
        ("extra", json!({ "qpos": given["qpos"], "qvel": given["qvel"], "act": [] })),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bad.to_string()).unwrap();
        refused(
            prudence(&["rollout", "hopper", "--actions", text(&actions), "--state", text(&path), "--out", "x.jsonl"]),
            &[name, "qpos", "6 numbers"],
        );
    }
}

#[test]
fn a_fatal_error_in_the_engine_prints_its_text_and_exits_with_1() {
    let status = install();
    let dir = tempfile::tempdir().unwrap();
    let (actions, model, out) = (dir.path().join("a.csv"), dir.path().join("m.xml"), dir.path().join("o.jsonl"));
    std::fs::write(&actions, "1,-1,1\n".repeat(900)).unwrap();
    let path = Path::new(status[0]["path"].as_str().unwrap()).join("hopper.xml");
    let good = std::fs::read_to_string(path).unwrap();
    // Enough memory for the solver at the start but not with every joint at its limit, so that the engine fails in a
    // step.
    let little = "<option><flag contact=\"disable\"/></option><size memory=\"3200\"/></mujoco>";
    std::fs::write(&model, good.replace("</mujoco>", little)).unwrap();
    let xml = format!("env.xml_file={}", text(&model));
    let output = run(prudence(&["rollout", "hopper", "--actions", text(&actions), "--set", &xml, "--out", text(&out)]));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.starts_with("error: MuJoCo: "), "{message}");
    assert!(!out.exists());
}

#[test]
fn the_whole_pipeline_runs_on_each_task() {
    install();
    for task in TASKS {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let args = ["run", task, "--out", text(&out), "--seeds", "1", "--rounds", "0", "--episodes", "3", "--quiet"];
        succeed(small(&args, &["env.horizon=100", "train.steps=2000", "rule=\"mean(speed, 50) <= 0.5\""]));
        assert!(out.join("report.html").is_file() && out.join("evaluation.json").is_file());
        let (agent, film, log) =
            (out.join("round-0/safesac-h/seed-0"), dir.path().join("a.gif"), dir.path().join("a.jsonl"));
        succeed(prudence(&["rollout", "--agent", text(&agent), "--render", text(&film), "--out", text(&log)]));
        assert!(std::fs::read(&film).unwrap().starts_with(b"GIF89a"));
        assert_eq!(lines(&log).len(), 101);
    }
}

#[test]
fn an_episode_is_drawn_or_the_error_says_why_not() {
    install();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (three, sheet) = (file("three.csv"), file("sheet.png"));
    std::fs::write(&three, "0.5,-0.5,1\n".repeat(20)).unwrap();
    let draw = |task: &str, to: &Path| prudence(&["rollout", task, "--actions", text(&three), "--render", text(to)]);
    succeed(draw("hopper", &sheet));
    assert!(std::fs::read(&sheet).unwrap().starts_with(b"\x89PNG"));
    refused(draw("hopper", &sheet), &["--render", "sheet.png", "already exists"]);
    refused(draw("hopper", &file("film.bmp")), &["film.bmp", ".gif or .png"]);
    refused(draw("hvac", &file("film.gif")), &["hvac", "nothing to draw"]);
    assert!(succeed(prudence(&["rollout", "hopper", "--actions", text(&three)])).contains(" steps, return "));
    let nobody = ["rollout", "--agent", text(dir.path()), "--render", text(&file("film.gif"))].map(str::to_owned);
    refused(prudence(&nobody.each_ref().map(String::as_str)), &["RUN/round-R/ALGO/seed-S"]);
    assert!(!file("film.gif").exists());
}
