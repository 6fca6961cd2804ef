//! The way out for single numbers: the device copies them to pinned memory when it gets there, and the host looks later.

use super::driver::{Event, HostRegion, Stream};
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_exec::Scalars;

/// Questions that may be open at a time.
const SLOTS: usize = 2;
/// Numbers in one question.
const WIDTH: usize = 8;

pub(super) struct Readback {
    /// `SLOTS` × `WIDTH` floats.
    memory: HostRegion,
    /// After the copies to each slot.
    copied: [Event; SLOTS],
    next: usize,
}

impl Readback {
    pub fn new() -> Result<Readback, CudaError> {
        let memory = HostRegion::new(SLOTS * WIDTH * size_of::<f32>())?;
        Ok(Readback { memory, copied: [Event::new()?, Event::new()?], next: 0 })
    }

    /// Puts copies of the floats at these addresses on the stream; NaN stands for those that are nowhere. The slot they
    /// come to.
    pub fn order(
        &mut self,
        stream: &Stream,
        addresses: impl ExactSizeIterator<Item = Option<u64>>,
    ) -> Result<usize, CudaError> {
        debug_assert!(addresses.len() <= WIDTH, "a question has room for {WIDTH} numbers");
        let slot = self.next;
        self.next = (slot + 1) % SLOTS;
        for (i, address) in addresses.take(WIDTH).enumerate() {
            let at = (slot * WIDTH + i) * size_of::<f32>();
            self.memory.bytes_mut()[at..at + size_of::<f32>()].copy_from_slice(&f32::NAN.to_ne_bytes());
            address.map_or(Ok(()), |from| stream.copy(self.memory.base + at as u64, from, size_of::<f32>()))?;
        }
        self.copied[slot].record(stream)?;
        Ok(slot)
    }

    /// Waits until the numbers are there.
    pub fn numbers(&self, slot: usize, count: usize) -> Result<Scalars, CudaError> {
        self.copied[slot].wait()?;
        let floats = self.memory.bytes()[slot * WIDTH * size_of::<f32>()..].chunks_exact(size_of::<f32>());
        Ok(floats.take(count.min(WIDTH)).map(|bytes| bytemuck::pod_read_unaligned::<f32>(bytes).into()).collect())
    }
}
