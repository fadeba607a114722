//! Processes that are killed at any moment, and processes that meet in one folder.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{contents, prudence, run, small, succeed, text};
use prudence::random::stream;
use rand::RngExt as _;

fn start(out: &Path) -> Command {
    let args = ["run", "navigation", "--out", text(out), "--quiet", "--seeds", "1", "--rounds", "1", "--episodes", "3"];
    let more = [
        "collect.steps=1600",
        "train.steps=1600",
        "train.random_steps=400",
        "train.record_every=400",
        "train.checkpoint_every=200",
        "safety.steps=150",
    ];
    small(&args, &more)
}

/// Files with their bytes, and the episodes of each store.
type Results = (Vec<(PathBuf, Vec<u8>)>, Vec<Vec<prudence::Episode>>);

/// The files of a run, stores by their episodes: how these are divided among shards depends on the interruptions. Labels
/// are compared without the time at which they were given.
fn results(run: &Path) -> Results {
    let (mut files, mut stores) = (Vec::new(), Vec::new());
    for (path, bytes) in contents(run) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "store.json" {
            let store = prudence::Store::open(&run.join(path.parent().unwrap())).unwrap();
            stores.push(store.read(0..store.len()).unwrap());
            let labels = path.with_file_name("labels.jsonl");
            let log = prudence::LabelLog::open(&run.join(&labels)).unwrap();
            let verdict = |label: &prudence::Label| prudence::Label { when: String::new(), ..label.clone() };
            let verdicts: Vec<_> = log.labels().iter().map(verdict).collect();
            files.push((labels, format!("{verdicts:?}").into_bytes()));
        }
        if !(name.starts_with("shard") || name == "index.jsonl" || name == "report.html") {
            files.push((path, bytes));
        }
    }
    (files, stores)
}

#[track_caller]
fn assert_same_results(one: &Path, other: &Path, what: &str) {
    let (one, other) = (results(one), results(other));
    let names = |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    assert_eq!(names(&one.0), names(&other.0), "{what}");
    for (a, b) in one.0.iter().zip(&other.0) {
        assert!(a == b, "{what}: {} differs", a.0.display());
    }
    assert!(one.1 == other.1, "{what}: the stored episodes differ");
}

/// How long an undisturbed run takes, and its folder.
fn undisturbed(dir: &Path) -> (PathBuf, f64) {
    let whole = dir.join("whole");
    let watch = prudence::Stopwatch::start();
    succeed(start(&whole));
    (whole, watch.seconds())
}

#[test]
fn a_run_that_is_killed_at_any_moment_resumes_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, seconds) = undisturbed(dir.path());
    let mut rng = stream(7, "kills", 0);
    let (mut killed, mut attempts) = (0, 0);
    while killed < 50 {
        attempts += 1;
        assert!(attempts < 200, "{killed} kills in {attempts} attempts");
        let cut = dir.path().join(format!("cut-{attempts}"));
        let mut child = start(&cut).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Most moments are spread over the whole run; some are in its first milliseconds.
        let share = if attempts % 5 == 0 { 0.05 } else { 1.0 };
        let delay = rng.random_range(0.0..share * seconds);
        std::thread::sleep(Duration::from_secs_f64(delay));
        if child.try_wait().unwrap().is_some() {
            continue; // it was faster this time
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
        let resumed = run(prudence(&["resume", text(&cut), "--quiet"]));
        if !resumed.status.success() {
            // Killed before its folder was complete: the same command starts again in what it left behind.
            let message = String::from_utf8_lossy(&resumed.stderr).into_owned();
            assert!(message.contains("not a run's folder") || message.contains("no such folder"), "{message}");
            succeed(start(&cut));
        }
        assert_same_results(&whole, &cut, &format!("killed after {delay:.3} of {seconds:.3} s"));
        std::fs::remove_dir_all(&cut).unwrap();
    }
}

#[test]
fn a_second_process_on_a_run_is_refused_and_the_first_is_not_disturbed() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, seconds) = undisturbed(dir.path());
    let mut rng = stream(8, "meetings", 0);
    let (mut met, mut attempts) = (0, 0);
    while met < 20 {
        attempts += 1;
        assert!(attempts < 100, "{met} meetings in {attempts} attempts");
        let shared = dir.path().join(format!("shared-{attempts}"));
        let mut first = start(&shared).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs_f64(rng.random_range(0.02..0.9 * seconds)));
        let (data, model) = (shared.join("round-0/data"), shared.join("round-0/other-model"));
        let second = run(match attempts % 3 {
            0 => prudence(&["label", text(&data)]), // adds nothing where the run has labelled
            1 => prudence(&["fit", text(&data), "--out", text(&model), "--set", "safety.steps=1", "--quiet"]),
            _ => prudence(&["resume", text(&shared), "--quiet"]),
        });
        assert!(!model.exists() || second.status.success(), "a refused fit creates nothing");
        if first.try_wait().unwrap().is_none() {
            let message = String::from_utf8_lossy(&second.stderr).into_owned();
            assert_eq!(second.status.code(), Some(2), "{message}");
            if shared.join("command.json").exists() {
                let holder = format!("in use by process {} on ", first.id());
                let early = ["not a run's folder", "no such folder", "no stored episodes", "cannot open", "label"];
                let too_early = early.iter().any(|text| message.contains(text));
                assert!(message.contains(&holder) || too_early, "{message}");
            }
            met += 1;
        }
        assert!(first.wait().unwrap().success());
        assert_same_results(&whole, &shared, "with a second process");
        std::fs::remove_dir_all(&shared).unwrap();
    }
}

#[test]
fn a_termination_signal_stops_at_a_checkpoint_and_says_how_to_continue() {
    let dir = tempfile::tempdir().unwrap();
    let whole = undisturbed(dir.path()).0;
    let cut = dir.path().join("cut");
    let mut command = start(&cut);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = cut.join("round-0");
    while !begun.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began");
        std::thread::sleep(Duration::from_millis(1));
    }
    terminate(child.id());
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(&format!("prudence resume {}", text(&cut))), "{message}");
    succeed(prudence(&["resume", text(&cut), "--quiet"]));
    assert_same_results(&whole, &cut, "terminated");
}

/// Evaluation has nothing to continue, so a signal ends it at once.
#[test]
fn a_termination_signal_ends_an_evaluation() {
    let dir = tempfile::tempdir().unwrap();
    let whole = undisturbed(dir.path()).0;
    let mut eval = prudence(&["eval", text(&whole), "--episodes", "1000000"]);
    let mut child = eval.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none(), "it ended before the signal");
    terminate(child.id());
    let watch = prudence::Stopwatch::start();
    let output = child.wait_with_output().unwrap();
    assert!(watch.seconds() < 5.0 && !output.status.success());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("resume"), "there is nothing to continue");
}

/// Training must not end because the reader of its messages has ended.
#[test]
fn a_run_continues_if_nobody_reads_its_messages() {
    let dir = tempfile::tempdir().unwrap();
    let (loud, whole) = (dir.path().join("loud"), undisturbed(dir.path()).0);
    let mut command = start(&loud);
    let quiet = command.get_args().position(|arg| arg == "--quiet").unwrap();
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = prudence(&[]);
    command.args(args[..quiet].iter().chain(&args[quiet + 1..]));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().unwrap().success());
    assert_same_results(&whole, &loud, "without readers");
}

/// Sends SIGTERM.
fn terminate(process: u32) {
    assert!(Command::new("kill").arg(process.to_string()).status().unwrap().success());
}
