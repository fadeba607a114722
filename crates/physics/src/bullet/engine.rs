//! Bullet's C API in PyBullet's library, opened at run time without Python, behind a safe face: a [`Client`] is one
//! physics world and whoever calls it does its work.
//!
//! Every call is a command with a status; one that is not the status of success becomes an error. The API has no version
//! to ask for, and one struct of it ([`JointInfo`]) is known here: so the file must be the pinned one, by its SHA-256.
//! The library is a Python module. Its functions of Python's are bound when called, which they never are; its five data
//! symbols of Python's must be there when it is opened: see [`crate::bullet_symbols`].
#![allow(unsafe_code, reason = "a C library is called; every block says why it is sound")]

use std::ffi::{CString, c_char, c_double, c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use crate::engines::{BULLET, Engines};
use crate::foreign::{lock, symbol};

/// Gives the program the five data symbols that PyBullet's library looks for when it is opened; nobody reads them.
///
/// Say it once in a program that makes Bullet's environments, and link that with `-rdynamic` (see the `build.rs` of
/// `prudence`). Never in a library: a Python module made from it would hide Python's own.
#[macro_export]
macro_rules! bullet_symbols {
    () => {
        #[allow(missing_docs, non_upper_case_globals, unsafe_code, reason = "names that a C library looks for")]
        mod bullet_symbols {
            /// As large as the largest of the five, a type of Python's.
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

/// `EnumSharedMemoryServerStatus`: what a command answers.
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

/// `JointType`.
const FIXED: c_int = 4;
const GEAR: c_int = 6;
/// Control modes.
const VELOCITY: c_int = 0;
const POSITION: c_int = 2;
/// Frames of forces.
const LINK_FRAME: c_int = 1;
const WORLD_FRAME: c_int = 2;

/// `b3JointInfo`.
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
    most: [c_double; 2],
    parent_frame: [c_double; 7],
    child_frame: [c_double; 7],
    axis: [c_double; 3],
    parent_index: c_int,
    q_size: c_int,
    u_size: c_int,
}

type Handle = *mut c_void;

/// Functions of the C API by their names there.
macro_rules! api {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case, reason = "as C calls them")]
        struct Api {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            /// # Safety
            /// The file must be PyBullet 3.2.7.
            unsafe fn load(file: &libloading::Library) -> Result<Self, String> {
                // SAFETY: the types are those of PhysicsClientC_API.h in that version. Its handles are pointers; what
                // setters return is of no use.
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

/// One opened library, which is never closed.
pub struct Library {
    path: PathBuf,
    api: Api,
}

/// Every library opened so far.
static LIBRARIES: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());
/// Held while worlds are made and unmade: the engine's readers of files share search paths and caches.
static MAKING: Mutex<()> = Mutex::new(());

impl Library {
    /// Opens the library of a cache, or hands out the one opened before; the error says what to do.
    pub fn open(engines: &Engines) -> Result<&'static Self, String> {
        let path = engines.folder(&BULLET).join(BULLET.library);
        let mut libraries = lock(&LIBRARIES);
        if let Some(open) = libraries.iter().find(|library| library.path == path) {
            return Ok(open);
        }
        engines.checked(&BULLET, BULLET.library)?;
        let refuse = |why: String| {
            let hint = "the program must say `prudence_physics::bullet_symbols!()` and be linked with -rdynamic";
            let hint = if why.contains("undefined symbol: ") { format!(" ({hint})") } else { String::new() };
            format!("{}: {why}{hint}", path.display())
        };
        // libloading binds functions when they are first called (RTLD_LAZY), so that Python's may be missing.
        // SAFETY: the file is PyBullet's library, by its SHA-256; its initialisers only fill the engine's own tables.
        let file = unsafe { libloading::Library::new(&path) }.map_err(|error| refuse(error.to_string()))?;
        let file = ManuallyDrop::new(file); // environments may live as long as the program: never closed
        // SAFETY: the pinned file.
        let api = unsafe { Api::load(&file) }.map_err(refuse)?;
        let library: &'static Self = Box::leak(Box::new(Self { path, api }));
        libraries.push(library);
        Ok(library)
    }
}

/// How time passes in a world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Seconds of one of the solver's steps.
    pub dt: f64,
    /// Of them in one [`Client::step`].
    pub substeps: c_int,
}

/// Place and velocity of a body's base, in the world, and of its joints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Motion {
    /// Of the centre of mass.
    pub position: [f64; 3],
    /// A quaternion x, y, z, w.
    pub orientation: [f64; 4],
    /// Metres a second.
    pub linear_velocity: [f64; 3],
    /// Radians a second, about the world's axes.
    pub angular_velocity: [f64; 3],
    /// Position and velocity of every joint; zeros for a fixed one.
    pub joints: Vec<[f64; 2]>,
}

/// A body in a world.
pub struct Body {
    id: c_int,
    /// Where each joint stands among positions and among velocities; nothing for a fixed one.
    joints: Vec<Option<[c_int; 2]>>,
}

impl Body {
    /// How many joints it has.
    pub fn joints(&self) -> usize {
        self.joints.len()
    }

    /// The joints that can move.
    pub fn movable(&self) -> impl Iterator<Item = usize> {
        (0..self.joints.len()).filter(|joint| self.joints[*joint].is_some())
    }
}

/// What a motor is to do.
#[derive(Clone, Copy, Debug)]
pub enum Drive {
    /// Turn with a velocity, by at most a force.
    Velocity(f64, f64),
    /// Go to a position, by the engine's usual gains and force.
    Position(f64),
}

/// A physics world.
pub struct Client {
    library: &'static Library,
    raw: NonNull<c_void>,
}

// SAFETY: the world is bound to no thread (whoever submits a command does its work), and is reached through `&mut` of its
// one owner; what worlds share is only used while they are made and unmade, under a lock.
unsafe impl Send for Client {}

impl Client {
    /// A new world that `fill` puts its bodies into.
    pub fn new<T>(
        library: &'static Library,
        fill: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<(Self, T), String> {
        let _making = lock(&MAKING);
        // SAFETY: takes nothing, gives a world of its own or null.
        let raw = unsafe { (library.api.b3ConnectPhysicsDirect)() };
        let raw = NonNull::new(raw).ok_or("Bullet: no memory for a world")?;
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
        // SAFETY: called once, by `new` or by Drop; nothing is used afterwards.
        unsafe { (self.library.api.b3DisconnectSharedMemory)(self.raw.as_ptr()) };
    }

    /// Makes a command by `make`, has it done, and gives the status where it is the expected one.
    ///
    /// # Safety
    /// `make` returns a command of this world, made just now: there is one at a time, and nobody frees it.
    unsafe fn command(
        &mut self,
        what: &str,
        expected: Status,
        make: impl FnOnce(&Api, Handle) -> Handle,
    ) -> Result<Handle, String> {
        let (api, raw) = (&self.library.api, self.raw.as_ptr());
        let command = make(api, raw);
        if command.is_null() {
            return Err(format!("Bullet cannot {what}: it takes no command"));
        }
        // A world in our process has done the command when `submit` returns, so that there is nothing to wait for; the
        // usual b3SubmitClientCommandAndWaitStatus sleeps a moment all the same.
        // SAFETY: the caller's promise; the status stays the world's until the next command.
        let status = unsafe {
            (api.b3SubmitClientCommand)(raw, command);
            (api.b3ProcessServerStatus)(raw)
        };
        if status.is_null() {
            return Err(format!("Bullet cannot {what}: no status"));
        }
        // SAFETY: a status of this world.
        match unsafe { (api.b3GetStatusType)(status) } {
            found if found == expected as c_int => Ok(status),
            found => {
                Err(format!("Bullet cannot {what}: status {found}, expected {} ({expected:?})", expected as c_int))
            }
        }
    }

    /// Gravity, time and the solver as in every task.
    pub fn set_physics(&mut self, timing: Timing) -> Result<(), String> {
        // SAFETY: every setter takes the command just made.
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

    /// Loads a body. A mesh that is missing would be left out without a word: callers look before.
    pub fn load(&mut self, file: &Path, place: [f64; 3], yaw: f64, scale: f64, fixed: bool) -> Result<Body, String> {
        let name = CString::new(file.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        let [x, y, z] = place;
        let [qx, qy, qz, qw] = turned(yaw);
        let what = format!("load {}", file.display());
        // SAFETY: as in `set_physics`; the name is terminated and copied into the command.
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
        // SAFETY: asks the world for a body's joints; an unknown body has none.
        let count = unsafe { (self.library.api.b3GetNumJoints)(self.raw.as_ptr(), id) };
        let joints = (0..count).map(|joint| self.joint(id, joint)).collect::<Result<_, _>>()?;
        Ok(Body { id, joints })
    }

    fn joint(&self, body: c_int, joint: c_int) -> Result<Option<[c_int; 2]>, String> {
        let mut info = MaybeUninit::<JointInfo>::zeroed();
        // SAFETY: the struct is laid out as in the pinned version, and zeros are a value of it.
        let (found, info) = unsafe {
            let found = (self.library.api.b3GetJointInfo)(self.raw.as_ptr(), body, joint, info.as_mut_ptr());
            (found, info.assume_init())
        };
        match (found, info.joint_type, [info.q_index, info.u_index]) {
            (0, _, _) => Err(format!("Bullet cannot describe joint {joint}")),
            (_, FIXED, _) => Ok(None),
            (_, _, [q, u]) if q >= 7 && u >= 6 => Ok(Some([q, u])),
            (_, kind, index) => {
                Err(format!("joint {joint} has type {kind} and indices {index:?}, which is no motor's"))
            }
        }
    }

    /// Changes how a body's base slides and bounces.
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

    /// Keeps a body's links from being looked at as pairs. They never collide with each other, as models are loaded here; the
    /// engine would find that out anew for every pair in every step.
    pub fn ignore_own_pairs(&mut self, body: &Body) -> Result<(), String> {
        const MOVING: c_int = 1; // the group of all that moves
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

    /// Makes two joints of a body turn together, about the y axis.
    pub fn add_gear(&mut self, body: &Body, gear: &Gear) -> Result<(), String> {
        // SAFETY: zeros are a value of the struct.
        let mut info: JointInfo = unsafe { MaybeUninit::zeroed().assume_init() };
        info.joint_type = GEAR;
        info.axis = [0.0, 1.0, 0.0];
        info.parent_frame[6] = 1.0; // no turn
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

    /// Has the motors of joints do the same thing; fixed joints have none.
    pub fn drive(&mut self, body: &Body, joints: &[usize], drive: Drive) -> Result<(), String> {
        let mode = if matches!(drive, Drive::Velocity(..)) { VELOCITY } else { POSITION };
        // SAFETY: as in `set_physics`; indices are those the world gave for the joints.
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

    /// Pushes a body's base during the next step: at a place, by a force along the world's axes; without a place at its
    /// centre, along its own axes.
    pub fn push(&mut self, body: &Body, force: [f64; 3], at: Option<[f64; 3]>) -> Result<(), String> {
        let (place, frame) = at.map_or(([0.0; 3], LINK_FRAME), |place| (place, WORLD_FRAME));
        // SAFETY: as in `set_physics`; three numbers each, copied into the command.
        unsafe {
            self.command("push", Status::Completed, |api, world| {
                let command = (api.b3ApplyExternalForceCommandInit)(world);
                (api.b3ApplyExternalForce)(command, body.id, -1, force.as_ptr(), place.as_ptr(), frame);
                command
            })?
        };
        Ok(())
    }

    /// Puts a body into a motion.
    pub fn put(&mut self, body: &Body, motion: &Motion) -> Result<(), String> {
        let ([x, y, z], [qx, qy, qz, qw]) = (motion.position, motion.orientation);
        // SAFETY: as in `set_physics`; three numbers each, copied into the command.
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

    /// Reads a body's motion.
    pub fn read(&mut self, body: &Body, motion: &mut Motion) -> Result<(), String> {
        let (mut counts, mut q, mut u) = ([0; 2], ptr::null(), ptr::null());
        // SAFETY: as in `set_physics`; what is not asked for is null. The two arrays live until the next command, and are
        // as long as the counts say, which are checked.
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
                    "Bullet cannot read a body: {counts:?} numbers, expected 7 and 6 and {movable} more"
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

    /// Moves the world on.
    pub fn step(&mut self) -> Result<(), String> {
        // SAFETY: the command just made.
        unsafe { self.command("step", Status::Stepped, |api, world| (api.b3InitStepSimulationCommand)(world))? };
        Ok(())
    }

    /// Keeps the places, velocities and contacts of all bodies, and says under which number.
    pub fn save(&mut self) -> Result<c_int, String> {
        // SAFETY: the command just made, and its status.
        unsafe {
            let save = |api: &Api, world| (api.b3SaveStateCommandInit)(world);
            let status = self.command("save its state", Status::Saved, save)?;
            Ok((self.library.api.b3GetStatusGetStateId)(status))
        }
    }

    /// Goes back to what was kept. Motors stay as they are.
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
        let _making = lock(&MAKING);
        self.disconnect();
    }
}

/// Joints that turn together.
pub struct Gear {
    /// Which.
    pub joints: [c_int; 2],
    /// How fast the one beside the other.
    pub ratio: f64,
    /// The link that both are measured against, where that is not the base.
    pub aux_link: Option<c_int>,
}

/// The quaternion of a turn about the vertical axis, to the last bit as PyBullet makes it.
pub fn turned(yaw: f64) -> [f64; 4] {
    let (sin, cos) = ((yaw / 2.0).sin(), (yaw / 2.0).cos());
    let length = (sin * sin + cos * cos).sqrt();
    [0.0, 0.0, sin / length, cos / length]
}
