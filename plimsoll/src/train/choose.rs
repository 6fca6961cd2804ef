//! The choice of a plan: the largest micro-batch that fits, then recompute, then offload. What the recipe pins is kept.

use super::step::{Settings, StepSpec, program};
use crate::models::{AttentionForm, Family};
use crate::plan::{
    Layout, LayoutOptions, Offload, PlanError, Profile, Program, Recompute, lay_out, live_peak, predicted_ms,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the recipe fixes; `None` is free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pins {
    pub micro_batch: Option<usize>,
    pub recompute: Option<RecomputePin>,
    pub attention: Option<AttentionForm>,
    pub block_group: Option<usize>,
    pub loss_chunk: Option<usize>,
    pub offload: Option<Offload>,
    /// Batch norm by micro-batch: the recipe accepts that the micro-batch changes what is learned.
    pub micro_statistics: bool,
    pub no_sharing: bool,
}

/// The recipe's words for recompute; "some" leaves open how many layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecomputePin {
    None,
    Cheap,
    Some,
    Layers,
}

/// One lever, what was chosen, and what it bought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub lever: String,
    pub choice: String,
    /// Against the same plan without this choice; 0 where it was free or pinned without an alternative.
    pub saved_bytes: i64,
    pub predicted_ms: f64,
    pub reason: String,
}

/// A plan that fits, or the smallest there is.
pub struct Choice {
    pub settings: Settings,
    pub program: Program,
    pub layout: Layout,
    pub options: LayoutOptions,
    pub decisions: Vec<Decision>,
    pub predicted_step_ms: f64,
}

#[derive(Debug, Error)]
pub enum ChooseError {
    #[error("no plan fits: the smallest needs {smallest_bytes} bytes")]
    DoesNotFit { smallest_bytes: usize, smallest: Box<Choice> },
    #[error("{cause}")]
    Refused { cause: String, hint: String },
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl std::fmt::Debug for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} in {} bytes", self.settings, self.layout.arena_bytes)
    }
}

/// Tries micro-batches from large to small without recompute, then with ever more of it, all that again with host memory
/// where that helps, and takes the first plan that fits `arena_budget` bytes.
pub fn choose(
    family: &dyn Family,
    spec: &StepSpec,
    pins: &Pins,
    options: LayoutOptions,
    arena_budget: usize,
    profile: &Profile,
) -> Result<Choice, ChooseError> {
    if pins.attention == Some(AttentionForm::Materialized) && !family.has_attention_forms() {
        return Err(ChooseError::Refused {
            cause: "memory.attention = \"materialized\" is not available for this family".into(),
            hint: "leave it out: its attention never stores the scores".into(),
        });
    }
    let micro_batches = micro_batches(family, spec, pins)?;
    let offloads = offloads(family, pins, &options);
    let levels = offloads.iter().flat_map(|&offload| recompute_levels(pins).into_iter().map(move |l| (offload, l)));
    let options = LayoutOptions { sharing: options.sharing && !pins.no_sharing, ..options };
    let mut smallest: Option<(usize, Settings)> = None;
    for (offload, level) in levels {
        let mut attempt = |micro_batch: usize| -> Result<Attempt, ChooseError> {
            let settings = Settings { offload, ..settings(family, spec, pins, micro_batch, level) };
            let attempt = Attempt::new(family, spec, settings, options)?;
            if smallest.is_none_or(|(bytes, _)| attempt.floor < bytes) {
                smallest = Some((attempt.floor, attempt.settings));
            }
            Ok(attempt)
        };
        // A smaller micro-batch never needs more: the first that could fit is found by halving.
        let mut range = 0..micro_batches.len();
        while !range.is_empty() {
            let middle = range.start + range.len() / 2;
            match attempt(micro_batches[middle])?.floor > arena_budget {
                true => range.start = middle + 1,
                false => range.end = middle,
            }
        }
        for &micro_batch in &micro_batches[range.start..] {
            let Attempt { settings, program, .. } = attempt(micro_batch)?;
            let layout = lay_out(&program, options)?;
            if layout.arena_bytes <= arena_budget {
                let mut choice = finish(settings, program, layout, options, profile);
                choice.decisions = explain(family, spec, pins, &choice)?;
                return Ok(choice);
            }
        }
    }
    let (_, settings) = smallest.ok_or_else(|| PlanError::Broken("there is nothing to choose from".into()))?;
    let program = program(family, spec, &settings)?;
    let layout = lay_out(&program, options)?;
    let smallest = finish(settings, program, layout, options, profile);
    Err(ChooseError::DoesNotFit { smallest_bytes: smallest.layout.arena_bytes, smallest: Box::new(smallest) })
}

/// A candidate with the bytes that it needs at least.
struct Attempt {
    settings: Settings,
    program: Program,
    floor: usize,
}

impl Attempt {
    fn new(
        family: &dyn Family,
        spec: &StepSpec,
        settings: Settings,
        options: LayoutOptions,
    ) -> Result<Attempt, ChooseError> {
        let program = program(family, spec, &settings)?;
        let floor = if options.sharing { live_peak(&program, &options.target)? } else { 0 };
        Ok(Attempt { settings, program, floor })
    }
}

fn finish(settings: Settings, program: Program, layout: Layout, options: LayoutOptions, profile: &Profile) -> Choice {
    let predicted_step_ms = predicted_ms(&program, profile);
    Choice { settings, program, layout, options, decisions: Vec::new(), predicted_step_ms }
}

/// Micro-batches to try, largest first: divisors of the effective batch, so that no step ends ragged.
fn micro_batches(family: &dyn Family, spec: &StepSpec, pins: &Pins) -> Result<Vec<usize>, ChooseError> {
    let effective = spec.effective_batch;
    let fixed = family.has_batch_statistics() && !pins.micro_statistics;
    match pins.micro_batch {
        Some(micro) if micro > effective => Err(ChooseError::Refused {
            cause: format!("micro-batch {micro} is larger than the effective batch {effective}"),
            hint: format!("set memory.micro_batch to at most {effective}"),
        }),
        Some(micro) if fixed && micro < effective => Err(ChooseError::Refused {
            cause: format!(
                "batch norm sees the micro-batch: {micro} instead of {effective} would change what is learned"
            ),
            hint: "leave memory.micro_batch out, or accept it with model.batch_norm = \"micro\"".into(),
        }),
        Some(micro) => Ok(vec![micro]),
        None if fixed => Ok(vec![effective]),
        None => Ok((1..=effective).rev().filter(|m| effective.is_multiple_of(*m)).collect()),
    }
}

/// Without a pin, host memory is used only where nothing fits without it.
fn offloads(family: &dyn Family, pins: &Pins, options: &LayoutOptions) -> Vec<Offload> {
    match pins.offload {
        Some(pin) => vec![pin],
        None => Offload::ladder(&options.target, family.layers() as u32),
    }
}

fn recompute_levels(pins: &Pins) -> Vec<RecomputePin> {
    match pins.recompute {
        Some(level) => vec![level],
        None => vec![RecomputePin::None, RecomputePin::Cheap, RecomputePin::Some, RecomputePin::Layers],
    }
}

pub(super) fn settings(
    family: &dyn Family,
    spec: &StepSpec,
    pins: &Pins,
    micro_batch: usize,
    level: RecomputePin,
) -> Settings {
    let rows = micro_batch * family.rows_per_sample(spec.loss_length());
    Settings {
        micro_batch,
        accumulation: spec.effective_batch.div_ceil(micro_batch),
        recompute: match level {
            RecomputePin::None => Recompute::None,
            RecomputePin::Cheap => Recompute::Cheap,
            RecomputePin::Some => Recompute::Some(family.layers().div_ceil(2) as u32),
            RecomputePin::Layers => Recompute::Layers,
        },
        attention: pins.attention.unwrap_or(AttentionForm::Fused),
        block_group: pins.block_group.unwrap_or(family.blocks()).min(family.blocks()),
        loss_chunk: pins.loss_chunk.unwrap_or(LOSS_CHUNK).min(rows.max(1)),
        sharing: !pins.no_sharing,
        offload: Offload::NONE,
    }
}

/// Tokens of the loss head at a time: large enough for full speed, small enough that logits never set the peak.
const LOSS_CHUNK: usize = 2048;

/// Each decision with the bytes it saves against its plainest alternative.
fn explain(family: &dyn Family, spec: &StepSpec, pins: &Pins, choice: &Choice) -> Result<Vec<Decision>, ChooseError> {
    let s = choice.settings;
    let here = live_peak(&choice.program, &choice.options.target)? as i64;
    let mut decisions = Vec::new();
    let mut add =
        |lever: &str, text: String, other: Option<Settings>, pinned: bool, why: &str| -> Result<(), ChooseError> {
            let saved_bytes = match other.filter(|other| *other != s) {
                None => 0,
                Some(other) => live_peak(&program(family, spec, &other)?, &choice.options.target)? as i64 - here,
            };
            let reason = if pinned { "pinned by the recipe".into() } else { why.to_string() };
            let predicted_ms = choice.predicted_step_ms;
            decisions.push(Decision { lever: lever.into(), choice: text, saved_bytes, predicted_ms, reason });
            Ok(())
        };
    let whole = Settings { micro_batch: spec.effective_batch, accumulation: 1, ..s };
    // What changes learning is said even if the recipe asked for it.
    let pinned = pins.micro_batch.is_some() && (s.accumulation == 1 || !family.has_batch_statistics());
    let why = match (family.has_batch_statistics(), s.accumulation) {
        (true, 1) => "batch statistics: the whole effective batch at once",
        (true, _) => "batch norm by micro-batch, as the recipe allows: this changes what is learned",
        (false, _) => "the largest that fits",
    };
    add("micro_batch", format!("{} × {}", s.micro_batch, s.accumulation), Some(whole), pinned, why)?;
    let kept = Settings { recompute: Recompute::None, ..s };
    let why = if s.recompute == Recompute::None { "everything saved fits" } else { "saved values would not fit" };
    add("recompute", s.recompute.name().into(), Some(kept), pins.recompute.is_some(), why)?;
    if family.has_attention_forms() {
        let other = Settings { attention: AttentionForm::Materialized, ..s };
        let name = if s.attention == AttentionForm::Fused { "fused" } else { "materialized" };
        add("attention", name.into(), Some(other), pins.attention.is_some(), "the scores are never stored")?;
    }
    if family.blocks() > 1 {
        let other = Settings { block_group: family.blocks(), ..s };
        add(
            "block_group",
            s.block_group.to_string(),
            Some(other),
            pins.block_group.is_some(),
            "all blocks in one batched product",
        )?;
    }
    if family.has_loss_chunks() {
        let rows = s.micro_batch * family.rows_per_sample(spec.loss_length());
        let other = Settings { loss_chunk: rows, ..s };
        add(
            "loss_chunk",
            s.loss_chunk.to_string(),
            Some(other),
            pins.loss_chunk.is_some(),
            "logits of one chunk at a time",
        )?;
    }
    if s.offload != Offload::NONE {
        let other = Settings { offload: Offload::NONE, ..s };
        let why = "nothing fits without host memory";
        add("offload", s.offload.name().into(), Some(other), pins.offload.is_some(), why)?;
    }
    Ok(decisions)
}
