//! Replicas: each is an ordinary run, and the results over them are put together.

mod common;

use std::path::Path;

use common::{contents, prudence, small, succeed, text};
use serde_json::Value;

const TINY: &[&str] = &["collect.steps=1600", "train.steps=1200", "train.random_steps=400", "safety.steps=60"];

fn start(out: &Path, more: &[&str]) -> std::process::Command {
    let mut args = vec!["run", "navigation", "--out", text(out), "--quiet", "--rounds", "0", "--episodes", "3"];
    args.extend(more);
    small(&args, TINY)
}

fn evaluation(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("evaluation.json")).unwrap()).unwrap()
}

#[test]
fn a_replica_is_the_run_with_its_seed_and_an_unfinished_one_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let (all, one) = (dir.path().join("all"), dir.path().join("one"));
    succeed(start(&all, &["--replicas", "3", "--seed", "7", "--threads", "2"]));
    succeed(start(&one, &["--seeds", "1", "--seed", "8", "--threads", "1"]));
    let differs = |name: &str| name == "report.html" || name == "command.json";
    let of = |run: &Path| -> Vec<_> {
        contents(run).into_iter().filter(|(path, _)| !differs(&path.to_string_lossy())).collect()
    };
    assert!(of(&all.join("replica-8")) == of(&one), "replica 8 is the run with seed 8");
    let whole = evaluation(&all);
    assert_eq!(whole["results"][1]["per_replica"].as_array().unwrap().len(), 3);
    assert!(whole["results"][1]["over_replicas"].is_null(), "three replicas are too few for an interval");

    let replica = all.join("replica-9");
    for lost in ["evaluation.json", "round-0/safesac-h/seed-9/policy.safetensors"] {
        std::fs::remove_file(replica.join(lost)).unwrap();
    }
    std::fs::remove_dir_all(all.join("replica-7")).unwrap();
    std::fs::remove_file(all.join("evaluation.json")).unwrap();
    succeed(prudence(&["resume", text(&all), "--quiet"]));
    assert_eq!(evaluation(&all), whole);
    let agents = succeed(prudence(&["eval", text(&all), "--episodes", "2", "--json"]));
    let agents: Value = serde_json::from_str(&agents).unwrap();
    assert_eq!((&agents[1]["seeds"], &agents[1]["episodes"]), (&3.into(), &6.into()));
    assert_eq!(agents[1]["per_replica"].as_array().unwrap().len(), 3);
    assert!(agents[1]["over_replicas"].is_null());
    let report = std::fs::read_to_string(all.join("report.html")).unwrap();
    let together: Vec<&str> =
        report.split("all replicas: ").skip(1).map(|rest| rest.split_once('<').unwrap().0).collect();
    assert!(together.len() == 2 && together.iter().all(|share| !share.contains(" to ")), "{together:?}");
    assert!(report.contains("too few replicas to say") && !report.contains("95\u{a0}% t-interval"));
    let agents = succeed(prudence(&["eval", text(&all), "--episodes", "2"]));
    assert!(!agents.contains('\u{2013}'), "an interval is written with a dash: {agents}");
}

#[test]
fn from_five_replicas_on_there_are_intervals_over_them() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    succeed(start(&run, &["--replicas", "5"]));
    let result = &evaluation(&run)["results"][1];
    for key in ["safe_share", "return_mean"] {
        let over = &result["over_replicas"][key];
        let (mean, low) = (over["mean"].as_f64().unwrap(), over["t_interval"][0].as_f64().unwrap());
        assert!(low <= mean && over["bootstrap_interval"][1].is_number(), "{over}");
    }
    let report = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(report.contains("5 independent replicas") && report.contains("t-interval"));
}
