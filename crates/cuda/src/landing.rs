//! The way in for the inputs of a phase: a stream of their own copies them to a place of their own while the phase before
//! is running; when theirs is up, they move to where it reads them, at the speed of the device's own memory.

use super::driver::{Event, Stream};
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_core::plan::ALIGN;
use smallvec::SmallVec;
use std::ops::Range;

pub(super) struct Landing {
    /// What the copies from the host are put on.
    pub stream: Stream,
    /// Empty where the plan has no such place.
    place: Range<u64>,
    filled: u64,
    /// What has been given to the stream and not moved on yet.
    arrivals: SmallVec<[Arrival; 8]>,
    /// After the copies to the place, and after the moves out of it.
    landed: Event,
    moved: Event,
}

#[derive(Clone, Copy)]
struct Arrival {
    at: u64,
    to: u64,
    bytes: usize,
}

impl Landing {
    pub fn new(place: Option<Range<u64>>) -> Result<Landing, CudaError> {
        Ok(Landing {
            stream: Stream::new()?,
            place: place.unwrap_or(0..0),
            filled: 0,
            arrivals: SmallVec::new(),
            landed: Event::new()?,
            moved: Event::new()?,
        })
    }

    /// Where bytes that belong at `to` may be copied to on the stream; none if there is no room left.
    pub fn take(&mut self, to: u64, bytes: usize) -> Result<Option<u64>, CudaError> {
        let at = self.place.start + self.filled;
        if at + bytes as u64 > self.place.end {
            return Ok(None);
        }
        if self.arrivals.is_empty() {
            self.stream.wait_for(&self.moved)?;
        }
        self.arrivals.push(Arrival { at, to, bytes });
        self.filled += bytes.next_multiple_of(ALIGN) as u64;
        Ok(Some(at))
    }

    /// Moves everything that has landed to where it belongs, before what is put on `stream` next.
    pub fn settle(&mut self, stream: &Stream) -> Result<(), CudaError> {
        if self.arrivals.is_empty() {
            return Ok(());
        }
        self.landed.record(&self.stream)?;
        stream.wait_for(&self.landed)?;
        for Arrival { at, to, bytes } in self.arrivals.drain(..) {
            stream.copy(to, at, bytes)?;
        }
        self.filled = 0;
        self.moved.record(stream)
    }
}
