//! A run's folder: the resolved recipe, the plan, the events, the checkpoints, the model.

#![deny(missing_docs)]

use super::run_folder::RunFolder;
use crate::LoadedData;
use crate::RunError;
use crate::arena::take_arena_with;
use crate::checkpoints::{self, Fingerprint};
use crate::tasks::{ExpectedData, beside_the_run, counts_process, host_peak_bytes, load_data, task};
use crate::weights::{Companions, check_folder, is_exported, write_folder};
use plimsoll_base::files::{open_to_read, write_inside};
use plimsoll_base::folders::check_replaceable;
use plimsoll_base::units::format_bytes;
use plimsoll_core::graph::Backend;
use plimsoll_core::plan::predicted_ms;
use plimsoll_core::plan::{PlanFile, Program, Summary};
use plimsoll_cuda::GpuFacts;
use plimsoll_cuda::opened_bytes;
use plimsoll_exec::Algorithms;
use plimsoll_exec::Executor;
use plimsoll_exec::host::OwnMemory;
use plimsoll_models::hf::HfError;
use plimsoll_models::recipe::{Budget, Memory, Recipe, ScheduleShape, Source, Train};
use plimsoll_planner::choose::{self as setup, Planned};
use plimsoll_planner::choose::{Choice, Decision, PAGES_THAT_DIFFER};
use plimsoll_planner::program::{Settings, program};
use plimsoll_planner::{Device, PlanFailure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The format of plan.json.
const PLAN_VERSION: u32 = 1;

/// Where a run is kept, and how it begins.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Its folder: a new or an empty one, or that of the run to go on with.
    pub out: PathBuf,
    /// Go on from the last checkpoint in it.
    pub resume: bool,
    /// Use this plan.json instead of choosing one.
    pub plan: Option<PathBuf>,
    /// Stop before so many updates are exceeded; the run can go on later as if it had not stopped.
    pub stop_at: Option<usize>,
}

/// plan.json: the decisions and the layout of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredPlan {
    /// Of this format.
    pub version: u32,
    /// Of the recipe that it is a plan for.
    pub recipe_hash: String,
    /// Whom it was made for.
    pub device: String,
    /// Where every lever stands.
    pub settings: Settings,
    /// Samples to an evaluation; absent where the recipe's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluate_batch: Option<usize>,
    /// Why they stand there.
    pub decisions: Vec<Decision>,
    /// What is alive at the peak, in bytes by component: for who reads plans and builds no graphs. Absent in plans of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub breakdown: BTreeMap<String, usize>,
    /// Every buffer with its place.
    pub layout: PlanFile,
    /// The library's algorithms behind the products, which the bits depend on too. Absent on a CPU.
    #[serde(default, skip_serializing_if = "is_without_products")]
    pub products: Algorithms,
}

fn is_without_products(products: &Algorithms) -> bool {
    products.algorithms.is_empty()
}

impl StoredPlan {
    /// Of a run that is about to begin.
    pub fn new(recipe_hash: String, planned: &Planned, products: &Algorithms) -> StoredPlan {
        let Choice { settings, program, layout, options, decisions, .. } = &planned.choice;
        StoredPlan {
            version: PLAN_VERSION,
            recipe_hash,
            device: planned.device.name.clone(),
            settings: settings.clone(),
            evaluate_batch: planned.spec.evaluate_batch,
            decisions: decisions.clone(),
            breakdown: Summary::of(program, layout).breakdown.into_iter().map(|(name, b)| (name.into(), b)).collect(),
            layout: PlanFile::new(program, layout, *options),
            products: products.clone(),
        }
    }

    /// From a file that may be anything.
    pub fn read(path: &Path) -> Result<StoredPlan, RunError> {
        let mut text = Vec::new();
        open_to_read(path).and_then(|mut file| file.read_to_end(&mut text)).map_err(RunError::io(path))?;
        let damaged = |cause: String| RunError::Refused {
            cause: format!("{}: not a plan: {cause}", path.display()),
            hint:
                "plans are written by `plimsoll train` into the run's folder; make a new one by training without --plan"
                    .into(),
        };
        let plan: StoredPlan = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        match plan.version {
            PLAN_VERSION => Ok(plan),
            other => Err(damaged(format!("version {other}, this program reads {PLAN_VERSION}"))),
        }
    }

    /// Builds the graphs again and puts the stored layout under them, after checking that they belong together.
    pub fn restore(&self, recipe: &Recipe, device: &Device, path: &Path) -> Result<Planned, RunError> {
        let (family, mut spec) = (setup::family(&recipe.model), setup::spec(recipe, device));
        // More than the recipe's own is no plan of ours, whatever it is.
        let lowered =
            self.evaluate_batch.filter(|batch| spec.evaluate_batch.is_some_and(|usual| (1..usual).contains(batch)));
        spec.evaluate_batch = lowered.or(spec.evaluate_batch);
        let refused = |cause: &str| RunError::Refused {
            cause: format!("{}: {cause}", path.display()),
            hint: "use the plan with the recipe it was made for".into(),
        };
        if ![recipe.hash()?, recipe.identity()?].contains(&self.recipe_hash) {
            return Err(refused("the plan was made for another recipe"));
        }
        let product = self.settings.micro_batch.checked_mul(self.settings.accumulation);
        let sound = self.settings.accumulation > 0
            && (1..=spec.effective_batch).contains(&self.settings.micro_batch)
            && product
                .is_some_and(|n| n >= spec.effective_batch && n < spec.effective_batch + self.settings.micro_batch)
            && self.settings.block_group > 0
            && self.settings.loss_chunk > 0
            && (1..=MOST_THREADS).contains(&self.layout.threads);
        if !sound {
            return Err(refused("its settings do not make up the effective batch"));
        }
        let program = program(family.as_ref(), &spec, &self.settings)?;
        let layout = self.layout.layout(&program).map_err(|cause| RunError::PlanFile { path: path.into(), cause })?;
        let predicted_step_ms = predicted_ms(&program, &setup::profile(recipe, device));
        let options = self.layout.options();
        let (settings, decisions) = (self.settings.clone(), self.decisions.clone());
        let evaluate_batch = spec.evaluate_batch;
        let choice = Choice { settings, program, layout, options, decisions, predicted_step_ms, evaluate_batch };
        let own = device.reserve_of(recipe, &choice.program, &choice.layout);
        let reserve_bytes = device.reserve_for(recipe).saturating_add(own);
        let peak = reserve_bytes + choice.layout.arena_bytes as u64;
        let budget_bytes = setup::budget_for(peak, recipe, device);
        Ok(Planned {
            headroom_bytes: budget_bytes as i64 - peak as i64,
            spec,
            choice,
            device: device.clone(),
            budget_bytes,
            reserve_bytes,
        })
    }
}

/// How often an arena that others were faster to is planned anew.
pub(crate) const TRIES: usize = 3;

/// By how much an estimated reserve may make a stored plan miss its budget: a third of what the estimate has for what is
/// not loaded yet, so that it mostly fits after all. Whether it does is measured, then.
const RESERVE_SLACK: u64 = 32 << 20;

/// A plan asking for more threads than any machine has is damaged.
const MOST_THREADS: usize = 4096;

/// Everything ready: the plan is made, the data is loaded, the arena is not taken yet.
pub struct Run {
    /// What is trained.
    pub recipe: Recipe,
    /// The folder of the run.
    pub out: PathBuf,
    /// Its plan.
    pub planned: Planned,
    /// Those of the stored plan.
    products: Algorithms,
    /// What it learns from.
    pub data: LoadedData,
    pub(super) fingerprint: Fingerprint,
    /// The checkpoint to go on from.
    pub from: Option<PathBuf>,
    /// Whether the folder held a run.
    pub resumed: bool,
    /// Where to stop for now, counted in updates from the start of the run.
    pub stop_at: Option<usize>,
    /// What the resumed run does otherwise than before, in words.
    pub changes: Vec<String>,
    /// The stored plan did not fit this device any more and another was made: bits differ from here on.
    pub replanned: bool,
    /// Nobody else trains in it.
    folder: RunFolder,
}

impl Run {
    /// Takes the folder, plans (or reads the stored plan of a run to resume) and loads the data. Where that fails, the
    /// folder is as it was.
    pub fn open(recipe: Recipe, device: &Device, options: &RunOptions) -> Result<Run, RunError> {
        let folder = RunFolder::claim(&options.out, options.resume)?;
        let mut run = Run::open_in(folder, recipe, device, options.plan.as_deref())?;
        run.stop_at = options.stop_at;
        Ok(run)
    }

    /// The same in a folder that this process holds already. `plan`: use this plan.json instead of choosing one.
    pub fn open_in(folder: RunFolder, recipe: Recipe, device: &Device, plan: Option<&Path>) -> Result<Run, RunError> {
        let (out, resumed) = (folder.path().to_path_buf(), folder.holds_run());
        let changes = if resumed { changes_since(&recipe, &out)? } else { Vec::new() };
        // It is written at the end; that it cannot be is said at the start.
        check_replaceable(&out.join("model"), &is_exported).map_err(HfError::from)?;
        let device = &with_what_is_ours(device);
        let from = if resumed { last_checkpoint(&folder) } else { None };
        from.as_ref().map_or_else(|| check_folder(&recipe, device), |_| Ok(()))?;
        let data = load_data(&within_host(&recipe, device))?;
        let counted = &beside_the_run(device, Some(ExpectedData::of(&data, &recipe)));
        let there = what_is_there(counted, decoding_bytes(&data, &recipe));
        let device = &beside(counted, there);
        let stored = out.join("plan.json");
        let (mut planned, products, replanned) = match plan {
            Some(path) => {
                let plan = StoredPlan::read(path)?;
                let planned = plan.restore(&recipe, device, path)?;
                if !fits_its_budget(&planned) {
                    return Err(PlanFailure::DoesNotFit(Box::new(planned)).into());
                }
                (planned, plan.products, false)
            }
            None if resumed && stored.exists() => resume_plan(&recipe, device, &stored)?,
            None => {
                let planned = first_plan(counted, there, |device| setup::plan(&recipe, device))?;
                (planned, Algorithms::default(), false)
            }
        };
        count_loading(&mut planned)?;
        let fingerprint = Fingerprint::of(&recipe, &data)?;
        from.as_deref().map_or(Ok(()), |from| check_same_data(from, &fingerprint, &out))?;
        let stop_at = None;
        Ok(Run {
            recipe,
            out,
            planned,
            products,
            data,
            fingerprint,
            from,
            resumed,
            stop_at,
            changes,
            replanned,
            folder,
        })
    }

    /// Takes over the library's algorithms of another run's plan, which the bits depend on; a run that has its own keeps
    /// them.
    pub fn take_over_products(&mut self, plan: &Path) -> Result<(), RunError> {
        if is_without_products(&self.products) {
            self.products = StoredPlan::read(plan)?.products;
        }
        Ok(())
    }

    /// The phases of its steps.
    pub fn program(&self) -> &Program {
        &self.planned.choice.program
    }

    /// The folder of its checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.out.join("checkpoints")
    }

    /// Updates of an epoch.
    pub(crate) fn steps_per_epoch(&self) -> usize {
        self.data.train.len().div_ceil(self.recipe.train.effective_batch).max(1)
    }

    /// Updates of the whole run.
    pub fn steps(&self) -> usize {
        let by_epochs = self.recipe.train.epochs.saturating_mul(self.steps_per_epoch());
        self.recipe.train.steps.map_or(by_epochs, |steps| steps.min(by_epochs))
    }

    /// As [`host_peak_bytes`] says, with the data that was loaded.
    pub fn host_peak_bytes(&self) -> u64 {
        let data = self.data.train.resident_bytes() + self.data.validation.as_ref().map_or(0, |v| v.resident_bytes());
        host_peak_bytes(&self.recipe, &self.planned, data)
    }

    /// Takes the arena. Where another process got to the device's memory first, what is left is planned for anew; and so
    /// it is where the device's runtime takes more than the budget has room for. The second answer says so. Nothing is run
    /// above its budget.
    pub fn executor(&mut self) -> Result<(Box<dyn Executor>, Option<String>), RunError> {
        let (mut note, mut tries_left) = (None, TRIES);
        loop {
            match take_arena_with(&self.recipe, &self.planned, &self.products, self.planned.reserve_bytes) {
                Err(RunError::Arena { bytes, .. }) if self.is_on_gpu() && tries_left > 0 => {
                    note = Some(self.replan_for_what_is_left(bytes)?);
                }
                taken => {
                    let executor = taken?;
                    let Some(reserve) = executor.reserve_bytes() else { return Ok((executor, note)) };
                    if self.planned.settle_reserve(reserve) {
                        return Ok((executor, note));
                    }
                    drop(executor);
                    if tries_left == 0 {
                        return Err(PlanFailure::DoesNotFit(Box::new(self.planned.clone())).into());
                    }
                    note = Some(self.replan_beside(reserve)?);
                }
            }
            tries_left -= 1;
        }
    }

    /// What the run takes: of the whole process where the plan counts that, otherwise of the arena and its device.
    pub(super) fn measured_bytes(&self, executor: &dyn Executor) -> u64 {
        match counts_process(&self.planned) {
            true => OwnMemory::now().peak_bytes,
            false => executor.measured_bytes(),
        }
    }

    fn is_on_gpu(&self) -> bool {
        self.planned.device.target.backend == Backend::Cuda
    }

    /// Plans for a runtime that takes this much.
    fn replan_beside(&mut self, reserve_bytes: u64) -> Result<String, RunError> {
        let device = Device { reserve_bytes, ..self.planned.device.clone() };
        let recipe = within(&self.recipe, self.planned.budget_bytes);
        self.planned = setup::plan(&recipe, &device)?;
        self.replanned = true;
        let (reserve, budget) = (format_bytes(reserve_bytes), format_bytes(self.planned.budget_bytes));
        Ok(format!("the device's runtime takes {reserve} beside the arena: planned anew within {budget}"))
    }

    /// Plans within what the device has free now; what happened and who holds the rest.
    fn replan_for_what_is_left(&mut self, wanted: u64) -> Result<String, RunError> {
        let facts = GpuFacts::gather(self.planned.device.ordinal)?;
        // What opening the device took is ours already.
        let free_bytes = facts.free_bytes + opened_bytes(facts.ordinal);
        let device = Device { free_bytes, ..self.planned.device.clone() };
        let left = setup::budget_bytes(&self.recipe, &device).min((free_bytes as f64 * 0.95) as u64);
        let recipe = within(&self.recipe, left);
        self.planned = setup::plan(&recipe, &device)?;
        self.replanned = true;
        let holders: Vec<String> = facts.holders.iter().map(|h| format!("{} (pid {})", h.name, h.pid)).collect();
        let who = if holders.is_empty() { "another process".into() } else { holders.join(", ") };
        Ok(format!(
            "the arena of {} could not be taken: {who} holds memory of the device, {} is free; planned anew within {}",
            format_bytes(wanted),
            format_bytes(facts.free_bytes),
            format_bytes(left)
        ))
    }

    /// Creates the folder with recipe, plan and what is remembered of the data; a resumed run keeps its own unless it had to be planned anew.
    pub(crate) fn write_start(&self) -> Result<(), RunError> {
        let checkpoints = self.checkpoints();
        self.folder.sweep();
        fs::create_dir_all(&checkpoints).map_err(RunError::io(&checkpoints))?;
        self.fingerprint.write(&self.out)?;
        let keeps_plan = self.resumed && !self.replanned && self.out.join("plan.json").exists();
        if keeps_plan && self.changes.is_empty() {
            return Ok(());
        }
        if !keeps_plan {
            self.write_plan(&self.products)?;
        }
        // The recipe comes last: a folder with a recipe is a run that can be resumed.
        self.write_recipe()
    }

    /// With its folder spelled out, so that the run can be used from anywhere.
    fn write_recipe(&self) -> Result<(), RunError> {
        let path = self.out.join("recipe.toml");
        let recipe = Recipe { dir: absolute_folder(&self.recipe), ..self.recipe.clone() };
        write_inside(&path, recipe.to_toml()?.as_bytes()).map_err(RunError::io(path))
    }

    /// Writes plan.json with these products.
    pub(super) fn write_plan(&self, products: &Algorithms) -> Result<(), RunError> {
        let plan = StoredPlan::new(self.recipe.identity()?, &self.planned, products);
        let plan = serde_json::to_vec(&plan).map_err(|e| RunError::Io { path: self.out.clone(), cause: e.into() })?;
        let path = self.out.join("plan.json");
        write_inside(&path, &plan).map_err(RunError::io(path))
    }

    /// The folder `model/`.
    pub(crate) fn write_model(&self, executor: &dyn Executor) -> Result<(), RunError> {
        let task = task(&self.recipe);
        let companions = Companions::of_run(&self.recipe, &self.data.extras, task.tokenizer());
        write_folder(&self.out.join("model"), &self.recipe, self.program(), executor, &companions)
    }
}

/// The device with what this process holds already, which was not free when it was asked, and which its plan has room for.
pub(crate) fn with_what_is_ours(device: &Device) -> Device {
    let ours = if shares_memory(device) { OwnMemory::now().heap_bytes.min(device.reserve_bytes) } else { 0 };
    let free_bytes = device.free_bytes.saturating_add(ours).min(device.total_bytes.max(device.free_bytes));
    Device { free_bytes, ..device.clone() }
}

/// Whether program, data and arena are in the same memory, and counted.
pub(crate) fn shares_memory(device: &Device) -> bool {
    device.target.backend == Backend::Cpu && device.reserve_bytes > 0
}

/// The recipe as its data is loaded by it: on a CPU samples share the budget, beside a GPU they have the host's memory.
pub(crate) fn within_host(recipe: &Recipe, device: &Device) -> Recipe {
    let most = setup::budget_for(device.free_bytes, recipe, device);
    match shares_memory(device) {
        true => within(recipe, most.saturating_sub(device.reserve_for(recipe))),
        false => Recipe { memory: Memory { budget: Budget::Auto, ..recipe.memory.clone() }, ..recipe.clone() },
    }
}

/// What this process takes already, and what is not started yet will, in whole MiB; nothing where it is not counted.
/// `decoding_bytes`: what filling batches will take.
pub(crate) fn what_is_there(counted: &Device, decoding_bytes: u64) -> u64 {
    match shares_memory(counted) {
        true => (OwnMemory::trimmed().resident_bytes + decoding_bytes + STARTING_BYTES).next_multiple_of(1 << 20),
        false => 0,
    }
}

/// The device with room for what is there, where that is more than was counted for the program and its data (the tables of
/// a large tokenizer).
fn beside(counted: &Device, there: u64) -> Device {
    Device { reserve_bytes: counted.reserve_bytes.max(there), ..counted.clone() }
}

/// What threads that fill batches take of their own.
pub(crate) fn decoding_bytes(data: &LoadedData, recipe: &Recipe) -> u64 {
    let loaded = data.train.resident_bytes() + data.validation.as_ref().map_or(0, |v| v.resident_bytes());
    ExpectedData::of(data, recipe).resident_bytes.saturating_sub(loaded) as u64
}

/// Plans by what is counted, which is a constant, so that the same command plans the same every time; only where that leaves
/// no room for what is there, by that. What does not fit is told by all that there is: so much is enough, then. And what is
/// planned is enough the next time, too, where the budget has the pages by which starts differ.
pub(crate) fn first_plan(
    counted: &Device,
    there: u64,
    plan: impl Fn(&Device) -> Result<Planned, PlanFailure>,
) -> Result<Planned, PlanFailure> {
    let next_time = there + if there > 0 { PAGES_THAT_DIFFER } else { 0 };
    match plan(counted) {
        Ok(mut planned) => {
            let with = |taken: u64| planned.reserve_bytes + taken.saturating_sub(counted.reserve_bytes);
            if [with(next_time), with(there)].into_iter().any(|reserve| planned.settle_reserve(reserve)) {
                return Ok(planned);
            }
        }
        Err(failure) if next_time <= counted.reserve_bytes => return Err(with_loading(failure)),
        Err(PlanFailure::DoesNotFit(_)) => {}
        Err(other) => return Err(other),
    }
    let planned = match plan(&beside(counted, next_time)) {
        Err(PlanFailure::DoesNotFit(_)) => plan(&beside(counted, there)),
        planned => planned,
    };
    planned.map_err(with_loading)
}

/// What is too large is that and what reading took at its peak.
fn with_loading(failure: PlanFailure) -> PlanFailure {
    match failure {
        PlanFailure::DoesNotFit(mut smallest) if counts_process(&smallest) => {
            smallest.settle_reserve(smallest.reserve_bytes.max(loading_bytes(&smallest)));
            PlanFailure::DoesNotFit(smallest)
        }
        other => other,
    }
}

/// What a run still takes when its data is there: graphs of its lengths, threads, buffers of files.
const STARTING_BYTES: u64 = 10 << 20;

/// Where reading the data took more than was counted with, that is what the process takes; it must be in the budget too.
/// What planning took and left behind does not stay beside the training.
pub(crate) fn count_loading(planned: &mut Planned) -> Result<(), RunError> {
    if !counts_process(planned) {
        return Ok(());
    }
    let (reserve, loaded) = (planned.reserve_bytes, loading_bytes(planned));
    let sizes = [loaded + PAGES_THAT_DIFFER, loaded].map(|loaded| reserve.max(loaded));
    match sizes.into_iter().any(|reserve| planned.settle_reserve(reserve)) {
        true => Ok(()),
        false => Err(PlanFailure::DoesNotFit(Box::new(planned.clone())).into()),
    }
}

/// What the process took at its peak so far, beside an arena.
fn loading_bytes(planned: &Planned) -> u64 {
    let arena = planned.choice.layout.arena_bytes as u64;
    OwnMemory::trimmed().peak_bytes.saturating_sub(arena)
}

/// The folder that the recipe's paths are found from: its own, or the working directory where its data is there.
fn absolute_folder(recipe: &Recipe) -> PathBuf {
    let here = match &recipe.data.source {
        Source::File { train, .. } => train.is_relative() && recipe.resolve_path(train) == *train,
        Source::Synthetic { .. } => false,
    };
    let folder = if here || recipe.dir.as_os_str().is_empty() { Path::new(".") } else { &recipe.dir };
    // `canonicalize` drops the dot; where it cannot, the path as it is does for as long as nobody moves.
    folder.canonicalize().or_else(|_| std::path::absolute(folder)).unwrap_or_else(|_| recipe.dir.clone())
}

/// The same recipe, within a budget of its own.
fn within(recipe: &Recipe, budget_bytes: u64) -> Recipe {
    let mut recipe = recipe.clone();
    recipe.memory.budget = Budget::Bytes(budget_bytes);
    recipe
}

/// A resumed run uses its stored plan if that is for this kind of device and still fits; otherwise another plan is
/// made, and that is said.
fn resume_plan(recipe: &Recipe, device: &Device, stored: &Path) -> Result<(Planned, Algorithms, bool), RunError> {
    let plan = StoredPlan::read(stored).map_err(|error| of_own_plan(error, stored))?;
    if plan.layout.backend == device.target.backend {
        let planned = plan.restore(recipe, device, stored).map_err(|error| of_own_plan(error, stored))?;
        if fits_its_budget(&planned) {
            return Ok((planned, plan.products, false));
        }
    }
    Ok((setup::plan(recipe, device)?, Algorithms::default(), true))
}

/// What is wrong with a run's own plan, which can be made again.
fn of_own_plan(error: RunError, stored: &Path) -> RunError {
    let cause = match error {
        RunError::Refused { cause, .. } => cause,
        error @ RunError::PlanFile { .. } => error.to_string(),
        other => return other,
    };
    RunError::Refused { cause, hint: format!("remove {}: --resume then plans anew", stored.display()) }
}

/// The newest whole checkpoint of a run that was ended somehow.
fn last_checkpoint(folder: &RunFolder) -> Option<PathBuf> {
    let checkpoints = folder.path().join("checkpoints");
    checkpoints::sweep(&checkpoints);
    checkpoints::list(&checkpoints).pop().map(|(_, path)| path)
}

/// A run goes on with the data that it began with.
fn check_same_data(from: &Path, now: &Fingerprint, out: &Path) -> Result<(), RunError> {
    let then = checkpoints::read_state(from)?.data;
    then.map_or(Ok(()), |then| then.check(now, out, "or train in another folder with --out"))
}

/// What a GPU's runtime takes is an estimate until everything is loaded: a little more of it makes no other plan.
fn fits_its_budget(planned: &Planned) -> bool {
    let is_estimate = planned.device.target.backend == Backend::Cuda;
    let slack = if is_estimate { planned.reserve_bytes.min(RESERVE_SLACK) } else { 0 };
    planned.headroom_bytes >= -(slack as i64)
}

/// What may differ from the recipe that the run was started with, and does; anything else is refused.
fn changes_since(recipe: &Recipe, out: &Path) -> Result<Vec<String>, RunError> {
    let path = out.join("recipe.toml");
    let stored = Recipe::load(&path, &[])?;
    if stored.identity()? != recipe.identity()? {
        return Err(RunError::Refused {
            cause: format!("{} was started with another recipe", out.display()),
            hint: format!(
                "resume with `plimsoll train {} --resume --out {}`; train.epochs, train.steps and --memory may change",
                path.display(),
                out.display()
            ),
        });
    }
    let length = |train: &Train| (train.epochs, train.steps);
    let longer = (length(&stored.train) != length(&recipe.train)).then(|| longer_words(recipe));
    let budget = (stored.memory.budget != recipe.memory.budget)
        .then(|| "another budget than before: where it makes another plan, last bits differ from here on".to_string());
    Ok(longer.into_iter().chain(budget).collect())
}

fn longer_words(recipe: &Recipe) -> String {
    let now = match recipe.train.steps {
        Some(steps) => format!("{steps} steps"),
        None => format!("{} epochs", recipe.train.epochs),
    };
    match recipe.train.schedule.name {
        ScheduleShape::Constant => format!("the run now has {now}"),
        _ => format!("the run now has {now}, and the learning rate from here on is that of a run of this length"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::graph::Target;
    use plimsoll_models::recipe::Precision;

    const SERIES: &str = include_str!("../../../planner/tests/recipes/series.toml");

    /// A driver that takes a piece more today changes no bits of a run: whether its plan fits shows when all is loaded.
    #[test]
    fn an_estimate_that_grows_a_little_makes_no_other_plan() {
        let folder = tempfile::tempdir().unwrap();
        let recipe = Recipe::parse(SERIES, "series.toml", &[]).unwrap();
        let roomy = Device { target: Target::CUDA, reserve_bytes: 600 << 20, ..Device::cpu(2, 8 << 30) };
        let needed = setup::plan(&recipe, &roomy).unwrap().planned_peak_bytes();
        let recipe = within(&recipe, needed);
        let options = RunOptions { out: folder.path().join("run"), resume: true, plan: None, stop_at: None };
        for (more, replanned) in [(0, false), (2 << 20, false), (64 << 20, true)] {
            let device = Device { reserve_bytes: roomy.reserve_bytes + more, ..roomy.clone() };
            match Run::open(recipe.clone(), &device, &options) {
                Ok(mut run) => {
                    assert_eq!(run.replanned, replanned, "{more}");
                    run.write_start().unwrap();
                    // What is then measured decides.
                    assert!(run.planned.settle_reserve(roomy.reserve_bytes) && !run.planned.settle_reserve(601 << 20));
                }
                Err(RunError::Planning(PlanFailure::DoesNotFit(_))) => assert!(replanned, "{more}"),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// What a process has differs by pages from one start to the next; what one start planned is enough for another.
    #[test]
    fn what_was_planned_is_enough_at_another_start() {
        let recipe = Recipe::parse(SERIES, "series.toml", &[]).unwrap();
        let device = Device { reserve_bytes: 32 << 20, ..Device::cpu(2, 8 << 30) };
        let first = |recipe: &Recipe, there: u64| first_plan(&device, there, |device| setup::plan(recipe, device));
        let counted = setup::plan(&recipe, &device).unwrap().planned_peak_bytes();
        for there in [8, 27, 28, 29, 31, 32, 33, 36, 60].map(|there| there << 20) {
            let planned = first(&recipe, there).unwrap().planned_peak_bytes();
            assert_eq!(planned > counted, there + PAGES_THAT_DIFFER > device.reserve_bytes, "{there}");
            for there in [there - (4 << 20), there, there + (1 << 20), there + PAGES_THAT_DIFFER] {
                let again = first(&within(&recipe, planned), there).unwrap();
                assert!(again.planned_peak_bytes() <= planned, "{there}");
            }
        }
    }

    /// A card that failed does not end a run: the CPU goes on with a plan of its own, and a card again after it.
    #[test]
    fn a_run_goes_on_on_another_kind_of_device() {
        let folder = tempfile::tempdir().unwrap();
        let recipe = Recipe::parse(SERIES, "series.toml", &[]).unwrap();
        let cpu = Device::cpu(2, 8 << 30);
        let card = Device { target: Target::CUDA, precision: Precision::Bf16Mixed, ..cpu.clone() };
        let options = RunOptions { out: folder.path().join("run"), resume: true, plan: None, stop_at: None };
        for (device, replanned) in [(&card, false), (&card, false), (&cpu, true), (&cpu, false), (&card, true)] {
            let run = Run::open(recipe.clone(), device, &options).unwrap();
            let backend = run.planned.choice.options.target.backend;
            assert_eq!((backend, run.replanned), (device.target.backend, replanned));
            run.write_start().unwrap();
        }
    }
}
