//! Every command does what its help says.

mod common;

use common::{prepared, prudence, refused, small, succeed, text};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_stages_work_one_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let (episodes, model) = prepared(dir.path());
    let again = json(&succeed(small(&["label", text(&episodes), "--json"], &[])));
    assert_eq!(again["episodes"], 0, "labelling again adds no labels");
    let other = json(&succeed(prudence(&["label", text(&episodes), "--rule", "distance < 100", "--json"])));
    assert_eq!((&other["episodes"], &other["safe"]), (&200.into(), &200.into()));

    let agent = dir.path().join("agent");
    let args = [
        "train",
        "navigation",
        "--algo",
        "safesac-h",
        "--safety",
        text(&model),
        "--data",
        text(&episodes),
        "--out",
        text(&agent),
        "--quiet",
    ];
    succeed(small(&args, &["train.steps=1000"]));
    let results = json(&succeed(prudence(&["eval", text(&agent), "--episodes", "7", "--json"])));
    assert_eq!((&results[0]["algo"], &results[0]["episodes"]), (&"safesac-h".into(), &7.into()));
    let svg = dir.path().join("curves.svg");
    succeed(prudence(&["plot", text(&agent), "--out", text(&svg)]));
    refused(prudence(&["plot", text(&agent), "--out", text(&svg)]), &["already exists"]);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<svg"));
}

#[test]
fn labels_are_read_from_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let (episodes, table) = (dir.path().join("episodes"), dir.path().join("labels.csv"));
    succeed(small(
        &["collect", "navigation", "--out", text(&episodes), "--quiet"],
        &["collect.steps=400", "train.random_steps=200"],
    ));
    std::fs::write(&table, "episode,safe\n0,safe\n1,unsafe\n2,1\n").unwrap();
    let labelled = json(&succeed(prudence(&["label", text(&episodes), "--from", text(&table), "--json"])));
    assert_eq!((&labelled["episodes"], &labelled["safe"]), (&3.into(), &2.into()));
}

#[test]
fn a_rollout_writes_every_step() {
    let dir = tempfile::tempdir().unwrap();
    let (actions, state, out) = (dir.path().join("a.csv"), dir.path().join("s.json"), dir.path().join("o.jsonl"));
    std::fs::write(&actions, "1,1\n".repeat(30)).unwrap();
    std::fs::write(&state, r#"{"location___x": 2.0, "location___y": 1.5}"#).unwrap();
    let args = [
        "rollout",
        "navigation",
        "--actions",
        text(&actions),
        "--state",
        text(&state),
        "--out",
        text(&out),
        "--set",
        "env.noise=false",
    ];
    succeed(prudence(&args));
    let lines: Vec<Value> = std::fs::read_to_string(&out).unwrap().lines().map(json).collect();
    assert_eq!(lines.len(), 21, "the initial state and twenty steps up to the horizon");
    assert_eq!(lines[0], serde_json::json!({"t": 0, "observation": [2.0, 1.5]}));
    assert_eq!(lines[1]["observation"], serde_json::json!([3.0, 2.5]));
    assert_eq!(lines[1]["reward"], -(6.0f64.powi(2) + 7.5f64.powi(2)).sqrt());
    assert_eq!(lines[20]["truncated"], true);
    assert_eq!(lines[20]["terminated"], false);
    assert!(lines[3]["signals"]["in_danger"].is_number() && lines[3]["state"]["location___x"].is_number());
}

#[test]
fn tasks_benchmarks_and_completions_are_printed() {
    assert!(succeed(prudence(&["tasks"])).contains("navigation"));
    assert!(succeed(prudence(&["tasks", "navigation"])).contains("in_danger"));
    assert!(succeed(prudence(&["completions", "bash"])).contains("prudence"));
    let bench = json(&succeed(prudence(&["bench", "update", "--hidden", "32", "--batch", "16", "--json"])));
    let line = &bench[0];
    assert!(line["per_second"].as_f64().unwrap() > 0.0 && line["floor_per_second"].as_f64().unwrap() > 0.0);
    for key in ["bench", "algo", "hidden", "batch", "population", "threads"] {
        assert!(!line[key].is_null(), "{key}");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in ["run", "tasks", "collect", "label", "fit", "train", "resume", "eval", "plot", "rollout", "engines"]
    {
        let help = succeed(prudence(&[command, "--help"]));
        assert!(help.contains("Example") && help.contains(&format!("prudence {command}")), "{command}");
    }
}
