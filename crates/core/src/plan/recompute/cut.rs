//! What to compute again in a layer, by minimum cuts.
//!
//! A value that the backward pass reads is kept, or the node that computes it runs again; then what that node reads has
//! to be there too. Kept bytes + seconds × price is smallest along a minimum cut, and as the price of a second falls
//! from very high to nothing, the cuts grow from "nothing again" to "all that saves a byte". Repeated layers have the
//! same cuts, found once.

use super::flow::{Network, UNLIMITED};
use super::selection::crossing_nodes;
use crate::graph::{NodeId, Role};
use crate::plan::sketch::{Flow, Sketch};
use rustc_hash::FxHashMap;

/// One step on the way from nothing to everything: from here on these nodes of a layer run again.
pub(super) struct Step {
    pub layer: usize,
    pub nodes: Vec<NodeId>,
}

/// The steps, those that save most bytes per second first; a layer's later step contains its earlier ones. `counts`
/// says which values weigh: those alive at the peak.
pub(super) fn steps(sketch: &Sketch, seconds: &[f64], counts: &[bool]) -> Vec<Step> {
    let layers = layers(sketch, seconds, counts);
    let mut kinds: FxHashMap<&[Item], Vec<usize>> = FxHashMap::default();
    for (index, layer) in layers.iter().enumerate() {
        kinds.entry(&layer.items).or_default().push(index);
    }
    let mut upgrades: Vec<Upgrade<'_>> = Vec::new();
    for (items, members) in &kinds {
        for pair in hull(items).windows(2) {
            let saved = pair[0].bytes.saturating_sub(pair[1].bytes) as f64;
            let seconds = pair[1].seconds - pair[0].seconds;
            upgrades.push(Upgrade { price: saved / seconds.max(1e-12), to: pair[1].clone(), members });
        }
    }
    // By price, then by layer: the same steps on every run.
    upgrades.sort_by(|a, b| b.price.total_cmp(&a.price).then(a.members[0].cmp(&b.members[0])));
    let mut steps = Vec::new();
    for Upgrade { to, members, .. } in upgrades {
        for &layer in members {
            let chosen = to.again.iter().zip(&layers[layer].nodes).filter(|(again, _)| **again);
            steps.push(Step { layer, nodes: chosen.map(|(_, &node)| node).collect() });
        }
    }
    steps
}

/// From one choice to the next, in all layers of a kind.
struct Upgrade<'m> {
    /// Bytes per second.
    price: f64,
    to: Point,
    members: &'m [usize],
}

/// A node that may run again, in numbers that do not depend on where its layer stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Item {
    nanoseconds: u64,
    /// Outputs of items before it: (item, output).
    reads: Vec<(usize, usize)>,
    /// Bytes that are kept only if this node runs again: what it reads from outside the layer.
    outside_bytes: u64,
    /// Bytes of each output, and whether the backward pass reads it.
    outputs: Vec<(u64, bool)>,
}

struct Layer {
    items: Vec<Item>,
    nodes: Vec<NodeId>,
}

/// The forward nodes by layer, without views, updates in place and what passes from layer to layer. What is outside of
/// layers counts as one.
fn layers(sketch: &Sketch, seconds: &[f64], counts: &[bool]) -> Vec<Layer> {
    let segments = sketch.nodes.iter().filter_map(|n| n.segment).max().map_or(0, |last| last as usize + 1);
    let mut layers: Vec<Layer> = (0..=segments).map(|_| Layer { items: Vec::new(), nodes: Vec::new() }).collect();
    let (needed, crossing) = (needed_values(sketch), crossing_roots(sketch));
    let mut item_of: Vec<Option<usize>> = vec![None; sketch.nodes.len()];
    for id in sketch.node_ids().filter(|&id| may_run_again(sketch, id) && !crossing[id.index()]) {
        let node = sketch.node(id);
        let layer = node.segment.map_or(segments, |s| s as usize);
        let weight = |v: usize| if counts[v] { sketch.values[v].bytes as u64 } else { 0 };
        let (mut reads, mut outside_bytes) = (Vec::new(), 0);
        for value in node.inputs.iter().map(|&v| sketch.viewed(v)) {
            let Some(producer) = sketch.producer(value) else { continue };
            let same = sketch.node(producer).segment == node.segment;
            match item_of[producer.index()].filter(|_| same) {
                Some(item) => {
                    let output = sketch.node(producer).outputs.iter().position(|&v| v == value).unwrap_or(0);
                    reads.push((item, output));
                }
                // Kept anyway where the backward pass reads it.
                None if !needed[value.index()] => outside_bytes += sketch.values[value.index()].bytes as u64,
                None => {}
            }
        }
        let outputs = node.outputs.iter().map(|v| (weight(v.index()), needed[v.index()])).collect();
        item_of[id.index()] = Some(layers[layer].items.len());
        let nanoseconds = (seconds[id.index()] * 1e9).max(1.0) as u64;
        layers[layer].items.push(Item { nanoseconds, reads, outside_bytes, outputs });
        layers[layer].nodes.push(id);
    }
    layers
}

pub(super) fn may_run_again(sketch: &Sketch, id: NodeId) -> bool {
    sketch.may_run_twice(id) && !sketch.node(id).is_view()
}

/// Values that the backward pass reads, themselves or a view of them.
pub(super) fn needed_values(sketch: &Sketch) -> Vec<bool> {
    let mut needed = vec![false; sketch.values.len()];
    for node in sketch.nodes.iter().filter(|n| n.role != Role::Forward) {
        node.inputs.iter().for_each(|&v| needed[sketch.viewed(v).index()] = true);
    }
    needed
}

/// Nodes whose result passes to another layer, itself or a view of it.
fn crossing_roots(sketch: &Sketch) -> Vec<bool> {
    let direct = crossing_nodes(sketch);
    let mut crossing = direct.clone();
    for id in sketch.node_ids().filter(|id| direct[id.index()]) {
        for producer in sketch.node(id).outputs.iter().filter_map(|&v| sketch.producer(sketch.viewed(v))) {
            crossing[producer.index()] = true;
        }
    }
    crossing
}

/// A choice of items to run again, with what it keeps and costs.
#[derive(Clone, Debug)]
struct Point {
    bytes: u64,
    seconds: f64,
    again: Vec<bool>,
}

/// The choices that are best at some price, from nothing again to the fewest bytes.
fn hull(items: &[Item]) -> Vec<Point> {
    let nothing = measure(items, vec![false; items.len()]);
    let most = measure(items, cheapest(items, FREE));
    if most.bytes >= nothing.bytes {
        return vec![nothing];
    }
    let mut hull = vec![nothing.clone()];
    between(items, &nothing, &most, &mut hull);
    hull.push(most);
    hull
}

/// Bytes per nanosecond that are as good as nothing.
const FREE: f64 = 1e-3;

fn between(items: &[Item], low: &Point, high: &Point, hull: &mut Vec<Point>) {
    let nanoseconds = (high.seconds - low.seconds) * 1e9;
    let price = low.bytes.saturating_sub(high.bytes) as f64 / nanoseconds.max(1.0);
    let middle = measure(items, cheapest(items, price));
    let cost = |p: &Point| p.bytes as f64 + p.seconds * 1e9 * price;
    // Below the line between the two, and by more than rounding.
    if middle.again != low.again && middle.again != high.again && cost(&middle) < cost(low) * (1.0 - 1e-9) - 1.0 {
        between(items, low, &middle, hull);
        hull.push(middle.clone());
        between(items, &middle, high, hull);
    }
}

/// The items to run again where a nanosecond costs `price` bytes.
fn cheapest(items: &[Item], price: f64) -> Vec<bool> {
    let mut first_output = Vec::with_capacity(items.len());
    let mut vertices = 2 + items.len();
    for item in items {
        first_output.push(vertices);
        vertices += item.outputs.len();
    }
    let (source, sink) = (0, 1);
    let mut network = Network::new(vertices);
    for (index, item) in items.iter().enumerate() {
        let again = 2 + index;
        let seconds = (item.nanoseconds as f64 * price).clamp(1.0, UNLIMITED as f64 / 1e6) as u64;
        network.connect(again, sink, seconds.saturating_add(item.outside_bytes));
        for &(other, output) in &item.reads {
            network.connect(again, first_output[other] + output, UNLIMITED);
        }
        for (output, &(bytes, needed)) in item.outputs.iter().enumerate() {
            let there = first_output[index] + output;
            network.connect(there, again, bytes);
            if needed {
                network.connect(source, there, UNLIMITED);
            }
        }
    }
    let side = network.cut(source, sink);
    side[2..2 + items.len()].to_vec()
}

fn measure(items: &[Item], again: Vec<bool>) -> Point {
    let mut needed: Vec<Vec<bool>> = items.iter().map(|i| i.outputs.iter().map(|o| o.1).collect()).collect();
    let (mut bytes, mut nanoseconds) = (0, 0);
    for (index, item) in items.iter().enumerate().rev() {
        if again[index] {
            nanoseconds += item.nanoseconds;
            bytes += item.outside_bytes;
            item.reads.iter().for_each(|&(other, output)| needed[other][output] = true);
        } else {
            let kept = item.outputs.iter().zip(&needed[index]).filter(|(_, needed)| **needed);
            bytes += kept.map(|(output, _)| output.0).sum::<u64>();
        }
    }
    Point { bytes, seconds: nanoseconds as f64 / 1e9, again }
}
