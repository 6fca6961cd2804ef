//! A plan for scripts (the contract of `plan --json`) and for people.

use crate::device::catalog_cards;
use crate::printer::{Paint, duration, indented};
use plimsoll_base::names::Named;
use plimsoll_base::units::{format_bytes, grouped};
use plimsoll_core::plan::{LiveBuffer, Peak, Summary};
use plimsoll_models::recipe::{Budget, OptimizerState, Recipe};
use plimsoll_planner::choose::{Decision, Planned, precision};
use plimsoll_planner::whatif::{FrontierPoint, Ladder, Margins, Neighbour, Outline, Rung, holding_card};
use plimsoll_report::{
    breakdown_table, decisions_table, frontier_table, ladder_table, layers_table, live_table, margins_text,
    neighbours_table,
};
use plimsoll_train::tasks::{expected_data, host_peak_bytes};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Rows of the tables unless everything is asked for.
const LAYERS_SHOWN: usize = 8;
const BUFFERS_SHOWN: usize = 10;

#[derive(Serialize)]
pub struct Verdict {
    pub fits: bool,
    device: String,
    budget_bytes: u64,
    reserve_bytes: u64,
    arena_bytes: u64,
    live_peak_bytes: u64,
    headroom_bytes: i64,
    host_peak_bytes: u64,
    parameters: usize,
    effective_batch: usize,
    micro_batch: usize,
    accumulation: usize,
    precision: &'static str,
    attention: plimsoll_models::families::AttentionForm,
    recompute: &'static str,
    optimizer_state: &'static str,
    offload: &'static str,
    predicted_step_ms: f64,
    steps_per_epoch: Option<usize>,
    breakdown: BTreeMap<&'static str, usize>,
    peak: Peak,
    decisions: Vec<Decision>,
    layers: BTreeMap<String, usize>,
    live: Vec<LiveBuffer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    smallest_budget_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hints: Option<Vec<String>>,
    /// What could be given up where nothing fits; hints are those that are enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    ladder: Option<Vec<Rung>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontier: Option<Vec<FrontierPoint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<Vec<Neighbour>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margins: Option<Margins>,
    /// Every live buffer and layer, for the tables.
    #[serde(skip)]
    summary: Summary,
    #[serde(skip)]
    budget_words: String,
    /// Steps of the whole run, where known.
    #[serde(skip)]
    steps: Option<usize>,
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    plan: Outline,
    /// The smallest card of the catalog with room for this plan.
    #[serde(skip)]
    holding_card: Option<String>,
}

impl Verdict {
    pub fn fits(recipe: &Recipe, planned: &Planned) -> Verdict {
        Verdict::new(recipe, planned)
    }

    /// `smallest` is the smallest plan there is.
    pub fn does_not_fit(recipe: &Recipe, smallest: &Planned, hints: &[String], ladder: Ladder) -> Verdict {
        Verdict {
            fits: false,
            smallest_budget_bytes: Some(smallest.planned_peak_bytes()),
            hints: Some(hints.to_vec()),
            ladder: Some(ladder.rungs),
            ..Verdict::new(recipe, smallest)
        }
    }

    fn new(recipe: &Recipe, planned: &Planned) -> Verdict {
        let choice = &planned.choice;
        let summary = Summary::of(&choice.program, &choice.layout);
        let data = expected_data(recipe);
        let steps = data.map(|d| d.steps(&recipe.train));
        Verdict {
            fits: true,
            device: planned.device.name.clone(),
            budget_bytes: planned.budget_bytes,
            reserve_bytes: planned.reserve_bytes,
            arena_bytes: choice.layout.arena_bytes as u64,
            live_peak_bytes: choice.layout.live_peak_bytes as u64,
            headroom_bytes: planned.headroom_bytes,
            host_peak_bytes: host_peak_bytes(recipe, choice, data.map_or(0, |d| d.resident_bytes)),
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
            live: summary.live.iter().take(BUFFERS_SHOWN).cloned().collect(),
            smallest_budget_bytes: None,
            hints: None,
            ladder: None,
            frontier: None,
            neighbours: None,
            margins: None,
            summary,
            budget_words: budget_words(recipe),
            steps: steps.map(|s| s.run),
            name: recipe.name.clone(),
            plan: planned.into(),
            holding_card: holding_card(recipe, planned, &catalog_cards()).map(|card| card.name.clone()),
        }
    }

    /// Everything, as `plan` prints it.
    pub fn text(&self, explain: bool, paint: Paint) -> String {
        let mut text = self.headline(paint);
        text += &self.facts();
        if !self.decisions.is_empty() {
            text += &section("decisions", &decisions_table(&self.decisions), paint);
        }
        text += &self.answers(paint);
        text += &self.memory(explain, paint);
        text
    }

    /// What was asked for beside the plan.
    fn answers(&self, paint: Paint) -> String {
        let neighbours = self.neighbours.as_deref().map(neighbours_table);
        let margins = self.margins.as_ref().map(|margins| margins_text(margins, &self.plan));
        let tables = [
            ("one step up or down, everything else as planned", neighbours),
            ("what would change it", margins),
            ("memory against time", self.frontier.as_deref().map(frontier_table)),
            ("what could be given up", self.ladder.as_deref().filter(|rungs| !rungs.is_empty()).map(ladder_table)),
        ];
        tables.into_iter().filter_map(|(title, table)| Some(section(title, &table?, paint))).collect()
    }

    /// The part that stands before a training run.
    pub fn short_text(&self, paint: Paint) -> String {
        let decisions = indented(&decisions_table(&self.decisions));
        let breakdown = indented(&breakdown_table(&self.summary));
        format!("{}\n{decisions}\n{}\n{breakdown}", paint.bold("plan"), paint.bold(&self.peak_line()))
    }

    fn headline(&self, paint: Paint) -> String {
        let verdict = if self.fits { paint.green("fits") } else { paint.red("does not fit") };
        let parameters = grouped(self.parameters);
        format!("{verdict}: {} on {}, {parameters} parameters, {}\n", self.name, self.device, self.precision)
    }

    fn facts(&self) -> String {
        let fragmentation = self.arena_bytes - self.live_peak_bytes;
        let share = 100.0 * fragmentation as f64 / self.arena_bytes.max(1) as f64;
        let headroom = match self.headroom_bytes {
            0.. => format_bytes(self.headroom_bytes as u64),
            _ => format!("{} too little", format_bytes(self.headroom_bytes.unsigned_abs())),
        };
        let mut text = String::new();
        let mut row = |name: &str, value: String, note: &str| {
            let line = format!("  {name:<10} {value:>12}   {note}");
            text += line.trim_end();
            text.push('\n');
        };
        row("budget", format_bytes(self.budget_bytes), &self.budget_words);
        if self.reserve_bytes > 0 {
            row("reserve", format_bytes(self.reserve_bytes), "taken by the device's own runtime");
        }
        let live = format!("live peak {}, fragmentation {share:.1} %", format_bytes(self.live_peak_bytes));
        row("arena", format_bytes(self.arena_bytes), &live);
        row("headroom", headroom, "");
        let offloaded = if self.offload == "none" { "" } else { ", what is offloaded" };
        let held = format!("beside the arena: samples, batches ahead, loading{offloaded}");
        row("host", format_bytes(self.host_peak_bytes), &held);
        let batch = format!("{} × {}", self.micro_batch, self.accumulation);
        row("batch", batch, &format!("micro-batch × accumulation, effective batch {}", self.effective_batch));
        row("step", format!("{:.1} ms", self.predicted_step_ms), &self.time_words());
        if let Some(card) = self.holding_card.as_ref().filter(|_| self.fits) {
            row("card", card.clone(), "the smallest of the catalog with room for this plan; --explain says more");
        }
        text
    }

    fn time_words(&self) -> String {
        let seconds = |steps: usize| duration(steps as f64 * self.predicted_step_ms / 1e3);
        match (self.steps_per_epoch, self.steps) {
            (Some(epoch), Some(all)) => {
                format!("predicted; epoch of {epoch} steps {}, run of {all} steps {}", seconds(epoch), seconds(all))
            }
            _ => "predicted; epoch and run unknown: the data was not read".into(),
        }
    }

    fn peak_line(&self) -> String {
        format!("memory at the peak (tick {} of {}: {})", self.peak.tick, self.peak.phase, self.peak.node)
    }

    fn memory(&self, explain: bool, paint: Paint) -> String {
        let (layers, buffers) = if explain { (usize::MAX, usize::MAX) } else { (LAYERS_SHOWN, BUFFERS_SHOWN) };
        let tables =
            [breakdown_table(&self.summary), layers_table(&self.summary, layers), live_table(&self.summary, buffers)];
        let mut text = format!("\n{}\n", paint.bold(&self.peak_line()));
        for (i, table) in tables.iter().enumerate() {
            let gap = if i == 0 { "" } else { "\n" };
            let _ = write!(text, "{gap}{}", indented(table));
        }
        text
    }
}

fn section(title: &str, table: &str, paint: Paint) -> String {
    format!("\n{}\n{}", paint.bold(title), indented(table))
}

fn budget_words(recipe: &Recipe) -> String {
    match recipe.memory.budget {
        Budget::Auto => "95 % of what is free".into(),
        Budget::Percent(percent) => format!("{percent} % of what is free"),
        Budget::Bytes(_) => "as asked for".into(),
    }
}
