//! One step of a plan as a map: time from left to right, addresses from bottom to top, every buffer a rectangle.

use crate::Device;
use plimsoll_core::graph::{Component, Space};
use plimsoll_core::plan::{Layout, Owner, Program, live_by_tick};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::choose::{self, Planned};
use plimsoll_train::RunError;
use plimsoll_train::run::StoredPlan;
use plimsoll_train::tasks::{beside_the_run, look_at_data};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::path::Path;

/// More columns than this are not seen anyway; of neighbours the fullest is kept.
const MOST_COLUMNS: usize = 480;
/// The buffers that fill most of the map; those beyond are smaller than a pixel.
const MOST_BUFFERS: usize = 3000;

/// What is where in the arena, and when.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Timeline {
    /// The one allocation.
    pub arena_bytes: u64,
    /// What may be taken of the device, all in all.
    pub budget_bytes: u64,
    /// What the device's own runtime takes beside the arena.
    pub reserve_bytes: u64,
    /// Names of the components, in the order of the columns' numbers.
    pub components: Vec<&'static str>,
    /// The phases of one step, in their order.
    pub phases: Vec<PhaseMap>,
    /// What stays over all phases: weights, moments, accumulators.
    pub residents: Vec<BufferMap>,
    /// Buffers that are too small to be listed.
    pub unlisted: usize,
}

/// A phase of the step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PhaseMap {
    /// As the plan calls it.
    pub name: String,
    /// How often it runs in a step.
    pub repeat: usize,
    /// Nodes in it.
    pub ticks: usize,
    /// Live bytes of each component; column c stands for the ticks from c · ticks / columns on.
    pub columns: Vec<[usize; 7]>,
    /// What lives in it alone.
    pub buffers: Vec<BufferMap>,
}

/// A stretch of the arena with a lifetime.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BufferMap {
    /// The value's name, which begins with its layer's.
    pub name: String,
    /// As in `components`.
    pub component: &'static str,
    /// From the start of the arena.
    pub offset: usize,
    /// Its size.
    pub bytes: usize,
    /// The first tick at which it is alive.
    pub first: usize,
    /// The last one.
    pub last: usize,
}

impl Timeline {
    /// The map of the plan for a recipe; of the smallest plan where none fits.
    ///
    /// # Errors
    /// The recipe cannot be planned at all.
    pub fn of_recipe(recipe: &Recipe, device: &Device) -> Result<Timeline, PlanFailure> {
        let device = beside_the_run(device, look_at_data(recipe).known());
        match choose::plan(recipe, &device) {
            Ok(planned) => Ok(Timeline::of(&planned)),
            Err(PlanFailure::DoesNotFit(smallest)) => Ok(Timeline::of(&smallest)),
            Err(error) => Err(error),
        }
    }

    /// The map of the plan that a run was started with.
    ///
    /// # Errors
    /// The folder holds no plan, or one of another version.
    pub fn of_run(folder: &Path) -> Result<Timeline, RunError> {
        let recipe = Recipe::load(&folder.join("recipe.toml"), &[])?;
        let path = folder.join("plan.json");
        let stored = StoredPlan::read(&path)?;
        // A GPU's name follows its number: `cuda:0 NVIDIA H200`.
        let name = stored.device.split(' ').next().unwrap_or("cpu");
        let device = Device::from_name(name).or_else(|_| Device::from_name("h200"));
        let device = device.map_err(|error| RunError::Refused { cause: error.to_string(), hint: String::new() })?;
        Ok(Timeline::of(&stored.restore(&recipe, &device.to_plan_for(), &path)?))
    }

    fn of(planned: &Planned) -> Timeline {
        let (program, layout) = (&planned.choice.program, &planned.choice.layout);
        let drawn: Vec<usize> = (0..program.phases.len())
            .filter(|&phase| program.phases[phase].repeat > 0 && !layout.phases[phase].order.is_empty())
            .collect();
        let least = smallest_listed(program, layout, &drawn);
        let phases: Vec<PhaseMap> = drawn.iter().map(|&phase| phase_map(program, layout, phase, least)).collect();
        let ticks = phases.iter().map(|phase| phase.ticks).max().unwrap_or(1);
        let residents = residents(program, layout, least, ticks - 1);
        let all = program.residents.len() + drawn.iter().map(|&p| layout.phases[p].buffers.len()).sum::<usize>();
        let listed = residents.len() + phases.iter().map(|phase| phase.buffers.len()).sum::<usize>();
        Timeline {
            arena_bytes: layout.arena_bytes as u64,
            budget_bytes: planned.budget_bytes,
            reserve_bytes: planned.reserve_bytes,
            components: Component::ALL.iter().map(|component| component.name()).collect(),
            phases,
            residents,
            unlisted: all - listed,
        }
    }
}

/// The size from which on buffers are listed, so that there are not too many.
fn smallest_listed(program: &Program, layout: &Layout, drawn: &[usize]) -> usize {
    let temporaries = drawn.iter().flat_map(|&phase| layout.phases[phase].buffers.iter().map(|b| b.slot.bytes));
    let residents = program.residents.iter().zip(&layout.residents).map(|(_, slot)| slot.bytes);
    let mut sizes: Vec<usize> = temporaries.chain(residents).collect();
    sizes.sort_unstable_by_key(|&bytes| Reverse(bytes));
    sizes.get(MOST_BUFFERS).map_or(0, |bytes| bytes + 1)
}

fn residents(program: &Program, layout: &Layout, least: usize, last: usize) -> Vec<BufferMap> {
    let here = program.residents.iter().zip(&layout.residents).filter(|(r, _)| r.space == Space::Device);
    let listed = here.filter(|(_, slot)| slot.bytes >= least);
    let map = |(resident, slot): (&plimsoll_core::plan::Resident, &plimsoll_core::plan::Slot)| BufferMap {
        name: resident.name.clone(),
        component: resident.component.name(),
        offset: slot.offset,
        bytes: slot.bytes,
        first: 0,
        last,
    };
    listed.map(map).collect()
}

fn phase_map(program: &Program, layout: &Layout, phase: usize, least: usize) -> PhaseMap {
    let (definition, plan) = (&program.phases[phase], &layout.phases[phase]);
    let name = |owner: Owner| match owner {
        Owner::Value(id) => definition.graph.value(id).name.to_string(),
        Owner::Workspace(id) => format!("{} (workspace)", definition.graph.node(id).name),
    };
    let listed = plan.buffers.iter().filter(|b| b.space == Space::Device && b.slot.bytes >= least);
    let buffers = listed.map(|b| BufferMap {
        name: name(b.owner),
        component: b.component.name(),
        offset: b.slot.offset,
        bytes: b.slot.bytes,
        first: b.first,
        last: b.last,
    });
    PhaseMap {
        name: definition.name.clone(),
        repeat: definition.repeat,
        ticks: plan.order.len(),
        columns: columns(&live_by_tick(program, layout, phase)),
        buffers: buffers.collect(),
    }
}

/// Of the ticks that share a column the fullest.
fn columns(rows: &[[usize; 7]]) -> Vec<[usize; 7]> {
    let count = rows.len().min(MOST_COLUMNS);
    let fullest = |column: usize| {
        let ticks = &rows[column * rows.len() / count..(column + 1) * rows.len() / count];
        ticks.iter().max_by_key(|row| row.iter().sum::<usize>()).copied().unwrap_or_default()
    };
    (0..count).map(fullest).collect()
}
