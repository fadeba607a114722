//! Looking at data: `prudence data`, several rules in `eval`, and what is said about labels that are all the same.

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::{prudence, run, small, succeed, text};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn stores_are_summarised_and_episodes_are_shown_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let episodes = dir.path().join("episodes");
    succeed(small(
        &["collect", "navigation", "--out", text(&episodes), "--quiet", "--seed", "3"],
        &["collect.steps=1600"],
    ));
    let store = episodes.join("episodes-seed-3");
    let unlabelled = json(&succeed(prudence(&["data", "info", text(&store), "--json"])));
    assert_eq!((&unlabelled[0]["episodes"], &unlabelled[0]["labelled"]), (&80.into(), &0.into()));
    assert!(succeed(prudence(&["data", "info", text(&store)])).contains("no cases"));
    succeed(prudence(&["label", text(&episodes), "--rule", "distance > 11.5", "--set", "label.extra_starts=1"]));
    let info = json(&succeed(prudence(&["data", "info", text(&store), "--json"])));
    assert_eq!((&info[0]["labelled"], &info[0]["segments"]), (&80.into(), &80.into()));
    assert_eq!(info[0]["annotators"]["rule: distance > 11.5"], 160);

    let model = dir.path().join("model");
    succeed(small(&["fit", text(&episodes), "--out", text(&model), "--quiet"], &[]));
    let shown = json(&succeed(prudence(&[
        "data",
        "show",
        text(&store),
        "--episode",
        "79",
        "--safety",
        text(&model),
        "--json",
    ])));
    let steps = shown["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 20);
    let total: f64 = steps.iter().map(|step| step["reward"].as_f64().unwrap()).sum();
    assert!((total - shown["return"].as_f64().unwrap()).abs() < 1e-3);
    assert!(
        steps.iter().all(|step| step["log_prob"].as_f64().unwrap() <= 0.0 && step["signals"]["distance"].is_number())
    );
    let table = succeed(prudence(&["data", "show", text(&store), "--episode", "79"]));
    assert_eq!(table.lines().count(), 22, "a headline, headings, and a row per step");
    for picture in ["signals.svg", "episode.gif", "sheet.png"] {
        let file = dir.path().join(picture);
        let args = ["data", "show", text(&store), "--episode", "79", "--out", text(&file)];
        succeed(prudence(&args));
        assert!(std::fs::metadata(&file).unwrap().len() > 1000);
        assert!(!run(prudence(&args)).status.success(), "it exists");
        succeed(prudence(&[&args[..], &["--force"]].concat()));
    }
    let outside = run(prudence(&["data", "show", text(&store), "--episode", "80"]));
    assert!(String::from_utf8_lossy(&outside.stderr).contains("the store holds 80"));
}

/// The recorded actions lead to other observations in another environment.
#[test]
fn an_episode_of_another_environment_is_not_drawn_as_if_it_were_this_ones() {
    let dir = tempfile::tempdir().unwrap();
    let episodes = dir.path().join("episodes");
    succeed(small(&["collect", "navigation", "--out", text(&episodes), "--quiet"], &["collect.steps=1600"]));
    let other = dir.path().join("other");
    succeed(small(
        &["collect", "navigation", "--out", text(&other), "--quiet", "--seed", "1"],
        &["collect.steps=1600"],
    ));
    let (store, copy) = (other.join("episodes-seed-1"), episodes.join("episodes-seed-1"));
    std::fs::rename(store, &copy).unwrap();
    succeed(prudence(&["data", "show", text(&copy), "--out", text(&dir.path().join("same.gif"))]));
    let renamed = episodes.join("episodes-seed-2");
    std::fs::rename(copy, &renamed).unwrap();
    let refused = run(prudence(&["data", "show", text(&renamed), "--out", text(&dir.path().join("x.gif"))]));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("replaying episode 0 gives other observations from step 1 on"), "{message}");
}

#[test]
fn several_rules_judge_the_same_episodes() {
    let dir = tempfile::tempdir().unwrap();
    let agent = dir.path().join("agent");
    succeed(small(&["train", "navigation", "--algo", "sac", "--out", text(&agent), "--quiet"], &[]));
    let rules = ["distance >= 0", "distance > 1000", "count(in_danger) <= 1"];
    let mut args = vec!["eval", text(&agent), "--episodes", "20", "--json"];
    rules.iter().for_each(|rule| args.extend(["--rule", rule]));
    let results = json(&succeed(prudence(&args)));
    let safe: Vec<u64> = (0..4).map(|i| results[i]["safe"].as_u64().unwrap()).collect();
    assert_eq!(safe[1..3], [20, 0]);
    assert_eq!(safe[0], safe[3], "the task's own rule comes first");
    assert!(results[0]["rule"].is_null() && results[2]["rule"] == rules[1]);
    assert_eq!(results[0]["return_mean"], results[2]["return_mean"]);
}

#[test]
fn labels_that_are_all_the_same_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let episodes = dir.path().join("episodes");
    succeed(small(&["collect", "navigation", "--out", text(&episodes), "--quiet"], &["collect.steps=1600"]));
    for (rule, verdict) in [("distance >= 0", "safe"), ("distance < 0", "unsafe")] {
        let output = run(prudence(&["label", text(&episodes), "--rule", rule]));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && message.contains(&format!("all 80 labelled episodes are {verdict}")),
            "{message}"
        );
    }
}

/// With a small capacity the ring of the buffer wraps many times.
#[test]
fn replay_buffers_in_files_give_the_same_agents() {
    let dir = tempfile::tempdir().unwrap();
    let start = |out: &Path, place: &str| {
        let replay = format!("train.replay={place}");
        let more = [&replay[..], "train.capacity=600", "train.steps=8000"];
        small(&["train", "navigation", "--algo", "sac", "--out", text(out), "--quiet"], &more)
    };
    let files = |out: &Path| {
        let agent = out.join("round-0/sac/seed-0");
        ["policy.safetensors", "checkpoint.safetensors", "metrics.jsonl"]
            .map(|name| std::fs::read(agent.join(name)).unwrap())
    };
    let [memory, file, cut] = ["memory", "file", "cut"].map(|name| dir.path().join(name));
    succeed(start(&memory, "memory"));
    succeed(start(&file, "file"));
    let names: Vec<_> = std::fs::read_dir(&file).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() <= 5, "the files have no names: {names:?}");
    // The settings, of which checkpoints have a hash, differ.
    let [policy, _, metrics] = files(&memory);
    assert!(files(&file)[0] == policy && files(&file)[2] == metrics);

    let mut child = start(&cut, "file").stderr(Stdio::null()).spawn().unwrap();
    while !cut.join("round-0/sac/seed-0/checkpoint.safetensors").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!cut.join("round-0/sac/seed-0/policy.safetensors").exists(), "it ended before it was killed");
    succeed(prudence(&["resume", text(&cut), "--quiet"]));
    assert!(files(&file) == files(&cut), "killed and resumed");
}

/// Nothing depends on the times and machines that a run notes, so damage there must not keep it from being finished.
#[test]
fn a_damaged_list_of_sessions_does_not_stop_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    succeed(small(&["run", "navigation", "--out", text(&run), "--quiet", "--rounds", "0", "--episodes", "2"], &[]));
    let evaluation = run.join("evaluation.json");
    let whole = std::fs::read(&evaluation).unwrap();
    let path = run.join("sessions.jsonl");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[10] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    std::fs::remove_file(&evaluation).unwrap();
    succeed(prudence(&["resume", text(&run), "--quiet"]));
    assert_eq!(std::fs::read(&evaluation).unwrap(), whole);
}

#[test]
fn shells_complete_the_names_of_tasks() {
    let script = succeed(prudence(&["completions", "bash"]));
    assert!(script.contains("half-cheetah"));
}
