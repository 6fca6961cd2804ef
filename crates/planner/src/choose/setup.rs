//! From a recipe to what a run needs: the family, what learning sees, what is pinned, the plan.

use super::levers::{offload, switches};
use crate::Device;
use crate::PlanFailure;
use crate::choose::{Choice, ChooseError, Decision, Memo, Memos, Pins, choose};
use crate::program::{StepSpec, UpdateRule};
use plimsoll_base::metric::Metric;
use plimsoll_base::names::Named;
use plimsoll_base::units::{ADDRESSABLE_BYTES, format_bytes};
use plimsoll_core::graph::Backend;
use plimsoll_core::plan::{LayoutOptions, Profile, Summary};
use plimsoll_core::types::DType;
use plimsoll_models::families::{Family, GenerationShape, Input};
use plimsoll_models::recipe::{BatchNormMode, Budget, Every, Model, OptimizerState, Precision, Recipe, Rule};

/// The model family that a recipe asks for.
pub fn family(model: &Model) -> Box<dyn Family> {
    model.boxed()
}

/// Steps of a series, or tokens of the longest text.
pub fn length(recipe: &Recipe) -> usize {
    match recipe.model.family().input() {
        Input::Series { window, .. } => window,
        _ => recipe.data.longest_text(),
    }
}

/// Tokens of the longest text that a decoder writes.
fn target_length(recipe: &Recipe) -> usize {
    recipe.data.longest_target()
}

/// What is written with a cache during the run, from one source at a time. What reads its own text does without one
/// (`samples_text`): it is the longer the longer the window is, and stays in the arena beside the steps.
fn generation(recipe: &Recipe) -> Option<GenerationShape> {
    let decoder = recipe.model.family().decoder().filter(|decoder| !decoder.reads_itself());
    let (Some(_), Some(sample)) = (decoder, &recipe.train.sample) else { return None };
    // An evaluation that is judged by texts writes all of them, several at a time.
    let judged = writes_to_evaluate(recipe);
    let longest = if judged { target_length(recipe).max(sample.length) } else { sample.length };
    let shape = GenerationShape {
        sources: if judged { recipe.train.effective_batch.min(EVALUATED_SOURCES) } else { 1 },
        beams: sample.beams,
        source_length: length(recipe),
        max_new_tokens: longest,
    };
    (longest > 0).then_some(shape)
}

/// Whether evaluations in the midst of training write texts: only where the best model is chosen by them, for keys and
/// values of what is written take memory beside every step.
pub fn writes_to_evaluate(recipe: &Recipe) -> bool {
    recipe.train.evaluate.metric.is_some_and(Metric::needs_writing)
}

/// Sources answered at a time while evaluating.
const EVALUATED_SOURCES: usize = 4;

/// Samples evaluated at a time unless the recipe says: no more than a step sees, and never what sets the peak.
pub fn evaluate_batch(recipe: &Recipe) -> Option<usize> {
    let wanted = recipe.train.evaluate.batch.pinned().unwrap_or(recipe.train.effective_batch.min(AUTO_EVALUATE_BATCH));
    (recipe.train.evaluate.every != Every::Never).then_some(wanted)
}

const AUTO_EVALUATE_BATCH: usize = 32;

/// The precision that the recipe pins, or the device's own.
pub fn precision(recipe: &Recipe, device: &Device) -> Precision {
    recipe.memory.precision.pinned().unwrap_or(device.precision)
}

/// How fast the device is in the precision that the recipe trains in.
pub fn profile(recipe: &Recipe, device: &Device) -> Profile {
    device.profile.clone().with_tf32(precision(recipe, device) == Precision::Tf32)
}

/// The nearest precision to one that the device does not compute in; none if it does.
pub fn instead_of(wanted: Precision, device: &Device) -> Option<Precision> {
    use Precision::*;
    match (device.target.backend, wanted) {
        (_, F32) => None,
        // Of the cards that run, those before sm_80, whose own precision this is, have neither; not even a plan for one
        // could ever be run.
        (Backend::Cuda, Bf16Mixed | Bf16) if device.precision == Fp16Mixed => Some(Fp16Mixed),
        (Backend::Cuda, Tf32) if device.precision == Fp16Mixed => Some(F32),
        (Backend::Cuda, _) => None,
        (Backend::Cpu, _) => device.runs.then_some(F32),
    }
}

/// Element types of activations and of weights.
fn element_types(precision: Precision) -> (DType, DType) {
    match precision {
        Precision::F32 | Precision::Tf32 => (DType::F32, DType::F32),
        Precision::Bf16Mixed => (DType::Bf16, DType::F32),
        Precision::Fp16Mixed => (DType::F16, DType::F32),
        Precision::Bf16 => (DType::Bf16, DType::Bf16),
    }
}

/// What learning sees.
pub fn spec(recipe: &Recipe, device: &Device) -> StepSpec {
    let train = &recipe.train;
    let (float, master) = element_types(precision(recipe, device));
    StepSpec {
        effective_batch: train.effective_batch,
        length: length(recipe),
        target_length: target_length(recipe),
        rule: match train.optimizer.rule {
            Rule::AdamW { betas: [beta1, beta2], eps } => UpdateRule::AdamW { beta1, beta2, eps },
            Rule::Sgd { momentum } => UpdateRule::Sgd { momentum },
            Rule::Adafactor => UpdateRule::Adafactor,
        },
        weight_decay: train.optimizer.weight_decay,
        decay_all: train.optimizer.decay_all,
        clip_norm: train.clip_norm.map(f64::from),
        evaluate_batch: evaluate_batch(recipe),
        samples_text: train.sample.as_ref().is_some_and(|s| s.length > 0),
        generation: generation(recipe),
        float,
        master,
        state: match recipe.memory.optimizer_state.pinned() {
            Some(OptimizerState::Bf16) => DType::Bf16,
            _ => DType::F32,
        },
        lands_inputs: device.target.backend == Backend::Cuda,
    }
}

/// What planning sees of what learning does. Numbers that the update only multiplies by (learning rate, decay, betas)
/// are not in it.
fn seen(recipe: &Recipe, device: &Device) -> StepSpec {
    let spec = spec(recipe, device);
    let rule = match spec.rule {
        UpdateRule::AdamW { .. } => UpdateRule::AdamW { beta1: 0.0, beta2: 0.0, eps: 0.0 },
        UpdateRule::Sgd { momentum } => UpdateRule::Sgd { momentum: if momentum == 0.0 { 0.0 } else { 1.0 } },
        UpdateRule::Adafactor => UpdateRule::Adafactor,
    };
    let clip_norm = spec.clip_norm.map(|_| 1.0);
    StepSpec { rule, clip_norm, weight_decay: 0.0, decay_all: false, ..spec }
}

/// Two recipes with the same key have the same plan.
pub fn planning_key(recipe: &Recipe, device: &Device) -> String {
    let (seen, pins) = (seen(recipe, device), pins(recipe, device).ok());
    let precision = precision(recipe, device);
    format!("{:?} {precision:?} {seen:?} {pins:?} {}", recipe.model, budget_bytes(recipe, device))
}

/// Two recipes of the same kind are built from the same micro-steps, if not the same number of them.
pub(crate) fn kind(recipe: &Recipe, device: &Device) -> String {
    let spec = StepSpec { effective_batch: 0, evaluate_batch: None, ..seen(recipe, device) };
    let pins = pins(recipe, device).ok().map(|pins| Pins { micro_batch: None, ..pins });
    let precision = precision(recipe, device);
    format!("{} {:?} {:?} {precision:?} {spec:?} {pins:?}", device.name, device.target, recipe.model)
}

/// What the recipe fixes. Levers that this version does not have are refused, never ignored.
pub(crate) fn pins(recipe: &Recipe, device: &Device) -> Result<Pins, PlanFailure> {
    let memory = &recipe.memory;
    let refuse = |key: &str, value: String, have: &str| {
        Err(PlanFailure::Refused {
            cause: format!("memory.{key} = \"{value}\" is not available on {} in this version", device.name),
            hint: format!("leave it out or set it to \"{have}\""),
        })
    };
    let pinned = memory.precision.pinned();
    if let Some((wanted, instead)) = pinned.and_then(|wanted| Some((wanted, instead_of(wanted, device)?))) {
        return refuse("precision", wanted.to_string(), instead.name());
    }
    match memory.optimizer_state.pinned() {
        None | Some(OptimizerState::F32) => {}
        Some(OptimizerState::Bf16) if !device.runs || device.target.backend == Backend::Cuda => {}
        Some(other) => return refuse("optimizer_state", other.to_string(), "f32"),
    }
    Ok(Pins {
        micro_batch: memory.micro_batch.pinned(),
        recompute: memory.recompute.pinned(),
        attention: memory.attention.pinned(),
        block_group: memory.block_group.pinned(),
        loss_chunk: memory.loss_chunk.pinned(),
        offload: memory.offload.pinned().map(|level| offload::of_level(level, recipe.model.family())),
        micro_statistics: recipe.model.family().batch_norm() == Some(BatchNormMode::Micro),
        keeps_evaluate_batch: recipe.train.evaluate.batch.pinned().is_some()
            || recipe.model.family().contrast().is_some(),
        no_sharing: !memory.sharing,
        fused_feed_forward: fused_feed_forward(recipe, device),
    })
}

/// Worth it where tensor cores are far ahead of the others, which tf32 tells: these kernels multiply more than plain ones,
/// and write less. Not in f32, which they multiply without.
pub(crate) fn fused_feed_forward(recipe: &Recipe, device: &Device) -> bool {
    let gains = device.target.backend == Backend::Cuda && device.profile.speedups.tf32 > 1.0;
    gains && precision(recipe, device) != Precision::F32
}

/// By how much what a process has differs from one start to the next, at most: of its program's own pages the system maps
/// what lies near those that are used, and where they lie is drawn anew each time (1.6 MiB were seen).
pub const PAGES_THAT_DIFFER: u64 = 4 << 20;

/// A plan for a device, with the budget it was made for.
#[deny(missing_docs)]
#[derive(Clone)]
pub struct Planned {
    /// What the phases were built from. Phases for shorter batches are built from nothing else.
    #[doc(hidden)]
    pub spec: StepSpec,
    /// The phases, their layout and where every lever stands.
    #[doc(hidden)]
    pub choice: Choice,
    /// Whom it is for.
    pub device: Device,
    /// What may be taken of the device, all in all.
    pub budget_bytes: u64,
    /// What is taken beside the arena.
    pub reserve_bytes: u64,
    /// Budget less reserve and arena; negative where it does not fit.
    pub headroom_bytes: i64,
}

impl Planned {
    /// How much it needs, when, and against what; for the smallest plan there is.
    pub fn shortage(&self) -> String {
        let peak = Summary::of(&self.choice.program, &self.choice.layout).peak;
        format!(
            "it does not fit: the smallest plan needs {} at tick {} of {} ({}), the budget is {}",
            format_bytes(self.planned_peak_bytes()),
            peak.tick,
            peak.phase,
            peak.node,
            format_bytes(self.budget_bytes)
        )
    }

    /// Reserve and arena: what a budget is compared with.
    pub fn planned_peak_bytes(&self) -> u64 {
        self.reserve_bytes + self.choice.layout.arena_bytes as u64
    }

    /// The budget that is enough for it. Where the process itself counts, with what it may have more by then.
    pub fn enough_bytes(&self) -> u64 {
        let counts_process = self.device.target.backend == Backend::Cpu && self.device.reserve_bytes > 0;
        self.planned_peak_bytes() + if counts_process { PAGES_THAT_DIFFER } else { 0 }
    }

    /// What would be enough for it: never a budget that the device does not have.
    pub fn enough(&self) -> String {
        enough(self.enough_bytes(), &self.device)
    }

    /// Counts with what the runtime takes, now that it is known, instead of what was estimated. Whether the plan still
    /// fits its budget.
    pub fn settle_reserve(&mut self, reserve_bytes: u64) -> bool {
        self.reserve_bytes = reserve_bytes;
        self.headroom_bytes = self.budget_bytes as i64 - self.planned_peak_bytes() as i64;
        self.headroom_bytes >= 0
    }
}

/// The budget in bytes: what the user says, or 95 % of what is free. More than is free cannot be given: asked for that,
/// the budget is the same as if nothing had been said.
pub fn budget_bytes(recipe: &Recipe, device: &Device) -> u64 {
    match recipe.memory.budget {
        Budget::Bytes(bytes) if is_there(bytes, device) => bytes,
        Budget::Percent(percent) => (device.free_bytes as f64 * percent / 100.0) as u64,
        Budget::Auto | Budget::Bytes(_) => (device.free_bytes as f64 * 0.95) as u64,
    }
}

/// The budget that a plan of this size is held against. What `auto` leaves is for others; but a plan on a CPU counts the
/// whole process, and where nothing fits otherwise, all that is free will do. On a card the rest stays: displays and
/// drivers take more while we train.
pub fn budget_for(peak_bytes: u64, recipe: &Recipe, device: &Device) -> u64 {
    let usual = budget_bytes(recipe, device);
    let is_free = device.runs && device.target.backend == Backend::Cpu && peak_bytes <= device.free_bytes;
    match recipe.memory.budget {
        Budget::Auto if is_free && peak_bytes > usual => device.free_bytes,
        _ => usual,
    }
}

/// A device that does not say what it has free is believed to have it; and a budget beyond all memory asks what would be
/// without one.
fn is_there(bytes: u64, device: &Device) -> bool {
    bytes <= device.free_bytes || device.free_bytes == 0 || bytes >= ADDRESSABLE_BYTES
}

/// What was asked for in vain, where that is more than the device has free.
pub fn asked_in_vain(recipe: &Recipe, device: &Device) -> Option<u64> {
    match recipe.memory.budget {
        Budget::Bytes(bytes) if !is_there(bytes, device) => Some(bytes),
        _ => None,
    }
}

/// What would be enough for a plan of this size: a budget, or more memory than the device has.
pub(crate) fn enough(bytes: u64, device: &Device) -> String {
    let size = format_bytes(bytes);
    let (name, free, total) = (&device.name, format_bytes(device.free_bytes), format_bytes(device.total_bytes));
    match bytes {
        _ if is_there(bytes, device) => format!("--memory {bytes} ({size}) is enough for the smallest plan"),
        _ if bytes <= device.total_bytes => {
            format!("the smallest plan needs {size}: {name} has {total}, of which {free} are free now")
        }
        _ => format!("the smallest plan needs {size}, more than {name} has ({total})"),
    }
}

/// Chooses a plan. `DoesNotFit` carries the smallest there is. How many samples are evaluated at a time has no influence on
/// any result: unless the recipe says it, an evaluation is never what does not fit.
pub fn plan(recipe: &Recipe, device: &Device) -> Result<Planned, PlanFailure> {
    plan_knowing(&Memo::default(), recipe, device)
}

/// The same for one of many recipes: those of a kind share what they are built from.
pub fn plan_among(memos: &Memos, recipe: &Recipe, device: &Device) -> Result<Planned, PlanFailure> {
    plan_knowing(&memos.of(recipe, device), recipe, device)
}

fn plan_knowing(memo: &Memo, recipe: &Recipe, device: &Device) -> Result<Planned, PlanFailure> {
    let planned = plan_with(memo, recipe, device);
    let Err(PlanFailure::DoesNotFit(smallest)) = &planned else { return planned };
    let budget = budget_for(smallest.planned_peak_bytes(), recipe, device);
    match budget > smallest.budget_bytes {
        true => plan_within(memo, recipe, device, budget),
        false => planned,
    }
}

/// The same for one of many recipes that are compared, each within its usual budget.
pub(crate) fn plan_with(memo: &Memo, recipe: &Recipe, device: &Device) -> Result<Planned, PlanFailure> {
    plan_within(memo, recipe, device, budget_bytes(recipe, device))
}

/// Plans within this budget, with as many samples to an evaluation as fit beside the steps.
fn plan_within(memo: &Memo, recipe: &Recipe, device: &Device, budget: u64) -> Result<Planned, PlanFailure> {
    let wanted = spec(recipe, device);
    plan_for(memo, recipe, device, &wanted, budget).map(|planned| said_of_evaluation(planned, &wanted))
}

/// A lowered evaluation is a decision like others.
fn said_of_evaluation(mut planned: Planned, wanted: &StepSpec) -> Planned {
    if let (Some(batch), Some(usual)) = (planned.spec.evaluate_batch, wanted.evaluate_batch)
        && batch < usual
    {
        planned.choice.decisions.push(Decision {
            lever: "evaluate_batch".into(),
            choice: batch.to_string(),
            saved_bytes: 0,
            predicted_ms: 0.0,
            reason: format!("{usual} samples at a time would not fit; scores are the same"),
        });
    }
    planned
}

fn plan_for(
    memo: &Memo,
    recipe: &Recipe,
    device: &Device,
    spec: &StepSpec,
    budget: u64,
) -> Result<Planned, PlanFailure> {
    let (family, pins) = (family(&recipe.model), pins(recipe, device)?);
    let usual = device.reserve_for(recipe);
    let options = LayoutOptions { target: device.target, sharing: true };
    let planned = |choice: Choice| {
        let reserve_bytes = usual.saturating_add(device.reserve_of(recipe, &choice.program, &choice.layout));
        Planned {
            headroom_bytes: budget as i64 - (reserve_bytes + choice.layout.arena_bytes as u64) as i64,
            spec: StepSpec { evaluate_batch: choice.evaluate_batch, ..spec.clone() },
            choice,
            device: device.clone(),
            budget_bytes: budget,
            reserve_bytes,
        }
    };
    beside_its_own(usual, budget, |reserve_bytes| {
        let arena_budget = usize::try_from(budget.saturating_sub(reserve_bytes)).unwrap_or(usize::MAX);
        match choose(memo, family.as_ref(), spec, &pins, options, arena_budget, &profile(recipe, device)) {
            Ok(mut choice) => {
                choice.decisions.extend(switches(&recipe.memory));
                Ok(planned(choice))
            }
            Err(ChooseError::DoesNotFit { smallest, .. }) => Err(PlanFailure::DoesNotFit(Box::new(planned(*smallest)))),
            Err(ChooseError::Refused { cause, hint }) => Err(PlanFailure::Refused { cause, hint }),
            Err(ChooseError::Plan(error)) => Err(PlanFailure::Plan(error)),
        }
    })
}

/// A plan that fits with what it has beside its arena, which is known only once it is made: `within` plans with room for so
/// many bytes of it. Where a plan has more, the next gets less room; where that is too little for any, something between the
/// two may still fit, and the smallest is asked last.
fn beside_its_own(
    usual: u64,
    budget: u64,
    within: impl Fn(u64) -> Result<Planned, PlanFailure>,
) -> Result<Planned, PlanFailure> {
    let (mut least, mut reserve) = (usual, usual);
    let smallest = loop {
        match within(reserve) {
            Ok(planned) if planned.headroom_bytes >= 0 => return Ok(planned),
            Ok(planned) => (least, reserve) = (reserve, planned.reserve_bytes),
            Err(PlanFailure::DoesNotFit(smallest)) => break smallest,
            Err(other) => return Err(other),
        }
    };
    if reserve == usual {
        // Without room for an arena beside the usual there is none beside more.
        return Err(PlanFailure::DoesNotFit(smallest));
    }
    let mut fitting = None;
    let mut most = budget.saturating_sub(smallest.choice.layout.arena_bytes as u64).clamp(least, reserve);
    if smallest.headroom_bytes >= 0 {
        let alike = within(most).ok().filter(|planned| planned.headroom_bytes >= 0);
        fitting = Some(alike.unwrap_or_else(|| *smallest.clone()));
    }
    for _ in 0..HALVINGS {
        let middle = least + (most - least) / 2;
        match within(middle) {
            Ok(planned) if planned.headroom_bytes >= 0 => (most, fitting) = (middle, Some(faster(planned, fitting))),
            Ok(_) => least = middle,
            Err(PlanFailure::DoesNotFit(_)) => most = middle,
            Err(other) => return Err(other),
        }
    }
    fitting.ok_or(PlanFailure::DoesNotFit(smallest))
}

/// How closely the room beside an arena is looked for where graphs are a large part of what there is.
const HALVINGS: usize = 6;

fn faster(one: Planned, other: Option<Planned>) -> Planned {
    other.filter(|other| other.choice.predicted_step_ms < one.choice.predicted_step_ms).unwrap_or(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Beside;
    use crate::cards::card;
    use plimsoll_core::graph::Target;
    use plimsoll_core::plan::Program;
    use plimsoll_models::families::FeedForwardForm;
    use std::path::Path;

    /// The plan of mu-sota's small recipe in this precision, on a card of the catalog.
    fn planned(name: &str, precision: Precision) -> Choice {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/mu-sota-small.toml");
        let recipe = Recipe::load(&path, &[format!("memory.precision={precision}")]).unwrap();
        let device = Device {
            name: name.into(),
            reserve_bytes: 1 << 30,
            profile: card(name).unwrap().profile(),
            target: Target::CUDA,
            precision,
            runs: false,
            ..Device::cpu(1, 8 << 30)
        };
        plan(&recipe, &device).unwrap().choice
    }

    const RECIPES: [&str; 2] =
        [include_str!("../../tests/recipes/series.toml"), include_str!("../../tests/recipes/text.toml")];

    /// Whatever fits with evaluations of one sample fits with evaluations left to the planner, and scores are the same.
    #[test]
    fn an_evaluation_is_never_what_does_not_fit() {
        for text in RECIPES {
            let one = ["train.evaluate.batch=1".to_string(), "train.effective_batch=32".into()];
            let parse = |sets: &[String]| Recipe::parse(text, "drawn.toml", sets).unwrap();
            let tight = Device::cpu(2, 4096);
            let Err(PlanFailure::DoesNotFit(smallest)) = plan(&parse(&one), &tight) else { panic!("4 KiB are enough") };
            let device = Device::cpu(2, smallest.planned_peak_bytes());
            let all = ["memory.budget=100%".to_string(), one[1].clone()];
            let planned = plan(&parse(&all), &device).unwrap();
            assert!(planned.headroom_bytes >= 0);
            let said = planned.choice.decisions.iter().any(|decision| decision.lever == "evaluate_batch");
            assert_eq!(said, planned.spec.evaluate_batch < Some(32), "{:?}", planned.spec.evaluate_batch);
            // What is called smallest is no larger than what the recipe could have asked for.
            let Err(PlanFailure::DoesNotFit(free)) = plan(&parse(&all[1..]), &tight) else {
                panic!("4 KiB are enough")
            };
            assert!(free.planned_peak_bytes() <= smallest.planned_peak_bytes());
            // What is pinned stays.
            let pinned = [all[0].clone(), all[1].clone(), "train.evaluate.batch=32".into()];
            if let Ok(planned) = plan(&parse(&pinned), &device) {
                assert_eq!(planned.spec.evaluate_batch, Some(32));
            }
        }
    }

    /// A CPU gives all that it has free to a plan that needs it, and says so by its budget; a card keeps a twentieth.
    #[test]
    fn where_nothing_else_fits_a_cpu_gives_all_that_is_free() {
        for text in RECIPES {
            let auto = Recipe::parse(text, "drawn.toml", &[]).unwrap();
            let Err(PlanFailure::DoesNotFit(smallest)) = plan(&auto, &Device::cpu(2, 4096)) else {
                panic!("4 KiB are enough")
            };
            let needed = smallest.planned_peak_bytes();
            for free in [needed, needed + 1, needed + needed / 100, needed + needed / 30] {
                let device = Device::cpu(2, free);
                let planned = plan(&auto, &device).unwrap();
                assert_eq!((planned.budget_bytes, planned.headroom_bytes >= 0), (free, true));
                let share = Recipe::parse(text, "drawn.toml", &["memory.budget=95%".into()]).unwrap();
                assert!(plan(&share, &device).is_err(), "what is asked for stays");
                assert!(
                    plan(&auto, &Device { runs: false, ..device }).is_err(),
                    "nothing here knows what is free there"
                );
            }
            assert!(plan(&auto, &Device::cpu(2, needed - 1)).is_err());
        }
    }

    /// Where what a plan has beside its arena is a large part of the budget, what fits once fits in any more, and what is
    /// called the smallest is enough.
    #[test]
    fn more_memory_fits_whatever_less_does_however_large_the_graphs_are() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/mu-sota-small.toml");
        let recipe = |budget: u64| {
            let sets = ["train.effective_batch=16", "memory.loss_chunk=3"].map(str::to_string).into_iter();
            Recipe::load(&path, &sets.chain([format!("memory.budget={budget}")]).collect::<Vec<_>>()).unwrap()
        };
        let beside = Beside { plan: |_, program, _| 8192 * nodes(program), ..Beside::default() };
        let device = Device { beside, ..Device::cpu(2, 1 << 40) };
        let Err(PlanFailure::DoesNotFit(smallest)) = plan(&recipe(1), &device) else { panic!("one byte is enough") };
        let needed = smallest.planned_peak_bytes();
        let mut fits = false;
        for budget in (0..=14).map(|step| needed / 2 + needed * step / 14) {
            let planned = plan(&recipe(budget), &device);
            assert!(planned.is_ok() || !fits, "less than {budget} was enough");
            assert!(planned.is_err() || planned.as_ref().unwrap().headroom_bytes >= 0);
            fits = planned.is_ok();
        }
        assert!(plan(&recipe(needed), &device).is_ok_and(|planned| planned.headroom_bytes >= 0));
    }

    fn nodes(program: &Program) -> u64 {
        program.phases.iter().map(|phase| phase.graph.nodes().len() as u64).sum()
    }

    #[test]
    fn in_no_bytes_at_all_nothing_fits() {
        for text in RECIPES {
            let recipe = Recipe::parse(text, "drawn.toml", &["memory.budget=1".into()]).unwrap();
            // What the runtime takes is more than the budget: the arena has none of it.
            let device = Device { reserve_bytes: 1 << 20, ..Device::cpu(2, 1 << 30) };
            assert!(matches!(plan(&recipe, &device), Err(PlanFailure::DoesNotFit(_))));
        }
    }

    #[test]
    fn a_budget_is_never_more_than_there_is() {
        let recipe =
            |budget: &str| Recipe::parse(RECIPES[0], "drawn.toml", &[format!("memory.budget={budget}")]).unwrap();
        let device = Device::cpu(2, 1 << 30);
        let auto = budget_bytes(&recipe("auto"), &device);
        for (asked, given, vain) in [
            ("512MiB", 512 << 20, None),
            ("1GiB", 1 << 30, None),
            ("1025MiB", auto, Some(1025 << 20)),
            ("9TiB", auto, Some(9 << 40)),
        ] {
            assert_eq!(budget_bytes(&recipe(asked), &device), given, "{asked}");
            assert_eq!(asked_in_vain(&recipe(asked), &device), vain, "{asked}");
        }
        let unknown = Device::cpu(2, 0);
        assert_eq!(budget_bytes(&recipe("9TiB"), &unknown), 9 << 40, "a device that does not say is believed");
        assert!(enough(1 << 20, &device).starts_with("--memory 1048576"));
        assert!(
            !enough(2 << 30, &device).contains("--memory") && enough(2 << 30, &device).contains("more than cpu has")
        );
    }

    #[test]
    fn feed_forwards_are_fused_where_tensor_cores_are_far_ahead() {
        use Precision::*;
        for (name, precision) in
            [("h200", F32), ("t4", Tf32), ("t4", Fp16Mixed), ("rtx-4090", Tf32), ("rtx-4090", Bf16)]
        {
            let choice = planned(name, precision);
            assert_eq!(choice.settings.feed_forward, FeedForwardForm::Plain, "{name} in {precision}");
            assert!(choice.decisions.iter().all(|decision| decision.lever != "feed_forward"));
        }
        for (name, precision) in [("h200", Tf32), ("h200", Bf16Mixed), ("h200", Fp16Mixed), ("a100-40gb", Bf16)] {
            let choice = planned(name, precision);
            assert_eq!(choice.settings.feed_forward, FeedForwardForm::Fused, "{name} in {precision}");
            let said = choice.decisions.iter().find(|decision| decision.lever == "feed_forward").unwrap();
            assert!(said.choice == "fused" && said.saved_bytes > 0, "{said:?}");
        }
    }
}
