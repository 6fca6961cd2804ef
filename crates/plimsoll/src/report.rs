//! A plan as data: what `plimsoll plan --json` prints, and every page, search or script reads.

use crate::Device;
use plimsoll_base::names::Named;
use plimsoll_core::plan::{LiveBuffer, Peak, Summary};
use plimsoll_models::families::AttentionForm;
use plimsoll_models::recipe::{OptimizerState, Recipe};
use plimsoll_planner::PlanFailure;
use plimsoll_planner::choose::{self, Decision, Planned, precision};
use plimsoll_planner::whatif::{FrontierPoint, Ladder, Margins, Neighbour, Rung};
use plimsoll_train::tasks::{ExpectedData, Look, beside_the_run, host_peak_bytes, look_at_data};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Live buffers at the peak that are listed.
const BUFFERS: usize = 10;

/// The version of [`PlanReport`]: raised when a field changes its meaning or goes away, not when one is added.
pub const SCHEMA: u32 = 1;

/// Everything about one plan. Byte quantities end in `_bytes`.
///
/// ```
/// use plimsoll::{Device, Recipe, plan};
/// # use std::path::Path;
/// # let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
///
/// let report = plan(&Recipe::load(&recipes.join("hybrid.toml"), &[])?, &Device::from_name("t4")?)?;
/// let (largest, bytes) = report.breakdown.iter().max_by_key(|(_, bytes)| **bytes).expect("something is alive");
/// println!("most is {largest}: {bytes} bytes in {} at tick {}", report.peak.phase, report.peak.tick);
/// assert!(report.decisions.iter().any(|decision| decision.lever == "micro_batch"));
///
/// let json = serde_json::to_value(&report)?; // as `plimsoll plan --json` prints it
/// assert_eq!(json["schema"], plimsoll::SCHEMA);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanReport {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// Whether the plan is inside the budget.
    pub fits: bool,
    /// Whom it is for.
    pub device: String,
    /// What may be taken of the device, all in all.
    pub budget_bytes: u64,
    /// What is taken beside the arena: by the runtime of a card, or by the program and its data on a CPU.
    pub reserve_bytes: u64,
    /// The one allocation.
    pub arena_bytes: u64,
    /// The most that is alive at one time; the arena is that and the gaps between buffers.
    pub live_peak_bytes: u64,
    /// Budget less reserve and arena; negative where it does not fit.
    pub headroom_bytes: i64,
    /// Host memory beside the arena: samples, batches ahead, loading, what is offloaded. On a CPU it is part of the
    /// budget, and the same as `reserve_bytes` but for what is offloaded. Without the samples where `data_bytes` is null.
    pub host_peak_bytes: u64,
    /// Of it, samples; null where the data was not read.
    pub data_bytes: Option<u64>,
    /// Why the data cannot be used, where it was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_problem: Option<String>,
    /// Numbers that are trained, or frozen.
    pub parameters: usize,
    /// Samples to an update: what learning sees.
    pub effective_batch: usize,
    /// Samples that are in memory at one time.
    pub micro_batch: usize,
    /// Micro-batches to an update.
    pub accumulation: usize,
    /// As `memory.precision` in a recipe.
    pub precision: &'static str,
    /// Whether scores are stored.
    pub attention: AttentionForm,
    /// What is computed again instead of kept, as `memory.recompute` in a recipe.
    pub recompute: &'static str,
    /// As `memory.optimizer_state` in a recipe.
    pub optimizer_state: &'static str,
    /// What waits in host memory, as `memory.offload` in a recipe.
    pub offload: &'static str,
    /// Milliseconds of an update, by the profile of the device.
    pub predicted_step_ms: f64,
    /// Unknown where the data was not read.
    pub steps_per_epoch: Option<usize>,
    /// Bytes at the peak by what they are for; they sum to `live_peak_bytes`.
    pub breakdown: BTreeMap<&'static str, usize>,
    /// When the most is alive.
    pub peak: Peak,
    /// What was chosen, and why.
    pub decisions: Vec<Decision>,
    /// Bytes at the peak by layer.
    pub layers: BTreeMap<String, usize>,
    /// Bytes at the peak by the parts that layers are made of, over all layers.
    pub modules: BTreeMap<String, usize>,
    /// The largest buffers at the peak.
    pub live: Vec<LiveBuffer>,
    /// The budget that is enough for the smallest plan, where the recipe does not fit: what the hint names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest_budget_bytes: Option<u64>,
    /// What to do about it, where it does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Vec<String>>,
    /// What could be given up where nothing fits; hints are those that are enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Vec<Rung>>,
    /// The fastest step for each budget, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontier: Option<Vec<FrontierPoint>>,
    /// What one other setting would cost, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<Vec<Neighbour>>,
    /// What more memory or another card would change, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margins: Option<Margins>,
    /// Updates of the whole run, where known.
    #[serde(skip)]
    pub steps: Option<usize>,
}

/// The fastest plan inside the recipe's budget, and what it needs.
///
/// ```
/// use plimsoll::{Device, Recipe, plan};
/// use std::path::Path;
///
/// # let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
/// let recipe = Recipe::load(&recipes.join("encoder.toml"), &[])?;
/// let report = plan(&recipe, &Device::from_name("rtx-4090")?)?;
/// assert!(report.fits && report.arena_bytes + report.reserve_bytes <= report.budget_bytes);
/// assert_eq!(report.breakdown.values().sum::<usize>() as u64, report.live_peak_bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PlanFailure::DoesNotFit`] carries the smallest plan there is.
pub fn plan(recipe: &Recipe, device: &Device) -> Result<PlanReport, PlanFailure> {
    let device = beside_the_run(device, look_at_data(recipe).known());
    choose::plan(recipe, &device).map(|planned| PlanReport::of(recipe, &planned))
}

impl PlanReport {
    /// About a plan that fits.
    #[doc(hidden)] // Plans themselves are how this is built.
    pub fn of(recipe: &Recipe, planned: &Planned) -> PlanReport {
        PlanReport::about(recipe, planned, &look_at_data(recipe))
    }

    /// The same, where the data is there already.
    #[doc(hidden)]
    pub fn with_data(recipe: &Recipe, planned: &Planned, data: ExpectedData) -> PlanReport {
        PlanReport::about(recipe, planned, &Look::Known(data))
    }

    /// About the smallest plan there is, where even that does not fit.
    #[doc(hidden)]
    pub fn of_smallest(recipe: &Recipe, smallest: &Planned, hints: &[String], ladder: Ladder) -> PlanReport {
        PlanReport {
            fits: false,
            smallest_budget_bytes: Some(smallest.enough_bytes()),
            hints: Some(hints.to_vec()),
            ladder: Some(ladder.rungs),
            ..PlanReport::of(recipe, smallest)
        }
    }

    /// The same plan for a recipe that differs from the one it was made for in its epochs, at most, and in numbers that
    /// an update only multiplies by.
    pub fn over_epochs_of(self, recipe: &Recipe) -> PlanReport {
        // As many samples as make epochs of this length.
        let samples = |per_epoch: usize| per_epoch.saturating_mul(recipe.train.effective_batch);
        let data = self.steps_per_epoch.map(|steps| ExpectedData { train_samples: samples(steps), resident_bytes: 0 });
        PlanReport { steps: data.map(|data| data.steps(&recipe.train).run), ..self }
    }

    /// The JSON schema of a report.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(PlanReport).into()
    }

    fn about(recipe: &Recipe, planned: &Planned, look: &Look) -> PlanReport {
        let choice = &planned.choice;
        let summary = Summary::of(&choice.program, &choice.layout);
        let data = look.known();
        let steps = data.map(|d| d.steps(&recipe.train));
        PlanReport {
            schema: SCHEMA,
            fits: true,
            device: planned.device.name.clone(),
            budget_bytes: planned.budget_bytes,
            reserve_bytes: planned.reserve_bytes,
            arena_bytes: choice.layout.arena_bytes as u64,
            live_peak_bytes: choice.layout.live_peak_bytes as u64,
            headroom_bytes: planned.headroom_bytes,
            host_peak_bytes: host_peak_bytes(recipe, planned, data.map_or(0, |d| d.resident_bytes)),
            data_bytes: data.map(|d| d.resident_bytes as u64),
            data_problem: look.problem(),
            parameters: choice.program.parameters(),
            effective_batch: recipe.train.effective_batch,
            micro_batch: choice.settings.micro_batch,
            accumulation: choice.settings.accumulation,
            precision: precision(recipe, &planned.device).name(),
            attention: choice.settings.attention,
            recompute: choice.settings.recompute.name(),
            optimizer_state: recipe.memory.optimizer_state.pinned().unwrap_or(OptimizerState::F32).name(),
            offload: choice.settings.offload.name(),
            predicted_step_ms: choice.predicted_step_ms,
            steps_per_epoch: steps.map(|s| s.per_epoch),
            breakdown: summary.breakdown.clone(),
            peak: summary.peak.clone(),
            decisions: choice.decisions.clone(),
            layers: summary.layers.clone(),
            modules: summary.modules().into_iter().map(|(name, module)| (name, module.bytes)).collect(),
            live: summary.live.iter().take(BUFFERS).cloned().collect(),
            smallest_budget_bytes: None,
            hints: None,
            ladder: None,
            frontier: None,
            neighbours: None,
            margins: None,
            steps: steps.map(|s| s.run),
        }
    }
}
