//! A queue that runs the kernels on the CPU: the same source, compiled as C++ with `emulator.h` before it.
#![allow(unsafe_code, reason = "calls of a compiled library")]

use std::ffi::{CString, c_char, c_void};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};

use libloading::Library;
use prudence_cuda::{Cuda, Graph, Launch, Queue};
use prudence_nn::DeviceError;

type Emulate = unsafe extern "C" fn(*const c_char, *const u32, u32, u32, *const c_void, usize) -> i32;

/// The compiled kernels; the library stays open.
static EMULATE: LazyLock<(Library, Emulate)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("kernels.cpp"), folder.path().join("kernels.so"));
    std::fs::write(&source, format!("{}\n{}", include_str!("emulator.h"), prudence_cuda::source())).unwrap();
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let options = ["-O2", "-std=c++17", "-march=native", "-ffp-contract=off", "-fPIC", "-shared"];
    let status = Command::new(&compiler).args(options).arg(&source).arg("-o").arg(&library).status();
    assert!(status.is_ok_and(|status| status.success()), "{compiler} (a C++ compiler) must compile the kernels");
    // SAFETY: the library has no initialisation but that of C++; the function has this signature.
    unsafe {
        let library = Library::new(&library).unwrap();
        let emulate = *library.get::<Emulate>(b"emulate").unwrap();
        (library, emulate)
    }
});

/// A launch or a copy, to be repeated.
enum Work {
    Launch { kernel: &'static str, grid: [u32; 3], threads: u32, shared: u32, arguments: Vec<u64>, size: usize },
    Copy { from: u64, to: u64, bytes: usize },
}

impl Work {
    fn run(&self) {
        match self {
            Self::Launch { kernel, grid, threads, shared, arguments, size } => {
                let name = CString::new(*kernel).unwrap();
                let (arguments, emulate) = (arguments.as_ptr().cast(), EMULATE.1);
                // SAFETY: the addresses in the arguments were checked when they were made.
                let status = unsafe { emulate(name.as_ptr(), grid.as_ptr(), *threads, *shared, arguments, *size) };
                assert_eq!(status, 0, "kernel {kernel}: see `emulate`");
            }
            Self::Copy { from, to, bytes } => {
                // SAFETY: as above.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) };
            }
        }
    }
}

#[derive(Default)]
struct Emulator {
    recording: Mutex<Option<Vec<Work>>>,
    failure: Mutex<Option<DeviceError>>,
}

/// The device, on the CPU.
pub fn cuda() -> Cuda {
    Cuda::new(Arc::new(Emulator::default()))
}

impl Emulator {
    fn work(&self, work: Work) {
        match &mut *self.recording.lock().unwrap() {
            Some(recorded) => recorded.push(work),
            None => work.run(),
        }
    }

    fn not_recording(&self) {
        assert!(self.recording.lock().unwrap().is_none(), "this must not happen in a recorded sequence");
    }
}

impl Queue for Emulator {
    fn fail(&self, failure: DeviceError) {
        self.failure.lock().unwrap().get_or_insert(failure);
    }

    fn fork(&self) -> Result<Arc<dyn Queue>, DeviceError> {
        Ok(Arc::new(Self::default()))
    }

    fn multiprocessors(&self) -> usize {
        4 // so that small tests use all sizes of tiles
    }

    fn free_memory(&self) -> Result<usize, DeviceError> {
        Ok(1 << 30)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        self.not_recording();
        Ok(Box::leak(vec![0u32; bytes.div_ceil(4)].into_boxed_slice()).as_mut_ptr() as u64)
    }

    fn free(&self, address: u64, bytes: usize) {
        let numbers = std::ptr::slice_from_raw_parts_mut(address as *mut u32, bytes.div_ceil(4));
        // SAFETY: it was leaked with this length in `allocate`.
        drop(unsafe { Box::from_raw(numbers) });
    }

    fn upload(&self, to: u64, from: &[u8]) {
        self.not_recording();
        // SAFETY: the address was checked.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        self.not_recording();
        // SAFETY: the address was checked.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        self.failure.lock().unwrap().take().map_or(Ok(()), Err)
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) {
        self.work(Work::Copy { from, to, bytes });
    }

    fn launch(&self, launch: &Launch) {
        let Launch { kernel, grid, threads, shared, size, .. } = *launch;
        let mut arguments = vec![0u64; size.div_ceil(8)];
        // SAFETY: the struct is as large.
        unsafe { std::ptr::copy_nonoverlapping(launch.arguments.cast::<u8>(), arguments.as_mut_ptr().cast(), size) };
        self.work(Work::Launch { kernel, grid, threads, shared, arguments, size });
    }

    fn begin_recording(&self) -> Result<(), DeviceError> {
        self.not_recording();
        *self.recording.lock().unwrap() = Some(Vec::new());
        Ok(())
    }

    fn end_recording(&self) -> Result<Graph, DeviceError> {
        Ok(Box::new(self.recording.lock().unwrap().take()))
    }

    fn replay(&self, graph: &Graph) -> Result<(), DeviceError> {
        let recorded: &Option<Vec<Work>> = graph.downcast_ref().unwrap();
        recorded.iter().flatten().for_each(Work::run);
        Ok(())
    }
}
