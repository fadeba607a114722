//! Tests of the conformance suite itself: it must find each of the faults below by the promise that the fault breaks.

use std::sync::atomic::{AtomicU64, Ordering};

use prudence_env::conformance::{Chance, check};
use prudence_env::rddl::{Rddl, RddlSettings};
use prudence_env::{Drawable, Env, Error, Settable, Snapshots, Spec, Step};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    DoubledName,
    UnboundedAction,
    MissingSignal,
    NarrowBox,
    EarlyTruncation,
    NoTruncation,
    BothMarks,
    HiddenCounter,
    IgnoredSeed,
    UnclippedAction,
    NanTaken,
    StepOnBadAction,
    MoreStepsThanTheHorizon,
    StateNotSet,
    LooseState,
    MovedByBadState,
    StaleSnapshot,
    ShortSnapshot,
    SharedState,
}

static SHARED: AtomicU64 = AtomicU64::new(0);

struct Faulty {
    inner: Rddl,
    fault: Fault,
    spec: Spec,
    clock: usize,
    resets: u64,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        let inner = Rddl::new(&RddlSettings::builtin("navigation")).unwrap();
        let mut spec = inner.spec().clone();
        match fault {
            Fault::DoubledName => spec.signals[1] = "location___x".into(),
            Fault::UnboundedAction => spec.action.high[0] = f64::INFINITY,
            Fault::MissingSignal => spec.signals.push("speed".into()),
            Fault::NarrowBox => spec.observation.high[0] = 1.5,
            Fault::UnclippedAction => spec.action.high[1] = 0.5,
            Fault::NoTruncation => spec.horizon = 19,
            _ => {}
        }
        Self { inner, fault, spec, clock: 0, resets: 0 }
    }
}

impl Env for Faulty {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), Error> {
        self.clock = 0;
        self.resets += 1;
        let seed = match self.fault {
            Fault::IgnoredSeed => 0,
            Fault::HiddenCounter => seed ^ (self.resets << 32),
            Fault::SharedState => seed ^ (SHARED.fetch_add(1, Ordering::Relaxed) << 32),
            _ => seed,
        };
        self.inner.reset(seed, observation)
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error> {
        let bad = action.iter().any(|number| !number.is_finite());
        if bad && self.fault == Fault::NanTaken {
            return self.inner.step(&[0.0; 2], observation);
        }
        if bad && self.fault == Fault::StepOnBadAction {
            self.inner.step(&[0.0; 2], observation)?;
        }
        if self.fault == Fault::MoreStepsThanTheHorizon && self.clock == 20 {
            return Ok(Step { reward: 0.0, terminated: false, truncated: true });
        }
        let mut step = self.inner.step(action, observation)?;
        self.clock += 1;
        match self.fault {
            Fault::EarlyTruncation if self.clock == 19 => step.truncated = true,
            Fault::BothMarks if step.truncated => step.terminated = true,
            _ => {}
        }
        Ok(step)
    }

    fn signals(&self) -> &[f64] {
        self.inner.signals()
    }

    fn settable(&mut self) -> Option<&mut dyn Settable> {
        Some(self)
    }

    fn snapshots(&mut self) -> Option<&mut dyn Snapshots> {
        Some(self)
    }

    fn drawable(&self) -> Option<&dyn Drawable> {
        self.inner.drawable()
    }
}

impl Settable for Faulty {
    fn state(&self) -> Value {
        self.inner.state()
    }

    fn set_state(&mut self, state: &Value, observation: &mut [f64]) -> Result<(), Error> {
        match self.fault {
            Fault::StateNotSet => self.inner.set_state(&self.inner.state(), observation),
            Fault::LooseState if !state.is_object() => Ok(()),
            Fault::MovedByBadState if state.get("location___x").is_none() => {
                self.inner.step(&[1.0, 1.0], observation)?;
                Err(Error::State("moved".into()))
            }
            _ => self.inner.set_state(state, observation),
        }
    }
}

impl Snapshots for Faulty {
    fn snapshot(&self) -> Vec<u8> {
        self.inner.snapshot()
    }

    fn restore(&mut self, snapshot: &[u8], observation: &mut [f64]) -> Result<(), Error> {
        match self.fault {
            Fault::StaleSnapshot => {
                // The position in the random stream is lost.
                let mut stale = snapshot.to_vec();
                if let Some(word) = stale.get_mut(10..18) {
                    word.fill(0);
                }
                self.inner.restore(&stale, observation)
            }
            Fault::ShortSnapshot if snapshot.is_empty() => Ok(()),
            _ => self.inner.restore(snapshot, observation),
        }
    }
}

#[test]
fn every_fault_is_found_by_the_promise_it_breaks() {
    for (fault, promise) in [
        (Fault::DoubledName, "the spec is sound"),
        (Fault::UnboundedAction, "the spec is sound"),
        (Fault::MissingSignal, "every row is within the spec"),
        (Fault::NarrowBox, "every row is within the spec"),
        (Fault::EarlyTruncation, "episodes end terminated or truncated"),
        (Fault::NoTruncation, "episodes end terminated or truncated"),
        (Fault::BothMarks, "episodes end terminated or truncated"),
        (Fault::HiddenCounter, "a reset discards"),
        (Fault::IgnoredSeed, "different seeds give different episodes"),
        (Fault::UnclippedAction, "actions outside the action space"),
        (Fault::NanTaken, "an invalid call"),
        (Fault::StepOnBadAction, "an invalid call"),
        (Fault::MoreStepsThanTheHorizon, "a step before a reset or after the end"),
        (Fault::StateNotSet, "a state can be set again"),
        (Fault::LooseState, "an invalid state"),
        (Fault::MovedByBadState, "an invalid state"),
        (Fault::StaleSnapshot, "a snapshot continues"),
        (Fault::ShortSnapshot, "an invalid snapshot"),
        (Fault::SharedState, "the same seed and actions"),
    ] {
        let found = check(&|| Box::new(Faulty::new(fault)), Chance::Steps).expect_err("a fault was not found");
        assert!(found.starts_with(promise), "{fault:?} was found as {found:?}");
    }
}

#[test]
fn a_sound_environment_passes_only_with_the_right_kind_of_chance() {
    let sound = || -> Box<dyn Env> { Box::new(Faulty::new(Fault::None)) };
    check(&sound, Chance::Steps).unwrap();
    assert!(check(&sound, Chance::Nothing).unwrap_err().starts_with("different seeds give different episodes"));
    assert!(check(&sound, Chance::Start).unwrap_err().starts_with("different seeds give different episodes"));
}
