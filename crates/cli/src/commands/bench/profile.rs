//! Where the time of a step goes, by kind of op.

use plimsoll_core::graph::{NodeId, Role};
use plimsoll_core::plan::{Layout, Program};
use plimsoll_exec::Executor;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) struct Profile<'p> {
    program: &'p Program,
    layout: &'p Layout,
    spent: BTreeMap<String, Spent>,
}

#[derive(Clone, Copy, Default)]
struct Spent {
    seconds: f64,
    runs: usize,
    flops: f64,
    bytes: f64,
}

impl<'p> Profile<'p> {
    pub(crate) fn new(program: &'p Program, layout: &'p Layout) -> Profile<'p> {
        Profile { program, layout, spent: BTreeMap::new() }
    }

    /// Runs a phase and takes down what each node took.
    pub(crate) fn run(&mut self, executor: &mut dyn Executor, phase: usize) {
        let order = &self.layout.phases[phase].order;
        let mut seconds = vec![0.0; order.len()];
        executor.run_timed(phase, &mut seconds);
        order.iter().zip(seconds).for_each(|(&node, seconds)| self.add(phase, node, seconds));
    }

    fn add(&mut self, phase: usize, id: NodeId, seconds: f64) {
        let graph = &self.program.phases[phase].graph;
        let node = graph.node(id);
        let outputs: Vec<_> = node.outputs.iter().map(|&v| graph.ty(v).clone()).collect();
        let cost = node.op.op().cost(&graph.input_types(id), &outputs);
        let again = if node.role == Role::Recompute { " (again)" } else { "" };
        let spent = self.spent.entry(format!("{}{again}", kind(&format!("{:?}", node.op.op())))).or_default();
        spent.seconds += seconds;
        spent.runs += 1;
        spent.flops += cost.flops;
        spent.bytes += cost.bytes;
    }

    /// Per step, the slowest kind first; then what the host spent on inputs, and a step as it is without a look at its
    /// nodes: what it takes beyond them is launches and waiting.
    pub(crate) fn table(&self, steps: usize, feeding: Duration, step_ms: f64) -> String {
        let total: f64 = self.spent.values().map(|s| s.seconds).sum();
        let mut rows: Vec<_> = self.spent.iter().collect();
        rows.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        let steps = steps.max(1);
        let mut text =
            format!("{:<28} {:>9} {:>7} {:>6} {:>9} {:>7}\n", "op", "ms", "share", "runs", "GFLOP/s", "GB/s");
        for (name, spent) in rows {
            let per_second = |amount: f64| amount / spent.seconds.max(1e-12) / 1e9;
            text += &format!(
                "{name:<28} {:>9.3} {:>5.1} % {:>6} {:>9.1} {:>7.1}\n",
                spent.seconds * 1e3 / steps as f64,
                100.0 * spent.seconds / total.max(1e-12),
                spent.runs / steps,
                per_second(spent.flops),
                per_second(spent.bytes)
            );
        }
        let last = [
            ("all nodes", total * 1e3 / steps as f64),
            ("inputs (host)", feeding.as_secs_f64() * 1e3 / steps as f64),
            ("a step", step_ms),
        ];
        text + &last.map(|(name, ms)| format!("{name:<28} {ms:>9.3}")).join("\n")
    }
}

/// `MatMul { transposed: true }` → `MatMul`.
fn kind(debug: &str) -> &str {
    debug.split([' ', '{', '(']).next().unwrap_or(debug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_do_not_split_a_kind() {
        assert_eq!(kind("MatMul { transposed: true }"), "MatMul");
        assert_eq!(kind("Add"), "Add");
        assert_eq!(kind("Scale(0.5)"), "Scale");
    }
}
