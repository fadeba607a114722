//! MuJoCo's C library, opened at run time, behind a safe face: a [`Model`] to share and a [`Data`] per environment.
//!
//! No struct of MuJoCo's is known here. All that goes in or out is the "state" its C API copies by a bit mask, so that
//! the only layouts to trust are those masks: they belong to one version, which is asserted, as are the sizes they give.
//! Callers check numbers before they come here. The engine's own fatal errors cannot be returned (its handler must not
//! return, and unwinding through C is unsound): their text is printed and the process exits with 1.
#![allow(unsafe_code, reason = "a C library is called; every block says why it is sound")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, Weak};

use crate::engines::MUJOCO;
use crate::foreign::{lock, symbol};

/// The version of [`MUJOCO`] as the library says it.
const VERSION: c_int = 337;

/// Bits of `mjtState` in this version.
const TIME: c_uint = 1 << 0;
const QPOS: c_uint = 1 << 1;
const QVEL: c_uint = 1 << 2;
const ACT: c_uint = 1 << 3;
const CTRL: c_uint = 1 << 5; // 1 << 6 from 3.5 on
const EQ_ACTIVE: c_uint = 1 << 8;
const INTEGRATION: c_uint = (1 << 13) - 1;

/// Largest model that is read: they are written by hand.
const MOST_BYTES: u64 = 16 << 20;
/// Most numbers in a state.
const MOST_NUMBERS: usize = 1 << 20;

/// What of a [`Data`] is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Time, positions, velocities, in this order.
    Motion,
    /// The controls.
    Control,
    /// Everything later steps depend on.
    Whole,
}

impl Part {
    fn mask(self) -> c_uint {
        match self {
            Self::Motion => TIME | QPOS | QVEL,
            Self::Control => CTRL,
            Self::Whole => INTEGRATION,
        }
    }
}

#[repr(C)]
struct RawModel(PhantomData<*mut c_void>);
#[repr(C)]
struct RawData(PhantomData<*mut c_void>);
type Handler = unsafe extern "C" fn(*const c_char);

/// The functions of one opened library, which is never closed.
pub struct Library {
    path: PathBuf,
    /// It is C++ inside, and an allocation that fails there unwinds: defined with this ABI, and the end of the process.
    load_xml: unsafe extern "C-unwind" fn(*const c_char, *const c_void, *mut c_char, c_int) -> *mut RawModel,
    delete_model: unsafe extern "C" fn(*mut RawModel),
    make_data: unsafe extern "C" fn(*const RawModel) -> *mut RawData,
    delete_data: unsafe extern "C" fn(*mut RawData),
    reset_data: unsafe extern "C" fn(*const RawModel, *mut RawData),
    forward: unsafe extern "C" fn(*const RawModel, *mut RawData),
    step: unsafe extern "C" fn(*const RawModel, *mut RawData),
    state_size: unsafe extern "C" fn(*const RawModel, c_uint) -> c_int,
    get_state: unsafe extern "C" fn(*const RawModel, *const RawData, *mut f64, c_uint),
    set_state: unsafe extern "C" fn(*const RawModel, *mut RawData, *const f64, c_uint),
}

/// Every library opened so far; their handlers are set once, before anybody else can be inside.
static LIBRARIES: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());
/// Models in use, by library and file.
static MODELS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

struct Known {
    library: PathBuf,
    file: PathBuf,
    model: Weak<Model>,
}

impl Library {
    /// Opens the library, or hands out the one opened before; the error says what is wrong with it.
    pub fn open(path: &Path) -> Result<&'static Self, String> {
        let path = &path.canonicalize().map_err(|error| error.to_string())?;
        let mut libraries = lock(&LIBRARIES);
        if let Some(open) = libraries.iter().find(|library| library.path == *path) {
            return Ok(open);
        }
        check_whole(path)?;
        // SAFETY: the file is MuJoCo's library (installed under its SHA-256) or one the user put in its place; its
        // initialisers only register the engine's own plugins.
        let file = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
        let file = ManuallyDrop::new(file); // the engine keeps its plugins and our handlers: never closed
        // SAFETY: `int mj_version(void)` in every version of the engine.
        let version = unsafe { symbol::<unsafe extern "C" fn() -> c_int>(&file, "mj_version")?() };
        if version != VERSION {
            // SAFETY: `const char* mj_versionString(void)`, a constant text, in every version since 2.1.2.
            let named = unsafe {
                symbol::<unsafe extern "C" fn() -> *const c_char>(&file, "mj_versionString").map(|name| words(name()))
            };
            let named = named.unwrap_or_else(|_| format!("of version number {version}"));
            return Err(format!("it is MuJoCo {named}, but prudence is made for {}", MUJOCO.version));
        }
        // SAFETY: the types are those of mujoco.h 3.3.7, the version just asserted; mjtNum is double in its wheels.
        let library = unsafe {
            for (name, handler) in [("mju_user_error", fatal as Handler), ("mju_user_warning", warning as Handler)] {
                // A global `void (*)(const char*)`: written under the lock, before the first call that could read it.
                symbol::<*mut Option<Handler>>(&file, name)?.write(Some(handler));
            }
            Self {
                path: path.to_owned(),
                load_xml: symbol(&file, "mj_loadXML")?,
                delete_model: symbol(&file, "mj_deleteModel")?,
                make_data: symbol(&file, "mj_makeData")?,
                delete_data: symbol(&file, "mj_deleteData")?,
                reset_data: symbol(&file, "mj_resetData")?,
                forward: symbol(&file, "mj_forward")?,
                step: symbol(&file, "mj_step")?,
                state_size: symbol(&file, "mj_stateSize")?,
                get_state: symbol(&file, "mj_getState")?,
                set_state: symbol(&file, "mj_setState")?,
            }
        };
        let library: &'static Self = Box::leak(Box::new(library));
        libraries.push(library);
        Ok(library)
    }
}

/// A library that was cut short would kill the process where its missing pages are touched.
fn check_whole(path: &Path) -> Result<(), String> {
    let read = || {
        let file = File::open(path)?;
        let (length, mut head) = (file.metadata()?.len(), Vec::new());
        file.take(1 << 16).read_to_end(&mut head)?;
        std::io::Result::Ok((length, head))
    };
    let (length, head) = read().map_err(|error| error.to_string())?;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = head.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    // 64-bit little-endian ELF: the table of segments is at 32, its entries' size at 54, their number at 56.
    let whole = || -> Option<bool> {
        let (table, size, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
        let end = |i: usize| {
            let entry = table.checked_add(i * size)?;
            Some(number(entry.checked_add(8)?, 8)?.saturating_add(number(entry.checked_add(32)?, 8)?))
        };
        (0..count).map(end).try_fold(true, |whole, end| Some(whole && end? <= length))
    };
    match head.starts_with(b"\x7fELF\x02\x01") {
        false => Err("not a shared library for 64-bit Linux".to_owned()),
        true if whole() == Some(true) => Ok(()),
        true => Err(format!("the file is cut short at {length} bytes")),
    }
}

/// A model's text, no longer than it may be.
fn read_text(file: &Path) -> Result<String, String> {
    let refused = || format!("expected a file of at most {MOST_BYTES} bytes");
    let mut text = String::new();
    let open = File::open(file).map_err(|error| error.to_string())?;
    if !open.metadata().is_ok_and(|about| about.is_file()) {
        return Err(refused());
    }
    open.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 > MOST_BYTES {
        true => Err(refused()),
        false => Ok(text),
    }
}

/// Refuses a model that reads other files: its text must be all that it depends on, and is what a run keeps. What is no
/// XML is left to the engine, which says it better.
fn one_file(text: &str) -> Result<(), String> {
    let Ok(document) = roxmltree::Document::parse(text) else { return Ok(()) };
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        if name == "include" || node.attributes().any(|attribute| attribute.name().starts_with("file")) {
            return Err(format!("<{name}> reads another file; a model must be one file"));
        }
    }
    Ok(())
}

/// The engine's fatal errors: there is no way back into Rust from here.
unsafe extern "C" fn fatal(text: *const c_char) {
    // SAFETY: the engine passes a terminated text that lives through the call.
    let text = unsafe { words(text) };
    let _ = writeln!(std::io::stderr(), "error: MuJoCo: {text}");
    std::process::exit(1);
}

thread_local! {
    static WARNING: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the text for who called the engine, on whose thread it warns; without a handler it would write a log file.
unsafe extern "C" fn warning(text: *const c_char) {
    // SAFETY: as in `fatal`.
    let text = unsafe { words(text) };
    let _ = WARNING.try_with(|last| last.replace(Some(text)));
}

/// The engine's last warning on this thread; taking it forgets it.
pub fn take_warning() -> Option<String> {
    WARNING.take()
}

/// # Safety
/// `text` is null or a terminated text.
unsafe fn words(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and terminated by the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A compiled model; never written to after it was made, so that any number of threads may use it.
pub struct Model {
    library: &'static Library,
    raw: NonNull<RawModel>,
    text: String,
    /// Positions.
    pub nq: usize,
    /// Velocities.
    pub nv: usize,
    /// Controls.
    pub nu: usize,
    /// Activations of actuators with a memory of their own.
    pub na: usize,
    whole: usize,
}

// SAFETY: the engine takes the model as const everywhere but in delete_model, which Drop calls once, when nobody else
// has it; it keeps nothing that belongs to a thread.
unsafe impl Send for Model {}
// SAFETY: as above; MuJoCo documents one model with a data per thread as the way to run in parallel.
unsafe impl Sync for Model {}

impl Model {
    /// Compiles the file, or shares the model in use that was made from the same text.
    pub fn load(library: &'static Library, file: &Path) -> Result<Arc<Self>, String> {
        let text = read_text(file)?;
        one_file(&text)?;
        let mut models = lock(&MODELS); // the engine's XML reader is not entered twice either
        models.retain(|known| known.model.strong_count() > 0);
        let same =
            |known: &Known, model: &Self| known.library == library.path && known.file == file && model.text == text;
        if let Some(model) = models.iter().find_map(|known| known.model.upgrade().filter(|model| same(known, model))) {
            return Ok(model);
        }
        take_warning(); // of whatever was on this thread before
        let model = Arc::new(Self::compile(library, file, text)?);
        if read_text(file)? != model.text {
            return Err("it changed while it was read".to_owned());
        }
        models.push(Known { library: library.path.clone(), file: file.to_owned(), model: Arc::downgrade(&model) });
        Ok(model)
    }

    fn compile(library: &'static Library, file: &Path, text: String) -> Result<Self, String> {
        let name = CString::new(file.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        let mut message = [0 as c_char; 1000];
        let size = message.len() as c_int;
        // SAFETY: a terminated name, no virtual file system, and a buffer of the size given, zeroed before.
        let raw = unsafe { (library.load_xml)(name.as_ptr(), ptr::null(), message.as_mut_ptr(), size) };
        message[message.len() - 1] = 0;
        let Some(raw) = NonNull::new(raw) else {
            // SAFETY: terminated just above.
            return Err(unsafe { words(message.as_ptr()) }.trim().to_owned());
        };
        let mut model = Self { library, raw, text, nq: 0, nv: 0, nu: 0, na: 0, whole: 0 };
        [model.nq, model.nv, model.nu, model.na] =
            [model.count(QPOS)?, model.count(QVEL)?, model.count(CTRL)?, model.count(ACT)?];
        // The engine's own sum is an int that may overflow.
        model.whole =
            (0..INTEGRATION.count_ones()).try_fold(0, |sum, bit| Ok::<_, String>(sum + model.count(1 << bit)?))?;
        if model.count(TIME)? != 1 || model.count(INTEGRATION)? != model.whole {
            return Err("the engine's state is not laid out as prudence knows it".to_owned());
        }
        if model.count(EQ_ACTIVE)? != 0 {
            return Err("it has equality constraints, which a state cannot carry".to_owned());
        }
        Ok(model)
    }

    /// How many numbers the mask selects.
    fn count(&self, mask: c_uint) -> Result<usize, String> {
        // SAFETY: a live model of this library; nothing is written.
        let count = unsafe { (self.library.state_size)(self.raw.as_ptr(), mask) };
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST_NUMBERS);
        count.ok_or_else(|| format!("its state has more than {MOST_NUMBERS} numbers"))
    }

    /// The text it was made from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many numbers a part has.
    pub fn size(&self, part: Part) -> usize {
        match part {
            Part::Motion => 1 + self.nq + self.nv,
            Part::Control => self.nu,
            Part::Whole => self.whole,
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: made by load_xml, deleted once; every Data holds an Arc of its model, so none is left.
        unsafe { (self.library.delete_model)(self.raw.as_ptr()) };
    }
}

/// The moving part of a simulation.
pub struct Data {
    model: Arc<Model>,
    raw: NonNull<RawData>,
}

// SAFETY: the engine binds a data to no thread; it is reached through `&mut` or, for copies, `&` of its one owner.
unsafe impl Send for Data {}

impl Data {
    /// A new one, in the model's start state.
    pub fn new(model: Arc<Model>) -> Result<Self, String> {
        // SAFETY: a live model.
        let raw = unsafe { (model.library.make_data)(model.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or("no memory for the simulation")?;
        Ok(Self { model, raw })
    }

    /// The model it moves.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Back to the model's start state, caches of the solver included.
    pub fn reset(&mut self) {
        // SAFETY: the data was made from this model, and nobody else uses it.
        unsafe { (self.model.library.reset_data)(self.model.raw.as_ptr(), self.raw.as_ptr()) };
    }

    /// Computes all that follows from positions and velocities, without moving.
    pub fn forward(&mut self) {
        // SAFETY: as in `reset`.
        unsafe { (self.model.library.forward)(self.model.raw.as_ptr(), self.raw.as_ptr()) };
    }

    /// Moves on by so many steps of the engine.
    pub fn step(&mut self, count: usize) {
        for _ in 0..count {
            // SAFETY: as in `reset`.
            unsafe { (self.model.library.step)(self.model.raw.as_ptr(), self.raw.as_ptr()) };
        }
    }

    /// Copies a part out.
    pub fn read(&self, part: Part, out: &mut [f64]) {
        assert_eq!(out.len(), self.model.size(part), "{part:?}");
        // SAFETY: the slice has as many numbers as the engine writes for this mask, by the assertion.
        unsafe {
            (self.model.library.get_state)(self.model.raw.as_ptr(), self.raw.as_ptr(), out.as_mut_ptr(), part.mask())
        };
    }

    /// Copies a part in.
    pub fn write(&mut self, part: Part, from: &[f64]) {
        assert_eq!(from.len(), self.model.size(part), "{part:?}");
        // SAFETY: the slice has as many numbers as the engine reads for this mask, by the assertion.
        unsafe {
            (self.model.library.set_state)(self.model.raw.as_ptr(), self.raw.as_ptr(), from.as_ptr(), part.mask())
        };
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // SAFETY: made by make_data, deleted once.
        unsafe { (self.model.library.delete_data)(self.raw.as_ptr()) };
    }
}
