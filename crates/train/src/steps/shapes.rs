//! Phases for batches that are shorter than the longest. The plan is made for the longest batch, so the arena holds
//! every other one; a shorter batch gets its own graph when it first comes, laid out inside that arena.

use super::feed::Feeder;
use crate::RunError;
use plimsoll_core::graph::Graph;
use plimsoll_core::plan::{Layout, Phase, PlanError, Program, lay_out_within};
use plimsoll_data::Batch;
use plimsoll_exec::Executor;
use plimsoll_models::families::Family;
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::choose::{Choice, Planned, family};
use plimsoll_planner::program::{EVALUATE, MICRO_STEP, STEP, Settings, StepSpec, evaluate, micro_step, step};
use std::collections::HashMap;

/// More tokens than any batch has: the loss is not in parts.
const MOST_CHUNK: usize = 1 << 40;

/// What a batch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    Train,
    Evaluate,
}

/// What phases are known by: pass, length, target length.
type Key = (Pass, usize, usize);

/// A phase of the executor for one pair of lengths.
#[derive(Clone, Copy)]
struct Added {
    phase: usize,
    /// Of its own; none where it is that of the longest batch.
    nodes: usize,
    /// When it was last asked for.
    used: u64,
}

/// Nodes of all phases that were added, about: where there are more, the one that was not asked for longest gives way to
/// the next. Made again, it is the same, so bits do not depend on which are kept; what they take does, and is planned for.
pub(crate) const MOST_NODES: usize = 8192;

/// Finds, or makes, the phase for the length of a batch.
pub struct Shapes {
    family: Box<dyn Family>,
    spec: StepSpec,
    feeder: Feeder,
    known: HashMap<Key, Added>,
    /// Counts what is asked for.
    clock: u64,
    most_nodes: usize,
    /// Lengths without a phase of their own.
    padded: usize,
}

impl Shapes {
    /// For a program whose phases are for the longest batch.
    pub fn new(family: Box<dyn Family>, spec: StepSpec, program: &Program) -> Shapes {
        Shapes {
            family,
            spec,
            feeder: Feeder::new(program),
            known: HashMap::new(),
            clock: 0,
            most_nodes: MOST_NODES,
            padded: 0,
        }
    }

    /// With room for phases of so many nodes. For tests: what gives way and comes back is the same.
    pub fn with_most_nodes(self, most_nodes: usize) -> Shapes {
        Shapes { most_nodes, ..self }
    }

    /// How many lengths run as the longest does, for lack of room in the arena.
    pub fn padded(&self) -> usize {
        self.padded
    }

    /// Samples that a phase takes.
    pub fn rows(&self, phase: usize) -> usize {
        self.feeder.rows(phase)
    }

    /// Copies the batch's rows from `first` on into the inputs of `phase`.
    pub fn feed(
        &mut self,
        executor: &mut dyn Executor,
        phase: usize,
        batch: &Batch,
        first: usize,
    ) -> Result<(), RunError> {
        self.feeder.feed(executor, phase, batch, first)
    }

    /// The phase for a batch of these lengths, one per axis; none for data of one shape.
    pub fn phase(
        &mut self,
        executor: &mut dyn Executor,
        choice: &Choice,
        pass: Pass,
        lengths: &[usize],
    ) -> Result<usize, PlanError> {
        let length = lengths.first().copied().unwrap_or(self.spec.length);
        let target_length = lengths.get(1).copied().unwrap_or(self.spec.target_length);
        let name = phase_name(choice, pass);
        let missing = || PlanError::Broken(format!("the program has no phase {name}"));
        let longest = choice.program.phase(name).ok_or_else(missing)?;
        if (length, target_length) == (self.spec.length, self.spec.target_length) {
            return Ok(longest);
        }
        self.clock += 1;
        let used = self.clock;
        if let Some(added) = self.known.get_mut(&(pass, length, target_length)) {
            added.used = used;
            return Ok(added.phase);
        }
        let spec = StepSpec { length, target_length, ..self.spec.clone() };
        let (phase, nodes) = self.add(executor, choice, pass, longest, &spec)?;
        self.known.insert((pass, length, target_length), Added { phase, nodes, used });
        Ok(phase)
    }

    /// Which gives way to one of so many nodes, if there is no room for all: of those that are large enough, or else of
    /// all, the one that was not asked for longest.
    fn giving_way(&self, nodes: usize) -> Option<Key> {
        let taken: usize = self.known.values().map(|added| added.nodes).sum();
        let own = self.known.iter().filter(|(_, added)| added.nodes > 0 && taken + nodes > self.most_nodes);
        own.min_by_key(|(_, added)| (added.nodes < nodes, added.used)).map(|(key, _)| *key)
    }

    /// Makes a phase of the executor, in the place of another where there are too many. Where it is fed by, and its number.
    fn place(
        &mut self,
        executor: &mut dyn Executor,
        program: &Program,
        layout: &Layout,
        nodes: usize,
    ) -> (usize, usize) {
        let given = self.giving_way(nodes).and_then(|key| Some((key, self.known.get(&key)?.phase)));
        match given.filter(|(_, phase)| executor.replace_phase(*phase, program, layout)) {
            Some((key, phase)) => {
                self.known.remove(&key);
                self.feeder.replace(phase, program);
                (phase, phase)
            }
            None => (self.feeder.add(program), executor.add_phases(program, layout)),
        }
    }

    /// The phase for one more pair of lengths, and its own nodes. What cannot be laid out in the arena runs as the longest batch does, where
    /// it is padded further: slower, never missing.
    fn add(
        &mut self,
        executor: &mut dyn Executor,
        choice: &Choice,
        pass: Pass,
        longest: usize,
        spec: &StepSpec,
    ) -> Result<(usize, usize), PlanError> {
        let name = format!("{}@{}x{}", phase_name(choice, pass), spec.length, spec.target_length);
        for settings in self.settings(choice, spec) {
            let graph = self.graph(&settings, pass, spec)?;
            let program = choice.program.with_phases(vec![Phase { name: name.clone(), graph, repeat: 0 }])?;
            if let Some(layout) = lay_out_within(&program, &choice.layout, longest, choice.options)? {
                let nodes = program.phases[0].graph.nodes().len();
                let (fed, phase) = self.place(executor, &program, &layout, nodes);
                self.check_rows(&name, fed, longest)?;
                return Ok((phase, nodes));
            }
        }
        self.padded += 1;
        Ok((longest, 0))
    }

    /// How a shorter batch may be computed, in the order to try. A loss in as many tokens at a time as the longest batch
    /// has fewer parts, so its graph is another one, and packed anew it may need more than it would by parts that shrink
    /// with it. Which of these it is depends on plan and lengths alone, and so do the bits.
    fn settings(&self, choice: &Choice, spec: &StepSpec) -> Vec<Settings> {
        let (settings, longest) = (&choice.settings, &self.spec);
        let mut all = vec![settings.clone()];
        if !self.family.has_loss_chunks() || settings.loss_chunk >= MOST_CHUNK {
            return all;
        }
        let [long, short] = [longest, spec].map(|spec| spec.target_length.max(1) * spec.length.max(1));
        let shrunk = (settings.loss_chunk * spec.target_length.max(1)).div_ceil(longest.target_length.max(1));
        let by_all = (settings.loss_chunk * short).div_ceil(long);
        let halves = std::iter::successors(Some(settings.loss_chunk / 2), |chunk| Some(chunk / 2));
        for loss_chunk in [shrunk, by_all].into_iter().chain(halves.take_while(|chunk| *chunk > 0)) {
            if (1..settings.loss_chunk).contains(&loss_chunk) && all.iter().all(|s| s.loss_chunk != loss_chunk) {
                all.push(Settings { loss_chunk, ..settings.clone() });
            }
        }
        all
    }

    fn graph(&self, settings: &Settings, pass: Pass, spec: &StepSpec) -> Result<Graph, PlanError> {
        let family = self.family.as_ref();
        match (pass, settings.accumulation) {
            (Pass::Train, 1) => step(family, spec, settings),
            (Pass::Train, _) => micro_step(family, spec, settings),
            (Pass::Evaluate, _) => {
                let unplanned = || PlanError::Broken("no batch was planned for an evaluation".into());
                evaluate(family, spec, settings, spec.evaluate_batch.ok_or_else(unplanned)?)
            }
        }
    }

    /// Batches are cut for the longest phase: one of fewer rows would leave samples out, one of more would misread them.
    fn check_rows(&self, name: &str, phase: usize, longest: usize) -> Result<(), PlanError> {
        let (rows, planned) = (self.rows(phase), self.rows(longest));
        match rows == planned {
            true => Ok(()),
            false => Err(PlanError::Broken(format!("{name} takes {rows} samples, the longest batch {planned}"))),
        }
    }
}

/// The phases of a plan, and those for shorter batches as they come.
pub fn shapes(recipe: &Recipe, planned: &Planned) -> Shapes {
    Shapes::new(family(&recipe.model), planned.spec.clone(), &planned.choice.program)
}

fn phase_name(choice: &Choice, pass: Pass) -> &'static str {
    match pass {
        Pass::Train if choice.settings.accumulation == 1 => STEP,
        Pass::Train => MICRO_STEP,
        Pass::Evaluate => EVALUATE,
    }
}
