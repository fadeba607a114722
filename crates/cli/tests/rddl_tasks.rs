//! Tasks with a user's RDDL domain: they run from a task file, or are rejected with a clear error and no files.

mod common;

use std::path::Path;

use common::{prudence, refused, small, succeed, text};

const DOMAIN: &str = "domain tank {
    types { tank : object; };
    pvariables {
        LEAK : { non-fluent, real, default = 0.1 };
        level(tank) : { state-fluent, real, default = 1.0 };
        leaked(tank) : { interm-fluent, real };
        low : { interm-fluent, bool };
        fill(tank) : { action-fluent, real, default = 0.0 };
    };
    cpfs {
        leaked(?t) = LEAK * level(?t) + Normal(0.0, 0.01);
        low = exists_{?t : tank} [level(?t) < 0.8];
        level'(?t) = max[0.0, level(?t) - leaked(?t) + fill(?t)];
    };
    reward = -(sum_{?t : tank} [abs[level(?t) - 1.0]]);
    action-preconditions { forall_{?t : tank} [fill(?t) >= 0.0]; forall_{?t : tank} [fill(?t) <= 0.5]; };
}
";
const INSTANCE: &str = "non-fluents two { domain = tank; objects { tank : { left, right }; }; }
instance tanks { domain = tank; non-fluents = two; init-state { level(left) = 0.9; }; horizon = 10; discount = 1.0; }
";
const TASK: &str = "name = \"tank\"\nsummary = \"two tanks\"\nrule = \"count(low) <= 2\"\ntarget = 0.9\n
[env]\nkind = \"rddl\"\ndomain = \"tank.rddl\"\ninstance = \"tank-instance.rddl\"\n";

/// Writes the three files, with some words of the domain replaced.
fn write(dir: &Path, words: &[(&str, &str)]) {
    let domain = words.iter().fold(DOMAIN.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "`{from}` is not in the domain");
        text.replace(from, to)
    });
    for (name, text) in [("tank.rddl", domain.as_str()), ("tank-instance.rddl", INSTANCE), ("task.toml", TASK)] {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

#[test]
fn a_users_domain_runs_from_a_task_file() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[]);
    let task = dir.path().join("task.toml");
    assert!(succeed(prudence(&["tasks", text(&task)])).contains("leaked___left"));
    let out = dir.path().join("run");
    let args = ["run", text(&task), "--out", text(&out), "--seeds", "1", "--rounds", "0", "--episodes", "5", "--quiet"];
    succeed(small(&args, &[]));
    assert!(out.join("report.html").is_file());
    // The run's folder has copies of the texts, so the user's files no longer matter.
    std::fs::write(dir.path().join("tank.rddl"), "changed").unwrap();
    let moved = dir.path().join("moved");
    std::fs::rename(&out, &moved).unwrap();
    succeed(prudence(&["eval", text(&moved), "--episodes", "2", "--quiet"]));
    succeed(prudence(&["resume", text(&moved), "--quiet"]));
}

#[test]
fn domain_and_instance_may_share_a_file_and_be_given_by_set() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[]);
    std::fs::write(dir.path().join("all.rddl"), format!("{DOMAIN}{INSTANCE}")).unwrap();
    let out = dir.path().join("episodes");
    let mut command = small(
        &["collect", text(&dir.path().join("task.toml")), "--out", text(&out), "--quiet"],
        &["collect.steps=40", "train.random_steps=20", "env.domain=all.rddl", "env.instance=all.rddl"],
    );
    command.current_dir(dir.path());
    succeed(command);
    assert!(out.join("domain.rddl").is_file() && !out.join("instance.rddl").exists());
    succeed(prudence(&["resume", text(&out), "--quiet"]));
}

#[test]
fn a_rollout_steps_the_domain() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[]);
    let (task, actions) = (dir.path().join("task.toml"), dir.path().join("a.csv"));
    let (state, out) = (dir.path().join("s.json"), dir.path().join("o.jsonl"));
    std::fs::write(&actions, "0.5,0\n0,0.25\n").unwrap();
    std::fs::write(&state, r#"{"level___left": 1.0, "level___right": 0.5}"#).unwrap();
    let mut args = vec!["rollout", text(&task), "--actions", text(&actions), "--state", text(&state)];
    args.extend(["--set", "env.noise=false", "--out", text(&out)]);
    succeed(prudence(&args));
    let lines: Vec<serde_json::Value> =
        std::fs::read_to_string(&out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let levels = |line: usize| [0, 1].map(|i| lines[line]["observation"][i].as_f64().unwrap());
    assert_eq!(levels(0), [1.0, 0.5]);
    assert_eq!(levels(1), [1.0 - 0.1 + 0.5, 0.5 - 0.05]);
    assert_eq!(lines[1]["reward"], -0.5);
    assert_eq!(lines[1]["signals"]["low"], 1.0);
}

#[test]
fn invalid_texts_are_rejected_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (task, out) = (dir.path().join("task.toml"), dir.path().join("out"));
    let cases: &[(&str, &str, &[&str])] = &[
        ("level(?t) < 0.8", "level < 0.8", &["tank.rddl:12:", "level"]),
        ("LEAK * level(?t)", "LEAK * leaked(?t)", &["tank.rddl:11:", "cycle", "leaked"]),
        ("level(?t) < 0.8", "level(?t) + 0.8", &["tank.rddl:12:", "bool"]),
        ("LEAK * level(?t)", "LEEK * level(?t)", &["tank.rddl:11:", "LEEK", "LEAK"]),
        ("forall_{?t : tank} [fill(?t) <= 0.5];", "", &["fill___left", "action-preconditions"]),
        (
            "fill(tank) : { action-fluent, real, default = 0.0 }",
            "fill(tank) : { action-fluent, int, default = 0 }",
            &["fill___left", "real"],
        ),
        ("domain tank {", "domain tank ", &["tank.rddl:"]),
    ];
    for (from, to, words) in cases {
        write(dir.path(), &[(from, to)]);
        refused(prudence(&["run", text(&task), "--out", text(&out)]), words);
    }
    write(dir.path(), &[]);
    let (domain, instance) = (dir.path().join("tank.rddl"), dir.path().join("tank-instance.rddl"));
    let noise = ["run", text(&task), "--out", text(&out), "--set", "env.noise=false"];
    let uniform = DOMAIN.replace("Normal(0.0, 0.01)", "Uniform(0.0, 0.01)");
    std::fs::write(&domain, uniform).unwrap();
    refused(prudence(&noise), &["env.noise", "Uniform", "tank.rddl:11:"]);
    std::fs::remove_file(&domain).unwrap();
    refused(prudence(&["run", text(&task), "--out", text(&out)]), &["env.domain", "tank.rddl", "No such file"]);
    let garbage: Vec<u8> = (0..10_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&domain, garbage).unwrap();
    refused(prudence(&["run", text(&task), "--out", text(&out)]), &["tank.rddl:1:"]);
    refused(prudence(&["rddl", "check", text(&domain), text(&instance)]), &["tank.rddl:1:"]);
    assert!(!out.exists());
}
