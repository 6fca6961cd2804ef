//! A plan for people; for scripts it is the report.

use crate::printer::{Paint, duration, indented, plain};
use plimsoll::PlanReport;
use plimsoll_base::units::{format_bytes, grouped};
use plimsoll_core::plan::Summary;
use plimsoll_models::recipe::{Budget, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::choose::{Planned, asked_in_vain};
use plimsoll_planner::whatif::{Ladder, Outline, holding_card};
use plimsoll_report::{
    all_layers_table, all_live_table, breakdown_table, decisions_table, frontier_table, ladder_table, layers_table,
    live_table, margins_text, modules_table, neighbours_table,
};
use plimsoll_train::run::Run;
use plimsoll_train::tasks::{ExpectedData, counts_process};
use std::fmt::Write;

/// Rows of the tables unless everything is asked for.
const LAYERS_SHOWN: usize = 8;
const BUFFERS_SHOWN: usize = 10;

/// What is printed about a plan: the report, and what only tables show.
pub(crate) struct Verdict {
    pub report: PlanReport,
    /// Every live buffer and layer, for the tables.
    summary: Summary,
    budget_words: String,
    name: String,
    plan: Outline,
    /// On a CPU everything is in the budget: there is no other memory beside it.
    is_whole_process: bool,
    /// The smallest card of the catalog with room for this plan.
    holding_card: Option<String>,
}

impl Verdict {
    pub(crate) fn fits(recipe: &Recipe, planned: &Planned) -> Verdict {
        Verdict::new(recipe, planned, PlanReport::of(recipe, planned))
    }

    /// About a run whose data is loaded: to look at it again would take it twice.
    pub(crate) fn of_run(run: &Run) -> Verdict {
        let data = ExpectedData::of(&run.data, &run.recipe);
        Verdict::new(&run.recipe, &run.planned, PlanReport::with_data(&run.recipe, &run.planned, data))
    }

    /// `smallest` is the smallest plan there is.
    pub(crate) fn does_not_fit(recipe: &Recipe, smallest: &Planned, hints: &[String], ladder: Ladder) -> Verdict {
        Verdict::new(recipe, smallest, PlanReport::of_smallest(recipe, smallest, hints, ladder))
    }

    fn new(recipe: &Recipe, planned: &Planned, report: PlanReport) -> Verdict {
        Verdict {
            report,
            summary: Summary::of(&planned.choice.program, &planned.choice.layout),
            budget_words: budget_words(recipe, planned),
            name: plain(&recipe.name),
            is_whole_process: counts_process(planned),
            plan: planned.into(),
            holding_card: holding_card(recipe, planned, &Device::catalog()).map(|card| card.name.clone()),
        }
    }

    /// Everything, as `plan` prints it.
    pub(crate) fn text(&self, explain: bool, paint: Paint) -> String {
        let mut text = self.headline(paint);
        text += &self.facts();
        if !self.report.decisions.is_empty() {
            text += &section("decisions", &decisions_table(&self.report.decisions), paint);
        }
        text += &self.answers(paint);
        text += &self.memory(explain, paint);
        text
    }

    /// What was asked for beside the plan.
    fn answers(&self, paint: Paint) -> String {
        let neighbours = self.report.neighbours.as_deref().map(neighbours_table);
        let margins = self.report.margins.as_ref().map(|margins| margins_text(margins, &self.plan));
        let tables = [
            ("one step up or down, everything else as planned", neighbours),
            ("what would change it", margins),
            ("memory against time", self.report.frontier.as_deref().map(frontier_table)),
            (
                "what could be given up",
                self.report.ladder.as_deref().filter(|rungs| !rungs.is_empty()).map(ladder_table),
            ),
        ];
        tables.into_iter().filter_map(|(title, table)| Some(section(title, &table?, paint))).collect()
    }

    /// The part that stands before a training run.
    pub(crate) fn short_text(&self, paint: Paint) -> String {
        let decisions = indented(&decisions_table(&self.report.decisions));
        let breakdown = indented(&breakdown_table(&self.summary));
        format!("{}\n{decisions}\n{}\n{breakdown}", paint.bold("plan"), paint.bold(&self.peak_line()))
    }

    fn headline(&self, paint: Paint) -> String {
        let verdict = if self.report.fits { paint.green("fits") } else { paint.red("does not fit") };
        let parameters = grouped(self.report.parameters);
        format!(
            "{verdict}: {} on {}, {parameters} parameters, {}\n",
            self.name, self.report.device, self.report.precision
        )
    }

    fn facts(&self) -> String {
        let fragmentation = self.report.arena_bytes - self.report.live_peak_bytes;
        let share = 100.0 * fragmentation as f64 / self.report.arena_bytes.max(1) as f64;
        let headroom = match self.report.headroom_bytes {
            0.. => format_bytes(self.report.headroom_bytes as u64),
            _ => format!("{} too little", format_bytes(self.report.headroom_bytes.unsigned_abs())),
        };
        let mut text = String::new();
        let mut row = |name: &str, value: String, note: &str| {
            let line = format!("  {name:<10} {value:>12}   {note}");
            text += line.trim_end();
            text.push('\n');
        };
        row("budget", format_bytes(self.report.budget_bytes), &self.budget_words);
        if self.report.reserve_bytes > 0 {
            row("reserve", format_bytes(self.report.reserve_bytes), &self.reserve_words());
        }
        let live = format!("live peak {}, fragmentation {share:.1} %", format_bytes(self.report.live_peak_bytes));
        row("arena", format_bytes(self.report.arena_bytes), &live);
        row("headroom", headroom, "");
        if !self.is_whole_process {
            row("host", format_bytes(self.report.host_peak_bytes), &self.host_words());
        }
        let batch = format!("{} × {}", self.report.micro_batch, self.report.accumulation);
        row("batch", batch, &format!("micro-batch × accumulation, effective batch {}", self.report.effective_batch));
        row("step", duration(self.report.predicted_step_ms / 1e3), &self.time_words());
        if let Some(card) = self.holding_card.as_ref().filter(|_| self.report.fits) {
            row(
                "card",
                card.clone(),
                "the smallest of the catalog that runs this very plan; --explain: the smallest that runs another",
            );
        }
        text
    }

    fn time_words(&self) -> String {
        let seconds = |steps: usize| duration(steps as f64 * self.report.predicted_step_ms / 1e3);
        match (self.report.steps_per_epoch, self.report.steps) {
            (Some(epoch), Some(all)) => {
                format!("predicted; epoch of {epoch} steps {}, run of {all} steps {}", seconds(epoch), seconds(all))
            }
            _ => format!("predicted; epoch and run unknown: {}", self.unread_words()),
        }
    }

    /// Why nothing is known about the data.
    fn unread_words(&self) -> String {
        match &self.report.data_problem {
            Some(problem) => format!("the data cannot be read: {}", plain(problem)),
            None => "the data was not read".into(),
        }
    }

    fn reserve_words(&self) -> String {
        match (self.is_whole_process, self.report.data_bytes) {
            (false, _) => "taken by the device's own runtime".into(),
            (true, Some(_)) => "beside the arena: the program, samples, batches ahead".into(),
            (true, None) => format!("the program and batches ahead; samples unknown: {}", self.unread_words()),
        }
    }

    fn host_words(&self) -> String {
        let offloaded = if self.report.offload == "none" { "" } else { ", what is offloaded" };
        match self.report.data_bytes {
            Some(_) => format!("beside the arena: samples, batches ahead, loading{offloaded}"),
            None => format!("batches ahead, loading{offloaded}; samples unknown: {}", self.unread_words()),
        }
    }

    fn peak_line(&self) -> String {
        format!(
            "memory at the peak (tick {} of {}: {})",
            self.report.peak.tick, self.report.peak.phase, self.report.peak.node
        )
    }

    fn memory(&self, explain: bool, paint: Paint) -> String {
        let summary = &self.summary;
        let tables = match explain {
            true => vec![
                breakdown_table(summary),
                modules_table(summary),
                all_layers_table(summary),
                all_live_table(summary),
            ],
            false => {
                vec![breakdown_table(summary), layers_table(summary, LAYERS_SHOWN), live_table(summary, BUFFERS_SHOWN)]
            }
        };
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

/// Where the budget comes from. A card of the catalog is taken to be empty.
pub(crate) fn budget_words(recipe: &Recipe, planned: &Planned) -> String {
    let device = &planned.device;
    let whole = match device.free_bytes == device.total_bytes {
        true => format!("the {} of {}", format_bytes(device.total_bytes), device.name),
        false => format!("the {} that are free", format_bytes(device.free_bytes)),
    };
    match (asked_in_vain(recipe, device), recipe.memory.budget) {
        (Some(asked), _) => format!("95 % of {whole}: the {} asked for are not there", format_bytes(asked)),
        (None, Budget::Auto) if planned.budget_bytes == device.free_bytes => {
            format!("all of {whole}, for no plan fits 95 % of it")
        }
        (None, Budget::Auto) => format!("95 % of {whole}"),
        (None, Budget::Percent(percent)) => format!("{percent} % of {whole}"),
        (None, Budget::Bytes(_)) => "as asked for".into(),
    }
}
