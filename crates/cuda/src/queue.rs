//! What the device needs of a GPU: memory, launches in order, and recorded sequences of them. The driver implements it;
//! the tests run the same kernels on the CPU.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use prudence_nn::DeviceError;

/// A recorded sequence of launches and copies.
pub type Graph = Box<dyn Any + Send>;

/// A kernel to be launched.
#[derive(Debug)]
pub struct Launch {
    /// Its name.
    pub kernel: &'static str,
    /// Blocks in three dimensions.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The kernel's struct of arguments, which the queue copies.
    pub arguments: *const c_void,
    /// Its size.
    pub size: usize,
}

/// A queue of work on a GPU. Work runs in the order in which it was given. Failures of work that returns nothing are
/// reported by the next call that returns a result.
pub trait Queue: Send + Sync {
    /// Keeps a failure for the next call that returns a result.
    fn fail(&self, failure: DeviceError);
    /// Another queue of the same GPU, which sees everything written so far.
    fn fork(&self) -> Result<Arc<dyn Queue>, DeviceError>;
    /// The number of multiprocessors.
    fn multiprocessors(&self) -> usize;
    /// Bytes of memory that are free.
    fn free_memory(&self) -> Result<usize, DeviceError>;
    /// Memory of zero bytes.
    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError>;
    /// Frees memory, once the work on it is done.
    fn free(&self, address: u64, bytes: usize);
    /// Copies to the GPU; the source may change as soon as the call returns.
    fn upload(&self, to: u64, from: &[u8]);
    /// Waits for all work and copies from the GPU.
    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError>;
    /// Copies within the GPU.
    fn copy(&self, from: u64, to: u64, bytes: usize);
    /// Launches a kernel.
    fn launch(&self, launch: &Launch);
    /// Begins to record launches and copies instead of running them.
    fn begin_recording(&self) -> Result<(), DeviceError>;
    /// Ends the recording.
    fn end_recording(&self) -> Result<Graph, DeviceError>;
    /// Runs a recorded sequence.
    fn replay(&self, graph: &Graph) -> Result<(), DeviceError>;
}
