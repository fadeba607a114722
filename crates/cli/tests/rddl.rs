//! The command `prudence rddl`: its output, and that errors name the place.

mod common;

use std::path::{Path, PathBuf};

use common::{prudence, refused, succeed, text};
use serde_json::Value;

const DOMAIN: &str = "domain walk {
    types { side : object; mood : { @calm, @wild }; };
    pvariables {
        WIND : { non-fluent, real, default = 0.0 };
        x(side) : { state-fluent, real, default = 0.0 };
        n : { state-fluent, int, default = 0 };
        mood : { state-fluent, mood, default = @calm };
        far : { interm-fluent, bool };
        seen : { observ-fluent, real };
        push(side) : { action-fluent, real, default = 0.0 };
        turn : { action-fluent, mood, default = @calm };
    };
    cpfs {
        far = exists_{?s : side} [abs[x(?s)] > 1];
        x'(?s) = x(?s) + push(?s) + Normal(0, WIND);
        n' = n + 1;
        mood' = turn;
        seen = sum_{?s : side} [x'(?s)];
    };
    reward = 1 / n;
    action-preconditions { forall_{?s : side} [push(?s) >= -1 ^ push(?s) <= 1]; };
    termination { n >= 4; };
}
";
const INSTANCE: &str =
    "instance short { domain = walk; objects { side : {left, right}; }; non-fluents { WIND = 0.25; };
    init-state { x(left) = -0.5; }; horizon = 20; discount = 0.9; }";

/// Writes the two texts to a folder.
fn write(dir: &Path, domain: &str) -> (PathBuf, PathBuf) {
    let paths = (dir.join("walk.rddl"), dir.join("short.rddl"));
    std::fs::write(&paths.0, domain).unwrap();
    std::fs::write(&paths.1, INSTANCE).unwrap();
    paths
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn check_prints_a_summary_of_the_texts() {
    let dir = tempfile::tempdir().unwrap();
    let (domain, instance) = write(dir.path(), DOMAIN);
    let shown = succeed(prudence(&["rddl", "check", text(&instance), text(&domain)]));
    assert!(shown.contains("domain walk, instance short") && shown.contains("4 state-fluent"), "{shown}");
    let shown = succeed(prudence(&["rddl", "check", text(&domain), text(&instance), "--json"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["action_bounds"]["push___left"], serde_json::json!([-1.0, 1.0]));
    assert_eq!(shown["objects"]["mood"], serde_json::json!(["calm", "wild"]));
    assert_eq!((&shown["horizon"], &shown["discount"]), (&20.into(), &0.9.into()));
}

#[test]
fn simulate_writes_every_step_until_the_episode_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (domain, instance) = write(dir.path(), DOMAIN);
    let (d, i) = (text(&domain), text(&instance));
    let actions = dir.path().join("a.jsonl");
    std::fs::write(&actions, "{\"push___left\": 2.5, \"turn\": \"@wild\"}\n{}\n{\"turn\": \"calm\"}\n").unwrap();
    let steps = lines(&succeed(prudence(&["rddl", "simulate", d, i, "--no-noise", "--actions", text(&actions)])));
    assert_eq!(steps.len(), 4);
    assert_eq!(
        steps[0],
        serde_json::json!({"t": 0, "state": {"x___left": -0.5, "x___right": 0.0, "n": 0, "mood": "calm"}})
    );
    let expected = serde_json::json!({
        "t": 1,
        "action": {"push___left": 2.5, "push___right": 0.0, "turn": "wild"},
        "state": {"x___left": 2.0, "x___right": 0.0, "n": 1, "mood": "wild"},
        "interm": {"far": false},
        "observation": {"seen": 2.0},
        "reward": "inf",
        "terminated": false,
    });
    assert_eq!(steps[1], expected);
    assert_eq!((&steps[2]["interm"]["far"], &steps[2]["reward"]), (&true.into(), &1.0.into()));
    let all = lines(&succeed(prudence(&["rddl", "simulate", d, i, "--steps", "9"])));
    assert_eq!((all.len(), &all[4]["terminated"]), (5, &true.into()));
    let again = lines(&succeed(prudence(&["rddl", "simulate", d, i, "--steps", "9", "--seed", "0"])));
    let other = lines(&succeed(prudence(&["rddl", "simulate", d, i, "--steps", "9", "--seed", "1"])));
    assert!(all == again && all != other);
}

#[test]
fn invalid_texts_are_rejected_with_the_place_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.jsonl");
    let bad = |from: &str, to: &str, words: &[&str]| {
        let (domain, instance) = write(dir.path(), &DOMAIN.replacen(from, to, 1));
        let args = ["rddl", "simulate", text(&domain), text(&instance), "--out", text(&out)];
        refused(prudence(&args), words);
        assert!(!out.exists());
    };
    bad("x(?s) + push(?s)", "x(?s, ?s) + push(?s)", &["walk.rddl:15:18", "`x` has 1 parameter, 2 given", "^^^"]);
    bad("n' = n + 1", "n' = seen", &["walk.rddl:16:14", "the next state cannot depend on `seen` (observ-fluent)"]);
    bad("far = ", "far = far ^ ", &["walk.rddl:14:15", "a cycle between cpfs: far <- far"]);
    bad("mood' = turn", "mood' = 3", &["walk.rddl:17:17", "expected a value of type mood, found int"]);
    bad("push(?s) + Normal", "psh(?s) + Normal", &["walk.rddl:15:26", "did you mean `push`?"]);
    bad("push(?s) <= 1", "push(?s) <= -2", &["`push` has no value within its bounds -1 and -2"]);

    let (domain, instance) = write(dir.path(), DOMAIN);
    let (d, i) = (text(&domain), text(&instance));
    refused(prudence(&["rddl", "check", d]), &["no `instance` block"]);
    refused(prudence(&["rddl", "check", d, "nowhere.rddl"]), &["nowhere.rddl"]);
    refused(prudence(&["rddl", "check", d, d]), &["a second domain block"]);
    let noisy = dir.path().join("noisy.rddl");
    std::fs::write(&noisy, DOMAIN.replace("Normal(0, WIND)", "Uniform(0, WIND)")).unwrap();
    refused(prudence(&["rddl", "simulate", text(&noisy), i, "--no-noise"]), &["not Uniform", "noisy.rddl:15:37"]);
    let garbage = dir.path().join("garbage.rddl");
    let bytes: Vec<u8> = (0..10_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&garbage, bytes).unwrap();
    let message = refused(prudence(&["rddl", "check", text(&garbage), i]), &["garbage.rddl:1:"]);
    assert!(message.len() < 1000, "{message}");
    let actions = dir.path().join("a.jsonl");
    for (line, words) in [
        ("{\"psh\": 1}", &["line 1", "no action is called `psh`"]),
        ("{\"push___left\": true}", &["line 1", "expected a number"]),
        ("{\"turn\": \"angry\"}", &["line 1", "expected one of calm, wild"]),
        ("nonsense", &["line 1", "a.jsonl"]),
    ] {
        std::fs::write(&actions, line).unwrap();
        let args = ["rddl", "simulate", d, i, "--out", text(&out), "--actions", text(&actions)];
        refused(prudence(&args), words);
        assert!(!out.exists());
    }
    std::fs::write(&actions, "1.5\n").unwrap();
    refused(prudence(&["rddl", "simulate", d, i, "--uniforms", text(&actions)]), &["between 0 and 1"]);
}
