//! The same binary, configuration and seed give the same bits, for any number of threads and interruptions.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use common::{contents, prepared, prudence, small, succeed, text};

const ALGORITHMS: [&str; 4] = ["sac", "safesac-h", "safesac-noh", "safesac-nonlb"];

fn train_args<'a>(algo: &'a str, data: &'a Path, model: &'a Path, out: &'a Path) -> Vec<&'a str> {
    let mut args = vec!["train", "navigation", "--algo", algo, "--out", text(out), "--quiet"];
    if algo != "sac" {
        args.extend(["--data", text(data), "--safety", text(model)]);
    }
    args
}

#[test]
fn same_seed_gives_the_same_bits_at_any_thread_count() {
    let dir = tempfile::tempdir().unwrap();
    let (episodes, model) = prepared(dir.path());
    let outs: Vec<_> = ["a", "b", "c"].iter().map(|name| dir.path().join(name)).collect();
    for (out, threads) in outs.iter().zip(["1", "1", "2"]) {
        let args = [
            "train",
            "navigation",
            "--algo",
            "all",
            "--out",
            text(out),
            "--quiet",
            "--data",
            text(&episodes),
            "--safety",
            text(&model),
            "--seeds",
            "2",
            "--threads",
            threads,
        ];
        succeed(small(&args, &["train.steps=1000"]));
    }
    let first = contents(&outs[0].join("round-0"));
    assert!(first.iter().any(|(path, _)| path.ends_with("safesac-h/seed-1/metrics.jsonl")));
    assert!(first.iter().any(|(path, _)| path.ends_with("safesac-h/seed-1/checkpoint.safetensors")));
    for out in &outs[1..] {
        assert_same_files(&first, &contents(&out.join("round-0")));
    }
}

#[test]
fn different_seeds_give_different_agents() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    succeed(small(
        &["train", "navigation", "--algo", "sac", "--seeds", "2", "--out", text(&out), "--quiet"],
        &["train.steps=1500"],
    ));
    let policy = |seed: u64| std::fs::read(out.join(format!("round-0/sac/seed-{seed}/policy.safetensors"))).unwrap();
    assert_ne!(policy(0), policy(1));
}

/// Waits for the first checkpoint, then kills the process (SIGKILL). Returns false if it ended before.
fn kill_midway(mut child: Child, checkpoint: &Path, finished: &Path) -> bool {
    for _ in 0..6000 {
        if checkpoint.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(40));
    child.kill().unwrap();
    child.wait().unwrap();
    checkpoint.exists() && !finished.exists()
}

fn interrupted_equals_whole(start: impl Fn(&Path) -> std::process::Command, seed_dir: &str, dir: &Path) {
    let (whole, cut) = (dir.join("whole"), dir.join("cut"));
    succeed(start(&whole));
    let child = start(&cut).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let place = cut.join(seed_dir);
    let killed = kill_midway(child, &place.join("checkpoint.safetensors"), &place.join("policy.safetensors"));
    assert!(killed, "the run ended before it could be killed: make it longer");
    succeed(prudence(&["resume", text(&cut), "--quiet"]));
    // How episodes are distributed over shards depends on where the run was interrupted, so stores are compared by
    // content.
    let outside_stores = |files: Vec<(PathBuf, Vec<u8>)>| -> Vec<(PathBuf, Vec<u8>)> {
        let of_store = |name: &str| name.starts_with("shard") || name == "index.jsonl";
        files.into_iter().filter(|(path, _)| !of_store(&path.file_name().unwrap().to_string_lossy())).collect()
    };
    assert_same_files(&outside_stores(contents(&whole)), &outside_stores(contents(&cut)));
    let stores = |run: &Path| -> Vec<PathBuf> {
        let manifests = contents(run).into_iter().filter(|(path, _)| path.ends_with("store.json"));
        manifests.map(|(path, _)| path.parent().unwrap().to_owned()).collect()
    };
    assert_eq!(stores(&whole), stores(&cut));
    assert!(!stores(&whole).is_empty());
    for store in stores(&whole) {
        assert!(episodes(&whole.join(&store)) == episodes(&cut.join(&store)), "{} differs", store.display());
    }
}

fn episodes(store: &Path) -> Vec<prudence::Episode> {
    let store = prudence::Store::open(store).unwrap();
    store.read(0..store.len()).unwrap()
}

/// Checks that both runs have the same files with the same bytes, including records and checkpoints.
fn assert_same_files(expected: &[(PathBuf, Vec<u8>)], found: &[(PathBuf, Vec<u8>)]) {
    let names = |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    assert_eq!(names(expected), names(found));
    for name in ["metrics.jsonl", "checkpoint.safetensors"] {
        assert!(expected.iter().any(|(path, _)| path.ends_with(name)), "no {name} was compared");
    }
    for (a, b) in expected.iter().zip(found) {
        assert!(a == b, "{} differs", a.0.display());
    }
}

#[test]
fn resume_equals_uninterrupted_run() {
    let dir = tempfile::tempdir().unwrap();
    let (episodes, model) = prepared(dir.path());
    for algo in ALGORITHMS {
        let place = dir.path().join(algo);
        std::fs::create_dir(&place).unwrap();
        let start = |out: &Path| small(&train_args(algo, &episodes, &model, out), &["train.steps=12000"]);
        interrupted_equals_whole(start, &format!("round-0/{algo}/seed-0"), &place);
    }
}

#[test]
fn resumed_collecting_equals_uninterrupted_collecting() {
    let dir = tempfile::tempdir().unwrap();
    let start = |out: &Path| small(&["collect", "navigation", "--out", text(out), "--quiet"], &["collect.steps=12000"]);
    interrupted_equals_whole(start, "round-0/sac/seed-0", dir.path());
    assert_eq!(episodes(&dir.path().join("whole/episodes-seed-0")).len(), 600);
}

#[test]
fn a_whole_run_resumes_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    let start = |out: &Path| {
        let args =
            ["run", "navigation", "--out", text(out), "--quiet", "--seeds", "1", "--rounds", "1", "--episodes", "5"];
        small(&args, &["train.steps=8000"])
    };
    succeed(start(&whole));
    let child = start(&cut).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let place = cut.join("round-0/safesac-h/seed-0");
    let killed = kill_midway(child, &place.join("checkpoint.safetensors"), &cut.join("report.html"));
    assert!(killed, "the run ended before it could be killed: make it longer");
    succeed(prudence(&["resume", text(&cut), "--quiet"]));
    for file in ["evaluation.json", "report.html"] {
        // The last line of a report says when and where it was made.
        let text = |run: &Path| -> Vec<String> {
            let text = std::fs::read_to_string(run.join(file)).unwrap();
            text.lines().filter(|line| !line.starts_with("<footer>")).map(str::to_owned).collect()
        };
        assert!(text(&whole) == text(&cut), "{file} differs");
    }
}
