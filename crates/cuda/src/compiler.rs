//! Compiles the kernels for a card, with NVIDIA's run-time compiler (NVRTC).
#![allow(unsafe_code, reason = "calls of a C library")]

use std::ffi::{CString, c_char};

use cudarc::nvrtc::{result, sys};

use crate::driver::Missing;

/// How the kernels are compiled. Products and sums are not contracted, so that they are rounded as on the CPU.
const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "--ptxas-options=-v"];

/// Folders that may hold the library where the system's search does not find it.
const FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];

/// Opens the library, or says what is missing.
fn probe() -> Result<(), Missing> {
    // A library that is already open is found by its name, so one from a usual folder is opened first and kept.
    // SAFETY: NVRTC's initialisation has no requirements.
    let present = || unsafe { sys::is_culib_present() };
    let opened = || {
        FOLDERS.iter().any(|folder| {
            ["libnvrtc.so.13", "libnvrtc.so.12"].iter().any(|name| {
                // SAFETY: as above.
                let library = unsafe { libloading::Library::new(format!("{folder}/{name}")) };
                library.map(std::mem::forget).is_ok()
            })
        })
    };
    if present() || (opened() && present()) { Ok(()) } else { Err(Missing::Compiler) }
}

/// The compiler's version.
pub(crate) fn version() -> Result<(i32, i32), Missing> {
    probe()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the two numbers are written.
    let status = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    status.result().map_err(|e| Missing::Failed(format!("NVRTC: {e}")))?;
    Ok((major, minor))
}

/// What the compiled kernels depend on, as a name for a file.
pub(crate) fn key(source: &str, (major, minor): (i32, i32)) -> Result<String, Missing> {
    let (nvrtc_major, nvrtc_minor) = version()?;
    let mut hash = blake3::Hasher::new();
    hash.update(source.as_bytes());
    for option in OPTIONS {
        hash.update(option.as_bytes());
    }
    let hash = hash.finalize().to_hex();
    Ok(format!("sm{major}{minor}-nvrtc{nvrtc_major}.{nvrtc_minor}-{}", &hash[..16]))
}

/// A program of the compiler, destroyed when it is dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was created and is not used any more.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// Compiles to the card's own instructions: what an older driver could not compile further is refused nowhere.
pub(crate) fn compile(source: &str, (major, minor): (i32, i32)) -> Result<Vec<u8>, Missing> {
    probe()?;
    let failed = |what: &str, e: result::NvrtcError| Missing::Failed(format!("NVRTC {what}: {e}"));
    let source = CString::new(source).map_err(|e| Missing::Failed(e.to_string()))?;
    let program = Program(result::create_program(&source, Some(c"prudence.cu")).map_err(|e| failed("program", e))?);
    let mut options = vec![format!("--gpu-architecture=sm_{major}{minor}")];
    options.extend(OPTIONS.map(str::to_owned));
    // SAFETY: the program is alive until the end of this function.
    if let Err(e) = unsafe { result::compile_program(program.0, &options) } {
        // SAFETY: as above.
        let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
        let log: Vec<u8> = log.iter().map(|c| *c as u8).filter(|c| *c != 0).collect();
        return Err(Missing::Failed(format!(
            "NVRTC cannot compile the kernels ({e}):\n{}",
            String::from_utf8_lossy(&log)
        )));
    }
    let mut size = 0usize;
    // SAFETY: the size is written, then that many bytes.
    unsafe {
        sys::nvrtcGetCUBINSize(program.0, &raw mut size).result().map_err(|e| failed("size", e))?;
        let mut binary = vec![0u8; size];
        sys::nvrtcGetCUBIN(program.0, binary.as_mut_ptr().cast::<c_char>()).result().map_err(|e| failed("code", e))?;
        Ok(binary)
    }
}
