//! A safe interface to MuJoCo's C library, which is loaded at run time: a shared [`Model`], and one [`Data`] per
//! environment.
//!
//! This module does not know the layout of any MuJoCo struct. All numbers pass through the "state" that the C API
//! copies by a bit mask, so it relies only on those masks. They belong to one version, which is asserted, as are the
//! sizes they give. Callers check numbers beforehand. The engine's fatal errors cannot be returned (the handler must
//! not return, and unwinding through C is unsound), so their text is printed and the process exits with code 1.
#![expect(clippy::disallowed_methods, reason = "models are read here")]
#![allow(unsafe_code, reason = "this calls a C library; every block says why it is sound")]

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

/// The version of [`MUJOCO`] as the library reports it.
const VERSION: c_int = 337;

/// Bits of `mjtState` in this version.
const TIME: c_uint = 1 << 0;
const QPOS: c_uint = 1 << 1;
const QVEL: c_uint = 1 << 2;
const ACT: c_uint = 1 << 3;
const CTRL: c_uint = 1 << 5; // 1 << 6 from 3.5 on
const EQ_ACTIVE: c_uint = 1 << 8;
const INTEGRATION: c_uint = (1 << 13) - 1;

/// The largest model that is read; models are written by hand.
const MAX_BYTES: u64 = 16 << 20;
/// The maximum number of values in a state.
const MAX_NUMBERS: usize = 1 << 20;

/// The part of a [`Data`] that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Time, positions and velocities, in this order.
    Motion,
    /// The controls.
    Control,
    /// Everything that later steps depend on.
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

/// The functions of a loaded library, which is never unloaded.
pub struct Library {
    path: PathBuf,
    /// This is C++ code, where a failing allocation unwinds. With this ABI that is defined, and ends the process.
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

/// All libraries loaded so far. Their handlers are set once, before any other thread can call them.
static LIBRARIES: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());
/// The models in use, by library and file.
static MODELS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

struct Known {
    library: PathBuf,
    file: PathBuf,
    model: Weak<Model>,
}

impl Library {
    /// Loads the library, or returns it if it was loaded before. The error says what is wrong with it.
    pub fn open(path: &Path) -> Result<&'static Self, String> {
        let path = &path.canonicalize().map_err(|error| error.to_string())?;
        let mut libraries = lock(&LIBRARIES);
        if let Some(open) = libraries.iter().find(|library| library.path == *path) {
            return Ok(open);
        }
        check_whole(path)?;
        // SAFETY: the file is MuJoCo's library (verified by its SHA-256 when it was installed) or one that the user put
        // in its place; its initialisers only register the engine's plugins.
        let file = unsafe { libloading::Library::new(path) }.map_err(|error| error.to_string())?;
        let file = ManuallyDrop::new(file); // never unloaded: the engine keeps pointers to its plugins and our handlers
        // SAFETY: it is `int mj_version(void)` in every version of the engine.
        let version = unsafe { symbol::<unsafe extern "C" fn() -> c_int>(&file, "mj_version")?() };
        if version != VERSION {
            // SAFETY: it is `const char* mj_versionString(void)` and returns a constant text in every version since
            // 2.1.2.
            let named = unsafe {
                symbol::<unsafe extern "C" fn() -> *const c_char>(&file, "mj_versionString").map(|name| words(name()))
            };
            let named = named.unwrap_or_else(|_| format!("with the version number {version}"));
            return Err(format!("this is MuJoCo {named}; expected {}", MUJOCO.version));
        }
        // SAFETY: the types are those of mujoco.h 3.3.7, the version asserted above; mjtNum is double in its wheels.
        let library = unsafe {
            for (name, handler) in [("mju_user_error", fatal as Handler), ("mju_user_warning", warning as Handler)] {
                // A global `void (*)(const char*)`, written under the lock and before the first call that could read
                // it.
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

/// Checks that a library is complete: a truncated one would crash the process when its missing pages are accessed.
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
    // 64-bit little-endian ELF: the offset of the segment table is at 32, the size of its entries at 54, their number
    // at 56.
    let whole = || -> Option<bool> {
        let (table, size, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
        let end = |i: usize| {
            let entry = table.checked_add(i * size)?;
            Some(number(entry.checked_add(8)?, 8)?.saturating_add(number(entry.checked_add(32)?, 8)?))
        };
        (0..count).map(end).try_fold(true, |whole, end| Some(whole && end? <= length))
    };
    if !head.starts_with(b"\x7fELF\x02\x01") {
        Err("not a shared library for 64-bit Linux".to_owned())
    } else if whole() == Some(true) {
        Ok(())
    } else {
        Err(format!("the file is truncated at {length} bytes"))
    }
}

/// Reads the text of a model, up to the maximum size.
fn read_text(file: &Path) -> Result<String, String> {
    let refused = || format!("expected a file of at most {MAX_BYTES} bytes");
    let mut text = String::new();
    let open = File::open(file).map_err(|error| error.to_string())?;
    if !open.metadata().is_ok_and(|about| about.is_file()) {
        return Err(refused());
    }
    open.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_BYTES { Err(refused()) } else { Ok(text) }
}

/// Rejects a model that reads other files, because a run keeps only the text of the model. A text that is not XML is
/// left to the engine, whose error is better.
fn one_file(text: &str) -> Result<(), String> {
    let Ok(document) = roxmltree::Document::parse(text) else { return Ok(()) };
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        if name == "include" || node.attributes().any(|attribute| attribute.name().starts_with("file")) {
            return Err(format!("<{name}> reads another file; expected a model in one file"));
        }
    }
    Ok(())
}

/// Handles the engine's fatal errors, from which it is not possible to return to Rust.
unsafe extern "C" fn fatal(text: *const c_char) {
    // SAFETY: the engine passes a null-terminated text that is valid during the call.
    let text = unsafe { words(text) };
    let _ = writeln!(std::io::stderr(), "error: MuJoCo: {text}");
    std::process::exit(1);
}

thread_local! {
    static WARNING: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the text of a warning for the caller of the engine, on whose thread it runs. Without it the engine would write
/// a log file.
unsafe extern "C" fn warning(text: *const c_char) {
    // SAFETY: as in `fatal`.
    let text = unsafe { words(text) };
    let _ = WARNING.try_with(|last| last.replace(Some(text)));
}

/// Returns and clears the engine's last warning on this thread.
pub fn take_warning() -> Option<String> {
    WARNING.take()
}

/// Copies a text.
///
/// # Safety
/// `text` must be null or a null-terminated text.
unsafe fn words(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, and the caller guarantees that it is terminated.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A compiled model. It is immutable, so any number of threads may use it.
pub struct Model {
    library: &'static Library,
    raw: NonNull<RawModel>,
    text: String,
    /// The number of positions.
    pub nq: usize,
    /// The number of velocities.
    pub nv: usize,
    /// The number of controls.
    pub nu: usize,
    /// The number of activations of actuators that have internal state.
    pub na: usize,
    whole: usize,
}

// SAFETY: the engine takes the model as const everywhere except in delete_model, which Drop calls once, when there is
// no other reference; it keeps nothing that is bound to a thread.
unsafe impl Send for Model {}
// SAFETY: as above; MuJoCo documents one model with one data per thread as the way to run in parallel.
unsafe impl Sync for Model {}

impl Model {
    /// Compiles the file, or returns the model in use that was compiled from the same text.
    pub fn load(library: &'static Library, file: &Path) -> Result<Arc<Self>, String> {
        let text = read_text(file)?;
        one_file(&text)?;
        let mut models = lock(&MODELS); // also keeps two threads from using the engine's XML reader at once
        models.retain(|known| known.model.strong_count() > 0);
        let same =
            |known: &Known, model: &Self| known.library == library.path && known.file == file && model.text == text;
        if let Some(model) = models.iter().find_map(|known| known.model.upgrade().filter(|model| same(known, model))) {
            return Ok(model);
        }
        take_warning(); // an earlier one on this thread
        let model = Arc::new(Self::compile(library, file, text)?);
        if read_text(file)? != model.text {
            return Err("the file changed while it was read".to_owned());
        }
        models.push(Known { library: library.path.clone(), file: file.to_owned(), model: Arc::downgrade(&model) });
        Ok(model)
    }

    fn compile(library: &'static Library, file: &Path, text: String) -> Result<Self, String> {
        let name = CString::new(file.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        let mut message = [0 as c_char; 1000];
        let size = message.len() as c_int;
        // SAFETY: the name is terminated, there is no virtual file system, and the buffer has the given size and is
        // zeroed.
        let raw = unsafe { (library.load_xml)(name.as_ptr(), ptr::null(), message.as_mut_ptr(), size) };
        message[message.len() - 1] = 0;
        let Some(raw) = NonNull::new(raw) else {
            // SAFETY: the text was terminated above.
            return Err(unsafe { words(message.as_ptr()) }.trim().to_owned());
        };
        let mut model = Self { library, raw, text, nq: 0, nv: 0, nu: 0, na: 0, whole: 0 };
        [model.nq, model.nv, model.nu, model.na] =
            [model.count(QPOS)?, model.count(QVEL)?, model.count(CTRL)?, model.count(ACT)?];
        // The engine's sum is an int that may overflow.
        model.whole =
            (0..INTEGRATION.count_ones()).try_fold(0, |sum, bit| Ok::<_, String>(sum + model.count(1 << bit)?))?;
        if model.count(TIME)? != 1 || model.count(INTEGRATION)? != model.whole {
            return Err("the layout of the engine's state is not the expected one".to_owned());
        }
        if model.count(EQ_ACTIVE)? != 0 {
            return Err(
                "the model has equality constraints; expected none, because a state cannot hold them".to_owned()
            );
        }
        Ok(model)
    }

    /// The number of values that the mask selects.
    fn count(&self, mask: c_uint) -> Result<usize, String> {
        // SAFETY: the model is alive and of this library; nothing is written.
        let count = unsafe { (self.library.state_size)(self.raw.as_ptr(), mask) };
        let count = usize::try_from(count).ok().filter(|count| *count <= MAX_NUMBERS);
        count.ok_or_else(|| format!("the state has more than {MAX_NUMBERS} numbers"))
    }

    /// The text that the model was compiled from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of values in a part.
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
        // SAFETY: made by load_xml and deleted once; every Data holds an Arc of its model, so none is left.
        unsafe { (self.library.delete_model)(self.raw.as_ptr()) };
    }
}

/// The state of a simulation of a model.
pub struct Data {
    model: Arc<Model>,
    raw: NonNull<RawData>,
}

// SAFETY: the engine does not bind a data to a thread; its one owner accesses it through `&mut` or, for copies, `&`.
unsafe impl Send for Data {}

impl Data {
    /// Creates a simulation in the model's initial state.
    pub fn new(model: Arc<Model>) -> Result<Self, String> {
        // SAFETY: the model is alive.
        let raw = unsafe { (model.library.make_data)(model.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or("not enough memory for the simulation")?;
        Ok(Self { model, raw })
    }

    /// The model that is simulated.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns to the model's initial state, including the caches of the solver.
    pub fn reset(&mut self) {
        // SAFETY: the data was made from this model, and this is the only reference.
        unsafe { (self.model.library.reset_data)(self.model.raw.as_ptr(), self.raw.as_ptr()) };
    }

    /// Computes everything that depends on positions and velocities, without taking a step.
    pub fn forward(&mut self) {
        // SAFETY: as in `reset`.
        unsafe { (self.model.library.forward)(self.model.raw.as_ptr(), self.raw.as_ptr()) };
    }

    /// Takes `count` steps of the engine.
    pub fn step(&mut self, count: usize) {
        for _ in 0..count {
            // SAFETY: as in `reset`.
            unsafe { (self.model.library.step)(self.model.raw.as_ptr(), self.raw.as_ptr()) };
        }
    }

    /// Copies a part out.
    pub fn read(&self, part: Part, out: &mut [f64]) {
        assert_eq!(out.len(), self.model.size(part), "length of `out` for {part:?}");
        // SAFETY: by the assertion, the slice has as many numbers as the engine writes for this mask.
        unsafe {
            (self.model.library.get_state)(self.model.raw.as_ptr(), self.raw.as_ptr(), out.as_mut_ptr(), part.mask())
        };
    }

    /// Copies a part in.
    pub fn write(&mut self, part: Part, from: &[f64]) {
        assert_eq!(from.len(), self.model.size(part), "length of `from` for {part:?}");
        // SAFETY: by the assertion, the slice has as many numbers as the engine reads for this mask.
        unsafe {
            (self.model.library.set_state)(self.model.raw.as_ptr(), self.raw.as_ptr(), from.as_ptr(), part.mask())
        };
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // SAFETY: made by make_data and deleted once.
        unsafe { (self.model.library.delete_data)(self.raw.as_ptr()) };
    }
}
