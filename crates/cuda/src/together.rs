//! Nodes that one kernel runs at once: dropout, the sum with a residual, and its norm. A graph has them apart, so that a plan
//! can keep or recompute each; here, where everything has its place, those that follow each other become one launch.
//!
//! It runs where the last of them stands. What stands between must not mind, and the kernel, which goes through all tensors
//! row by row, must find each row as it was: two of them are the same bytes, or have none in common.

use super::launches::{Shares, Touched};
use super::places::{Bases, bytes, tensor, touched};
use plimsoll_core::kernels::cuda::{CudaError, DeviceTensor, Launch, Queue};
use plimsoll_core::ops::{ResidualNodes, ResidualNorm};
use plimsoll_core::plan::{Layout, Program};
use plimsoll_core::types::DType;
use std::collections::HashMap;
use std::ops::Range;

/// What happens at a place of the order.
pub(super) enum Together {
    /// Its node runs with a later one.
    Later,
    Here(Box<ResidualLaunch>),
}

/// A norm with what stands before it.
pub(super) struct ResidualLaunch {
    op: ResidualNorm,
    inputs: Vec<DeviceTensor>,
    outputs: Vec<DeviceTensor>,
    pub touched: Touched,
    /// What of it the nodes before the norm touch, which run later than they stand.
    delayed: Touched,
    pub ticks: Shares,
}

impl ResidualLaunch {
    pub(super) fn record(&self, tf32: bool, queue: &mut dyn Queue) -> Result<(), CudaError> {
        use plimsoll_core::graph::Op;
        let (inputs, outputs) = (&self.inputs, &self.outputs);
        self.op.cuda(&mut Launch { inputs, outputs, workspace: 0, workspace_bytes: 0, tf32, queue })
    }
}

/// How many nodes may stand between: casts of the norm's weights do.
const REACH: usize = 8;

/// What runs together in a phase, by place.
pub(super) fn togethers(program: &Program, layout: &Layout, phase: usize, bases: Bases) -> HashMap<usize, Together> {
    let (graph, order) = (&program.phases[phase].graph, &layout.phases[phase].order);
    let places: HashMap<_, _> = order.iter().enumerate().map(|(tick, &id)| (id, tick)).collect();
    let mut found = HashMap::new();
    for (tick, &id) in order.iter().enumerate() {
        let Some(nodes) = ResidualNorm::ending_in(graph, id) else { continue };
        let ticks: Vec<usize> = nodes.nodes.iter().map(|id| places[id]).collect();
        let free = ticks.iter().all(|tick| !found.contains_key(tick)) && ticks.is_sorted();
        if !free || tick - ticks[0] > REACH + ticks.len() {
            continue;
        }
        let at = |value: &_| tensor(program, layout, phase, *value, bases);
        let of = |id: &_| touched(program, layout, phase, *id, bases);
        let between = (ticks[0]..tick).filter(|tick| !ticks.contains(tick)).map(|tick| of(&order[tick]));
        let all = residual(nodes, &ticks, at);
        if all.is_sound() && between.into_iter().all(|other| all.delayed.is_independent_of(&other)) {
            ticks.iter().for_each(|&tick| drop(found.insert(tick, Together::Later)));
            found.insert(tick, Together::Here(Box::new(all)));
        }
    }
    found
}

fn residual(
    nodes: ResidualNodes,
    ticks: &[usize],
    at: impl Fn(&plimsoll_core::graph::ValueId) -> DeviceTensor,
) -> ResidualLaunch {
    let inputs: Vec<DeviceTensor> = nodes.inputs.iter().map(&at).collect();
    let outputs: Vec<DeviceTensor> = nodes.outputs.iter().map(&at).collect();
    let touched = Touched { reads: inputs.iter().map(bytes).collect(), writes: outputs.iter().map(bytes).collect() };
    // Each reads and writes: dropout one and one, the sum two and one, the norm one and one.
    let weights = if ticks.len() == 3 { &[2.0 / 7.0, 3.0 / 7.0, 2.0 / 7.0][..] } else { &[0.6, 0.4] };
    let ticks = ticks.iter().copied().zip(weights.iter().copied()).collect();
    // Weights of the norm may come in between: it stands where it stood.
    let early = inputs.iter().enumerate().filter(|(index, tensor)| *index < 2 || tensor.ty.dtype == DType::I64);
    let delayed = Touched { reads: early.map(|(_, t)| bytes(t)).collect(), writes: vec![bytes(&outputs[0])] };
    ResidualLaunch { op: nodes.op, inputs, outputs, touched, delayed, ticks }
}

impl ResidualLaunch {
    /// Whether rows are read before anything is written over them.
    fn is_sound(&self) -> bool {
        let of = |tensors: &[DeviceTensor]| tensors.iter().map(bytes).collect::<Vec<_>>();
        let (rows, weights) = (of(&self.inputs[..2]), of(&self.inputs[2..]));
        let (written, statistics) = (of(&self.outputs[..2]), of(&self.outputs[2..]));
        let whole = written.iter().all(|w| rows.iter().chain(&written).all(|r| r == w || is_apart(r, w)));
        let others = [(&weights, &written), (&statistics, &written), (&statistics, &rows), (&statistics, &weights)];
        whole && others.into_iter().all(|(a, b)| a.iter().all(|a| b.iter().all(|b| is_apart(a, b))))
    }
}

fn is_apart(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.end <= b.start || b.end <= a.start
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::graph::{Graph, Init};
    use plimsoll_core::ops::{Binary, Dropout, LayerNorm};
    use plimsoll_core::types::Type;

    fn nodes() -> (Graph, ResidualNodes) {
        let mut graph = Graph::new("test", DType::F32);
        let ty = Type::new(DType::F32, &[6, 16]);
        let [branch, around] = ["branch", "around"].map(|name| graph.data(name, ty.clone()).unwrap());
        let rng = graph.data("rng", Type::new(DType::I64, &[3])).unwrap();
        let [gamma, beta] = ["gamma", "beta"].map(|name| graph.parameter(name, &[16], Init::Ones, false).unwrap());
        let branch = graph.apply("drop", Dropout { p: 0.1, site: 1, samples: 3 }, &[branch, rng]).unwrap();
        let total = graph.apply("residual", Binary::ADD, &[branch, around]).unwrap();
        let norm = graph.apply_all("norm", LayerNorm { eps: 1e-6 }, &[total, gamma, beta]).unwrap();
        let found = ResidualNorm::ending_in(&graph, graph.producer(norm[0]).unwrap()).unwrap();
        (graph, found)
    }

    /// Inputs branch, around, gamma, beta, rng at 0, 1000, 2000, 2100, 2200; outputs total, norm, mean, rstd at `outputs`.
    fn placed(outputs: [u64; 4]) -> ResidualLaunch {
        let (graph, nodes) = nodes();
        let addresses: Vec<u64> = [0, 1000, 2000, 2100, 2200].into_iter().chain(outputs).collect();
        let values: Vec<_> = nodes.inputs.iter().chain(&nodes.outputs).copied().collect();
        let at = |value: &_| {
            let place = values.iter().position(|v| v == value).unwrap();
            DeviceTensor { address: addresses[place], ty: graph.ty(*value).clone() }
        };
        residual(nodes, &[0, 1, 2], at)
    }

    fn is_sound(outputs: [u64; 4]) -> bool {
        placed(outputs).is_sound()
    }

    #[test]
    fn weights_of_the_norm_may_come_in_between_but_nothing_over_the_branch() {
        let all = placed([3000, 4000, 5000, 5100]);
        let one = |range: std::ops::Range<u64>| Vec::from([range]);
        let writes = |start: u64| Touched { reads: one(9000..9004), writes: one(start..start + 64) };
        assert!(all.delayed.is_independent_of(&writes(2000)) && all.delayed.is_independent_of(&writes(2100)));
        assert!([0, 1000, 2200, 3000].into_iter().all(|start| !all.delayed.is_independent_of(&writes(start))));
        // Somebody reads the sum where the graph has it, before the norm.
        assert!(!all.delayed.is_independent_of(&Touched { reads: one(3000..3004), writes: one(9000..9004) }));
    }

    #[test]
    fn rows_lie_over_rows_whole_or_not_at_all() {
        assert!(is_sound([3000, 4000, 5000, 5100]));
        // The sum over the branch, the norm over the residual, the norm over the sum.
        assert!(is_sound([0, 4000, 5000, 5100]) && is_sound([3000, 1000, 5000, 5100]) && is_sound([0, 0, 5000, 5100]));
        // Part of the branch, of the residual, of the sum; over the weights; statistics over the branch.
        assert!(!is_sound([16, 4000, 5000, 5100]) && !is_sound([3000, 900, 5000, 5100]));
        assert!(!is_sound([3000, 3016, 5000, 5100]) && !is_sound([3000, 1960, 5000, 5100]));
        assert!(!is_sound([3000, 4000, 8, 5100]));
    }
}
