//! The order with the lowest peak, found by search. A state is the set of nodes that have run: what is alive depends on
//! that set alone, so each is visited once, the one with the lowest peak so far first.

use crate::graph::AliasKind;
use crate::graph::{NodeId, ValueId};
use crate::plan::sketch::{Origin, Sketch};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A set of nodes, fewer than 64.
type Set = u64;

/// Graphs with more nodes keep the order by rules.
const MOST_NODES: usize = 40;

/// States after which the search gives up.
const MOST_STATES: usize = 30_000;

/// Whether its orders are searched.
pub(crate) fn is_small(sketch: &Sketch) -> bool {
    sketch.nodes.len() <= MOST_NODES
}

/// An order whose peak is below `known_peak`, the lowest there is; `None` if there is none, or too much to search.
pub(crate) fn lowest_order(sketch: &Sketch, known_peak: usize) -> Option<Vec<NodeId>> {
    if !is_small(sketch) {
        return None;
    }
    OrderSearch::new(sketch).run(known_peak)
}

/// A stretch of memory that values share whatever the order: through views and updates in place.
#[derive(Clone, Copy, Default)]
struct Block {
    bytes: usize,
    /// Every node that reads or writes it.
    users: Set,
    kept: bool,
}

/// What running a node does.
#[derive(Clone, Default)]
struct Move {
    /// Nodes that have to run before.
    after: Set,
    /// Blocks that begin here, and all that it uses.
    begins: Vec<usize>,
    uses: Vec<usize>,
    /// (block that begins, block it may lie over if that ends here).
    may_overwrite: Vec<(usize, usize)>,
    workspace_bytes: usize,
}

struct OrderSearch {
    blocks: Vec<Block>,
    moves: Vec<Move>,
    /// Bytes of inputs, alive before anything has run.
    first_live: usize,
}

/// How a state was reached: its peak, the bytes alive in it, and the node that ran last.
#[derive(Clone, Copy)]
struct Reached {
    peak: usize,
    live: usize,
    last: u32,
}

impl OrderSearch {
    fn new(sketch: &Sketch) -> OrderSearch {
        let mut search =
            OrderSearch { blocks: Vec::new(), moves: vec![Move::default(); sketch.nodes.len()], first_live: 0 };
        let places = search.place(sketch);
        for id in sketch.node_ids() {
            let node = sketch.node(id);
            for block in node.inputs.iter().chain(&node.outputs).filter_map(|v| places[v.index()].map(|p| p.0)) {
                search.blocks[block].users |= 1 << id.0;
                search.moves[id.index()].uses.push(block);
            }
            search.moves[id.index()].uses.sort_unstable();
            search.moves[id.index()].uses.dedup();
            search.moves[id.index()].workspace_bytes = node.workspace_bytes;
        }
        for block in sketch.kept.iter().filter_map(|v| places[v.index()].map(|p| p.0)) {
            search.blocks[block].kept = true;
        }
        for before in sketch.node_ids() {
            for id in sketch.links.readers.of(before).iter().chain(sketch.links.overwriters.of(before)) {
                search.moves[id.index()].after |= 1 << before.0;
            }
        }
        search.find_overwrites(sketch, &places);
        search
    }

    /// The block of every value and the bytes into it; none for residents.
    fn place(&mut self, sketch: &Sketch) -> Vec<Option<(usize, usize)>> {
        let mut places: Vec<Option<(usize, usize)>> = vec![None; sketch.values.len()];
        for (index, value) in sketch.values.iter().enumerate().filter(|(_, v)| v.origin == Origin::Data) {
            places[index] = Some((self.blocks.len(), 0));
            self.blocks.push(Block { bytes: value.bytes, ..Block::default() });
            self.first_live += value.bytes;
        }
        for id in sketch.node_ids() {
            let node = sketch.node(id);
            for (index, output) in node.outputs.iter().enumerate() {
                let forced = node.aliases.iter().find(|a| a.output == index && a.kind != AliasKind::May);
                places[output.index()] = match forced {
                    Some(alias) => places[node.inputs[alias.input].index()].map(|(b, at)| (b, at + alias.skip_bytes)),
                    None => {
                        self.moves[id.index()].begins.push(self.blocks.len());
                        self.blocks.push(Block { bytes: sketch.values[output.index()].bytes, ..Block::default() });
                        Some((self.blocks.len() - 1, 0))
                    }
                };
            }
        }
        places
    }

    fn find_overwrites(&mut self, sketch: &Sketch, places: &[Option<(usize, usize)>]) {
        for id in sketch.node_ids() {
            let node = sketch.node(id);
            for alias in node.aliases.iter().filter(|a| a.kind == AliasKind::May) {
                let (input, output) = (node.inputs[alias.input], node.outputs[alias.output]);
                let (Some((from, 0)), Some((to, _))) = (places[input.index()], places[output.index()]) else {
                    continue;
                };
                let elsewhere = |v: &&ValueId| **v != input && **v != output;
                let others = node.inputs.iter().chain(&node.outputs).filter(elsewhere);
                let mut others = others.filter_map(|v| places[v.index()]);
                if from != to
                    && self.blocks[from].bytes == self.blocks[to].bytes
                    && others.all(|(b, _)| b != from && b != to)
                {
                    self.moves[id.index()].may_overwrite.push((to, from));
                }
            }
        }
    }

    fn run(&self, known_peak: usize) -> Option<Vec<NodeId>> {
        let all: Set = (1 << self.moves.len()) - 1;
        let start = Reached { peak: self.first_live, live: self.first_live, last: u32::MAX };
        let mut reached: HashMap<Set, Reached> = HashMap::from([(0, start)]);
        // Among equal peaks the state where most has run, so that the search goes deep.
        let mut open = BinaryHeap::from([(Reverse(start.peak), 0u32, 0 as Set)]);
        while let Some((Reverse(peak), _, ran)) = open.pop() {
            let here = reached[&ran];
            if here.peak < peak {
                continue;
            }
            if ran == all {
                return Some(self.path(&reached, all));
            }
            for node in self.worth_running(ran, here) {
                let next = self.after(ran, here, node);
                let set = ran | 1 << node;
                if next.peak < known_peak && reached.get(&set).is_none_or(|other| next.peak < other.peak) {
                    reached.insert(set, next);
                    open.push((Reverse(next.peak), set.count_ones(), set));
                }
            }
            if reached.len() > MOST_STATES {
                return None;
            }
        }
        None
    }

    /// Nodes that can run; only one where running it now can do no harm: it raises no peak and leaves no more alive.
    fn worth_running(&self, ran: Set, here: Reached) -> Vec<usize> {
        let can = |n: &usize| ran >> n & 1 == 0 && self.moves[*n].after & !ran == 0;
        let ready: Vec<usize> = (0..self.moves.len()).filter(can).collect();
        let harmless = ready.iter().copied().find(|&n| {
            let next = self.after(ran, here, n);
            next.peak <= here.peak && next.live <= here.live
        });
        harmless.map_or(ready, |n| vec![n])
    }

    fn after(&self, ran: Set, here: Reached, node: usize) -> Reached {
        let (m, now) = (&self.moves[node], ran | 1 << node);
        let ends = |block: usize| !self.blocks[block].kept && self.blocks[block].users & !now == 0;
        let begun: usize = m.begins.iter().map(|&b| self.blocks[b].bytes).sum();
        let ended: usize = m.uses.iter().filter(|&&b| ends(b)).map(|&b| self.blocks[b].bytes).sum();
        let peak = here.live + begun + m.workspace_bytes - self.overwritten(m, ends);
        Reached { peak: here.peak.max(peak), live: here.live + begun - ended, last: node as u32 }
    }

    /// Bytes of outputs that lie over an input which ends with this node; each input is used once.
    fn overwritten(&self, m: &Move, ends: impl Fn(usize) -> bool) -> usize {
        let (mut used, mut bytes) = (Vec::new(), 0);
        for &(to, from) in m.may_overwrite.iter().filter(|(_, from)| ends(*from)) {
            if !used.contains(&from) && !used.contains(&to) {
                used.extend([from, to]);
                bytes += self.blocks[to].bytes;
            }
        }
        bytes
    }

    fn path(&self, reached: &HashMap<Set, Reached>, mut set: Set) -> Vec<NodeId> {
        let mut order = Vec::with_capacity(self.moves.len());
        while set != 0 {
            let last = reached[&set].last;
            order.push(NodeId(last));
            set &= !(1 << last);
        }
        order.reverse();
        order
    }
}
