//! Cards, through NVIDIA's driver: what is there, and the queue of work of one of them.
//!
//! The low-level functions of `cudarc`: its safe layer records an event per array and use, which costs more than the small
//! kernels here.
#![allow(unsafe_code, reason = "calls of a C library")]

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{DriverError, result, sys};
use prudence_nn::DeviceError;

use crate::device::Cuda;
use crate::queue::{Graph, Launch, Queue};
use crate::staging::{self, Staging};
use crate::{compiler, source};

/// Why there is no card to use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// No driver.
    #[error("NVIDIA's driver is not installed: the library libcuda.so.1 was not found")]
    Driver,
    /// No card.
    #[error("the driver finds no NVIDIA graphics card")]
    Card,
    /// No run-time compiler.
    #[error("NVIDIA's run-time compiler is not installed: the library libnvrtc.so.13 (or .12) was not found")]
    Compiler,
    /// The card cannot run the kernels.
    #[error("{name} has compute capability {major}.{minor}; at least 8.0 is needed (Ampere, 2020, or newer)")]
    TooOld {
        /// The card.
        name: String,
        /// The capability it has.
        major: i32,
        /// Its second part.
        minor: i32,
    },
    /// The driver lacks functions that are needed.
    #[error("NVIDIA's driver is too old: it supports CUDA {}.{}; at least 12.4 is needed (driver 550)", .found.0, .found.1)]
    OldDriver {
        /// The version of CUDA that it supports.
        found: (i32, i32),
    },
    /// A call failed.
    #[error("{0}")]
    Failed(String),
}

/// The oldest driver that can list the functions of compiled kernels.
const OLDEST_DRIVER: (i32, i32) = (12, 4);

/// The oldest cards whose tensor cores multiply tf32.
const OLDEST: (i32, i32) = (8, 0);

impl From<DriverError> for Missing {
    fn from(e: DriverError) -> Self {
        Self::Failed(message(&e))
    }
}

/// The driver's message, in words.
fn message(e: &DriverError) -> String {
    match e.error_string() {
        Ok(text) => format!("the CUDA driver says: {}", text.to_string_lossy()),
        Err(_) => format!("the CUDA driver says: {e:?}"),
    }
}

fn failed(e: &DriverError) -> DeviceError {
    DeviceError::Failed(message(e))
}

/// A graphics card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its number among the cards of this machine.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
    /// The version of its instructions.
    pub capability: (i32, i32),
    /// The number of multiprocessors.
    pub multiprocessors: usize,
    /// The newest version of CUDA that the driver knows.
    pub cuda: (i32, i32),
}

/// The cards of this machine.
pub fn cards() -> Result<Vec<Card>, Missing> {
    // SAFETY: the driver's initialisation has no requirements.
    if !unsafe { sys::is_culib_present() } {
        return Err(Missing::Driver);
    }
    match result::init() {
        Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => return Err(Missing::Card),
        other => other?,
    }
    let mut version = 0;
    // SAFETY: the number is written.
    unsafe { sys::cuDriverGetVersion(&raw mut version).result()? };
    let cards = (0..result::device::get_count()?).map(|number| card(number, (version / 1000, version % 1000 / 10)));
    let cards: Vec<Card> = cards.collect::<Result<_, _>>()?;
    if cards.is_empty() { Err(Missing::Card) } else { Ok(cards) }
}

fn card(number: i32, cuda: (i32, i32)) -> Result<Card, Missing> {
    use sys::CUdevice_attribute_enum as Attribute;
    let device = result::device::get(number)?;
    // SAFETY: the device was returned by the driver.
    let attribute = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    Ok(Card {
        number: number as usize,
        name: result::device::get_name(device)?,
        // SAFETY: as above.
        memory: unsafe { result::device::total_mem(device)? },
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
        cuda,
    })
}

impl Card {
    /// Whether the kernels run on it.
    pub fn check(&self) -> Result<(), Missing> {
        if self.cuda < OLDEST_DRIVER {
            return Err(Missing::OldDriver { found: self.cuda });
        }
        let (major, minor) = self.capability;
        if self.capability >= OLDEST {
            return Ok(());
        }
        Err(Missing::TooOld { name: self.name.clone(), major, minor })
    }

    /// The name of the compiled kernels, for a cache: another name, other kernels.
    pub fn kernels_key(&self) -> Result<String, Missing> {
        compiler::key(&source(), self.capability)
    }

    /// Compiles the kernels, which takes some seconds.
    pub fn compile_kernels(&self) -> Result<Vec<u8>, Missing> {
        self.check()?;
        compiler::compile(&source(), self.capability)
    }

    /// Opens the card, with its compiled kernels.
    pub fn open(&self, kernels: &[u8]) -> Result<Cuda, Missing> {
        self.check()?;
        let device = result::device::get(self.number as i32)?;
        // SAFETY: the device was returned by the driver, and the context is kept as long as the process lives.
        let gpu = unsafe {
            let context = result::primary_ctx::retain(device)?;
            result::ctx::set_current(context)?;
            Gpu { context, functions: load(kernels)?, multiprocessors: self.multiprocessors }
        };
        let queue = Stream::new(&Arc::new(gpu)).map_err(|e| Missing::Failed(e.to_string()))?;
        Ok(Cuda::new(Arc::new(queue)))
    }
}

/// The functions of compiled kernels.
///
/// # Safety
///
/// A context is current.
unsafe fn load(kernels: &[u8]) -> Result<HashMap<String, Function>, Missing> {
    // SAFETY: the image is complete; it holds its own length.
    unsafe {
        let module = result::module::load_data(kernels.as_ptr().cast())?;
        let mut count = 0;
        sys::cuModuleGetFunctionCount(&raw mut count, module).result()?;
        let mut functions = vec![std::ptr::null_mut(); count as usize];
        sys::cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module).result()?;
        let mut named = HashMap::new();
        for function in functions {
            let mut name = std::ptr::null();
            sys::cuFuncGetName(&raw mut name, function).result()?;
            let name = CString::from(std::ffi::CStr::from_ptr(name)).to_string_lossy().into_owned();
            // More shared memory than every card has must be asked for.
            let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            if name.ends_with("_128") || name.starts_with("chain") {
                result::function::set_function_attribute(function, attribute, 80 << 10)?;
            }
            named.insert(name, Function(function));
        }
        Ok(named)
    }
}

/// A card in use: its context and the kernels.
struct Gpu {
    context: sys::CUcontext,
    functions: HashMap<String, Function>,
    multiprocessors: usize,
}

#[derive(Clone, Copy)]
struct Function(sys::CUfunction);

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Makes the context current on this thread.
    fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context is never released.
        unsafe { result::ctx::set_current(self.context) }
    }
}

/// A stream of a card.
struct Stream {
    gpu: Arc<Gpu>,
    stream: sys::CUstream,
    staging: Mutex<Staging>,
    /// Whether work is recorded instead of run.
    recording: AtomicBool,
    failure: Mutex<Option<DeviceError>>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

/// A recorded sequence, ready to run.
struct Recorded {
    gpu: Arc<Gpu>,
    graph: sys::CUgraphExec,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Recorded {}

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: the graph was instantiated and is not used any more; the driver waits for it.
        let _ = self.gpu.enter().and_then(|()| unsafe { result::graph::exec_destroy(self.graph) });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The staging memory is freed next, and copies from it may be under way.
        let _ = self.gpu.enter().and_then(|()| self.wait());
        // SAFETY: the stream was created and is not used any more.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}

impl Stream {
    fn new(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        let stream = || {
            gpu.enter()?;
            Ok((result::stream::create(result::stream::StreamKind::NonBlocking)?, Staging::new()?))
        };
        let (stream, staging) = stream().map_err(|e| failed(&e))?;
        let (staging, recording) = (Mutex::new(staging), AtomicBool::new(false));
        Ok(Self { gpu: gpu.clone(), stream, staging, recording, failure: Mutex::new(None) })
    }

    /// Keeps the first failure for the next call that can report it.
    fn keep(&self, outcome: Result<(), DriverError>) {
        if let Err(e) = outcome {
            self.fail(failed(&e));
        }
    }

    /// Reports a kept failure, or this outcome.
    fn report<T>(&self, outcome: Result<T, DriverError>) -> Result<T, DeviceError> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failure) => Err(failure),
            None => outcome.map_err(|e| failed(&e)),
        }
    }

    fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.stream) }
    }
}

impl Queue for Stream {
    fn fail(&self, failure: DeviceError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    fn fork(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        self.report(self.gpu.enter().and_then(|()| self.wait()))?;
        Ok(Arc::new(Self::new(&self.gpu)?))
    }

    fn multiprocessors(&self) -> usize {
        self.gpu.multiprocessors
    }

    fn free_memory(&self) -> Result<usize, DeviceError> {
        let free = self.gpu.enter().and_then(|()| result::mem_get_info()).map_err(|e| failed(&e))?;
        Ok(free.0)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        // SAFETY: the memory is new, and zeroed before any work that comes later in the stream.
        let allocated = self.gpu.enter().and_then(|()| unsafe {
            let address = result::malloc_sync(bytes)?;
            result::memset_d8_async(address, 0, bytes, self.stream)?;
            Ok(address)
        });
        allocated.map_err(|e| {
            let free = result::mem_get_info().map_or(0, |(free, _)| free);
            DeviceError::Memory { bytes, reason: format!("{}; {free} bytes are free", message(&e)) }
        })
    }

    fn free(&self, address: u64, _bytes: usize) {
        // SAFETY: the memory was allocated here; the driver waits for the work on it.
        let _ = self.gpu.enter().and_then(|()| unsafe { result::free_sync(address) });
    }

    fn upload(&self, to: u64, from: &[u8]) {
        if self.recording.load(Ordering::Relaxed) {
            return self.fail(DeviceError::Failed("a recorded sequence cannot copy from the host".to_owned()));
        }
        let copied = self.gpu.enter().and_then(|()| {
            let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
            let pieces = from.chunks(staging::LARGEST).zip((to..).step_by(staging::LARGEST));
            pieces.into_iter().try_for_each(|(piece, to)| staging.upload(to, piece, self.stream))
        });
        self.keep(copied);
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let copied = self.gpu.enter().and_then(|()| {
            if to.len() <= staging::LARGEST {
                let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
                return staging.download(from, to, self.stream);
            }
            // SAFETY: the array is as large, and the copy is complete when this returns.
            unsafe { result::memcpy_dtoh_async(to, from, self.stream)? };
            self.wait()
        });
        self.report(copied)
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) {
        // SAFETY: both arrays are as large.
        self.keep(self.gpu.enter().and_then(|()| unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }));
    }

    fn launch(&self, launch: &Launch) {
        let Some(Function(function)) = self.gpu.functions.get(launch.kernel).copied() else {
            return self.fail(DeviceError::Failed(format!("there is no kernel {}", launch.kernel)));
        };
        let [x, y, z] = launch.grid;
        let mut arguments = [launch.arguments.cast_mut().cast::<c_void>()];
        let shared = launch.shared;
        // SAFETY: the kernel's only argument is this struct, which the driver copies; its addresses were checked.
        let launched = self.gpu.enter().and_then(|()| unsafe {
            result::launch_kernel(function, (x, y, z), (launch.threads, 1, 1), shared, self.stream, &mut arguments)
        });
        self.keep(launched);
    }

    fn begin_recording(&self) -> Result<(), DeviceError> {
        self.report(Ok(()))?;
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        self.report(self.gpu.enter().and_then(|()| unsafe { result::stream::begin_capture(self.stream, mode) }))?;
        self.recording.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn end_recording(&self) -> Result<Graph, DeviceError> {
        self.recording.store(false, Ordering::Relaxed);
        // SAFETY: the stream is recording; the graph is destroyed once it is instantiated.
        let recorded = self.gpu.enter().and_then(|()| unsafe {
            let graph = result::stream::end_capture(self.stream)?;
            let allocates = allocates(graph);
            let ready = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            result::graph::destroy(graph)?;
            Ok((allocates?, ready?))
        });
        let (allocates, graph) = self.report(recorded)?;
        let recorded = Recorded { gpu: self.gpu.clone(), graph };
        if allocates {
            return Err(DeviceError::Failed("a recorded sequence allocates memory".to_owned()));
        }
        Ok(Box::new(recorded))
    }

    fn replay(&self, graph: &Graph) -> Result<(), DeviceError> {
        let Some(Recorded { graph, .. }) = graph.downcast_ref() else {
            return Err(DeviceError::Failed("a sequence recorded by another kind of device".to_owned()));
        };
        // SAFETY: the graph and the stream are alive.
        self.report(self.gpu.enter().and_then(|()| unsafe { result::graph::launch(*graph, self.stream) }))
    }
}

/// Whether a graph holds an allocation, which must not be repeated.
///
/// # Safety
///
/// The graph is alive.
unsafe fn allocates(graph: sys::CUgraph) -> Result<bool, DriverError> {
    let mut count = 0;
    // SAFETY: first the number of nodes is written, then that many nodes, then the type of each.
    unsafe {
        sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count).result()?;
        let mut nodes = vec![std::ptr::null_mut(); count];
        sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count).result()?;
        for node in nodes {
            let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
            sys::cuGraphNodeGetType(node, &raw mut kind).result()?;
            if kind == sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
