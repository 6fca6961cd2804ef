//! Every choice of nodes to run again, where they are few: the ones that nothing beats in time and memory.

use super::cut::may_run_again;
use super::doubled::Doubled;
use super::ladder::{Measured, measure};
use crate::graph::{NodeId, Role};
use crate::plan::PlanError;
use crate::plan::cost::NodeTimes;
use crate::plan::sketch::{Flow, NodeSketch, Sketch};

/// Nodes that may run again, and nodes in all, up to which every choice is tried.
const MOST_CHOICES: usize = 9;
const MOST_NODES: usize = 24;

pub(super) struct Choice {
    pub again: Vec<bool>,
    pub measured: Measured,
}

/// From the fastest to the smallest; `None` if there is too much to try.
pub(super) fn choices(sketch: &Sketch, times: &NodeTimes, sharing: bool) -> Option<Result<Vec<Choice>, PlanError>> {
    let candidates: Vec<NodeId> = sketch.node_ids().filter(|&id| may_run_again(sketch, id)).collect();
    if candidates.len() > MOST_CHOICES || sketch.nodes.len() > MOST_NODES {
        return None;
    }
    let mut sets: Vec<(f64, Vec<bool>)> = (0..1u32 << candidates.len())
        .filter_map(|set| {
            let mut again = vec![false; sketch.nodes.len()];
            (0..candidates.len()).filter(|i| set >> i & 1 == 1).for_each(|i| again[candidates[i].index()] = true);
            mark_views(sketch, &mut again);
            worth_trying(sketch, times, again)
        })
        .collect();
    sets.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(best_of(sketch, times, sharing, sets))
}

/// Views of what runs again are taken again.
pub(super) fn mark_views(sketch: &Sketch, again: &mut [bool]) {
    let is_view = |node: &NodeSketch| node.role == Role::Forward && node.is_view() && !node.overwrites();
    for id in sketch.node_ids().filter(|&id| is_view(sketch.node(id))) {
        let of = sketch.producer(sketch.viewed(sketch.node(id).outputs[0]));
        again[id.index()] = of.is_some_and(|producer| producer != id && again[producer.index()]);
    }
}

/// The set with its seconds, unless one of its nodes would not run again: then a smaller set is the same choice.
fn worth_trying(sketch: &Sketch, times: &NodeTimes, again: Vec<bool>) -> Option<(f64, Vec<bool>)> {
    let doubled = Doubled::new(sketch, &again);
    let is_idle = |id: NodeId| again[id.index()] && may_run_again(sketch, id) && !doubled.runs(id);
    let seconds = (!sketch.node_ids().any(is_idle)).then(|| doubled.extra_seconds(times));
    seconds.map(|seconds| (seconds, again))
}

fn best_of(
    sketch: &Sketch,
    times: &NodeTimes,
    sharing: bool,
    sets: Vec<(f64, Vec<bool>)>,
) -> Result<Vec<Choice>, PlanError> {
    let mut best: Vec<Choice> = Vec::new();
    for (_, again) in sets {
        let measured = measure(sketch, times, &again, sharing)?;
        if best.last().is_none_or(|last| measured.live_bytes < last.measured.live_bytes) {
            best.push(Choice { again, measured });
        }
    }
    Ok(best)
}
