//! The promises that every environment keeps, as a suite for its tests to run.
//!
//! [`check`] drives new environments with random actions and returns a description of the first promise that is broken.
//! Comparisons are bit for bit, except after setting a state, which may not hold all that a simulator keeps internally.
//!
//! ```
//! use prudence_env::conformance::{Chance, check};
//! use prudence_env::rddl::{Rddl, RddlSettings};
//!
//! let make = || Rddl::new(&RddlSettings::builtin("navigation")).unwrap();
//! check(&|| Box::new(make()), Chance::Steps)?; // every step of navigation is random
//! # Ok::<(), String>(())
//! ```

use std::collections::HashSet;

use rand::RngExt as _;
use serde_json::{Value, json};

use prudence_core::random;

use crate::{Env, Error, Step};

/// Which part of an environment is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chance {
    /// Nothing: every seed gives the same episode.
    Nothing,
    /// Only the initial state.
    Start,
    /// The steps, and possibly the initial state.
    Steps,
}

/// Creates another environment of the kind under test.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Env>;

/// Checks every promise. The error names the broken promise and what was observed instead.
pub fn check(make: Make<'_>, chance: Chance) -> Result<(), String> {
    check_within(make, chance, TOLERANCE)
}

/// Like [`check`], but an episode that continues from a set state may deviate by `tolerance`: for engines that keep
/// contact data which is not part of the state.
pub fn check_within(make: Make<'_>, chance: Chance, tolerance: f64) -> Result<(), String> {
    let promises: [(&str, Promise); 14] = [
        ("the spec is sound", spec_is_sound),
        ("every row is within the spec", rows_within_spec),
        ("episodes end terminated or truncated, and are truncated only at the horizon", ends_are_marked),
        ("the same seed and actions give the same bits", same_seed_same_bits),
        ("different seeds give different episodes exactly where the environment is random", seeds_matter),
        ("a reset discards the previous episode", reset_discards),
        ("a step before a reset or after the end is an error", steps_need_an_episode),
        ("actions outside the action space are clipped to it", actions_are_clipped),
        ("an invalid call is an error and changes nothing", invalid_calls_change_nothing),
        ("a state can be set again", state_round_trip),
        ("an invalid state is rejected and changes nothing", invalid_states_change_nothing),
        ("a snapshot continues bit for bit", snapshot_continues),
        ("an invalid snapshot is rejected and changes nothing", invalid_snapshots_change_nothing),
        ("environments do not affect each other", no_shared_state),
    ];
    for (promise, keep) in promises {
        keep(make, chance).map_err(|seen| format!("{promise}: {seen}"))?;
    }
    state_continues(make, chance, tolerance).map_err(|seen| format!("an episode continues from a set state: {seen}"))
}

type Outcome = Result<(), String>;
type Promise = fn(Make<'_>, Chance) -> Outcome;

/// The number of steps where a whole episode is not needed, so that long episodes do not make the checks slow.
const SHORT: usize = 60;
/// How much an episode that continues from a set state may deviate: engines keep solver caches that no state holds.
const TOLERANCE: f64 = 1e-6;

/// Everything that one step returns, as bits; the row of the reset has no reward.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    observation: Vec<u64>,
    signals: Vec<u64>,
    reward: u64,
    terminated: bool,
    truncated: bool,
}

impl Row {
    fn ended(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// An environment with its current observation and the rows of the episode so far.
struct Driver {
    env: Box<dyn Env>,
    observation: Vec<f64>,
    rows: Vec<Row>,
}

impl Driver {
    fn start(make: Make<'_>, seed: u64) -> Result<Self, String> {
        let env = make();
        let observation = vec![f64::NAN; env.spec().observation.dim()];
        let mut driver = Self { env, observation, rows: Vec::new() };
        driver.reset(seed)?;
        Ok(driver)
    }

    fn reset(&mut self, seed: u64) -> Outcome {
        self.env.reset(seed, &mut self.observation).map_err(|error| format!("reset({seed}) failed: {error}"))?;
        self.rows.clear();
        self.see(Step { reward: 0.0, terminated: false, truncated: false });
        Ok(())
    }

    fn see(&mut self, step: Step) {
        self.rows.push(Row {
            observation: bits(&self.observation),
            signals: bits(self.env.signals()),
            reward: step.reward.to_bits(),
            terminated: step.terminated,
            truncated: step.truncated,
        });
    }

    fn over(&self) -> bool {
        self.rows.last().is_some_and(Row::ended)
    }

    /// Takes the actions in turn, until the episode ends.
    fn follow(&mut self, actions: &[Vec<f64>]) -> Outcome {
        for action in actions {
            if self.over() {
                break;
            }
            let step = self
                .env
                .step(action, &mut self.observation)
                .map_err(|error| format!("step {} with {action:?} failed: {error}", self.rows.len()))?;
            self.see(step);
        }
        Ok(())
    }

    /// The snapshot and the state, if the environment has them, and the signals.
    fn everything(&mut self) -> (Option<Vec<u8>>, Option<Value>, Vec<u64>) {
        (self.snapshot(), self.state(), bits(self.env.signals()))
    }

    fn snapshot(&mut self) -> Option<Vec<u8>> {
        self.env.snapshots().map(|env| env.snapshot())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), Error> {
        let Some(env) = self.env.snapshots() else {
            return Err(Error::State("the environment has no snapshots".into()));
        };
        env.restore(snapshot, &mut self.observation)
    }

    fn state(&mut self) -> Option<Value> {
        self.env.settable().map(|env| env.state())
    }

    fn set_state(&mut self, state: &Value) -> Result<(), Error> {
        let Some(env) = self.env.settable() else {
            return Err(Error::State("the environment has no state to set".into()));
        };
        env.set_state(state, &mut self.observation)
    }
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn numbers(bits: &[u64]) -> Vec<f64> {
    bits.iter().map(|bits| f64::from_bits(*bits)).collect()
}

/// Uniform random actions; with `stretch` above 1 some lie outside the action space.
fn actions(env: &dyn Env, index: u64, count: usize, stretch: f64) -> Vec<Vec<f64>> {
    let mut stream = random::stream(0, "conformance", index);
    let space = &env.spec().action;
    let mut draw = |low: f64, high: f64| (low + high) / 2.0 + stretch * (high - low) * (stream.random::<f64>() - 0.5);
    (0..count).map(|_| space.low.iter().zip(&space.high).map(|(low, high)| draw(*low, *high)).collect()).collect()
}

/// The rows of one episode.
fn episode(make: Make<'_>, seed: u64, actions: &[Vec<f64>]) -> Result<Vec<Row>, String> {
    let mut driver = Driver::start(make, seed)?;
    driver.follow(actions)?;
    Ok(driver.rows)
}

fn same_rows(what: &str, expected: &[Row], seen: &[Row]) -> Outcome {
    for (t, (expected, seen)) in expected.iter().zip(seen).enumerate() {
        ensure(expected == seen, || format!("{what}: row {t} is {}, not {}", words(seen), words(expected)))?;
    }
    ensure(expected.len() == seen.len(), || format!("{what}: {} rows, not {}", seen.len(), expected.len()))
}

fn words(row: &Row) -> String {
    let (observation, signals) = (numbers(&row.observation), numbers(&row.signals));
    let reward = f64::from_bits(row.reward);
    format!(
        "(observation {observation:?}, signals {signals:?}, reward {reward}, {}, {})",
        row.terminated, row.truncated
    )
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn spec_is_sound(make: Make<'_>, _: Chance) -> Outcome {
    let env = make();
    let spec = env.spec();
    for (name, space) in [("observation", &spec.observation), ("action", &spec.action)] {
        ensure(space.dim() > 0, || format!("the {name} space has no dimensions"))?;
        ensure(space.low.len() == space.high.len(), || format!("the {name} bounds differ in length"))?;
        let ordered = space.low.iter().zip(&space.high).all(|(low, high)| low < high);
        ensure(ordered, || format!("an interval of the {name} space is empty: {space:?}"))?;
    }
    let bounded = spec.action.low.iter().chain(&spec.action.high).all(|bound| bound.is_finite());
    ensure(bounded, || format!("the action space is not bounded: {:?}", spec.action))?;
    ensure(spec.horizon > 0, || "the horizon is 0".into())?;
    let names: HashSet<_> = spec.signals.iter().collect();
    ensure(names.len() == spec.signals.len(), || format!("a signal's name appears twice in {:?}", spec.signals))?;
    ensure(make().spec() == spec, || "two environments of the same kind have different specs".into())?;
    if let Some(scene) = env.drawable().and_then(|env| env.scene()) {
        for name in &scene.axes {
            ensure(spec.signals.contains(name), || format!("the scene's axis {name} is not a signal"))?;
        }
        let [left, right, bottom, top] = scene.bounds;
        ensure(left < right && bottom < top, || format!("the scene's bounds are empty: {:?}", scene.bounds))?;
    }
    Ok(())
}

fn rows_within_spec(make: Make<'_>, _: Chance) -> Outcome {
    let env = make();
    let spec = env.spec();
    for seed in 0..3 {
        for (t, row) in episode(make, seed, &actions(&*env, seed, spec.horizon, 1.0))?.iter().enumerate() {
            for (i, value) in numbers(&row.observation).into_iter().enumerate() {
                let (low, high) = (spec.observation.low[i], spec.observation.high[i]);
                let within = value.is_finite() && low <= value && value <= high;
                ensure(within, || format!("observation[{i}] = {value} at row {t}, outside [{low}, {high}]"))?;
            }
            let (given, named) = (row.signals.len(), spec.signals.len());
            ensure(given == named, || format!("{given} signals at row {t}, but {named} names"))?;
            ensure(numbers(&row.signals).iter().all(|signal| signal.is_finite()), || {
                format!("a signal at row {t} is not finite: {:?}", numbers(&row.signals))
            })?;
            let reward = f64::from_bits(row.reward);
            ensure(reward.is_finite(), || format!("the reward at row {t} is {reward}"))?;
        }
    }
    Ok(())
}

fn ends_are_marked(make: Make<'_>, _: Chance) -> Outcome {
    let env = make();
    let horizon = env.spec().horizon;
    let still: Vec<f64> =
        env.spec().action.low.iter().zip(&env.spec().action.high).map(|(l, h)| (l + h) / 2.0).collect();
    // In some tasks random actions fall over at once, while the neutral action reaches the horizon.
    for actions in [actions(&*env, 0, horizon + 1, 1.0), vec![still; horizon + 1]] {
        let rows = episode(make, 0, &actions)?;
        let Some((last, before)) = rows.split_last() else { return Err("no rows".into()) };
        let steps = before.len();
        ensure(steps <= horizon, || format!("an episode took {steps} steps, past the horizon of {horizon}"))?;
        ensure(last.ended(), || format!("the episode ended at step {steps}, neither terminated nor truncated"))?;
        // A terminated episode has no value beyond its end; a truncated one has.
        ensure(!(last.terminated && last.truncated), || format!("step {steps} is both terminated and truncated"))?;
        ensure(!last.truncated || steps == horizon, || format!("truncated at step {steps}, horizon {horizon}"))?;
    }
    Ok(())
}

fn same_seed_same_bits(make: Make<'_>, _: Chance) -> Outcome {
    let env = make();
    for seed in [0, 1, u64::MAX] {
        let actions = actions(&*env, seed, env.spec().horizon, 1.0);
        same_rows(&format!("seed {seed}"), &episode(make, seed, &actions)?, &episode(make, seed, &actions)?)?;
    }
    Ok(())
}

fn seeds_matter(make: Make<'_>, chance: Chance) -> Outcome {
    let env = make();
    let actions = actions(&*env, 0, SHORT, 1.0);
    let (first, second) = (episode(make, 1, &actions)?, episode(make, 2, &actions)?);
    match chance {
        Chance::Nothing => same_rows("seeds 1 and 2", &first, &second),
        Chance::Start => ensure(first[0] != second[0], || "seeds 1 and 2 give the same initial state".into()),
        Chance::Steps => ensure(first != second, || "seeds 1 and 2 give the same episode".into()),
    }
}

fn reset_discards(make: Make<'_>, _: Chance) -> Outcome {
    let mut driver = Driver::start(make, 3)?;
    let actions = actions(&*driver.env, 3, SHORT, 1.0);
    driver.follow(&actions[..actions.len() / 4])?;
    driver.reset(4)?;
    driver.follow(&actions)?;
    same_rows("after a reset in the middle of an episode", &episode(make, 4, &actions)?, &driver.rows)
}

fn steps_need_an_episode(make: Make<'_>, _: Chance) -> Outcome {
    let mut env = make();
    let actions = actions(&*env, 5, env.spec().horizon, 1.0);
    let mut observation = vec![0.0; env.spec().observation.dim()];
    let early = env.step(&actions[0], &mut observation);
    ensure(matches!(early, Err(Error::Over)), || format!("a step before the first reset gave {early:?}"))?;
    let mut driver = Driver::start(make, 5)?;
    driver.follow(&actions)?;
    for _ in 0..2 {
        let late = driver.env.step(&actions[0], &mut driver.observation);
        ensure(matches!(late, Err(Error::Over)), || format!("a step after the end gave {late:?}"))?;
    }
    driver.reset(6)?;
    driver.follow(&actions)?;
    same_rows("after a step beyond the end and a reset", &episode(make, 6, &actions)?, &driver.rows)
}

fn actions_are_clipped(make: Make<'_>, _: Chance) -> Outcome {
    let env = make();
    if !env.clips() {
        return Ok(());
    }
    let space = &env.spec().action;
    let wide = actions(&*env, 7, SHORT, 4.0);
    let clip = |action: &Vec<f64>| -> Vec<f64> {
        action.iter().enumerate().map(|(i, number)| number.clamp(space.low[i], space.high[i])).collect()
    };
    let clipped: Vec<_> = wide.iter().map(clip).collect();
    same_rows("actions up to four times too large", &episode(make, 7, &clipped)?, &episode(make, 7, &wide)?)
}

fn invalid_calls_change_nothing(make: Make<'_>, _: Chance) -> Outcome {
    let mut driver = Driver::start(make, 8)?;
    let actions = actions(&*driver.env, 8, SHORT, 1.0);
    let undisturbed = episode(make, 8, &actions)?;
    let (good, size) = (&actions[0], driver.observation.len());
    for i in 0..4 {
        if driver.over() {
            break;
        }
        for (what, bad) in [("longer", [good.as_slice(), &[0.0]].concat()), ("shorter", good[1..].to_vec())] {
            let given = driver.env.step(&bad, &mut driver.observation);
            ensure(matches!(given, Err(Error::Length { .. })), || format!("a {what} action gave {given:?}"))?;
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut bad = good.clone();
            bad[good.len() - 1] = value;
            let given = driver.env.step(&bad, &mut driver.observation);
            ensure(matches!(given, Err(Error::NotFinite { .. })), || format!("an action of {value} gave {given:?}"))?;
        }
        let mut bad = vec![0.0; size + 1];
        let mut given = vec![driver.env.step(good, &mut bad).err(), driver.env.reset(0, &mut bad).err()];
        if let Some(env) = driver.env.settable() {
            let state = env.state();
            given.push(env.set_state(&state, &mut bad).err());
        }
        let rejected = given.iter().all(|error| matches!(error, Some(Error::Length { .. })));
        ensure(rejected, || format!("step, reset, set_state with a longer observation gave {given:?}"))?;
        driver.follow(&actions[i..i + 1])?;
    }
    driver.follow(&actions[4..])?;
    same_rows("after invalid calls", &undisturbed, &driver.rows)
}

fn state_round_trip(make: Make<'_>, _: Chance) -> Outcome {
    let mut driver = Driver::start(make, 9)?;
    let actions = actions(&*driver.env, 9, SHORT, 1.0);
    driver.follow(&actions[..3])?;
    let Some(state) = driver.state() else { return Ok(()) };
    let [mut first, mut second] = [Driver::start(make, 10)?, Driver::start(make, 10)?];
    for set in [&mut first, &mut second] {
        set.set_state(&state).map_err(|error| format!("{state} was rejected: {error}"))?;
        let back = set.state().unwrap_or_default();
        ensure(back == state, || format!("{state} came back as {back}"))?;
        ensure(close(&set.observation, &driver.observation, TOLERANCE), || {
            format!("the observation is {:?} after setting {state}, not {:?}", set.observation, driver.observation)
        })?;
        set.follow(&actions[3..])?;
    }
    same_rows("the same state, seed and actions", &first.rows, &second.rows)
}

fn state_continues(make: Make<'_>, chance: Chance, tolerance: f64) -> Outcome {
    if chance == Chance::Steps {
        return Ok(());
    }
    let mut driver = Driver::start(make, 9)?;
    let actions = actions(&*driver.env, 9, SHORT, 1.0);
    driver.follow(&actions[..3])?;
    let Some(state) = driver.state() else { return Ok(()) };
    let mut set = Driver::start(make, 10)?;
    set.set_state(&state).map_err(|error| error.to_string())?;
    // Setting a state restarts the step count, so that episode may last longer but never shorter.
    let (from, few) = (driver.rows.len(), &actions[3..8]);
    driver.follow(few)?;
    set.follow(few)?;
    for (t, (expected, seen)) in driver.rows[from..].iter().zip(&set.rows[1..]).enumerate() {
        let (expected, seen) = (numbers(&expected.observation), numbers(&seen.observation));
        ensure(close(&expected, &seen, tolerance), || {
            format!("{t} steps later: observation {seen:?}, not {expected:?}")
        })?;
    }
    Ok(())
}

fn close(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * (1.0 + a.abs()))
}

/// Invalid states, among them near misses of a valid one.
fn invalid_states(state: &Value) -> Vec<Value> {
    let mut invalid = vec![json!(null), json!(3), json!("x"), json!([]), json!({}), json!({ "no such key": 1 })];
    if let Value::Object(map) = state {
        let with = |key: &str, value: Value| {
            let mut near = map.clone();
            near.insert(key.into(), value);
            Value::Object(near)
        };
        invalid.push(with("no such key", json!(1)));
        for key in map.keys() {
            let mut less = map.clone();
            less.remove(key);
            invalid.push(Value::Object(less));
            invalid.extend([json!(null), json!("x"), json!({})].map(|value| with(key, value)));
        }
    }
    invalid
}

fn invalid_states_change_nothing(make: Make<'_>, _: Chance) -> Outcome {
    let mut driver = Driver::start(make, 11)?;
    let actions = actions(&*driver.env, 11, SHORT, 1.0);
    driver.follow(&actions[..2])?;
    let before = driver.everything();
    let Some(state) = driver.state() else { return Ok(()) };
    for invalid in invalid_states(&state) {
        let given = driver.set_state(&invalid);
        ensure(matches!(given, Err(Error::State(_))), || format!("{invalid} gave {given:?}"))?;
        ensure(driver.everything() == before, || format!("{invalid} was rejected, but the environment changed"))?;
    }
    driver.follow(&actions[2..])?;
    same_rows("after invalid states", &episode(make, 11, &actions)?, &driver.rows)
}

fn snapshot_continues(make: Make<'_>, _: Chance) -> Outcome {
    let mut driver = Driver::start(make, 12)?;
    let actions = actions(&*driver.env, 12, SHORT, 1.0);
    let whole = episode(make, 12, &actions)?;
    for t in 0..whole.len() {
        let Some(snapshot) = driver.snapshot() else { return Ok(()) };
        let mut other = Driver::start(make, 13)?;
        other.follow(&actions[..1])?;
        other.restore(&snapshot).map_err(|error| format!("at step {t}: {error}"))?;
        ensure(bits(&other.observation) == whole[t].observation, || format!("the observation differs at step {t}"))?;
        ensure(bits(other.env.signals()) == whole[t].signals, || format!("the signals differ at step {t}"))?;
        ensure(other.snapshot().as_ref() == Some(&snapshot), || format!("the snapshot differs at step {t}"))?;
        other.rows = vec![whole[t].clone()];
        other.follow(&actions[t..])?;
        same_rows(&format!("restored at step {t}"), &whole[t..], &other.rows)?;
        if other.over() {
            let late = other.env.step(&actions[0], &mut other.observation);
            ensure(matches!(late, Err(Error::Over)), || format!("a step after a restored end gave {late:?}"))?;
        }
        driver.follow(&actions[t..(t + 1).min(actions.len())])?;
    }
    same_rows("while taking snapshots", &whole, &driver.rows)
}

fn invalid_snapshots_change_nothing(make: Make<'_>, _: Chance) -> Outcome {
    let mut driver = Driver::start(make, 14)?;
    let actions = actions(&*driver.env, 14, SHORT, 1.0);
    driver.follow(&actions[..2])?;
    let Some(snapshot) = driver.snapshot() else { return Ok(()) };
    let before = driver.everything();
    let longer = [snapshot.as_slice(), &[0]].concat();
    for bad in [&[], &snapshot[..snapshot.len() - 1], &longer] {
        let given = driver.restore(bad);
        ensure(given.is_err(), || format!("{} bytes were accepted instead of {}", bad.len(), snapshot.len()))?;
        ensure(driver.everything() == before, || "rejected, but the environment changed".into())?;
    }
    driver.follow(&actions[2..])?;
    same_rows("after invalid snapshots", &episode(make, 14, &actions)?, &driver.rows)
}

fn no_shared_state(make: Make<'_>, _: Chance) -> Outcome {
    let [mut left, mut right] = [Driver::start(make, 15)?, Driver::start(make, 16)?];
    let [for_left, for_right] = [15, 16].map(|index| actions(&*left.env, index, SHORT, 1.0));
    for t in 0..SHORT {
        left.follow(&for_left[t..t + 1])?;
        right.follow(&for_right[t..t + 1])?;
    }
    same_rows("the first of two", &episode(make, 15, &for_left)?, &left.rows)?;
    same_rows("the second of two", &episode(make, 16, &for_right)?, &right.rows)
}
