//! Updates from moments in host memory, one behind the other: while one is stored the next are on their way, so that both
//! directions of the bus are busy at once.
//!
//! How far ahead is said in bytes. A fetch stands behind the update that makes room for it (its gate), and before the one
//! after that: an order by what is ready is then the order here, and nothing lies on the device longer than that.

use super::{Job, PIECE_BYTES, Rule, Stretch, Update};
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use std::collections::VecDeque;

/// How much of the moments is on the device.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// Of one moment at a time, where it can be cut.
    pub piece_bytes: usize,
    /// Of all that have been fetched and not stored yet, unless one is larger.
    pub all_bytes: usize,
}

/// What has been fetched and waits for its update.
struct Fetched {
    rule: usize,
    stretch: Stretch,
    values: Vec<ValueId>,
    bytes: usize,
}

impl Ahead {
    /// Three pieces of two moments: one comes, one is used, one goes.
    pub(super) const USUAL: Ahead = Ahead { piece_bytes: PIECE_BYTES, all_bytes: 6 * PIECE_BYTES };

    pub(super) fn add(
        self,
        update: &Update<'_>,
        graph: &mut Graph,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Result<(), GraphError> {
        let mut line = Line { update, rules: Vec::new(), fetched: VecDeque::new(), bytes: 0, gate: None };
        for (parameter, grad, factor) in jobs {
            let rule = update.rule(graph, parameter, grad, factor)?;
            let stretches = rule.stretches(graph, self.piece_bytes);
            line.rules.push(rule);
            for stretch in stretches {
                line.make_room(graph, self.all_bytes, &stretch)?;
                line.fetch(graph, stretch, factor.clip)?;
            }
        }
        line.finish(graph)
    }
}

/// The updates so far: those of `fetched` are still to come.
struct Line<'u, 's> {
    update: &'u Update<'s>,
    rules: Vec<Rule>,
    fetched: VecDeque<Fetched>,
    bytes: usize,
    /// What the last update wrote.
    gate: Option<ValueId>,
}

impl Line<'_, '_> {
    fn make_room(&mut self, graph: &mut Graph, most: usize, stretch: &Stretch) -> Result<(), GraphError> {
        let bytes = self.rules.last().map_or(0, |rule| rule.bytes(graph, stretch));
        while self.bytes + bytes > most && !self.fetched.is_empty() {
            self.update_first(graph)?;
        }
        Ok(())
    }

    /// `first_gate`: what the fetches before the first update wait for.
    fn fetch(&mut self, graph: &mut Graph, stretch: Stretch, first_gate: ValueId) -> Result<(), GraphError> {
        let Some(rule) = self.rules.last() else { return Ok(()) };
        let bytes = rule.bytes(graph, &stretch);
        let values = self.update.fetch(graph, rule, &stretch, Some(self.gate.unwrap_or(first_gate)))?;
        self.fetched.push_back(Fetched { rule: self.rules.len() - 1, stretch, values, bytes });
        self.bytes += bytes;
        Ok(())
    }

    fn update_first(&mut self, graph: &mut Graph) -> Result<(), GraphError> {
        let Some(Fetched { rule, stretch, values, bytes }) = self.fetched.pop_front() else { return Ok(()) };
        let rule = &mut self.rules[rule];
        self.update.update(graph, rule, stretch, &values)?;
        self.gate = Some(rule.w);
        self.bytes -= bytes;
        Ok(())
    }

    fn finish(mut self, graph: &mut Graph) -> Result<(), GraphError> {
        while !self.fetched.is_empty() {
            self.update_first(graph)?;
        }
        Ok(())
    }
}
