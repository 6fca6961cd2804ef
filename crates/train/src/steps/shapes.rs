//! Phases for batches that are shorter than the longest. The plan is made for the longest batch, so the arena holds
//! every other one; a shorter batch gets its own graph when it first comes, laid out inside that arena.

use super::feed::Feeder;
use crate::RunError;
use plimsoll_core::graph::Graph;
use plimsoll_core::plan::{Phase, PlanError, Program, lay_out_within};
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

/// Finds, or makes, the phase for the length of a batch.
pub struct Shapes {
    family: Box<dyn Family>,
    spec: StepSpec,
    feeder: Feeder,
    /// (pass, length, target length) → phase of the executor.
    known: HashMap<(Pass, usize, usize), usize>,
    /// Lengths without a phase of their own.
    padded: usize,
}

impl Shapes {
    /// For a program whose phases are for the longest batch.
    pub fn new(family: Box<dyn Family>, spec: StepSpec, program: &Program) -> Shapes {
        Shapes { family, spec, feeder: Feeder::new(program), known: HashMap::new(), padded: 0 }
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
        if let Some(&phase) = self.known.get(&(pass, length, target_length)) {
            return Ok(phase);
        }
        let spec = StepSpec { length, target_length, ..self.spec.clone() };
        let phase = self.add(executor, choice, pass, longest, &spec)?;
        self.known.insert((pass, length, target_length), phase);
        Ok(phase)
    }

    /// The phase for one more pair of lengths. What cannot be laid out in the arena runs as the longest batch does, where
    /// it is padded further: slower, never missing.
    fn add(
        &mut self,
        executor: &mut dyn Executor,
        choice: &Choice,
        pass: Pass,
        longest: usize,
        spec: &StepSpec,
    ) -> Result<usize, PlanError> {
        let name = format!("{}@{}x{}", phase_name(choice, pass), spec.length, spec.target_length);
        for settings in self.settings(choice, spec) {
            let graph = self.graph(&settings, pass, spec)?;
            let program = choice.program.with_phases(vec![Phase { name: name.clone(), graph, repeat: 0 }])?;
            if let Some(layout) = lay_out_within(&program, &choice.layout, longest, choice.options)? {
                let added = self.feeder.add(&program);
                self.check_rows(&name, added, longest)?;
                return Ok(executor.add_phases(&program, &layout));
            }
        }
        self.padded += 1;
        Ok(longest)
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
