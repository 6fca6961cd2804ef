//! How long nodes take on a device: what the choice between plans compares.

mod builtin;
mod work;

pub use work::{AMOUNTS, Amount, Amounts, Grain, Work};

use super::Program;
use crate::graph::{DType, Graph, NodeId};
use crate::ops::Class;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a device reaches in practice: for each class of work, the seconds that each amount of it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub grain: Grain,
    pub seconds: BTreeMap<Class, Amounts>,
    /// Whether arithmetic goes on while memory is read, so that only the slower of the two takes time.
    pub overlaps: bool,
    /// How many times faster matrices are multiplied in other element types than f32.
    pub speedups: Speedups,
    /// Whether products of f32 are rounded to tf32 first.
    pub tf32: bool,
    /// Seconds per run of a phase besides its nodes: inputs are fed, scalars written.
    pub phase_s: f64,
}

/// Products by tensor cores, next to plain f32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speedups {
    pub tf32: f64,
    pub f16: f64,
    pub bf16: f64,
}

impl Speedups {
    pub const NONE: Speedups = Speedups { tf32: 1.0, f16: 1.0, bf16: 1.0 };
}

impl Profile {
    /// Cores with wide vectors, as measured on a server processor; `plimsoll calibrate` measures the one at hand.
    pub fn cpu(threads: usize) -> Profile {
        builtin::cpu(threads)
    }

    /// The same device, with products of f32 rounded to tf32 or not. Where there is no tf32 it changes nothing.
    pub fn with_tf32(self, tf32: bool) -> Profile {
        Profile { tf32, ..self }
    }

    /// Predicted seconds of one node. Views take none.
    pub fn node_seconds(&self, graph: &Graph, id: NodeId) -> f64 {
        self.work_seconds(&Work::of(graph, id, &self.grain))
    }

    fn work_seconds(&self, work: &Work) -> f64 {
        let Some(rates) = self.seconds.get(&work.class) else { return 0.0 };
        let flops = rates.of(Amount::Flops) / self.speedup(work.class, work.dtype);
        let rates = rates.with(Amount::Flops, flops);
        match self.overlaps {
            false => rates.dot(&work.amounts),
            true => {
                let seconds = |amount: Amount| rates.of(amount) * work.amounts.of(amount);
                let memory = seconds(Amount::NearBytes) + seconds(Amount::FarBytes);
                rates.dot(&work.amounts) - memory.min(seconds(Amount::Flops))
            }
        }
    }

    fn speedup(&self, class: Class, dtype: DType) -> f64 {
        match dtype {
            _ if !class.multiplies_matrices() => 1.0,
            DType::F32 if self.tf32 => self.speedups.tf32,
            DType::F16 => self.speedups.f16,
            DType::Bf16 => self.speedups.bf16,
            _ => 1.0,
        }
    }

    /// One run of a graph.
    pub fn graph_seconds(&self, graph: &Graph) -> f64 {
        self.phase_s + graph.node_ids().map(|id| self.node_seconds(graph, id)).sum::<f64>()
    }
}

/// Milliseconds of one step: every phase as often as a step runs it.
pub fn predicted_ms(program: &Program, profile: &Profile) -> f64 {
    let in_step = program.phases.iter().filter(|phase| phase.repeat > 0);
    1e3 * in_step.map(|phase| phase.repeat as f64 * profile.graph_seconds(&phase.graph)).sum::<f64>()
}
