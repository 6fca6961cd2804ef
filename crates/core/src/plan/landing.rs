//! The place on a device where the inputs of the next micro-step land while it is still at this one. They cannot go where
//! they are read: in the phase that is running other values may lie there.

use super::{Phase, aligned};
use crate::graph::{Component, Graph, GraphError, Init, InputKind};
use crate::types::{DType, Type};

/// The resident of this name is that place.
pub const LANDING: &str = "landing";

/// Bytes of all data that a graph is given, one behind the other.
pub fn input_bytes(graph: &Graph) -> usize {
    let data = graph.values().iter().filter(|value| matches!(value.input, Some(InputKind::Data)));
    data.map(|value| aligned(value.ty.span_bytes())).fold(0, usize::saturating_add)
}

/// Bytes of the place that the inputs of each phase of a step fit in.
pub fn landing_bytes(phases: &[Phase]) -> usize {
    phases.iter().map(|phase| input_bytes(&phase.graph)).max().unwrap_or(0)
}

/// Gives the phases of a step that place.
pub fn add_landing(phases: &mut [Phase]) -> Result<(), GraphError> {
    let bytes = landing_bytes(phases);
    let Some(first) = phases.first_mut().filter(|_| bytes > 0) else { return Ok(()) };
    let ty = Type::new(DType::I32, &[bytes / size_of::<i32>()]);
    first.graph.resident(LANDING, ty, Component::Inputs, Init::Zeros).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inputs_of_the_largest_phase_fit() {
        let phase = |name: &str, rows: usize| {
            let mut graph = Graph::new(name, DType::F32);
            graph.data("ids", Type::new(DType::I32, &[rows, 100])).unwrap();
            graph.data("weight", Type::new(DType::F32, &[rows])).unwrap();
            Phase { name: name.into(), graph, repeat: 1 }
        };
        let mut phases = [phase("embed", 2), phase("contrast", 5)];
        add_landing(&mut phases).unwrap();
        let place = phases[0].graph.find(LANDING).expect("the first has it");
        assert_eq!(phases[0].graph.ty(place).span_bytes(), 2048 + 64);
        assert_eq!(input_bytes(&phases[0].graph), 832 + 64, "it is no input itself");
        assert!(phases[1].graph.find(LANDING).is_none());
    }
}
