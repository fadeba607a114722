//! Navigation: a point in a walled plane goes to a goal past two danger zones.
//!
//! After the RDDL domain Navigation_Continuous: a move is off by a normal error whose variance grows with the move's size,
//! and the reward is minus the distance of the location the move starts from. A strip across the whole plane must be
//! crossed, and one step can cross it; a disc lies on the straight way to the goal.

use rand_chacha::rand_core::SeedableRng as _;
use rand_distr::{Distribution as _, StandardNormal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::random::{self, Stream};
use crate::{BoxSpace, Env, Error, Scene, Spec, Step, Zone, check_finite, check_length};

/// Where every episode starts.
pub const START: [f64; 2] = [1.0, 1.0];
/// Where the reward is highest.
pub const GOAL: [f64; 2] = [8.0, 9.0];
/// The plane reaches from 0 to this, in both dimensions.
pub const SIDE: f64 = 10.0;
/// The strip: dangerous strictly between these heights, at every x.
pub const STRIP: [f64; 2] = [2.7, 3.3];
/// The disc's centre; dangerous strictly within [`DISC_RADIUS`] of it.
pub const DISC_CENTRE: [f64; 2] = [5.3, 5.9];
/// The disc's radius.
pub const DISC_RADIUS: f64 = 1.5;
/// The variance of a move's error, per unit of the move's size, in each dimension on its own.
pub const NOISE_VARIANCE: f64 = 0.05;

const KEYS: [&str; 2] = ["location___x", "location___y"];
const SIGNALS: [&str; 4] = ["x", "y", "in_danger", "distance"];

/// What a task file may set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether moves are off by a random error; without, each lands on its mean.
    pub noise: bool,
    /// Steps in an episode.
    pub horizon: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { noise: true, horizon: 20 }
    }
}

/// Whether a location lies in a danger zone; the zones' edges do not belong to them.
pub fn in_danger(location: [f64; 2]) -> bool {
    (STRIP[0] < location[1] && location[1] < STRIP[1]) || distance(location, DISC_CENTRE) < DISC_RADIUS
}

/// The Euclidean distance.
pub fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    let [dx, dy] = [a[0] - b[0], a[1] - b[1]];
    (dx * dx + dy * dy).sqrt()
}

/// The task; see the module's text.
pub struct Navigation {
    spec: Spec,
    noise: bool,
    location: [f64; 2],
    /// Steps taken; at the horizon the episode is over.
    clock: usize,
    stream: Stream,
    signals: [f64; 4],
}

impl Navigation {
    /// The task as if an episode of seed 0 had just ended: reset it before stepping.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        if settings.horizon == 0 {
            return Err(Error::Setting {
                key: "horizon".into(),
                value: settings.horizon.to_string(),
                expected: "a whole number of at least 1".into(),
            });
        }
        Ok(Self {
            spec: Spec {
                observation: BoxSpace { low: vec![0.0; 2], high: vec![SIDE; 2] },
                action: BoxSpace { low: vec![-1.0; 2], high: vec![1.0; 2] },
                signals: SIGNALS.map(String::from).to_vec(),
                horizon: settings.horizon,
            },
            noise: settings.noise,
            location: START,
            clock: settings.horizon,
            stream: episode_stream(0),
            signals: signals_at(START),
        })
    }

    fn place(&mut self, location: [f64; 2], observation: &mut [f64]) {
        self.location = location;
        self.signals = signals_at(location);
        observation.copy_from_slice(&location);
    }
}

impl Env for Navigation {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, 2)?;
        self.clock = 0;
        self.stream = episode_stream(seed);
        self.place(START, observation);
        Ok(())
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error> {
        check_length("action", action, 2)?;
        check_length("observation", observation, 2)?;
        check_finite("action", action)?;
        if self.clock == self.spec.horizon {
            return Err(Error::Over);
        }
        let reward = -distance(GOAL, self.location);
        let mut location = self.location;
        for (at, by) in location.iter_mut().zip(action) {
            let by = by.clamp(-1.0, 1.0);
            let error = if self.noise {
                // Drawn for a move of zero too, so that every step takes its draws from the same place.
                let normal: f64 = StandardNormal.sample(&mut self.stream);
                normal * (NOISE_VARIANCE * by.abs()).sqrt()
            } else {
                0.0
            };
            *at = (*at + by + error).clamp(0.0, SIDE);
        }
        self.clock += 1;
        self.place(location, observation);
        Ok(Step { reward, terminated: false, truncated: self.clock == self.spec.horizon })
    }

    fn signals(&self) -> &[f64] {
        &self.signals
    }

    fn state(&self) -> Value {
        json!({ KEYS[0]: self.location[0], KEYS[1]: self.location[1] })
    }

    fn set_state(&mut self, state: &Value, observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, 2)?;
        let location = parse_state(state)?;
        self.clock = 0;
        self.place(location, observation);
        Ok(())
    }

    fn snapshot(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(SNAPSHOT_BYTES);
        bytes.push(SNAPSHOT_VERSION);
        bytes.extend((self.clock as u64).to_le_bytes());
        bytes.extend(self.location[0].to_le_bytes());
        bytes.extend(self.location[1].to_le_bytes());
        bytes.extend(self.stream.get_word_pos().to_le_bytes());
        bytes.extend(self.stream.get_seed());
        Some(bytes)
    }

    fn restore(&mut self, snapshot: &[u8], observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, 2)?;
        let (clock, location, stream) = parse_snapshot(snapshot, self.spec.horizon)?;
        self.clock = clock;
        self.stream = stream;
        self.place(location, observation);
        Ok(())
    }

    fn scene(&self) -> Option<Scene> {
        Some(Scene {
            bounds: [0.0, SIDE, 0.0, SIDE],
            zones: vec![Zone::Rectangle([0.0, SIDE, STRIP[0], STRIP[1]]), Zone::Disc(DISC_CENTRE, DISC_RADIUS)],
            marks: vec![("start".into(), START), ("goal".into(), GOAL)],
        })
    }
}

fn episode_stream(seed: u64) -> Stream {
    random::stream(seed, "navigation", 0)
}

fn signals_at(location: [f64; 2]) -> [f64; 4] {
    [location[0], location[1], f64::from(u8::from(in_danger(location))), distance(GOAL, location)]
}

fn in_plane(value: f64) -> bool {
    (0.0..=SIDE).contains(&value)
}

fn parse_state(state: &Value) -> Result<[f64; 2], Error> {
    let Value::Object(map) = state else {
        return Err(Error::State(format!("{state} is not an object with the keys {} and {}", KEYS[0], KEYS[1])));
    };
    if let Some(key) = map.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(Error::State(format!("{key:?} is not a key of it; the keys are {} and {}", KEYS[0], KEYS[1])));
    }
    let mut location = [0.0; 2];
    for (at, key) in location.iter_mut().zip(KEYS) {
        let given =
            map.get(key).ok_or_else(|| Error::State(format!("{key} is missing; give a number from 0 to 10")))?;
        *at = given
            .as_f64()
            .filter(|value| in_plane(*value))
            .ok_or_else(|| Error::State(format!("{key} = {given}: it must be a number from 0 to 10")))?;
    }
    Ok(location)
}

const SNAPSHOT_VERSION: u8 = 1;
/// Version, clock, location, position in the stream, the stream's key.
const SNAPSHOT_BYTES: usize = 1 + 8 + 16 + 16 + 32;

fn parse_snapshot(snapshot: &[u8], horizon: usize) -> Result<(usize, [f64; 2], Stream), Error> {
    let refuse = |why: String| Error::State(format!("not a snapshot of navigation: {why}"));
    let fields = snapshot.split_first().and_then(|(version, rest)| Some((*version, read_fields(rest)?)));
    let Some((version, (clock, location, stream))) = fields else {
        return Err(refuse(format!("{} bytes, expected {SNAPSHOT_BYTES}", snapshot.len())));
    };
    if version != SNAPSHOT_VERSION {
        return Err(refuse(format!("version {version}, expected {SNAPSHOT_VERSION}")));
    }
    if !location.into_iter().all(in_plane) {
        return Err(refuse(format!("the location {location:?} is outside the plane")));
    }
    let clock = usize::try_from(clock)
        .ok()
        .filter(|clock| *clock <= horizon)
        .ok_or_else(|| refuse(format!("step {clock} is past the horizon of {horizon}")))?;
    Ok((clock, location, stream))
}

/// Clock, location and stream, as written; none where the length is not theirs.
fn read_fields(mut bytes: &[u8]) -> Option<(u64, [f64; 2], Stream)> {
    fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
        let (head, tail) = bytes.split_first_chunk::<N>()?;
        *bytes = tail;
        Some(*head)
    }
    let clock = u64::from_le_bytes(take(&mut bytes)?);
    let location = [f64::from_le_bytes(take(&mut bytes)?), f64::from_le_bytes(take(&mut bytes)?)];
    let word = u128::from_le_bytes(take(&mut bytes)?);
    let mut stream = Stream::from_seed(take(&mut bytes)?);
    stream.set_word_pos(word);
    bytes.is_empty().then_some((clock, location, stream))
}
