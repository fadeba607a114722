//! RDDL domains as environments, if their actions are real and bounded.
//!
//! | part           | in RDDL                                                                                         |
//! |----------------|-------------------------------------------------------------------------------------------------|
//! | observation    | the state-fluents, in the order of the text and row-major in their objects; bools are 0 and 1   |
//! | its bounds     | from the state-invariants, otherwise infinite                                                   |
//! | action         | the action-fluents, in the same order, with the bounds of the action-preconditions              |
//! | signals        | the state-fluents after the step, then the intermediate and derived fluents, by ground name;    |
//! |                | the latter are computed from the state BEFORE the step, and are 0 before the first step         |
//! | terminated     | by a termination condition                                                                      |
//! | truncated      | at the horizon, or where a state-invariant is violated                                          |
//!
//! Preconditions that do not bound a single action by constants (a limit on a sum, a bound that depends on the state)
//! are not enforced.
//!
//! Ground names are pyRDDLGym's, `fluent___object__object`. Names in rules cannot contain `-`, so signals have `_`
//! instead.

use std::sync::Arc;

use prudence_rddl::{Ground, Kind, Noiseless, Program, Random, Range, Simulator, Source};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use prudence_core::SettingError;
use prudence_core::random::{self, Stream, StreamId};

use crate::{
    BoxSpace, Drawable, Env, Error, FileSetting, Limb, MakeEnv, Scene, Settable, Snapshots, Spec, Step, check_finite,
    check_length,
};

/// The built-in texts, by the name that follows [`BUILTIN`].
const TEXTS: &[(&str, &str)] = &[
    ("navigation.rddl", include_str!("../../../tasks/rddl/navigation.rddl")),
    ("navigation-instance.rddl", include_str!("../../../tasks/rddl/navigation-instance.rddl")),
    ("hvac.rddl", include_str!("../../../tasks/rddl/hvac.rddl")),
    ("hvac-instance.rddl", include_str!("../../../tasks/rddl/hvac-instance.rddl")),
];

/// The prefix that marks the name of a built-in text, in place of a path.
pub const BUILTIN: &str = "builtin:";

/// The settings of an RDDL environment, as in the section `[env]` of a task file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RddlSettings {
    /// The path of the domain, or `builtin:NAME`.
    pub domain: String,
    /// The path of the instance and its non-fluents, or `builtin:NAME`.
    pub instance: String,
    /// Whether the domain's noise is drawn. Without it, every Normal gives its mean.
    #[serde(default = "yes")]
    pub noise: bool,
    /// The number of steps in an episode, if it is not the instance's horizon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<usize>,
    /// The plane in which paths are drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scene: Option<Scene>,
}

fn yes() -> bool {
    true
}

impl RddlSettings {
    /// The settings of a built-in domain: `navigation` or `hvac`.
    pub fn builtin(name: &str) -> Self {
        Self {
            domain: format!("{BUILTIN}{name}.rddl"),
            instance: format!("{BUILTIN}{name}-instance.rddl"),
            noise: true,
            horizon: None,
            scene: None,
        }
    }

    /// The files that the settings refer to, each with the name of its copy in a run's folder.
    pub fn files(&mut self) -> Vec<FileSetting<'_>> {
        let instance_copy = if self.instance == self.domain { "domain.rddl" } else { "instance.rddl" };
        [("domain", "domain.rddl", &mut self.domain), ("instance", instance_copy, &mut self.instance)]
            .into_iter()
            .filter(|(_, _, path)| !path.starts_with(BUILTIN))
            .map(|(key, copy, path)| FileSetting { key, copy, path })
            .collect()
    }
}

impl MakeEnv for RddlSettings {
    fn make(&self) -> Result<Box<dyn Env>, Error> {
        Ok(Box::new(Rddl::new(self)?))
    }

    /// Depends on the content of the texts and not on their paths.
    fn describe(&self) -> String {
        let text = |file: &str| source("", file).map_or_else(|error| error.to_string(), |source| source.text);
        format!("rddl {:?} {:?}\n{}\n{}", self.noise, self.horizon, text(&self.domain), text(&self.instance))
    }
}

/// The largest file that is read. A domain is written by hand, but a program may have generated an instance.
const MAX_BYTES: u64 = 16 << 20;

/// An error about a setting in the section `[env]`.
fn setting(key: &str, value: String, expected: String) -> SettingError {
    SettingError { key: format!("env.{key}"), value, expected }
}

fn source(key: &str, file: &str) -> Result<Source, Error> {
    let refuse = |expected: String| Error::from(setting(key, format!("{file:?}"), expected));
    if let Some(name) = file.strip_prefix(BUILTIN) {
        let found = TEXTS.iter().find(|(known, _)| *known == name);
        let names = || TEXTS.iter().map(|(name, _)| format!("{BUILTIN}{name}")).collect::<Vec<_>>().join(", ");
        let (_, text) = found.ok_or_else(|| refuse(format!("there is no such text; expected one of {}", names())))?;
        return Ok(Source::new(file, *text));
    }
    let size = std::fs::metadata(file).map_err(|e| refuse(format!("cannot read the file: {e}")))?;
    if !size.is_file() || size.len() > MAX_BYTES {
        return Err(refuse(format!("expected a file of at most {MAX_BYTES} bytes")));
    }
    #[expect(clippy::disallowed_methods, reason = "the text of a domain is part of the environment")]
    let bytes = std::fs::read(file).map_err(|e| refuse(format!("cannot read the file: {e}")))?;
    Ok(Source::decode(file, &bytes))
}

/// A domain with an instance; see the documentation of the module.
pub struct Rddl {
    simulator: Simulator,
    spec: Spec,
    states: Vec<Ground>,
    /// The indices of the signals among the simulator's values.
    places: Vec<usize>,
    signals: Vec<f64>,
    /// The clipped action of the current step.
    action: Vec<f64>,
    scene: Option<Scene>,
    noise: bool,
    over: bool,
    draws: Random<Stream>,
}

impl Rddl {
    /// Reads and compiles the texts. The first episode begins with the first reset.
    pub fn new(settings: &RddlSettings) -> Result<Self, Error> {
        let mut sources = vec![source("domain", &settings.domain)?];
        if settings.instance != settings.domain {
            sources.push(source("instance", &settings.instance)?);
        }
        let program = Program::load(&sources).map_err(|error| Error::Simulator(error.to_string()))?;
        if !settings.noise {
            program.check_noiseless().map_err(|error| setting("noise", "false".into(), error.to_string()))?;
        }
        let states = program.ground(Kind::State);
        let signals: Vec<Ground> =
            [Kind::State, Kind::Interm, Kind::Derived].into_iter().flat_map(|kind| program.ground(kind)).collect();
        let spec = Spec {
            observation: observation_space(&program, &states)?,
            action: action_space(&program)?,
            signals: signals.iter().map(|ground| ground.name.replace('-', "_")).collect(),
            horizon: horizon(&program, settings)?,
        };
        let mut names: Vec<&String> = spec.signals.iter().collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Simulator(format!(
                "two fluents would both give the signal `{}`: rename one of them",
                pair[0]
            )));
        }
        check_scene(settings.scene.as_ref(), &spec.signals)?;
        let mut env = Self {
            simulator: Simulator::new(Arc::new(program)),
            places: signals.iter().map(|ground| ground.slot).collect(),
            signals: vec![0.0; signals.len()],
            action: vec![0.0; spec.action.dim()],
            spec,
            states,
            scene: settings.scene.clone(),
            noise: settings.noise,
            over: true,
            draws: Random(episode_stream(0)),
        };
        env.read_signals();
        Ok(env)
    }

    fn read_signals(&mut self) {
        let values = self.simulator.values();
        for (signal, place) in self.signals.iter_mut().zip(&self.places) {
            *signal = values[*place];
        }
    }

    fn observe(&self, observation: &mut [f64]) {
        observation.copy_from_slice(self.simulator.state());
    }
}

/// The bounds of the actions, or an error about an action that a policy could not choose.
fn action_space(program: &Program) -> Result<BoxSpace, Error> {
    let actions = program.ground(Kind::Action);
    let refuse = |name: &str, why: &str| Err(Error::Simulator(format!("{}: action `{name}` {why}", program.domain())));
    for action in &actions {
        if action.range != Range::Real {
            return Err(Error::NotReal { domain: program.domain().to_owned(), action: action.name.clone() });
        }
        let (low, high) = action.bounds;
        if !(high - low).is_finite() {
            return refuse(
                &action.name,
                &format!(
                    "has the bounds {low} and {high}: bound it by action-preconditions, such as \
                     forall_{{?x : type}} [a(?x) >= -1.0] and forall_{{?x : type}} [a(?x) <= 1.0]"
                ),
            );
        }
        if low >= high {
            return refuse(&action.name, &format!("has empty bounds: {low} is not below {high}"));
        }
    }
    let Some(first) = actions.first() else {
        return Err(Error::Simulator(format!("{}: the domain has no action-fluents", program.domain())));
    };
    if program.max_nondef_actions().is_some_and(|most| most < actions.len() as u64) {
        return refuse(
            &first.name,
            "and the others cannot all be taken at once: max-nondef-actions is below the number of actions",
        );
    }
    let (low, high) = actions.iter().map(|action| action.bounds).unzip();
    Ok(BoxSpace { low, high })
}

fn observation_space(program: &Program, states: &[Ground]) -> Result<BoxSpace, Error> {
    let refuse = |why: &str| Err(Error::Simulator(format!("{}: {why}", program.domain())));
    if let Some(observed) = program.ground(Kind::Observ).first() {
        return refuse(&format!(
            "`{}` is an observation-fluent; only domains with a fully observed state can be environments",
            observed.name
        ));
    }
    if states.is_empty() {
        return refuse("the domain has no state-fluents to observe");
    }
    let (low, high) = states.iter().map(|state| state.bounds).unzip();
    Ok(BoxSpace { low, high })
}

fn horizon(program: &Program, settings: &RddlSettings) -> Result<usize, Error> {
    let refuse = |value: String, expected: &str| Error::from(setting("horizon", value, expected.to_owned()));
    let steps = match settings.horizon {
        Some(steps) => steps,
        None => program.horizon().and_then(|steps| usize::try_from(steps).ok()).ok_or_else(|| {
            refuse("none".into(), "the instance has no horizon; expected a whole number of at least 1")
        })?,
    };
    match steps {
        1..=1_000_000 => Ok(steps),
        _ => Err(refuse(steps.to_string(), "expected a whole number from 1 to 1000000")),
    }
}

fn check_scene(scene: Option<&Scene>, signals: &[String]) -> Result<(), Error> {
    let Some(scene) = scene else { return Ok(()) };
    let refuse = |key: &str, value: String, expected: String| {
        Err(Error::from(setting(&format!("scene.{key}"), value, expected)))
    };
    if let Some(axis) = scene.axes.iter().find(|axis| !signals.contains(axis)) {
        return refuse("axes", format!("{axis:?}"), format!("expected one of the signals {}", signals.join(", ")));
    }
    let [left, right, bottom, top] = scene.bounds;
    if !(left < right && bottom < top && scene.bounds.iter().all(|bound| bound.is_finite())) {
        return refuse(
            "bounds",
            format!("{:?}", scene.bounds),
            "expected finite [left, right, bottom, top] with left < right and bottom < top".to_owned(),
        );
    }
    Ok(())
}

fn episode_stream(seed: u64) -> Stream {
    random::stream(seed, "rddl", 0)
}

impl Env for Rddl {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, self.states.len())?;
        self.simulator.reset();
        self.draws = Random(episode_stream(seed));
        self.over = false;
        self.read_signals();
        self.observe(observation);
        Ok(())
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error> {
        check_length("action", action, self.action.len())?;
        check_length("observation", observation, self.states.len())?;
        check_finite("action", action)?;
        if self.over {
            return Err(Error::Over);
        }
        let space = &self.spec.action;
        for (i, clipped) in self.action.iter_mut().enumerate() {
            *clipped = action[i].clamp(space.low[i], space.high[i]);
        }
        let step = if self.noise {
            self.simulator.step(&self.action, &mut self.draws)
        } else {
            self.simulator.step(&self.action, &mut Noiseless)
        };
        self.over = true; // an error also ends the episode
        let step = step.map_err(|error| Error::Simulator(error.to_string()))?;
        self.read_signals();
        let numbers = self.spec.signals.iter().map(String::as_str).zip(self.signals.iter().copied());
        if let Some((name, value)) = numbers.chain([("the reward", step.reward)]).find(|(_, value)| !value.is_finite())
        {
            return Err(Error::Simulator(format!("step {}: {name} became {value}", self.simulator.steps())));
        }
        self.observe(observation);
        let kept = self.simulator.invariants_hold().map_err(|error| Error::Simulator(error.to_string()))?;
        let truncated = !step.terminated && (!kept || self.simulator.steps() >= self.spec.horizon as u64);
        self.over = step.terminated || truncated;
        Ok(Step { reward: step.reward, terminated: step.terminated, truncated })
    }

    fn signals(&self) -> &[f64] {
        &self.signals
    }

    fn settable(&mut self) -> Option<&mut dyn Settable> {
        Some(self)
    }

    fn snapshots(&mut self) -> Option<&mut dyn Snapshots> {
        Some(self)
    }

    fn drawable(&self) -> Option<&dyn Drawable> {
        self.scene.is_some().then_some(self)
    }
}

impl Settable for Rddl {
    fn state(&self) -> Value {
        let program = self.simulator.program();
        let value = |ground: &Ground, value: f64| match ground.range {
            Range::Bool => json!(value != 0.0),
            Range::Int => json!(value as i64),
            Range::Real => json!(value),
            Range::Object(of) => json!(program.objects(of).get(value as usize)),
        };
        let pairs = self.states.iter().zip(self.simulator.state());
        Value::Object(pairs.map(|(ground, x)| (ground.name.clone(), value(ground, *x))).collect())
    }

    fn set_state(&mut self, state: &Value, observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, self.states.len())?;
        let values = parse_state(self.simulator.program(), &self.states, state)?;
        self.simulator.reset();
        self.simulator.set_state(&values).map_err(|error| Error::State(error.to_string()))?;
        self.over = false;
        self.read_signals();
        self.observe(observation);
        Ok(())
    }
}

impl Snapshots for Rddl {
    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![SNAPSHOT_VERSION, u8::from(self.over)];
        bytes.extend(self.simulator.steps().to_le_bytes());
        bytes.extend(self.draws.0.position().to_le_bytes());
        bytes.extend(self.draws.0.id().words().iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(self.signals.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn restore(&mut self, snapshot: &[u8], observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, self.states.len())?;
        let refuse = |why: String| Error::State(format!("not a snapshot of this environment: {why}"));
        let count = self.signals.len();
        let expected = SNAPSHOT_HEAD + 8 * count;
        let parts = snapshot.split_at_checked(SNAPSHOT_HEAD).filter(|(_, values)| values.len() == 8 * count);
        let Some((mut head, values)) = parts else {
            return Err(refuse(format!("{} bytes, expected {expected}", snapshot.len())));
        };
        let ([version], [over]) = (take(&mut head), take(&mut head));
        if version != SNAPSHOT_VERSION {
            return Err(refuse(format!("version {version}, expected {SNAPSHOT_VERSION}")));
        }
        let steps = u64::from_le_bytes(take(&mut head));
        if steps > self.spec.horizon as u64 {
            return Err(refuse(format!("step {steps} is past the horizon of {}", self.spec.horizon)));
        }
        let position = u64::from_le_bytes(take(&mut head));
        let id = StreamId::from_words([(); 4].map(|()| u32::from_le_bytes(take(&mut head))));
        let stream = Stream::at(id, position);
        let values: Vec<f64> = values.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let state = &values[..self.states.len()]; // the first signals
        let sound = |(ground, value): &(&Ground, &f64)| match ground.range {
            Range::Real => value.is_finite(),
            Range::Int => value.is_finite() && value.fract() == 0.0,
            Range::Bool | Range::Object(_) => within(ground, **value),
        };
        if let Some((ground, value)) = self.states.iter().zip(state).find(|pair| !sound(pair)) {
            return Err(refuse(format!("{} is {value}", ground.name)));
        }
        self.simulator.set_state(state).map_err(|error| refuse(error.to_string()))?;
        self.simulator.set_steps(steps);
        self.draws = Random(stream);
        self.over = over != 0;
        self.observe(observation);
        self.signals = values;
        Ok(())
    }
}

impl Drawable for Rddl {
    fn scene(&self) -> Option<Scene> {
        self.scene.clone()
    }

    /// A disc at the current position in the plane.
    fn limbs(&self) -> Result<Vec<Limb>, Error> {
        let signal = |name: &String| self.spec.signals.iter().position(|signal| signal == name);
        let axes = self.scene.as_ref().map(|scene| (scene, scene.axes.each_ref().map(signal)));
        let Some((scene, [Some(x), Some(y)])) = axes else {
            return Err(Error::Simulator("the scene's axes are not signals".to_owned()));
        };
        let [left, right, ..] = scene.bounds;
        let here = [self.signals[x], self.signals[y]];
        Ok(vec![Limb { ends: [here; 2], radius: 0.015 * (right - left) }])
    }
}

fn within(ground: &Ground, value: f64) -> bool {
    value.is_finite() && ground.bounds.0 <= value && value <= ground.bounds.1
}

/// One value per state-fluent, in their order.
fn parse_state(program: &Program, states: &[Ground], state: &Value) -> Result<Vec<f64>, Error> {
    let names = || states.iter().map(|ground| ground.name.as_str()).collect::<Vec<_>>().join(", ");
    let Value::Object(map) = state else {
        return Err(Error::State(format!("{state} is not an object with the keys {}", names())));
    };
    if let Some(key) = map.keys().find(|key| !states.iter().any(|ground| ground.name == **key)) {
        return Err(Error::State(format!("unknown key {key:?}; the keys are {}", names())));
    }
    states.iter().map(|ground| parse_value(program, ground, map)).collect()
}

fn parse_value(program: &Program, ground: &Ground, map: &Map<String, Value>) -> Result<f64, Error> {
    let name = &ground.name;
    let (low, high) = ground.bounds;
    let (value, expected) = match ground.range {
        Range::Bool => (map.get(name).and_then(Value::as_bool).map(f64::from), "true or false".to_owned()),
        Range::Int => {
            let whole = map.get(name).and_then(Value::as_i64).map(|value| value as f64);
            (whole, format!("a whole number from {low} to {high}"))
        }
        Range::Real => (map.get(name).and_then(Value::as_f64), format!("a number from {low} to {high}")),
        Range::Object(of) => {
            let text = map.get(name).and_then(Value::as_str);
            let place = text.and_then(|text| program.objects(of).iter().position(|object| object == text));
            (place.map(|place| place as f64), format!("one of {}", program.objects(of).join(", ")))
        }
    };
    match (map.get(name), value.filter(|value| within(ground, *value))) {
        (_, Some(value)) => Ok(value),
        (Some(given), None) => Err(Error::State(format!("{name} = {given}; expected {expected}"))),
        (None, None) => Err(Error::State(format!("{name} is missing; expected {expected}"))),
    }
}

const SNAPSHOT_VERSION: u8 = 3;
/// Version, whether the episode is over, step count, position in the stream, id of the stream; the signals follow.
const SNAPSHOT_HEAD: usize = 1 + 1 + 8 + 8 + 16;

/// The next bytes of a header whose length has been checked.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let Some((head, tail)) = bytes.split_first_chunk::<N>() else { return [0; N] };
    *bytes = tail;
    *head
}
