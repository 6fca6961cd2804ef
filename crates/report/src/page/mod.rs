//! One self-contained page about a plan or a run: no request leaves it, and it follows the reader's light or dark.

mod chart;
mod frontier;
mod html;
mod memory;
mod run;

pub use chart::{Chart, Series, plain};
pub use html::Html;
pub use run::RunStory;

use crate::svg::escaped;
use plimsoll_base::names::Named;
use plimsoll_base::units::{format_bytes, grouped};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::choose::{Planned, precision};
use plimsoll_planner::whatif::FrontierPoint;
use plimsoll_runs::End;

/// What a page is about.
pub struct Page<'a> {
    pub recipe: &'a Recipe,
    /// Absent where a run's plan cannot be restored on this machine.
    pub planned: Option<&'a Planned>,
    /// Plans between the smallest and the fastest, if they were searched for.
    pub frontier: &'a [FrontierPoint],
    pub run: Option<&'a RunStory>,
    /// Lines that the reader should know.
    /// Training samples, where they were counted.
    pub train_samples: Option<usize>,
    pub notes: &'a [String],
}

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

impl Page<'_> {
    pub fn html(&self) -> String {
        let mut page = Html::new();
        self.header(&mut page);
        self.tiles(&mut page);
        for note in self.notes {
            page.raw("<p class=\"note\">").text(note).raw("</p>");
        }
        if let Some(run) = self.run {
            run::sections(run, self.planned, &mut page);
        }
        if let Some(planned) = self.planned {
            memory::sections(planned, self.budget(planned), &mut page);
            frontier::section(self.frontier, planned, &mut page);
            decisions(planned, &mut page);
        }
        self.data(&mut page);
        document(&self.recipe.name, &page.finish())
    }

    /// The run's own budget, where there is a run: what is free now is another matter.
    fn budget(&self, planned: &Planned) -> u64 {
        self.run.and_then(|run| run.started.as_ref()).map_or(planned.budget_bytes, |started| started.budget_bytes)
    }

    fn header(&self, page: &mut Html) {
        let (class, verdict) = self.verdict();
        page.raw("<header><div><h1>").text(&self.recipe.name).raw("</h1><p class=\"sub\">").text(&self.subtitle());
        page.raw("</p></div><span class=\"badge ").raw(class).raw("\">").text(&verdict).raw("</span></header>");
    }

    fn subtitle(&self) -> String {
        let family = self.recipe.model.name();
        let task = self.recipe.train.task.name();
        let on = match (self.planned, self.run.and_then(|run| run.started.as_ref())) {
            (_, Some(started)) => format!(" on {}", started.device),
            (Some(planned), None) => format!(" on {}", planned.device.name),
            (None, None) => String::new(),
        };
        let precision =
            self.planned.map_or(String::new(), |p| format!(", {}", precision(self.recipe, &p.device).name()));
        format!("{family}, {task}{on}{precision}")
    }

    /// (class of the badge, its words)
    fn verdict(&self) -> (&'static str, String) {
        if let Some(run) = self.run {
            return match run.finished.as_ref().map(|finished| finished.end) {
                Some(End::Completed) => ("good", "completed".into()),
                Some(End::Stopped) => ("good", "stopped early: no longer getting better".into()),
                Some(End::Interrupted) => ("warn", "interrupted, can be resumed".into()),
                None => ("warn", format!("not finished: step {} of {}", run.last_step(), run.all_steps())),
            };
        }
        match self.planned {
            Some(planned) if planned.headroom_bytes >= 0 => {
                ("good", format!("fits, {} to spare", format_bytes(planned.headroom_bytes as u64)))
            }
            Some(planned) => {
                ("bad", format!("does not fit: {} too much", format_bytes(planned.headroom_bytes.unsigned_abs())))
            }
            None => ("warn", "no plan".into()),
        }
    }

    fn tiles(&self, page: &mut Html) {
        page.raw("<div class=\"tiles\">");
        if let Some(planned) = self.planned {
            let settings = &planned.choice.settings;
            let budget = self.budget(planned);
            page.tile(
                "planned peak",
                &format_bytes(planned.planned_peak_bytes()),
                &format!("of {}", format_bytes(budget)),
            );
            if let Some(measured) = self.run.and_then(RunStory::measured_peak_bytes) {
                page.tile("measured peak", &format_bytes(measured), &against(measured, planned.planned_peak_bytes()));
            }
            page.tile("parameters", &grouped(planned.choice.program.parameters()), "");
            let batch = format!("{} × {}", settings.micro_batch, settings.accumulation);
            let effective = format!("effective batch {}", self.recipe.train.effective_batch);
            page.tile("micro-batch × accumulation", &batch, &effective);
            page.tile("predicted step", &milliseconds(planned.choice.predicted_step_ms), "by the cost model");
        }
        if let Some(run) = self.run {
            run::tiles(run, self.planned, page);
        }
        page.raw("</div>");
    }

    fn data(&self, page: &mut Html) {
        let mut rows: Vec<(&str, String)> = Vec::new();
        match (self.run.and_then(|run| run.started.as_ref()), self.train_samples) {
            (Some(started), _) => {
                rows.push(("training samples", grouped(started.train_samples)));
                rows.push(("validation samples", grouped(started.validation_samples)));
                rows.push(("steps per epoch", grouped(started.steps_per_epoch)));
            }
            (None, Some(samples)) => rows.push(("training samples", grouped(samples))),
            (None, None) => rows.push(("samples", "unknown: the data was not read".into())),
        }
        rows.push(("effective batch", grouped(self.recipe.train.effective_batch)));
        rows.push((
            "loader",
            format!("{} workers, {} batches ahead", self.recipe.data.workers, self.recipe.data.prefetch),
        ));
        page.section("Data", "");
        page.raw("<table class=\"facts\">");
        for (name, value) in rows {
            page.raw("<tr><th>").text(name).raw("</th><td>").text(&value).raw("</td></tr>");
        }
        page.raw("</table>").end_section();
    }
}

fn decisions(planned: &Planned, page: &mut Html) {
    if planned.choice.decisions.is_empty() {
        return;
    }
    page.section("Decisions", "what was chosen within the budget, what it saves and what it costs");
    page.raw("<table><thead><tr><th>lever</th><th>choice</th><th class=\"n\">saves</th><th class=\"n\">time</th><th>why</th></tr></thead><tbody>");
    for decision in &planned.choice.decisions {
        let saves = match decision.saved_bytes {
            0 => "–".to_string(),
            1.. => format_bytes(decision.saved_bytes as u64),
            _ => format!("−{}", format_bytes(decision.saved_bytes.unsigned_abs())),
        };
        page.raw("<tr><td>").text(&decision.lever).raw("</td><td><b>").text(&decision.choice);
        page.raw("</b></td><td class=\"n\">").text(&saves).raw("</td><td class=\"n\">");
        page.text(&milliseconds(decision.predicted_ms)).raw("</td><td>").text(&decision.reason).raw("</td></tr>");
    }
    page.raw("</tbody></table>").end_section();
}

/// The unit in which a machine gives memory out.
const PAGE_BYTES: u64 = 4096;

/// How far a measured number lies from the planned one.
fn against(measured: u64, planned: u64) -> String {
    match measured.abs_diff(planned) < PAGE_BYTES {
        true => "as planned, to the page".into(),
        false => format!("{:+.1} % against planned", 100.0 * (measured as f64 / planned.max(1) as f64 - 1.0)),
    }
}

fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms >= 1000.0 => format!("{:.2} s", ms / 1e3),
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms => format!("{ms:.1} ms"),
    }
}

/// A whole page around its body.
#[deny(missing_docs)]
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{} · plimsoll</title><style>\n{STYLE}</style></head>\n\
         <body><main>\n{body}<footer>plimsoll {}</footer></main><div id=\"tip\" hidden></div><script>\n{SCRIPT}</script></body></html>\n",
        escaped(title),
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests;
