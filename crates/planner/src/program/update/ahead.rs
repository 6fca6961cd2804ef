//! Updates from moments in host memory, one behind the other: while one is stored the next are on their way, so that both
//! directions of the bus are busy at once.
//!
//! How far ahead is said in bytes. A fetch stands behind the update that makes room for it (its gate), and before the one
//! after that: an order by what is ready is then the order here, and nothing lies on the device longer than that.

use super::{Job, Moments, PIECE_BYTES, Rule, Stretch, Update};
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use std::collections::VecDeque;

/// How much of the moments is on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ahead {
    /// Of one moment at a time, where it can be cut.
    pub piece_bytes: usize,
    /// Of all that have been fetched and not stored yet, unless one is larger.
    pub all_bytes: usize,
}

/// Three pieces of two moments: one comes, one is used, one goes.
const PIECES: usize = 6;
/// Of all moments, at least so many times more are away than are on the device: otherwise they need not have gone.
const AWAY: usize = 16;
/// Pieces are so many bytes or a multiple of that: smaller ones leave the bus waiting, and where they begin draws of random
/// numbers for rounding begin too.
const GRAIN_BYTES: usize = 1 << 20;

impl Ahead {
    /// What suits moments of so many bytes in all.
    pub(super) fn of(moment_bytes: usize) -> Ahead {
        let grains = moment_bytes / AWAY / PIECES / GRAIN_BYTES;
        let piece_bytes = (grains * GRAIN_BYTES).clamp(GRAIN_BYTES, PIECE_BYTES);
        Ahead { piece_bytes, all_bytes: (moment_bytes / AWAY).min(PIECES * PIECE_BYTES) }
    }

    /// Of the moments of these rules.
    fn of_all(graph: &Graph, rules: &[Rule]) -> Ahead {
        Ahead::of(rules.iter().map(|rule| rule.bytes(graph, &None)).sum())
    }
}

/// The updates of all jobs; `ahead`: other than what suits them.
pub(super) fn add_ahead(
    update: &Update<'_>,
    graph: &mut Graph,
    jobs: impl IntoIterator<Item = Job>,
    ahead: Option<Ahead>,
) -> Result<(), GraphError> {
    let mut rules = Vec::new();
    for (parameter, grad, factor) in jobs {
        rules.push(update.rule(graph, parameter, grad, factor)?);
    }
    let ahead = ahead.unwrap_or_else(|| Ahead::of_all(graph, &rules));
    let pieces = |(at, rule): (usize, &Rule)| {
        let of = |stretch: Stretch| Unit { rule: at, bytes: rule.bytes(graph, &stretch), stretch };
        rule.stretches(graph, ahead.piece_bytes).into_iter().map(of).collect::<Vec<Unit>>()
    };
    let units: Vec<Unit> = rules.iter().enumerate().flat_map(pieces).collect();
    let largest = units.iter().map(|unit| unit.bytes).max().unwrap_or(0);
    Line { update, rules, fetched: VecDeque::new(), bytes: 0, gate: None }.run(
        graph,
        units,
        ahead.all_bytes.max(largest),
    )
}

/// What is updated at once: a parameter, or a stretch of it.
struct Unit {
    rule: usize,
    stretch: Stretch,
    /// Of its moments.
    bytes: usize,
}

/// The updates so far: those of what has been fetched are still to come.
struct Line<'u, 's> {
    update: &'u Update<'s>,
    rules: Vec<Rule>,
    fetched: VecDeque<(Unit, Moments)>,
    bytes: usize,
    /// What the last update wrote.
    gate: Option<ValueId>,
}

impl Line<'_, '_> {
    fn run(mut self, graph: &mut Graph, units: Vec<Unit>, most: usize) -> Result<(), GraphError> {
        for unit in units {
            while self.bytes + unit.bytes > most && !self.fetched.is_empty() {
                self.update_first(graph)?;
            }
            self.fetch(graph, unit)?;
        }
        while !self.fetched.is_empty() {
            self.update_first(graph)?;
        }
        Ok(())
    }

    /// Before the first update a fetch waits for what that waits for.
    fn fetch(&mut self, graph: &mut Graph, unit: Unit) -> Result<(), GraphError> {
        let rule = &self.rules[unit.rule];
        let gate = self.gate.unwrap_or(rule.clip);
        let values = self.update.fetch(graph, rule, &unit.stretch, Some(gate))?;
        self.bytes += unit.bytes;
        self.fetched.push_back((unit, values));
        Ok(())
    }

    fn update_first(&mut self, graph: &mut Graph) -> Result<(), GraphError> {
        let Some((unit, values)) = self.fetched.pop_front() else { return Ok(()) };
        let rule = &mut self.rules[unit.rule];
        self.update.update(graph, rule, unit.stretch, &values)?;
        self.gate = Some(rule.w);
        self.bytes -= unit.bytes;
        Ok(())
    }
}
