//! A safe interface to Bullet's C API in PyBullet's library, which is loaded at run time without Python. A [`Client`]
//! is one physics world, which is simulated on the thread of its caller.
//!
//! Every call is a command that returns a status; any status but that of success becomes an error. The API has no
//! version number, and this module knows the layout of one of its structs ([`JointInfo`]), so the library must be the
//! pinned file, verified by its SHA-256. It is a Python module. The Python functions that it refers to are bound when
//! they are called, which never happens; the five Python data symbols must exist when it is loaded: see
//! [`crate::bullet_symbols`].
#![allow(unsafe_code, reason = "this calls a C library; every block says why it is sound")]

use std::ffi::{CString, c_char, c_double, c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use crate::engines::{BULLET, Engines};
use crate::foreign::{lock, symbol};

/// Defines the five Python data symbols that PyBullet's library needs when it is loaded; they are never read.
///
/// Invoke it once in a program that creates Bullet environments, and link the program with `-rdynamic` (see the
/// `build.rs` of `prudence-cli`). Do not invoke it in a library: a Python module built from it would hide Python's own
/// symbols.
#[macro_export]
macro_rules! bullet_symbols {
    () => {
        #[allow(
            missing_docs,
            non_upper_case_globals,
            unsafe_code,
            reason = "symbols that a C library looks up by these names"
        )]
        mod bullet_symbols {
            /// At least as large as the largest of the five, a Python type object.
            type Dummy = [usize; 64];
            #[unsafe(no_mangle)]
            pub static PyCapsule_Type: Dummy = [0; 64];
            #[unsafe(no_mangle)]
            pub static PyExc_ImportError: Dummy = [0; 64];
            #[unsafe(no_mangle)]
            pub static PyExc_ModuleNotFoundError: Dummy = [0; 64];
            #[unsafe(no_mangle)]
            pub static PyExc_RuntimeError: Dummy = [0; 64];
            #[unsafe(no_mangle)]
            pub static _Py_NoneStruct: Dummy = [0; 64];
        }
    };
}

/// `EnumSharedMemoryServerStatus`: the status that a command returns.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
enum Status {
    Completed = 2,
    UrdfLoaded = 6,
    ActualState = 21,
    DesiredState = 25,
    Stepped = 26,
    Constraint = 56,
    ConstraintChanged = 60,
    Saved = 93,
    Restored = 95,
}

/// Values of `JointType`.
const FIXED: c_int = 4;
const GEAR: c_int = 6;
/// Control modes.
const VELOCITY: c_int = 0;
const POSITION: c_int = 2;
/// Reference frames of forces.
const LINK_FRAME: c_int = 1;
const WORLD_FRAME: c_int = 2;

/// The struct `b3JointInfo`.
#[repr(C)]
struct JointInfo {
    link_name: [c_char; 1024],
    joint_name: [c_char; 1024],
    joint_type: c_int,
    q_index: c_int,
    u_index: c_int,
    joint_index: c_int,
    flags: c_int,
    damping: c_double,
    friction: c_double,
    limits: [c_double; 2],
    maxima: [c_double; 2],
    parent_frame: [c_double; 7],
    child_frame: [c_double; 7],
    axis: [c_double; 3],
    parent_index: c_int,
    q_size: c_int,
    u_size: c_int,
}

type Handle = *mut c_void;

/// Declares functions of the C API by their C names.
macro_rules! api {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case, reason = "the names in C")]
        struct Api {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            /// # Safety
            /// The library must be PyBullet 3.2.7.
            unsafe fn load(file: &libloading::Library) -> Result<Self, String> {
                // SAFETY: the types are those of PhysicsClientC_API.h in that version. Its handles are pointers; the
                // values that setters return are not used.
                Ok(unsafe { Self { $($name: symbol(file, stringify!($name))?,)* } })
            }
        }
    };
}

api! {
    b3ConnectPhysicsDirect() -> Handle;
    b3DisconnectSharedMemory(Handle);
    b3SubmitClientCommand(Handle, Handle) -> c_int;
    b3ProcessServerStatus(Handle) -> Handle;
    b3GetStatusType(Handle) -> c_int;
    b3InitPhysicsParamCommand(Handle) -> Handle;
    b3PhysicsParamSetGravity(Handle, c_double, c_double, c_double) -> c_int;
    b3PhysicsParamSetTimeStep(Handle, c_double) -> c_int;
    b3PhysicsParamSetNumSubSteps(Handle, c_int) -> c_int;
    b3PhysicsParamSetNumSolverIterations(Handle, c_int) -> c_int;
    b3PhysicsParamSetDefaultContactERP(Handle, c_double) -> c_int;
    b3PhysicsParameterSetDeterministicOverlappingPairs(Handle, c_int) -> c_int;
    b3LoadUrdfCommandInit(Handle, *const c_char) -> Handle;
    b3LoadUrdfCommandSetStartPosition(Handle, c_double, c_double, c_double) -> c_int;
    b3LoadUrdfCommandSetStartOrientation(Handle, c_double, c_double, c_double, c_double) -> c_int;
    b3LoadUrdfCommandSetUseFixedBase(Handle, c_int) -> c_int;
    b3LoadUrdfCommandSetGlobalScaling(Handle, c_double) -> c_int;
    b3GetStatusBodyIndex(Handle) -> c_int;
    b3GetNumJoints(Handle, c_int) -> c_int;
    b3GetJointInfo(Handle, c_int, c_int, *mut JointInfo) -> c_int;
    b3InitChangeDynamicsInfo(Handle) -> Handle;
    b3ChangeDynamicsInfoSetLateralFriction(Handle, c_int, c_int, c_double) -> c_int;
    b3ChangeDynamicsInfoSetRestitution(Handle, c_int, c_int, c_double) -> c_int;
    b3CollisionFilterCommandInit(Handle) -> Handle;
    b3SetCollisionFilterGroupMask(Handle, c_int, c_int, c_int, c_int);
    b3InitCreateUserConstraintCommand(Handle, c_int, c_int, c_int, c_int, *mut JointInfo) -> Handle;
    b3GetStatusUserConstraintUniqueId(Handle) -> c_int;
    b3InitChangeUserConstraintCommand(Handle, c_int) -> Handle;
    b3InitChangeUserConstraintSetMaxForce(Handle, c_double) -> c_int;
    b3InitChangeUserConstraintSetGearRatio(Handle, c_double) -> c_int;
    b3InitChangeUserConstraintSetGearAuxLink(Handle, c_int) -> c_int;
    b3JointControlCommandInit2(Handle, c_int, c_int) -> Handle;
    b3JointControlSetDesiredPosition(Handle, c_int, c_double) -> c_int;
    b3JointControlSetDesiredVelocity(Handle, c_int, c_double) -> c_int;
    b3JointControlSetKp(Handle, c_int, c_double) -> c_int;
    b3JointControlSetKd(Handle, c_int, c_double) -> c_int;
    b3JointControlSetMaximumForce(Handle, c_int, c_double) -> c_int;
    b3ApplyExternalForceCommandInit(Handle) -> Handle;
    b3ApplyExternalForce(Handle, c_int, c_int, *const c_double, *const c_double, c_int);
    b3CreatePoseCommandInit(Handle, c_int) -> Handle;
    b3CreatePoseCommandSetBasePosition(Handle, c_double, c_double, c_double) -> c_int;
    b3CreatePoseCommandSetBaseOrientation(Handle, c_double, c_double, c_double, c_double) -> c_int;
    b3CreatePoseCommandSetBaseLinearVelocity(Handle, *const c_double) -> c_int;
    b3CreatePoseCommandSetBaseAngularVelocity(Handle, *const c_double) -> c_int;
    b3CreatePoseCommandSetJointPosition(Handle, Handle, c_int, c_double) -> c_int;
    b3CreatePoseCommandSetJointVelocity(Handle, Handle, c_int, c_double) -> c_int;
    b3RequestActualStateCommandInit(Handle, c_int) -> Handle;
    b3GetStatusActualState(
        Handle, *mut c_int, *mut c_int, *mut c_int, *mut *const c_double, *mut *const c_double, *mut *const c_double,
        *mut *const c_double
    ) -> c_int;
    b3InitStepSimulationCommand(Handle) -> Handle;
    b3SaveStateCommandInit(Handle) -> Handle;
    b3GetStatusGetStateId(Handle) -> c_int;
    b3LoadStateCommandInit(Handle) -> Handle;
    b3LoadStateSetStateId(Handle, c_int) -> c_int;
}

/// A loaded library, which is never unloaded.
pub struct Library {
    path: PathBuf,
    api: Api,
}

/// All libraries loaded so far.
static LIBRARIES: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());
/// Held while a world is created or deleted, because the engine's file readers share search paths and caches.
static CREATING: Mutex<()> = Mutex::new(());

impl Library {
    /// Loads the library of a cache, or returns it if it was loaded before. The error says what is wrong with it.
    pub fn open(engines: &Engines) -> Result<&'static Self, String> {
        let path = engines.folder(&BULLET).join(BULLET.library);
        let mut libraries = lock(&LIBRARIES);
        if let Some(open) = libraries.iter().find(|library| library.path == path) {
            return Ok(open);
        }
        engines.checked(&BULLET, BULLET.library)?;
        let refuse = |why: String| {
            let hint = "the program must invoke `prudence_physics::bullet_symbols!()` and be linked with -rdynamic";
            let hint = if why.contains("undefined symbol: ") { format!(" ({hint})") } else { String::new() };
            format!("{}: {why}{hint}", path.display())
        };
        // libloading binds functions when they are first called (RTLD_LAZY), so Python's functions may be missing.
        // SAFETY: by its SHA-256, the file is PyBullet's library; its initialisers only fill the engine's own tables.
        let file = unsafe { libloading::Library::new(&path) }.map_err(|error| refuse(error.to_string()))?;
        let file = ManuallyDrop::new(file); // never unloaded: environments may live as long as the program
        // SAFETY: it is the pinned file.
        let api = unsafe { Api::load(&file) }.map_err(refuse)?;
        let library: &'static Self = Box::leak(Box::new(Self { path, api }));
        libraries.push(library);
        Ok(library)
    }
}

/// The time steps of a world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The time step of the solver, in seconds.
    pub dt: f64,
    /// The number of solver steps in one [`Client::step`].
    pub substeps: c_int,
}

/// The pose and velocity of a body: of its base, in the world frame, and of its joints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Motion {
    /// The position of the centre of mass.
    pub position: [f64; 3],
    /// The orientation as a quaternion x, y, z, w.
    pub orientation: [f64; 4],
    /// In metres per second.
    pub linear_velocity: [f64; 3],
    /// In radians per second, about the axes of the world.
    pub angular_velocity: [f64; 3],
    /// The position and velocity of each joint; zeros for a fixed one.
    pub joints: Vec<[f64; 2]>,
}

/// A body in a world.
pub struct Body {
    id: c_int,
    /// The indices of each joint among the positions and among the velocities; `None` for a fixed one.
    joints: Vec<Option<[c_int; 2]>>,
}

impl Body {
    /// The number of joints.
    pub fn joints(&self) -> usize {
        self.joints.len()
    }

    /// The indices of the joints that are not fixed.
    pub fn movable(&self) -> impl Iterator<Item = usize> {
        (0..self.joints.len()).filter(|joint| self.joints[*joint].is_some())
    }
}

/// A command to a motor.
#[derive(Clone, Copy, Debug)]
pub enum Drive {
    /// Reach a velocity, with a maximum force.
    Velocity(f64, f64),
    /// Reach a position, with the engine's default gains and force.
    Position(f64),
}

/// A physics world.
pub struct Client {
    library: &'static Library,
    raw: NonNull<c_void>,
}

// SAFETY: a world is not bound to a thread (commands run on the thread that submits them), and its one owner accesses
// it through `&mut`; what worlds share is only used while they are created or deleted, under a lock.
unsafe impl Send for Client {}

impl Client {
    /// Creates a world; `fill` adds the bodies.
    pub fn new<T>(
        library: &'static Library,
        fill: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<(Self, T), String> {
        let _creating = lock(&CREATING);
        // SAFETY: it takes no arguments and returns a new world or null.
        let raw = unsafe { (library.api.b3ConnectPhysicsDirect)() };
        let raw = NonNull::new(raw).ok_or("Bullet: not enough memory for a world")?;
        let mut client = ManuallyDrop::new(Self { library, raw });
        let filled = fill(&mut client);
        match filled {
            Ok(filled) => Ok((ManuallyDrop::into_inner(client), filled)),
            Err(why) => {
                client.disconnect(); // Drop would wait for the lock
                Err(why)
            }
        }
    }

    fn disconnect(&mut self) {
        // SAFETY: called once, by `new` or by Drop; the world is not used afterwards.
        unsafe { (self.library.api.b3DisconnectSharedMemory)(self.raw.as_ptr()) };
    }

    /// Creates a command by `make`, executes it, and returns its status if that is the expected one.
    ///
    /// # Safety
    /// `make` must return a command of this world that it has just created; there is only one at a time, and nothing
    /// else may free it.
    unsafe fn command(
        &mut self,
        what: &str,
        expected: Status,
        make: impl FnOnce(&Api, Handle) -> Handle,
    ) -> Result<Handle, String> {
        let (api, raw) = (&self.library.api, self.raw.as_ptr());
        let command = make(api, raw);
        if command.is_null() {
            return Err(format!("Bullet cannot {what}: it accepted no command"));
        }
        // A world in this process has executed the command when `submit` returns, so there is nothing to wait for; the
        // usual b3SubmitClientCommandAndWaitStatus would sleep for a moment nevertheless.
        // SAFETY: the caller guarantees the command; the status is owned by the world and valid until the next command.
        let status = unsafe {
            (api.b3SubmitClientCommand)(raw, command);
            (api.b3ProcessServerStatus)(raw)
        };
        if status.is_null() {
            return Err(format!("Bullet cannot {what}: it returned no status"));
        }
        // SAFETY: the status is one of this world.
        match unsafe { (api.b3GetStatusType)(status) } {
            found if found == expected as c_int => Ok(status),
            found => {
                Err(format!("Bullet cannot {what}: status {found}, expected {} ({expected:?})", expected as c_int))
            }
        }
    }

    /// Sets gravity, the time steps and the solver as in every task.
    pub fn set_physics(&mut self, timing: Timing) -> Result<(), String> {
        // SAFETY: every setter takes the command that was just created.
        unsafe {
            self.command("set its parameters", Status::Completed, |api, world| {
                let command = (api.b3InitPhysicsParamCommand)(world);
                (api.b3PhysicsParamSetNumSolverIterations)(command, 5);
                (api.b3PhysicsParamSetNumSubSteps)(command, timing.substeps);
                (api.b3PhysicsParamSetTimeStep)(command, timing.dt * f64::from(timing.substeps));
                (api.b3PhysicsParameterSetDeterministicOverlappingPairs)(command, 1);
                (api.b3PhysicsParamSetGravity)(command, 0.0, 0.0, -9.81);
                (api.b3PhysicsParamSetDefaultContactERP)(command, 0.9);
                command
            })?
        };
        Ok(())
    }

    /// Loads a body. A missing mesh would be ignored silently, so callers check for it beforehand.
    pub fn load(&mut self, file: &Path, place: [f64; 3], yaw: f64, scale: f64, fixed: bool) -> Result<Body, String> {
        let name = CString::new(file.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        let [x, y, z] = place;
        let [qx, qy, qz, qw] = turned(yaw);
        let what = format!("load {}", file.display());
        // SAFETY: as in `set_physics`; the name is terminated, and it is copied into the command.
        let id = unsafe {
            let status = self.command(&what, Status::UrdfLoaded, |api, world| {
                let command = (api.b3LoadUrdfCommandInit)(world, name.as_ptr());
                (api.b3LoadUrdfCommandSetStartPosition)(command, x, y, z);
                (api.b3LoadUrdfCommandSetStartOrientation)(command, qx, qy, qz, qw);
                if fixed {
                    (api.b3LoadUrdfCommandSetUseFixedBase)(command, 1);
                }
                (api.b3LoadUrdfCommandSetGlobalScaling)(command, scale);
                command
            })?;
            (self.library.api.b3GetStatusBodyIndex)(status)
        };
        // SAFETY: this asks the world for the joints of a body; an unknown body has none.
        let count = unsafe { (self.library.api.b3GetNumJoints)(self.raw.as_ptr(), id) };
        let joints = (0..count).map(|joint| self.joint(id, joint)).collect::<Result<_, _>>()?;
        Ok(Body { id, joints })
    }

    fn joint(&self, body: c_int, joint: c_int) -> Result<Option<[c_int; 2]>, String> {
        let mut info = MaybeUninit::<JointInfo>::zeroed();
        // SAFETY: the struct has the layout of the pinned version, and zeros are a valid value.
        let (found, info) = unsafe {
            let found = (self.library.api.b3GetJointInfo)(self.raw.as_ptr(), body, joint, info.as_mut_ptr());
            (found, info.assume_init())
        };
        match (found, info.joint_type, [info.q_index, info.u_index]) {
            (0, _, _) => Err(format!("Bullet cannot describe joint {joint}")),
            (_, FIXED, _) => Ok(None),
            (_, _, [q, u]) if q >= 7 && u >= 6 => Ok(Some([q, u])),
            (_, kind, index) => Err(format!(
                "joint {joint} has type {kind} and indices {index:?}; expected a fixed joint or one with a motor"
            )),
        }
    }

    /// Sets the friction and restitution of a body's base.
    pub fn set_surface(&mut self, body: &Body, lateral_friction: f64, restitution: f64) -> Result<(), String> {
        // SAFETY: as in `set_physics`.
        unsafe {
            self.command("change a surface", Status::Completed, |api, world| {
                let command = (api.b3InitChangeDynamicsInfo)(world);
                (api.b3ChangeDynamicsInfoSetLateralFriction)(command, body.id, -1, lateral_friction);
                (api.b3ChangeDynamicsInfoSetRestitution)(command, body.id, -1, restitution);
                command
            })?
        };
        Ok(())
    }

    /// Excludes pairs of a body's links from collision detection. As models are loaded here, links never collide with
    /// each other, but the engine would check every pair in every step.
    pub fn ignore_own_pairs(&mut self, body: &Body) -> Result<(), String> {
        const MOVING: c_int = 1; // the collision group of moving bodies
        for link in -1..body.joints.len() as c_int {
            // SAFETY: as in `set_physics`.
            unsafe {
                self.command("filter pairs", Status::Completed, |api, world| {
                    let command = (api.b3CollisionFilterCommandInit)(world);
                    (api.b3SetCollisionFilterGroupMask)(command, body.id, link, MOVING, !MOVING);
                    command
                })?
            };
        }
        Ok(())
    }

    /// Couples two joints of a body by a gear about the y axis.
    pub fn add_gear(&mut self, body: &Body, gear: &Gear) -> Result<(), String> {
        // SAFETY: zeros are a valid value of the struct.
        let mut info: JointInfo = unsafe { MaybeUninit::zeroed().assume_init() };
        info.joint_type = GEAR;
        info.axis = [0.0, 1.0, 0.0];
        info.parent_frame[6] = 1.0; // no rotation
        info.child_frame[6] = 1.0;
        let [parent, child] = gear.joints;
        // SAFETY: as in `set_physics`; the struct is copied into the command.
        unsafe {
            let status = self.command("make a gear", Status::Constraint, |api, world| {
                (api.b3InitCreateUserConstraintCommand)(world, body.id, parent, body.id, child, &raw mut info)
            })?;
            let id = (self.library.api.b3GetStatusUserConstraintUniqueId)(status);
            self.command("set a gear", Status::ConstraintChanged, |api, world| {
                let command = (api.b3InitChangeUserConstraintCommand)(world, id);
                (api.b3InitChangeUserConstraintSetMaxForce)(command, 1e4);
                (api.b3InitChangeUserConstraintSetGearRatio)(command, gear.ratio);
                if let Some(link) = gear.aux_link {
                    (api.b3InitChangeUserConstraintSetGearAuxLink)(command, link);
                }
                command
            })?;
        }
        Ok(())
    }

    /// Gives the same command to the motors of several joints; fixed joints have no motors.
    pub fn drive(&mut self, body: &Body, joints: &[usize], drive: Drive) -> Result<(), String> {
        let mode = if matches!(drive, Drive::Velocity(..)) { VELOCITY } else { POSITION };
        // SAFETY: as in `set_physics`; the indices are those that the world reported for the joints.
        unsafe {
            self.command("drive motors", Status::DesiredState, |api, world| {
                let command = (api.b3JointControlCommandInit2)(world, body.id, mode);
                for [q, u] in joints.iter().filter_map(|joint| body.joints[*joint]) {
                    let (velocity, force) = match drive {
                        Drive::Velocity(velocity, force) => (velocity, force),
                        Drive::Position(position) => {
                            (api.b3JointControlSetDesiredPosition)(command, q, position);
                            (api.b3JointControlSetKp)(command, u, 0.1);
                            (0.0, 1e5)
                        }
                    };
                    (api.b3JointControlSetDesiredVelocity)(command, u, velocity);
                    (api.b3JointControlSetKd)(command, u, 1.0);
                    (api.b3JointControlSetMaximumForce)(command, u, force);
                }
                command
            })?
        };
        Ok(())
    }

    /// Applies a force to a body's base during the next step: at a point, in the world frame, or without a point at the
    /// centre of the base, in the frame of the base.
    pub fn push(&mut self, body: &Body, force: [f64; 3], at: Option<[f64; 3]>) -> Result<(), String> {
        let (place, frame) = at.map_or(([0.0; 3], LINK_FRAME), |place| (place, WORLD_FRAME));
        // SAFETY: as in `set_physics`; the pointers are to three numbers each, which are copied into the command.
        unsafe {
            self.command("push", Status::Completed, |api, world| {
                let command = (api.b3ApplyExternalForceCommandInit)(world);
                (api.b3ApplyExternalForce)(command, body.id, -1, force.as_ptr(), place.as_ptr(), frame);
                command
            })?
        };
        Ok(())
    }

    /// Sets the pose and velocity of a body.
    pub fn put(&mut self, body: &Body, motion: &Motion) -> Result<(), String> {
        let ([x, y, z], [qx, qy, qz, qw]) = (motion.position, motion.orientation);
        // SAFETY: as in `set_physics`; the pointers are to three numbers each, which are copied into the command.
        unsafe {
            self.command("put a body", Status::Completed, |api, world| {
                let command = (api.b3CreatePoseCommandInit)(world, body.id);
                (api.b3CreatePoseCommandSetBasePosition)(command, x, y, z);
                (api.b3CreatePoseCommandSetBaseOrientation)(command, qx, qy, qz, qw);
                (api.b3CreatePoseCommandSetBaseLinearVelocity)(command, motion.linear_velocity.as_ptr());
                (api.b3CreatePoseCommandSetBaseAngularVelocity)(command, motion.angular_velocity.as_ptr());
                for (i, [position, velocity]) in (0..).zip(&motion.joints) {
                    (api.b3CreatePoseCommandSetJointPosition)(world, command, i, *position);
                    (api.b3CreatePoseCommandSetJointVelocity)(world, command, i, *velocity);
                }
                command
            })?
        };
        Ok(())
    }

    /// Reads the pose and velocity of a body.
    pub fn read(&mut self, body: &Body, motion: &mut Motion) -> Result<(), String> {
        let (mut counts, mut q, mut u) = ([0; 2], ptr::null(), ptr::null());
        // SAFETY: as in `set_physics`; outputs that are not needed are null. The two arrays are valid until the next
        // command and have the lengths in the counts, which are checked.
        let (q, u) = unsafe {
            let status = self.command("read a body", Status::ActualState, |api, world| {
                (api.b3RequestActualStateCommandInit)(world, body.id)
            })?;
            let [positions, velocities] = &mut counts;
            let (none, nothing) = (ptr::null_mut(), ptr::null_mut());
            let read = self.library.api.b3GetStatusActualState;
            read(status, none, positions, velocities, nothing, &raw mut q, &raw mut u, nothing);
            let movable = body.movable().count() as c_int;
            if q.is_null() || u.is_null() || counts != [7 + movable, 6 + movable] {
                return Err(format!(
                    "Bullet cannot read a body: it has {counts:?} positions and velocities; expected 7 and 6, plus {movable}"
                ));
            }
            (std::slice::from_raw_parts(q, counts[0] as usize), std::slice::from_raw_parts(u, counts[1] as usize))
        };
        motion.position.copy_from_slice(&q[..3]);
        motion.orientation.copy_from_slice(&q[3..7]);
        motion.linear_velocity.copy_from_slice(&u[..3]);
        motion.angular_velocity.copy_from_slice(&u[3..6]);
        let index = |i: c_int| i as usize; // at least 6
        let joint = |of: &Option<[c_int; 2]>| of.map_or([0.0; 2], |[i, j]| [q[index(i)], u[index(j)]]);
        motion.joints.clear();
        motion.joints.extend(body.joints.iter().map(joint));
        Ok(())
    }

    /// Takes one step.
    pub fn step(&mut self) -> Result<(), String> {
        // SAFETY: the command was just created.
        unsafe { self.command("step", Status::Stepped, |api, world| (api.b3InitStepSimulationCommand)(world))? };
        Ok(())
    }

    /// Saves the poses, velocities and contacts of all bodies and returns the id of the saved state.
    pub fn save(&mut self) -> Result<c_int, String> {
        // SAFETY: the command was just created, and the status is its own.
        unsafe {
            let save = |api: &Api, world| (api.b3SaveStateCommandInit)(world);
            let status = self.command("save its state", Status::Saved, save)?;
            Ok((self.library.api.b3GetStatusGetStateId)(status))
        }
    }

    /// Restores a saved state. The motors stay as they are.
    pub fn restore(&mut self, saved: c_int) -> Result<(), String> {
        // SAFETY: as in `set_physics`.
        unsafe {
            self.command("restore its state", Status::Restored, |api, world| {
                let command = (api.b3LoadStateCommandInit)(world);
                (api.b3LoadStateSetStateId)(command, saved);
                command
            })?
        };
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _creating = lock(&CREATING);
        self.disconnect();
    }
}

/// A gear that couples two joints.
pub struct Gear {
    /// The indices of the parent and the child joint.
    pub joints: [c_int; 2],
    /// The ratio of their velocities.
    pub ratio: f64,
    /// The link that both are measured against, if it is not the base.
    pub aux_link: Option<c_int>,
}

/// The quaternion of a rotation about the vertical axis, with the same bits as PyBullet's.
pub fn turned(yaw: f64) -> [f64; 4] {
    let (sin, cos) = ((yaw / 2.0).sin(), (yaw / 2.0).cos());
    let length = (sin * sin + cos * cos).sqrt();
    [0.0, 0.0, sin / length, cos / length]
}
