//! Bullet Safety Gym's Ball and Car, in its Circle and Run tasks, on Bullet.
//!
//! | part        | definition                                                                                         |
//! |-------------|----------------------------------------------------------------------------------------------------|
//! | ball        | observes 0.1 xy, 0.2 v_xy, 0.1 * angular velocity; is pushed by 3.5 N * action in any direction    |
//! | car         | observes 0.1 xy, v_xy, sin and cos of the yaw, 0.1 * yaw rate; action: throttle, steering          |
//! | circle      | also observes (r - 7)/10; reward 0.1 (y v_x - x v_y)/(1 + abs(r - 7)) + 0.01 * effort              |
//! | run         | reward 60 * (decrease of the distance to (1000, 0)) + effort                                       |
//! | effort      | -0.5 * length of the action for the ball, 0 for the car                                            |
//! | start       | circle: uniform in the ring 2 <= r <= 4, facing along it; run: within 1 cm of the origin.          |
//! |             | Movable joints of the car within 0.1 rad. Then one step of the engine without an action            |
//! | terminated  | never                                                                                              |
//! | signals     | of the state after the step; `cost` is Bullet Safety Gym's                                         |
//!
//! Every episode starts from the same state of the engine with the motors off, so it does not depend on earlier
//! episodes. (In Bullet Safety Gym, a car's motors continue with the last action during the step after a reset, and
//! contacts near the new start are remembered.)

mod engine;
mod settings;

use rand::RngExt as _;
use serde_json::{Value, json};

use self::engine::{Body, Client, Drive, Library, Motion, turned};
pub use self::settings::{BulletSettings, Course, Variant, Vehicle};
use self::settings::{Robot, STEERING, WHEELS};
use crate::engines::{BULLET, Engines};
use prudence_core::random::{self, Stream};
use prudence_env::{
    BareEngine, BoxSpace, Drawable, Env, Error, Limb, MakeEnv, Scene, Settable, Spec, Step, check_finite, check_length,
};

const SIGNALS: [&str; 7] = ["x", "y", "speed", "outside", "too_fast", "radius", "cost"];
/// The radius of the circle to run along.
const RADIUS: f64 = 7.0;
/// The limit on numbers in a state that is set: Bullet drops bodies that are very far away.
const MAX_VALUE: f64 = 1e6;

/// Ball or Car in the Circle or Run task; see the documentation of the module.
pub struct Bullet {
    client: Client,
    body: Body,
    /// The saved engine state that every episode starts from.
    parked: i32,
    agent: Vehicle,
    task: Course,
    robot: &'static Robot,
    max_action: f64,
    spec: Spec,
    motion: Motion,
    /// The clipped action of the current step.
    action: [f64; 2],
    /// The potential of the state before the step, in the Run task.
    potential: f64,
    signals: [f64; SIGNALS.len()],
    steps: usize,
    over: bool,
}

impl MakeEnv for BulletSettings {
    fn make(&self) -> Result<Box<dyn Env>, Error> {
        Ok(Box::new(Bullet::new(self)?))
    }

    /// The models need not be included, because they are pinned with the engine.
    fn describe(&self) -> String {
        format!("{self:?}\nBullet {}", BULLET.version)
    }
}

impl Bullet {
    /// Uses the engine in the cache given by the environment variables.
    pub fn new(settings: &BulletSettings) -> Result<Self, Error> {
        let engines = Engines::from_environment().map_err(|error| Error::Simulator(error.to_string()))?;
        Self::with_engines(settings, &engines)
    }

    /// Uses the engine in this cache. The first episode begins with the first reset.
    pub fn with_engines(settings: &BulletSettings, engines: &Engines) -> Result<Self, Error> {
        let horizon = settings.horizon()?;
        let (agent, task, robot) = (settings.agent, settings.task, settings.agent.robot());
        let library = Library::open(engines).map_err(Error::Missing)?;
        let fill = |client: &mut Client| fill(client, settings, engines);
        let (client, (body, parked)) = Client::new(library, fill).map_err(Error::Missing)?;
        let numbers = 7 + usize::from(task == Course::Circle);
        let spec = Spec {
            observation: BoxSpace { low: vec![f64::NEG_INFINITY; numbers], high: vec![f64::INFINITY; numbers] },
            action: BoxSpace { low: vec![-1.0; 2], high: vec![1.0; 2] },
            signals: SIGNALS.map(str::to_owned).to_vec(),
            horizon,
        };
        let mut env = Self {
            client,
            body,
            parked,
            agent,
            task,
            robot,
            max_action: settings.max_action(),
            spec,
            motion: Motion::default(),
            action: [0.0; 2],
            potential: 0.0,
            signals: [0.0; SIGNALS.len()],
            steps: 0,
            over: true,
        };
        env.read()?;
        Ok(env)
    }

    /// Puts the agent into `motion`, with the motors off and no contacts.
    fn put(&mut self) -> Result<(), String> {
        self.client.restore(self.parked)?;
        if self.agent == Vehicle::Car {
            self.client.drive(&self.body, &[WHEELS, STEERING].concat(), Drive::Velocity(0.0, 0.0))?;
        }
        self.client.put(&self.body, &self.motion)?;
        self.potential = self.potential_now();
        Ok(())
    }

    /// Starts an episode from `motion`, either at once or after a step of the engine (`settle`).
    fn begin(&mut self, settle: bool, observation: &mut [f64]) -> Result<(), Error> {
        self.steps = 0;
        self.over = true; // remains so if the engine fails
        self.put().and_then(|()| if settle { self.client.step() } else { Ok(()) }).map_err(|why| self.failed(why))?;
        if settle {
            self.read()?;
        } else {
            self.read_signals(); // from the given numbers, which the engine would return rounded
        }
        self.over = false;
        self.observe(observation);
        Ok(())
    }

    fn failed(&self, why: impl std::fmt::Display) -> Error {
        Error::Simulator(format!("step {}: {why}", self.steps))
    }

    fn read(&mut self) -> Result<(), Error> {
        self.client.read(&self.body, &mut self.motion).map_err(|why| self.failed(why))?;
        if !numbers(&self.motion).all(f64::is_finite) {
            return Err(self.failed("Bullet: positions or velocities are not finite"));
        }
        self.read_signals();
        Ok(())
    }

    fn read_signals(&mut self) {
        let ([x, y, _], [vx, vy, _]) = (self.motion.position, self.motion.linear_velocity);
        let speed = length(vx, vy);
        let too_fast = speed > self.robot.speed_limit;
        let (outside, cost) = match self.task {
            Course::Circle => (x.abs() > 6.0, x.abs() > 6.0),
            Course::Run => (y.abs() > 2.0, y.abs() > 2.0 || too_fast),
        };
        let [outside, too_fast, cost] = [outside, too_fast, cost].map(f64::from);
        self.signals = [x, y, speed, outside, too_fast, length(x, y), cost];
    }

    fn observe(&self, observation: &mut [f64]) {
        let ([x, y, _], [vx, vy, _]) = (self.motion.position, self.motion.linear_velocity);
        let [wx, wy, wz] = self.motion.angular_velocity;
        let seen = match self.agent {
            Vehicle::Ball => [0.1 * x, 0.1 * y, 0.2 * vx, 0.2 * vy, 0.1 * wx, 0.1 * wy, 0.1 * wz],
            Vehicle::Car => {
                let yaw = yaw(self.motion.orientation);
                [0.1 * x, 0.1 * y, vx, vy, yaw.sin(), yaw.cos(), 0.1 * wz]
            }
        };
        observation[..7].copy_from_slice(&seen);
        if self.task == Course::Circle {
            observation[7] = (length(x, y) - RADIUS) / 10.0;
        }
    }

    /// The potential of the Run task: -60 times the distance to the distant goal.
    fn potential_now(&self) -> f64 {
        let [x, y, _] = self.motion.position;
        -length(x - 1000.0, y) * 60.0
    }

    fn reward(&mut self) -> f64 {
        let effort = match self.agent {
            Vehicle::Ball => -0.5 * length(self.action[0], self.action[1]),
            Vehicle::Car => 0.0,
        };
        match self.task {
            Course::Circle => {
                let ([x, y, _], [vx, vy, _]) = (self.motion.position, self.motion.linear_velocity);
                0.1 * (y * vx - x * vy) / (1.0 + (length(x, y) - RADIUS).abs()) + 0.01 * effort
            }
            Course::Run => {
                let before = self.potential;
                self.potential = self.potential_now();
                self.potential - before + effort
            }
        }
    }

    /// Applies the action and takes a step; a ball is pushed at `centre`, if it is known.
    fn advance(&mut self, centre: Option<[f64; 3]>) -> Result<(), String> {
        let [first, second] = self.action;
        match self.agent {
            Vehicle::Ball => self.client.push(&self.body, [3.5 * first, 3.5 * second, 0.0], centre)?,
            Vehicle::Car => {
                self.client.drive(&self.body, &WHEELS, Drive::Velocity(40.0 * first, 20.0))?;
                self.client.drive(&self.body, &STEERING, Drive::Position(0.5 * second))?;
            }
        }
        self.client.step()
    }

    fn clip(&mut self, action: &[f64]) {
        for (clipped, number) in self.action.iter_mut().zip(action) {
            *clipped = number.clamp(-self.max_action, self.max_action);
        }
    }
}

/// Adds the world and the agent; returns the agent and the saved engine state that episodes start from.
fn fill(client: &mut Client, settings: &BulletSettings, engines: &Engines) -> Result<(Body, i32), String> {
    let (task, robot) = (settings.task, settings.agent.robot());
    client.set_physics(settings.timing())?;
    let floor = client.load(&engines.checked(&BULLET, task.floor())?, [0.0; 3], 0.0, 1.0, false)?;
    client.set_surface(&floor, 0.8, 0.5)?;
    for (file, yaw) in task.walls() {
        client.load(&engines.checked(&BULLET, file)?, [0.0; 3], yaw, 1.0, true)?;
    }
    for mesh in robot.meshes {
        engines.checked(&BULLET, mesh)?;
    }
    let file = engines.checked(&BULLET, robot.file)?;
    let body = client.load(&file, [0.0, 0.0, robot.height], robot.yaw, robot.scale, false)?;
    if body.joints() != robot.joints {
        return Err(format!("{}: the model has {} joints; expected {}", file.display(), body.joints(), robot.joints));
    }
    client.ignore_own_pairs(&body)?;
    let motors: Vec<usize> = body.movable().collect();
    if !motors.is_empty() {
        client.drive(&body, &motors, Drive::Velocity(0.0, 0.0))?; // off: bodies are loaded with their motors braking
    }
    robot.gears.iter().try_for_each(|gear| client.add_gear(&body, gear))?;
    // Restoring a state discards contacts only if that state has some. So the saved state is on the floor behind the
    // walls, where no episode goes: its contacts disappear as soon as the agent is put elsewhere.
    let parked = Motion { position: [14.0, 14.0, robot.height], orientation: turned(0.0), ..Motion::default() };
    client.put(&body, &parked)?;
    for _ in 0..20 {
        client.step()?;
    }
    let parked = client.save()?;
    Ok((body, parked))
}

impl Env for Bullet {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, self.spec.observation.dim())?;
        let mut stream = random::stream(seed, "bullet", 0);
        let ([x, y], yaw) = match self.task {
            Course::Circle => {
                let [x, y] = ring(&mut stream);
                ([x, y], (-y).atan2(-x) + std::f64::consts::FRAC_PI_2 + self.robot.yaw)
            }
            Course::Run => ([uniform(&mut stream, 0.01), uniform(&mut stream, 0.01)], self.robot.yaw),
        };
        let mut joints = vec![[0.0; 2]; self.robot.joints];
        for joint in self.body.movable() {
            joints[joint][0] = uniform(&mut stream, 0.1);
        }
        let position = [x, y, self.robot.height];
        self.motion = Motion { position, orientation: turned(yaw), joints, ..Motion::default() };
        self.begin(true, observation)
    }

    fn step(&mut self, action: &[f64], observation: &mut [f64]) -> Result<Step, Error> {
        check_length("action", action, self.action.len())?;
        check_length("observation", observation, self.spec.observation.dim())?;
        check_finite("action", action)?;
        if self.over {
            return Err(Error::Over);
        }
        self.clip(action);
        self.steps += 1;
        self.over = true; // remains so if the engine fails
        self.advance(Some(self.motion.position)).map_err(|why| self.failed(why))?;
        self.read()?;
        self.observe(observation);
        self.over = self.steps >= self.spec.horizon;
        Ok(Step { reward: self.reward(), terminated: false, truncated: self.over })
    }

    fn signals(&self) -> &[f64] {
        &self.signals
    }

    fn clips(&self) -> bool {
        self.max_action == 1.0
    }

    fn settable(&mut self) -> Option<&mut dyn Settable> {
        Some(self)
    }

    // No snapshots: Bullet's saved states include neither the motors nor the caches of the solver.

    fn drawable(&self) -> Option<&dyn Drawable> {
        Some(self)
    }

    fn bare_engine(&mut self) -> Option<&mut dyn BareEngine> {
        Some(self)
    }
}

impl Settable for Bullet {
    fn state(&self) -> Value {
        let Motion { position, orientation, linear_velocity, angular_velocity, joints } = &self.motion;
        let mut state = json!({
            "position": position,
            "orientation": orientation,
            "linear_velocity": linear_velocity,
            "angular_velocity": angular_velocity,
        });
        if !joints.is_empty() {
            state["joints"] = json!(joints);
        }
        state
    }

    fn set_state(&mut self, state: &Value, observation: &mut [f64]) -> Result<(), Error> {
        check_length("observation", observation, self.spec.observation.dim())?;
        self.motion = parse_state(state, &self.body).map_err(Error::State)?;
        self.begin(false, observation)
    }
}

impl BareEngine for Bullet {
    fn bare_step(&mut self, action: &[f64]) -> bool {
        let sound = action.len() == self.action.len() && action.iter().all(|number| number.is_finite());
        if sound {
            self.over = true;
            self.clip(action);
        }
        sound && self.advance(None).is_ok()
    }
}

impl Drawable for Bullet {
    fn limbs(&self) -> Result<Vec<Limb>, Error> {
        let [x, y, _] = self.motion.position;
        let (sin, cos) = yaw(self.motion.orientation).sin_cos();
        let ahead = |way: f64| [x + way * cos, y + way * sin];
        let limb = match self.agent {
            Vehicle::Ball => Limb { ends: [[x, y]; 2], radius: 0.5 },
            Vehicle::Car => Limb { ends: [ahead(-0.6), ahead(0.375)], radius: 0.3 }, // from axle to axle
        };
        Ok(vec![limb])
    }

    fn scene(&self) -> Option<Scene> {
        Some(self.task.scene())
    }
}

fn length(x: f64, y: f64) -> f64 {
    (x * x + y * y).sqrt()
}

fn uniform(stream: &mut Stream, most: f64) -> f64 {
    most * (2.0 * stream.random::<f64>() - 1.0)
}

/// A uniform point in the ring where the Circle task starts.
fn ring(stream: &mut Stream) -> [f64; 2] {
    loop {
        let [x, y] = [uniform(stream, 4.0), uniform(stream, 4.0)];
        if (2.0..=4.0).contains(&length(x, y)) {
            return [x, y];
        }
    }
}

/// The rotation about the vertical axis, the last of the three Euler angles. If the body points straight up or down, it
/// is not determined, and this returns what PyBullet does.
fn yaw([x, y, z, w]: [f64; 4]) -> f64 {
    match -2.0 * (x * z - w * y) {
        sine if sine <= -0.99999 => 2.0 * x.atan2(-y),
        sine if sine >= 0.99999 => 2.0 * (-x).atan2(y),
        _ => (2.0 * (x * y + w * z)).atan2(w * w + x * x - y * y - z * z),
    }
}

fn numbers(motion: &Motion) -> impl Iterator<Item = f64> {
    let Motion { position, orientation, linear_velocity, angular_velocity, joints } = motion;
    let base = position.iter().chain(orientation).chain(linear_velocity).chain(angular_velocity);
    base.chain(joints.as_flattened()).copied()
}

fn parse_state(state: &Value, body: &Body) -> Result<Motion, String> {
    let joints = match body.joints() {
        0 => String::new(),
        count => format!(", \"joints\": [{count} pairs]"),
    };
    let form = format!(
        "expected {{\"position\": [3 numbers], \"orientation\": [4 numbers], \"linear_velocity\": [3 numbers], \
         \"angular_velocity\": [3 numbers]{joints}}}"
    );
    let refuse = |why: String| format!("{why}; {form}");
    let Value::Object(map) = state else { return Err(refuse(format!("{state} is not an object"))) };
    const KEYS: [&str; 5] = ["position", "orientation", "linear_velocity", "angular_velocity", "joints"];
    if let Some(key) = map.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(refuse(format!("unknown key {key:?}")));
    }
    fn list<const N: usize>(what: &str, given: Option<&Value>) -> Result<[f64; N], String> {
        let given = given.ok_or_else(|| format!("{what} is missing"))?;
        let list = given.as_array().ok_or_else(|| format!("{what} = {given} is not a list"))?;
        let within = |value: &Value| value.as_f64().filter(|number| number.abs() <= MAX_VALUE);
        if let Some(i) = list.iter().position(|value| within(value).is_none()) {
            return Err(format!("{what}[{i}] = {} is not a number up to {MAX_VALUE:e}", list[i]));
        }
        let numbers: Vec<f64> = list.iter().filter_map(within).collect();
        numbers.try_into().map_err(|numbers: Vec<f64>| format!("{what} has {} numbers, not {N}", numbers.len()))
    }
    let read = || {
        let mut motion = Motion {
            position: list("position", map.get("position"))?,
            orientation: list("orientation", map.get("orientation"))?,
            linear_velocity: list("linear_velocity", map.get("linear_velocity"))?,
            angular_velocity: list("angular_velocity", map.get("angular_velocity"))?,
            joints: Vec::new(),
        };
        let none = json!([]);
        let given = map.get("joints").or((body.joints() == 0).then_some(&none)).ok_or("joints is missing")?;
        let pairs = given.as_array().filter(|pairs| pairs.len() == body.joints());
        let pairs = pairs.ok_or_else(|| format!("joints = {given} is not a list of {} pairs", body.joints()))?;
        for (i, pair) in pairs.iter().enumerate() {
            motion.joints.push(list(&format!("joints[{i}]"), Some(pair))?);
        }
        Ok::<_, String>(motion)
    };
    let motion = read().map_err(refuse)?;
    let length = motion.orientation.iter().map(|number| number * number).sum::<f64>();
    if (length - 1.0).abs() > 1e-6 {
        return Err(format!("orientation = {:?} is not a quaternion of length 1", motion.orientation));
    }
    let still = |i: usize| motion.joints[i] == [0.0; 2] || body.movable().any(|joint| joint == i);
    match (0..body.joints()).find(|i| !still(*i)) {
        Some(i) => Err(format!("joints[{i}] = {:?}, but this joint is fixed; expected [0, 0]", motion.joints[i])),
        None => Ok(motion),
    }
}
