//! The way in: pinned host memory, used round and round, from which the device copies while the host goes on.

use super::driver::{Event, HostRegion, Stream};
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_core::plan::{ALIGN, Program, input_bytes};
use plimsoll_exec::{Fill, fill_in_pieces};

/// Room for the scalars that a micro-step is told besides its inputs.
const SCALARS_BYTES: usize = 4 << 10;
/// A half holds a good piece of a weight, and never a share of the host's memory that is worth planning for.
const LEAST_HALF_BYTES: usize = 16 << 20;
const MOST_HALF_BYTES: usize = 256 << 20;

/// Two halves: one is filled while the device copies from the other.
pub(super) struct Staging {
    memory: HostRegion,
    half_bytes: usize,
    /// The half being filled, and how far it is.
    half: usize,
    filled: usize,
    /// After the last copies out of each half, on either stream.
    copied: [[Event; 2]; 2],
}

/// The streams that copy from here, and which of them is meant.
#[derive(Clone, Copy)]
pub(super) struct Way<'s> {
    pub streams: [&'s Stream; 2],
    pub by: usize,
}

/// Bytes of one half: all inputs of the phase that has most of them, so that the next micro-step can be made ready as a
/// whole while the device is busy.
pub fn staging_half_bytes(program: &Program) -> usize {
    let most = program.phases.iter().map(|phase| input_bytes(&phase.graph)).max().unwrap_or(0);
    most.saturating_add(SCALARS_BYTES).clamp(LEAST_HALF_BYTES, MOST_HALF_BYTES).next_multiple_of(ALIGN)
}

impl Staging {
    pub(crate) fn new(half_bytes: usize) -> Result<Staging, CudaError> {
        let memory = HostRegion::new(2 * half_bytes)?;
        let events = || Ok::<_, CudaError>([Event::new()?, Event::new()?]);
        Ok(Staging { memory, half_bytes, half: 0, filled: 0, copied: [events()?, events()?] })
    }

    /// Copies what `fill` writes to the device, or to the host region. Returns as soon as it is in pinned memory.
    pub(crate) fn fill(&mut self, way: Way<'_>, to: u64, bytes: usize, fill: &Fill<'_>) -> Result<(), CudaError> {
        let mut at = 0;
        while at < bytes {
            let piece = (bytes - at).min(self.half_bytes);
            if self.filled + piece > self.half_bytes {
                self.turn(way.streams)?;
            }
            let start = self.half * self.half_bytes + self.filled;
            // The device is done with this half, or has not begun with this part of it.
            fill_in_pieces(&mut self.memory.bytes_mut()[start..start + piece], at, fill);
            way.streams[way.by].copy(to + at as u64, self.memory.base + start as u64, piece)?;
            self.filled = (self.filled + piece).next_multiple_of(ALIGN);
            at += piece;
        }
        Ok(())
    }

    /// Goes over to the other half, once the device has copied what was in it.
    fn turn(&mut self, streams: [&Stream; 2]) -> Result<(), CudaError> {
        self.copied[self.half].iter().zip(streams).try_for_each(|(copied, stream)| copied.record(stream))?;
        self.half = 1 - self.half;
        self.filled = 0;
        self.copied[self.half].iter().try_for_each(Event::wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::graph::Graph;
    use plimsoll_core::plan::Phase;
    use plimsoll_core::types::{DType, Type};

    #[test]
    fn a_half_holds_the_inputs_of_the_largest_phase_within_limits() {
        let bytes = |rows: usize| {
            let mut graph = Graph::new("step", DType::F32);
            graph.data("pixels", Type::new(DType::F32, &[rows, 1 << 20])).unwrap();
            graph.data("weight", Type::new(DType::F32, &[rows])).unwrap();
            staging_half_bytes(&Program::new(vec![Phase { name: "step".into(), graph, repeat: 1 }]).unwrap())
        };
        assert_eq!(bytes(1), LEAST_HALF_BYTES);
        assert_eq!(bytes(20), (80 << 20) + 128 + SCALARS_BYTES);
        assert_eq!(bytes(100), MOST_HALF_BYTES);
    }
}
