//! Memory of the host that copies go through, in pages that are never moved: the card copies from it while the host works
//! on. A copy from ordinary memory waits until all earlier work of the stream is done.
#![allow(unsafe_code, reason = "calls of a C library")]

use cudarc::driver::{DriverError, result, sys};

/// Bytes of each half. The host writes one while the card may still copy from the other.
const HALF: usize = 4 << 20;
/// Copies of more bytes do not go through it.
pub(crate) const LARGEST: usize = 1 << 20;
/// Where copies start: multiples of this.
const ALIGNMENT: usize = 64;

/// The staging memory of a stream. Its context must be current on the calling thread.
pub(crate) struct Staging {
    start: *mut u8,
    /// The place of the next copy.
    at: usize,
    /// The half that is being written.
    half: usize,
    /// For each half, the end of the copies from it, if there are any.
    done: [sys::CUevent; 2],
    in_use: [bool; 2],
    /// Where copies from the card arrive, after the two halves.
    landing: *mut u8,
}

// SAFETY: the memory and the events may be used by any thread.
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn new() -> Result<Self, DriverError> {
        // SAFETY: the memory is freed and the events are destroyed when this is dropped.
        unsafe {
            let start: *mut u8 = result::malloc_host(2 * HALF + LARGEST, 0)?.cast();
            let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
            Ok(Self {
                start,
                at: 0,
                half: 0,
                done: [event()?, event()?],
                in_use: [false; 2],
                landing: start.add(2 * HALF),
            })
        }
    }

    /// Copies to the card; the source may change as soon as this returns.
    pub(crate) fn upload(&mut self, to: u64, from: &[u8], stream: sys::CUstream) -> Result<(), DriverError> {
        if self.at + from.len() > HALF {
            // SAFETY: stream and events are alive.
            unsafe { result::event::record(self.done[self.half], stream)? };
            self.in_use[self.half] = true;
            (self.half, self.at) = (1 - self.half, 0);
            if std::mem::take(&mut self.in_use[self.half]) {
                // SAFETY: the event was recorded.
                unsafe { sys::cuEventSynchronize(self.done[self.half]).result()? };
            }
        }
        // SAFETY: the place is inside the half, and no copy from it is under way.
        let place = unsafe {
            let place = self.start.add(self.half * HALF + self.at);
            std::ptr::copy_nonoverlapping(from.as_ptr(), place, from.len());
            std::slice::from_raw_parts(place, from.len())
        };
        self.at += from.len().next_multiple_of(ALIGNMENT);
        // SAFETY: the array is as large; the place is not written again before the copy is done.
        unsafe { result::memcpy_htod_async(to, place, stream) }
    }

    /// Waits for all work of the stream and copies at most [`LARGEST`] bytes from the card.
    pub(crate) fn download(&mut self, from: u64, to: &mut [u8], stream: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: the landing place is as large, and the copy is complete before it is read.
        unsafe {
            let landing = std::slice::from_raw_parts_mut(self.landing, to.len());
            result::memcpy_dtoh_async(landing, from, stream)?;
            result::stream::synchronize(stream)?;
            to.copy_from_slice(landing);
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: the stream's work is done, and nothing uses them any more.
        unsafe {
            for event in self.done {
                let _ = result::event::destroy(event);
            }
            let _ = result::free_host(self.start.cast());
        }
    }
}
