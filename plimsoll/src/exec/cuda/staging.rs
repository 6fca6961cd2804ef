//! The way in: pinned host memory, used round and round, from which the device copies while the host goes on.

use super::CudaError;
use super::driver::{Event, Stream, check};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr::NonNull;

/// Two halves: one is filled while the device copies from the other.
const HALF_BYTES: usize = 16 << 20;

pub(super) struct Staging {
    memory: NonNull<u8>,
    /// The half being filled, and how far it is.
    half: usize,
    filled: usize,
    /// After the last copy out of each half.
    copied: [Event; 2],
}

impl Staging {
    pub fn new() -> Result<Staging, CudaError> {
        let mut memory: *mut c_void = std::ptr::null_mut();
        // SAFETY: freed when dropped.
        unsafe { check("cuMemHostAlloc", sys::cuMemHostAlloc(&mut memory, 2 * HALF_BYTES, 0))? };
        let missing = || CudaError::OutOfMemory { bytes: 2 * HALF_BYTES as u64 };
        let memory = NonNull::new(memory.cast()).ok_or_else(missing)?;
        Ok(Staging { memory, half: 0, filled: 0, copied: [Event::new()?, Event::new()?] })
    }

    /// Copies `data` to the device, or to the host region, in stream order. Returns as soon as the data is in pinned memory.
    pub fn write(&mut self, stream: &Stream, to: u64, data: &[u8]) -> Result<(), CudaError> {
        let mut to = to;
        for piece in data.chunks(HALF_BYTES) {
            if self.filled + piece.len() > HALF_BYTES {
                self.turn(stream)?;
            }
            let at = self.half * HALF_BYTES + self.filled;
            // SAFETY: the piece fits this half, and the device is done with it.
            unsafe {
                let pinned = self.memory.add(at).as_ptr();
                std::ptr::copy_nonoverlapping(piece.as_ptr(), pinned, piece.len());
                check("cuMemcpyAsync", sys::cuMemcpyAsync(to, pinned as u64, piece.len(), stream.0))?;
            }
            self.filled = (self.filled + piece.len()).next_multiple_of(64);
            to += piece.len() as u64;
        }
        Ok(())
    }

    /// Goes over to the other half, once the device has copied what was in it.
    fn turn(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.copied[self.half].record(stream)?;
        self.half = 1 - self.half;
        self.filled = 0;
        self.copied[self.half].wait()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; the stream that read it has been waited for.
        unsafe { sys::cuMemFreeHost(self.memory.as_ptr().cast()) };
    }
}
