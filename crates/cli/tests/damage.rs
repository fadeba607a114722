//! A bit that flips in any file of a run is noticed by the command that reads the file, or changes nothing that is read.

mod common;

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use common::{prepared, prudence, refused, small, succeed, text};
use prudence::random::stream;
use prudence::{Agent, LabelLog, RunFolder, Session, Store, Task};
use rand::RngExt as _;

/// Flips in the larger files.
const FLIPS: usize = 2000;
/// Files up to this size are damaged at every byte.
const SMALL_FILE: usize = 4096;

/// What a command reads from a file, as text, or its error.
type Read = Box<dyn Fn(&Path) -> Result<String, String>>;

fn show<T: Debug, E: ToString>(result: Result<T, E>) -> Result<String, String> {
    result.map(|value| format!("{value:?}")).map_err(|error| error.to_string())
}

/// Every kind of file in a run, with what is read from it.
fn kinds(run: &Path) -> Vec<(PathBuf, Read)> {
    let folder = |levels: usize| move |path: &Path| path.ancestors().nth(levels).unwrap().to_owned();
    let (run_of, store_of, agent_of) = (folder(1), folder(1), folder(1));
    let task = |path: &Path| show(Task::open(path).map(|task| task.settings().clone()));
    let read_store = move |path: &Path| {
        let store = store_of(path);
        show(Store::open(&store).and_then(|store| {
            if let Some(torn) = store.torn() {
                return Ok((vec![], 0, Some(torn)));
            }
            Ok((store.read(0..store.len())?, store.len(), None))
        }))
        .and_then(|text| if text.contains("Some(\"") { Err("torn".to_owned()) } else { Ok(text) })
    };
    let resumed = |path: &Path| {
        // `resume` continues from checkpoints; in a complete run it reads them and writes the results again.
        let run = path.ancestors().nth(4).unwrap().to_owned();
        let outcome = Task::open(&run).and_then(|task| prudence::resume(&task, &run, &Session::new(2).unwrap()));
        show(outcome.map(|_| std::fs::read_to_string(run.join("evaluation.json")).unwrap()))
    };
    vec![
        (run.join("command.json"), Box::new(move |p| show(RunFolder::open(&run_of(p))))),
        (run.join("config.toml"), Box::new(move |p| task(&run_of(p)))),
        (run.join("evaluation.json"), Box::new(|p| show(prudence::files::read_json::<serde_json::Value>(p, 1 << 30)))),
        (run.join("round-0/data/sac-seed-0/store.json"), Box::new(read_store)),
        (run.join("round-0/data/sac-seed-0/index.jsonl"), Box::new(read_store)),
        (run.join("round-0/data/sac-seed-0/shard-00000.parquet"), Box::new(read_store)),
        (
            run.join("round-0/data/sac-seed-0/labels.jsonl"),
            Box::new(|p| match LabelLog::open(p) {
                Ok(log) if log.torn().is_some() => Err("torn".to_owned()),
                log => show(log.map(|log| log.labels().to_vec())),
            }),
        ),
        (run.join("round-0/safety/model.safetensors"), Box::new(|p| show(prudence::load_model(p)))),
        (
            run.join("round-0/safety/quality.json"),
            Box::new(|p| show(prudence::files::read_json::<serde_json::Value>(p, 1 << 30))),
        ),
        (run.join("round-0/safesac-h/seed-0/policy.safetensors"), Box::new(|p| show(Agent::load(p)))),
        (
            run.join("round-0/safesac-h/seed-0/metrics.jsonl"),
            Box::new(move |p| {
                let (_, agent) = prudence::AgentFolder::open(&agent_of(p)).unwrap();
                show(agent.records())
            }),
        ),
        (run.join("round-0/safesac-h/seed-0/checkpoint.safetensors"), Box::new(resumed)),
    ]
}

fn tiny_run(dir: &Path) -> PathBuf {
    let run = dir.join("run");
    let args =
        ["run", "navigation", "--out", text(&run), "--quiet", "--seeds", "1", "--rounds", "0", "--episodes", "2"];
    let more = [
        "collect.steps=1000",
        "train.steps=400",
        "train.random_steps=400",
        "train.record_every=200",
        "safety.steps=20",
        "agent.hidden=[6,6]",
        "safety.encoder=[4]",
        "safety.hidden=3",
        "safety.decoder=[4]",
    ];
    succeed(small(&args, &more));
    run
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let run = tiny_run(dir.path());
    let mut rng = stream(1, "flips", 0);
    let (mut flips, mut silent) = (0, Vec::new());
    for (path, read) in kinds(&run) {
        let good = std::fs::read(&path).unwrap();
        let expected = read(&path).unwrap();
        let places: Vec<usize> = if good.len() <= SMALL_FILE {
            (0..good.len()).collect()
        } else {
            (0..FLIPS).map(|_| rng.random_range(0..good.len())).collect()
        };
        let mut harmless = 0;
        for place in places {
            let mut damaged = good.clone();
            damaged[place] ^= 1 << rng.random_range(0..8);
            std::fs::write(&path, damaged).unwrap();
            flips += 1;
            match read(&path) {
                Err(_) => {}
                Ok(found) if found == expected => harmless += 1,
                Ok(_) => silent.push((path.clone(), place)),
            }
        }
        std::fs::write(&path, &good).unwrap();
        println!("{}: {} bytes, {harmless} flips changed nothing", path.display(), good.len());
    }
    println!("{flips} flips, {} silent", silent.len());
    assert!(silent.is_empty(), "{:?} ...", &silent[..silent.len().min(10)]);
}

/// Commands on the episodes of a collection read its settings, and verify them first.
#[test]
fn no_flipped_bit_in_a_collections_settings_goes_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let (episodes, model) = prepared(dir.path());
    let path = episodes.join("config.toml");
    let good = std::fs::read(&path).unwrap();
    let mut rng = stream(2, "flips", 0);
    let out = dir.path().join("other-model");
    for place in (0..good.len()).step_by(3) {
        let mut damaged = good.clone();
        damaged[place] ^= 1 << rng.random_range(0..8);
        std::fs::write(&path, damaged).unwrap();
        refused(prudence(&["fit", text(&episodes), "--out", text(&out)]), &["config.toml"]);
        assert!(!out.exists());
    }
    refused(prudence(&["label", text(&episodes)]), &["config.toml"]);
    std::fs::write(&path, &good).unwrap();
    assert!(model.join("model.safetensors").exists());
}

#[test]
fn a_damaged_file_is_named_by_the_command_that_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let run = tiny_run(dir.path());
    let agent = run.join("round-0/safesac-h/seed-0");
    let store = run.join("round-0/data/sac-seed-0");
    let figure = dir.path().join("figure.svg");
    let model = dir.path().join("model");
    let commands: [(&str, Vec<&str>); 9] = [
        ("command.json", vec!["eval", text(&run), "--episodes", "2"]),
        ("config.toml", vec!["resume", text(&run)]),
        ("round-0/safesac-h/seed-0/policy.safetensors", vec!["eval", text(&run), "--episodes", "2"]),
        ("round-0/safesac-h/seed-0/policy.safetensors", vec!["rollout", "--agent", text(&agent)]),
        ("round-0/safesac-h/seed-0/checkpoint.safetensors", vec!["resume", text(&run)]),
        ("round-0/safesac-h/seed-0/metrics.jsonl", vec!["plot", text(&run), "--out", text(&figure)]),
        ("round-0/data/sac-seed-0/labels.jsonl", vec!["fit", text(&store), "--out", text(&model)]),
        ("round-0/data/sac-seed-0/shard-00000.parquet", vec!["label", text(&store), "--rule", "distance > 1"]),
        ("round-0/safety/model.safetensors", vec!["data", "check", text(&run)]),
    ];
    for (name, args) in commands {
        let path = run.join(name);
        let good = std::fs::read(&path).unwrap();
        let mut damaged = good.clone();
        damaged[good.len() / 2] ^= 4;
        std::fs::write(&path, damaged).unwrap();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        if args[0] == "data" {
            let output = prudence(&args).output().unwrap();
            assert_eq!(output.status.code(), Some(2));
            assert!(String::from_utf8_lossy(&output.stdout).contains(&file));
        } else {
            refused(prudence(&args), &[&file]);
        }
        std::fs::write(&path, good).unwrap();
        assert!(!figure.exists() && !model.join("model.safetensors").exists());
    }
    succeed(prudence(&["data", "check", text(&run)]));
}
