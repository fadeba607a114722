//! A fit that is stopped at any step and started again gives the same files, and takes its saved state only for itself.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use prudence::{Bar, Error, Labeller, Progress, Session, Task};

/// Asks the session to stop at a step of the fit.
struct StopAt {
    step: u64,
    session: Arc<OnceLock<Session>>,
}

impl Progress for StopAt {
    fn begin(&self, _: &str, _: u64) -> Box<dyn Bar> {
        Box::new(StopAt { step: self.step, session: self.session.clone() })
    }
}

impl Bar for StopAt {
    fn set(&self, position: u64) {
        if position == self.step {
            self.session.get().unwrap().stop();
        }
    }
}

fn stopping_at(step: u64) -> Session {
    let cell = Arc::new(OnceLock::new());
    let session = Session::new(1).unwrap().with_progress(Arc::new(StopAt { step, session: cell.clone() }));
    cell.set(session.clone()).ok().unwrap();
    session
}

fn task() -> Task {
    let small = [
        "run.seeds=1",
        "collect.steps=800",
        "train.steps=800",
        "train.random_steps=100",
        "train.test_episodes=2",
        "safety.steps=40",
        "safety.ensemble=2",
        "rule=\"distance > 8\"",
    ];
    Task::named("navigation").unwrap().with(&small).unwrap()
}

fn stores(task: &Task, dir: &Path) -> Vec<PathBuf> {
    let collected = prudence::collect(task, &dir.join("episodes"), &Session::new(1).unwrap()).unwrap();
    prudence::label(&dir.join("episodes"), &Labeller::of(task)).unwrap();
    collected.stores
}

fn files(folder: &Path) -> [Vec<u8>; 2] {
    ["model.safetensors", "quality.json"].map(|name| std::fs::read(folder.join(name)).unwrap())
}

#[test]
fn a_fit_that_is_stopped_continues_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let (task, free) = (task(), Session::new(2).unwrap());
    let stores = stores(&task, dir.path());
    let whole = dir.path().join("whole");
    prudence::fit(&task, &stores, &whole, 3, &free).unwrap();
    for step in [1, 7, 39] {
        let cut = dir.path().join(format!("cut-{step}"));
        let stopped = prudence::fit(&task, &stores, &cut, 3, &stopping_at(step));
        assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
        assert!(cut.join("fit.safetensors").is_file() && !cut.join("model.safetensors").exists());
        prudence::fit(&task, &stores, &cut, 3, &free).unwrap();
        assert!(files(&cut) == files(&whole), "stopped at step {step}");
        assert!(!cut.join("fit.safetensors").exists(), "the saved state is of no more use");
    }
}

#[test]
fn the_saved_state_of_another_fit_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (task, free) = (task(), Session::new(2).unwrap());
    let stores = stores(&task, dir.path());
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    prudence::fit(&task, &stores, &whole, 4, &free).unwrap();
    prudence::fit(&task, &stores, &cut, 3, &stopping_at(20)).unwrap_err();
    prudence::fit(&task, &stores, &cut, 4, &free).unwrap();
    assert!(files(&cut) == files(&whole), "the state of seed 3 entered the model of seed 4");

    let refused = prudence::fit(&task, &stores, &cut, 5, &free).unwrap_err().to_string();
    assert!(refused.contains("fitted to other episodes or labels, or with other settings"), "{refused}");
    assert!(files(&cut) == files(&whole));
}

#[test]
fn a_damaged_state_of_a_fit_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (task, free) = (task(), Session::new(2).unwrap());
    let stores = stores(&task, dir.path());
    let cut = dir.path().join("cut");
    prudence::fit(&task, &stores, &cut, 3, &stopping_at(20)).unwrap_err();
    let state = cut.join("fit.safetensors");
    let good = std::fs::read(&state).unwrap();
    for place in (0..good.len()).step_by(good.len() / 50) {
        let mut damaged = good.clone();
        damaged[place] ^= 4;
        std::fs::write(&state, damaged).unwrap();
        let error = prudence::fit(&task, &stores, &cut, 3, &free).unwrap_err().to_string();
        assert!(error.contains("fit.safetensors"), "byte {place}: {error}");
    }
    assert!(!cut.join("model.safetensors").exists());
}
