//! Hopper, Walker2d and HalfCheetah on MuJoCo, with the semantics of Gymnasium's v5 environments.
//!
//! | part        | definition                                                                                         |
//! |-------------|----------------------------------------------------------------------------------------------------|
//! | observation | positions without the distance x, then velocities, clipped to +-10 (not for HalfCheetah)           |
//! | reward      | weight * x-velocity + healthy reward - weight * squared action                                     |
//! | start       | the model's initial state plus uniform noise; normal for the velocities of HalfCheetah             |
//! | terminated  | at the first unhealthy step, if the settings say so                                                |
//! | truncated   | after 1,000 steps by default                                                                       |
//! | signals     | of the last step, as Gymnasium's `x_velocity`: the distance moved divided by the time              |
//!
//! `mj_rnePostConstraint`, which Gymnasium calls after a step, is not called: it only computes contact forces, which
//! none of the three environments observes.

mod engine;
mod settings;
mod skeleton;

use std::path::{Path, PathBuf};

use rand::RngExt as _;
use rand_distr::StandardNormal;
use serde_json::{Value, json};

use self::engine::{Data, Library, Part};
use self::settings::{Healthy, Options, Robot};
pub use self::settings::{Model, MujocoSettings};
use self::skeleton::Skeleton;
use crate::engines::{Engines, MUJOCO};
use prudence_core::random;
use prudence_env::{
    BareEngine, BoxSpace, Drawable, Env, Error, Limb, MakeEnv, Settable, Snapshots, Spec, Step, check_finite,
    check_length,
};

const SIGNALS: [&str; 5] = ["x_velocity", "z_velocity", "speed", "healthy", "height"];
/// The engine resets itself if a number exceeds this (`mjMAXVAL`).
const MAX_VALUE: f64 = 1e10;

/// Hopper, Walker2d or HalfCheetah; see the documentation of the module.
pub struct Mujoco {
    data: Data,
    model: Model,
    robot: &'static Robot,
    options: Options,
    /// How to draw the body, or why it cannot be drawn.
    skeleton: Result<Skeleton, String>,
    spec: Spec,
    /// The simulated time of one step of the engine, in seconds.
    timestep: f64,
    /// Time, positions and velocities in the model's initial state.
    start: Vec<f64>,
    /// The current time, positions and velocities.
    motion: Vec<f64>,
    /// The clipped action of the current step.
    action: Vec<f64>,
    /// The velocity along x and z, over the last step or initially.
    velocity: [f64; 2],
    signals: [f64; SIGNALS.len()],
    steps: usize,
    over: bool,
}

impl MakeEnv for MujocoSettings {
    fn make(&self) -> Result<Box<dyn Env>, Error> {
        Ok(Box::new(Mujoco::new(self)?))
    }

    /// Includes the text of the model.
    fn describe(&self) -> String {
        let file = Engines::from_environment().map(|engines| self.file(&engines.folder(&MUJOCO)));
        #[expect(clippy::disallowed_methods, reason = "the model is part of the environment")]
        let text = file.ok().and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
        let settings = Self { xml_file: None, ..self.clone() }; // the text matters, not its path
        format!("{settings:?}\nMuJoCo {}\n{}", MUJOCO.version, String::from_utf8_lossy(&text))
    }
}

impl MujocoSettings {
    fn file(&self, folder: &Path) -> PathBuf {
        self.xml_file.as_ref().map_or_else(|| folder.join(self.model.robot().file), PathBuf::from)
    }
}

impl Mujoco {
    /// Uses the engine in the cache given by the environment variables.
    pub fn new(settings: &MujocoSettings) -> Result<Self, Error> {
        let engines = Engines::from_environment().map_err(|error| Error::Simulator(error.to_string()))?;
        Self::with_engines(settings, &engines)
    }

    /// Uses the engine in this cache. The first episode begins with the first reset.
    pub fn with_engines(settings: &MujocoSettings, engines: &Engines) -> Result<Self, Error> {
        let options = settings.options()?;
        let robot = settings.model.robot();
        let folder = engines.folder(&MUJOCO);
        let file = settings.file(&folder);
        let data = load(&folder.join(MUJOCO.library), &file, robot)?;
        let skeleton = Skeleton::read(data.model().text(), robot.sizes[0]);
        let skeleton = skeleton.map_err(|why| format!("{}: {why}", file.display()));
        let [positions, velocities, motors] = robot.sizes;
        let unbounded = positions + velocities - options.skipped;
        let spec = Spec {
            observation: BoxSpace { low: vec![f64::NEG_INFINITY; unbounded], high: vec![f64::INFINITY; unbounded] },
            action: BoxSpace { low: vec![-1.0; motors], high: vec![1.0; motors] },
            signals: SIGNALS.map(str::to_owned).to_vec(),
            horizon: options.horizon,
        };
        let mut start = vec![0.0; data.model().size(Part::Motion)];
        data.read(Part::Motion, &mut start);
        let mut env = Self {
            data,
            model: settings.model,
            robot,
            options,
            skeleton,
            spec,
            timestep: 0.0,
            motion: start.clone(),
            start,
            action: vec![0.0; motors],
            velocity: [0.0; 2],
            signals: [0.0; SIGNALS.len()],
            steps: 0,
            over: true,
        };
        env.timestep = env.measure_timestep()?;
        env.read_signals();
        Ok(env)
    }

    /// Measures the time step of the model by taking a step, because the layout of its options is not known here.
    fn measure_timestep(&mut self) -> Result<f64, Error> {
        self.data.step(1);
        let mut after = vec![0.0; self.motion.len()];
        self.data.read(Part::Motion, &mut after);
        self.data.reset();
        self.check_motion()?;
        let seconds = after[0] - self.start[0];
        if seconds > 0.0 && seconds < 1.0 {
            Ok(seconds)
        } else {
            Err(Error::Simulator(format!("MuJoCo: the time step is {seconds} s; expected between 0 and 1 s")))
        }
    }

    fn positions(&self) -> &[f64] {
        &self.motion[1..=self.robot.sizes[0]]
    }

    fn velocities(&self) -> &[f64] {
        &self.motion[1 + self.robot.sizes[0]..]
    }

    /// Starts an episode from `motion`.
    fn begin(&mut self, observation: &mut [f64]) -> Result<(), Error> {
        self.data.reset(); // also the caches of the solver
        self.data.write(Part::Motion, &self.motion);
        self.data.forward();
        self.velocity = [self.velocities()[0], self.velocities()[1]];
        self.steps = 0;
        self.over = true;
        self.check_motion()?;
        self.over = false;
        self.read_signals();
        self.observe(observation);
        Ok(())
    }

    fn observe(&self, observation: &mut [f64]) {
        let limit = self.robot.velocity_limit;
        let positions = self.positions()[self.options.skipped..].iter().copied();
        let velocities = self.velocities().iter().map(|velocity| velocity.clamp(-limit, limit));
        for (number, value) in observation.iter_mut().zip(positions.chain(velocities)) {
            *number = value;
        }
    }

    fn healthy(&self) -> bool {
        let inside = |range: [f64; 2], x: f64| range[0] < x && x < range[1];
        let Some(Healthy { state, z, angle, .. }) = self.options.healthy else { return true };
        let rest = &self.motion[1 + 2..]; // without time, x, z
        state.is_none_or(|range| rest.iter().all(|x| inside(range, *x)))
            && inside(z, self.positions()[1])
            && inside(angle, self.positions()[2])
    }

    fn read_signals(&mut self) {
        let [x, z] = self.velocity;
        let height = self.robot.base_height + self.positions()[1];
        self.signals = [x, z, x.hypot(z), f64::from(self.healthy()), height];
    }

    /// Returns an error if the engine warned, because it then continues from its initial state or with an incomplete
    /// solution.
    fn check_motion(&self) -> Result<(), Error> {
        let why = match engine::take_warning() {
            Some(warning) => warning,
            None if self.motion.iter().all(|x| x.is_finite()) => return Ok(()),
            None => "positions or velocities are not finite".to_owned(),
        };
        Err(Error::Simulator(format!("step {}: MuJoCo: {why}", self.steps)))
    }
}

/// Loads a model and checks that it has the robot's joints and motors.
fn load(library: &Path, file: &Path, robot: &Robot) -> Result<Data, Error> {
    if !library.is_file() {
        let (version, path) = (MUJOCO.version, library.display());
        return Err(Error::Missing(format!("MuJoCo {version} is not installed ({path} is missing)")));
    }
    let refuse = |why: String| Error::Missing(format!("{}: {why}", library.display()));
    let library = Library::open(library).map_err(refuse)?;
    let refuse = |why: String| Error::Simulator(format!("{}: {why}", file.display()));
    let model = engine::Model::load(library, file).map_err(refuse)?;
    let sizes = [model.nq, model.nv, model.nu, model.na];
    let [nq, nv, nu] = robot.sizes;
    if sizes != [nq, nv, nu, 0] {
        return Err(refuse(format!(
            "the model has {sizes:?} positions, velocities, motors and activations; expected {:?}",
            [nq, nv, nu, 0]
        )));
    }
    Data::new(model).map_err(refuse)
}

impl Env for Mujoco {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, self.spec.observation.dim())?;
        let mut stream = random::stream(seed, "mujoco", 0);
        let scale = self.options.reset_noise_scale;
        let velocities = 1 + self.robot.sizes[0];
        self.motion.copy_from_slice(&self.start);
        for (i, number) in self.motion.iter_mut().enumerate().skip(1) {
            *number += if i >= velocities && self.robot.normal_start {
                scale * stream.sample::<f64, _>(StandardNormal)
            } else {
                scale * (2.0 * stream.random::<f64>() - 1.0)
            };
        }
        self.begin(observation)
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error> {
        check_length("action", action, self.action.len())?;
        check_length("observation", observation, self.spec.observation.dim())?;
        check_finite("action", action)?;
        if self.over {
            return Err(Error::Over);
        }
        for (clipped, number) in self.action.iter_mut().zip(action) {
            *clipped = number.clamp(-1.0, 1.0);
        }
        let [x, z] = [self.motion[1], self.motion[2]];
        self.data.write(Part::Control, &self.action);
        self.data.step(self.options.frame_skip);
        self.data.read(Part::Motion, &mut self.motion);
        self.steps += 1;
        self.over = true; // remains so if the engine fails
        self.check_motion()?;
        let seconds = self.timestep * self.options.frame_skip as f64;
        self.velocity = [(self.motion[1] - x) / seconds, (self.motion[2] - z) / seconds];
        self.read_signals();
        self.observe(observation);
        let healthy = self.healthy();
        let forward = self.options.forward_reward_weight * self.velocity[0];
        let alive = self.options.healthy.map_or(0.0, |of| f64::from(healthy) * of.reward);
        let effort = self.options.ctrl_cost_weight * self.action.iter().map(|a| a * a).sum::<f64>();
        let terminated = !healthy && self.options.healthy.is_some_and(|of| of.terminate);
        let truncated = !terminated && self.steps >= self.spec.horizon;
        self.over = terminated || truncated;
        Ok(Step { reward: forward + alive - effort, terminated, truncated })
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
        Some(self)
    }

    fn bare_engine(&mut self) -> Option<&mut dyn BareEngine> {
        Some(self)
    }
}

impl Settable for Mujoco {
    fn state(&self) -> Value {
        json!({ "qpos": self.positions(), "qvel": self.velocities() })
    }

    fn set_state(&mut self, state: &Value, observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, self.spec.observation.dim())?;
        let motion = parse_state(state, self.robot.sizes)?;
        self.motion.copy_from_slice(&motion);
        self.begin(observation)
    }
}

impl Snapshots for Mujoco {
    fn snapshot(&self) -> Vec<u8> {
        let mut whole = vec![0.0; self.data.model().size(Part::Whole)];
        self.data.read(Part::Whole, &mut whole);
        let mut bytes = vec![SNAPSHOT_VERSION, self.model as u8, u8::from(self.over)];
        bytes.extend((self.steps as u64).to_le_bytes());
        bytes.extend(self.velocity.iter().chain(&whole).flat_map(|number| number.to_le_bytes()));
        bytes
    }

    fn restore(&mut self, snapshot: &[u8], observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, self.spec.observation.dim())?;
        let refuse = |why: String| Error::State(format!("not a snapshot of this environment: {why}"));
        let size = 2 + self.data.model().size(Part::Whole);
        let Some((head, numbers)) = snapshot.split_first_chunk::<11>().filter(|(_, rest)| rest.len() == 8 * size)
        else {
            return Err(refuse(format!("{} bytes, expected {}", snapshot.len(), 11 + 8 * size)));
        };
        let [version, model, over, steps @ ..] = *head;
        if version != SNAPSHOT_VERSION || model != self.model as u8 || over > 1 {
            return Err(refuse(format!(
                "it begins with {:?}, expected [{SNAPSHOT_VERSION}, {}, 0 or 1]",
                &head[..3],
                self.model as u8
            )));
        }
        let steps = u64::from_le_bytes(steps);
        if steps > self.spec.horizon as u64 {
            return Err(refuse(format!("step {steps} is past the horizon of {}", self.spec.horizon)));
        }
        let numbers: Vec<f64> = numbers.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        if let Some(number) = numbers.iter().find(|number| !number.is_finite()) {
            return Err(refuse(format!("it contains {number}; expected finite numbers")));
        }
        let (velocity, whole) = numbers.split_at(2);
        self.data.reset(); // the engine warns only once per reset
        self.data.write(Part::Whole, whole);
        self.data.read(Part::Motion, &mut self.motion);
        self.velocity = [velocity[0], velocity[1]];
        self.steps = steps as usize;
        self.over = over == 1;
        self.read_signals();
        self.observe(observation);
        Ok(())
    }
}

impl Drawable for Mujoco {
    fn limbs(&self) -> Result<Vec<Limb>, Error> {
        let skeleton = self.skeleton.as_ref().map_err(|why| Error::Simulator(why.clone()))?;
        Ok(skeleton.limbs(self.positions()))
    }
}

impl BareEngine for Mujoco {
    fn bare_step(&mut self, action: &[f64]) -> bool {
        let sound = action.len() == self.action.len() && action.iter().all(|number| number.is_finite());
        if sound {
            self.over = true;
            self.data.write(Part::Control, action);
            self.data.step(self.options.frame_skip);
            engine::take_warning();
        }
        sound
    }
}

/// The layout of a snapshot: this version, the model, whether the episode is over, the step count, two velocities, and
/// the state of the engine.
const SNAPSHOT_VERSION: u8 = 1;

/// Parses a state into time 0, then positions and velocities.
fn parse_state(state: &Value, [positions, velocities, _]: [usize; 3]) -> Result<Vec<f64>, Error> {
    let form = || format!(r#"expected {{"qpos": [{positions} numbers], "qvel": [{velocities} numbers]}}"#);
    let Value::Object(map) = state else { return Err(Error::State(format!("{state} is not an object; {}", form()))) };
    if let Some(key) = map.keys().find(|key| !["qpos", "qvel"].contains(&key.as_str())) {
        return Err(Error::State(format!("unknown key {key:?}; {}", form())));
    }
    let mut motion = vec![0.0];
    for (key, count) in [("qpos", positions), ("qvel", velocities)] {
        let refuse = |why: String| Error::State(format!("{key} {why}; {}", form()));
        let given = map.get(key).ok_or_else(|| refuse("is missing".into()))?;
        let list = given.as_array().ok_or_else(|| refuse(format!("= {given} is not a list")))?;
        if list.len() != count {
            return Err(refuse(format!("has {} numbers", list.len())));
        }
        for (i, value) in list.iter().enumerate() {
            let number = value.as_f64().filter(|number| number.abs() <= MAX_VALUE);
            motion.push(number.ok_or_else(|| refuse(format!("[{i}] = {value} is not a number up to {MAX_VALUE:e}")))?);
        }
    }
    Ok(motion)
}
