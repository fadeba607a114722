//! Invalid input gives exit code 2, a message that says what is wrong and what would be accepted, and no files.

mod common;

use std::path::Path;

use common::{prepared, prudence, refused, small, succeed, text};

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn invalid_arguments_are_rejected_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let o = text(&out);
    let run = |more: &[&str]| {
        let mut args = vec!["run", "navigation", "--out", o];
        args.extend(more);
        prudence(&args)
    };
    refused(prudence(&["run", "navigatoin", "--out", o]), &["navigatoin", "navigation"]);
    refused(run(&["--set", "agent.hiden=[8]"]), &["setting agent.hiden", "hidden"]);
    refused(run(&["--set", "trian.steps=5"]), &["trian", "train"]);
    refused(run(&["--set", "train.steps=many"]), &["train.steps=many", "a whole number"]);
    refused(run(&["--set", "train.steps=-3"]), &["train.steps=-3"]);
    refused(run(&["--set", "train.steps"]), &["section.key=value"]);
    refused(run(&["--set", "train.steps=0"]), &["train.steps", "1 or more"]);
    refused(run(&["--set", "target=1.5"]), &["target", "below 1"]);
    refused(
        run(&["--set", "collect.steps=4000", "--set", "train.random_steps=3990"]),
        &["3990", "below collect.steps"],
    );
    refused(
        run(&["--set", "collect.steps=4000"]),
        &["train.random_steps = 4000", "below collect.steps", "an episode (20 steps)"],
    );
    let short = ["train", "navigation", "--algo", "sac", "--set", "train.steps=3000", "--out", o];
    refused(prudence(&short), &["train.random_steps = 4000", "below train.steps = 3000"]);
    refused(prudence(&["run", "no-such.toml", "--out", o]), &["no-such.toml", "no such file"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let over = elsewhere.path().join("over.toml");
    std::fs::write(&over, "[train]\nsteps = \"many\"\n").unwrap();
    refused(run(&["--config", text(&over)]), &["over.toml", "train.steps", "a whole number"]);
    refused(run(&["--set", "env.noise=loud"]), &["env.noise"]);
    refused(run(&["--set", "env.gravity=9.81"]), &["gravity"]);
    refused(run(&["--set", "rule=\"count(in_dagner) <= 1\""]), &["in_dagner", "in_danger"]);
    refused(run(&["--set", "rule=\"count(in_danger <= 1\""]), &["rule"]);
    refused(run(&["--algo", "ppo"]), &["ppo", "safesac-h"]);
    refused(run(&["--config", "no-such.toml"]), &["no-such.toml"]);
    refused(prudence(&["train", "navigation", "--algo", "safesac-h", "--out", o]), &["--safety"]);
    let missing = dir.path().join("no-model");
    let args = ["train", "navigation", "--algo", "safesac-h", "--safety", text(&missing), "--out", o];
    refused(prudence(&args), &["no-model", "prudence fit"]);
    refused(prudence(&["fit", text(dir.path()), "--out", o]), &["no stored episodes", "prudence collect"]);
    refused(prudence(&["resume", text(dir.path())]), &["not a run's folder"]);
    refused(prudence(&["eval", text(dir.path())]), &["not a run's folder"]);
    refused(prudence(&["eval", text(&missing)]), &["no-model", "no such folder"]);
    refused(prudence(&["plot", text(dir.path()), "--out", "curves.png"]), &["curves.png", ".svg"]);
    assert!(is_empty(dir.path()));
}

#[test]
fn an_existing_output_folder_is_rejected_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("mine");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("config.toml"), "# mine").unwrap();
    let o = text(&out);
    let message = refused(prudence(&["run", "navigation", "--out", o]), &["mine", "exists"]);
    assert!(!message.contains("resume"), "there is no run in it: {message}");
    refused(prudence(&["collect", "navigation", "--out", o]), &["mine", "exists"]);
    refused(prudence(&["train", "navigation", "--algo", "sac", "--out", o]), &["mine", "exists"]);
    let names: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["config.toml"]);
    assert_eq!(std::fs::read_to_string(out.join("config.toml")).unwrap(), "# mine");
}

#[test]
fn a_folder_with_a_lock_and_foreign_files_is_not_taken_for_one_that_a_killed_process_left() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join(".prudence.lock"), "").unwrap();
    for foreign in ["notes.txt", "results.part", "sub/config.toml"] {
        let path = out.join(foreign);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "mine").unwrap();
        refused(prudence(&["run", "navigation", "--out", text(&out)]), &["exists and is not empty"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        std::fs::remove_file(path).unwrap();
    }
    // Only the beginnings of what it would have created itself.
    std::fs::write(out.join("config.toml.part"), "[tr").unwrap();
    succeed(small(&["run", "navigation", "--out", text(&out), "--quiet", "--rounds", "0", "--episodes", "2"], &[]));
    let message = refused(prudence(&["run", "navigation", "--out", text(&out)]), &["exists"]);
    assert!(message.contains(&format!("prudence resume {}", text(&out))), "{message}");
}

#[test]
fn errors_in_the_files_of_a_rollout_name_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let out = dir.path().join("steps.jsonl");
    let roll = |actions: &Path, state: Option<&Path>| {
        let mut args = vec!["rollout", "navigation", "--actions", text(actions), "--out", text(&out)];
        args.extend(state.map(|s| ["--state", text(s)]).into_iter().flatten());
        prudence(&args)
    };
    let good = write("good.csv", "0.5,0.5\n1,1\n");
    refused(roll(&write("short.csv", "0.5,0.5\n1\n"), None), &["short.csv", "row 2", "expected 2"]);
    refused(roll(&write("word.csv", "0.5,up\n"), None), &["word.csv", "row 1", "up"]);
    refused(roll(&write("nan.csv", "0.5,NaN\n"), None), &["nan.csv", "row 1", "finite"]);
    refused(roll(Path::new("nowhere.csv"), None), &["nowhere.csv"]);
    let nan = write("nan.json", r#"{"location___x": NaN, "location___y": 1}"#);
    refused(roll(&good, Some(&nan)), &["nan.json", "NaN"]);
    let null = write("null.json", r#"{"location___x": null, "location___y": 1}"#);
    refused(roll(&good, Some(&null)), &["null.json", "location___x"]);
    let far = write("far.json", r#"{"location___x": 11, "location___y": 1}"#);
    refused(roll(&good, Some(&far)), &["far.json", "location___x"]);
    assert!(!out.exists());
}

#[test]
fn a_model_with_wrong_dimensions_or_a_damaged_one_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (_, model) = prepared(dir.path());
    let file = model.join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let out = dir.path().join("agent");
    let train =
        || small(&["train", "navigation", "--algo", "safesac-h", "--safety", text(&file), "--out", text(&out)], &[]);

    // The header has the sizes; a header of the same length keeps the offsets right.
    let place = bytes.windows(17).position(|w| w == b"\"observation\":\"2\"").unwrap();
    let mut other = bytes.clone();
    other[place + 15] = b'3';
    std::fs::write(&file, &other).unwrap();
    refused(train(), &["model.safetensors"]);

    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    refused(train(), &["model.safetensors"]);
    std::fs::write(&file, b"not a model").unwrap();
    refused(train(), &["model.safetensors", "safetensors"]);
    assert!(!out.exists());
}
