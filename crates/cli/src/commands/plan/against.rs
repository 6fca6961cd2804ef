//! `plimsoll plan --against`: two configurations side by side, component by component.

use super::Arguments;
use crate::failure::{Code, Failure};
use crate::printer;
use plimsoll::PlanReport;
use plimsoll_base::units::{format_bytes, format_seconds};
use plimsoll_models::recipe::{Draft, Recipe};
use plimsoll_planner::choose::plan;
use plimsoll_planner::whatif::Ladder;
use plimsoll_planner::{Device, PlanFailure};
use plimsoll_report::{Side, Table};
use plimsoll_train::tasks::{beside_the_run, look_at_data};
use serde::Serialize;
use std::path::Path;

/// A configuration and what became of it.
#[derive(Serialize)]
struct Configuration {
    name: String,
    plan: PlanReport,
}

pub(crate) fn run(arguments: &Arguments, draft: &Draft, device: &Device) -> Result<(), Failure> {
    let (files, sets): (Vec<&String>, Vec<&String>) = arguments.against.iter().partition(|other| !other.contains('='));
    let sets: Vec<String> = sets.into_iter().cloned().collect();
    let other = match files[..] {
        [] => draft.with(&sets)?,
        [file] => Draft::read(Path::new(file), &arguments.common.overrides.settings(&sets))?.with(&[])?,
        _ => return Err(Failure::bad_input("--against names two recipes", "one recipe, and settings as key=value")),
    };
    let name = files.into_iter().cloned().chain(sets).collect::<Vec<_>>().join(" ");
    let this = draft.with(&[])?;
    let sides = [answer(this.name.clone(), &this, device)?, answer(name, &other, device)?];
    match arguments.common.json {
        true => printer::json(&sides)?,
        false => printer::out(&printer::plain_on_terminal(text(&sides)))?,
    };
    match sides.iter().find(|side| !side.plan.fits) {
        None => Ok(()),
        Some(side) => Err(Failure {
            code: Code::DoesNotFit,
            message: format!("{} does not fit", side.name),
            hints: vec!["`plimsoll plan` of it alone says what could be given up".into()],
        }),
    }
}

/// The plan, or the smallest where none fits.
fn answer(name: String, recipe: &Recipe, device: &Device) -> Result<Configuration, Failure> {
    let device = beside_the_run(device, look_at_data(recipe).known());
    let plan = match plan(recipe, &device) {
        Ok(planned) => PlanReport::of(recipe, &planned),
        Err(PlanFailure::DoesNotFit(smallest)) => {
            let (rungs, smallest_card) = (Vec::new(), None);
            let (outline, enough) = (smallest.as_ref().into(), smallest.enough());
            let ladder = Ladder { rungs, smallest_card, smallest: outline, enough: enough.clone() };
            PlanReport::of_smallest(recipe, &smallest, &[enough], ladder)
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Configuration { name, plan })
}

fn text(sides: &[Configuration; 2]) -> String {
    let [a, b] = sides.each_ref().map(|side| &side.plan);
    let columns = [("", Side::Left), (&*sides[0].name, Side::Right), (&*sides[1].name, Side::Right)];
    let mut table = Table::new(&[&columns[..], &[("difference", Side::Right)]].concat());
    for component in a.breakdown.keys().filter(|key| a.breakdown[**key] + b.breakdown[**key] > 0) {
        let bytes = [a, b].map(|plan| plan.breakdown[component] as u64);
        table.row(bytes_row(&component.replace('_', " "), bytes));
    }
    table.row(bytes_row("live peak", [a, b].map(|plan| plan.live_peak_bytes)));
    table.row(bytes_row("arena", [a, b].map(|plan| plan.arena_bytes)));
    table.row(bytes_row("reserve", [a, b].map(|plan| plan.reserve_bytes)));
    table.row(bytes_row("all in all", [a, b].map(|plan| plan.arena_bytes + plan.reserve_bytes)));
    let words = |name: &str, word: fn(&PlanReport) -> String| [name.into(), word(a), word(b), String::new()];
    table.row(words("fits", |plan| String::from(if plan.fits { "yes" } else { "no" })));
    table.row(words("effective batch", |plan| plan.effective_batch.to_string()));
    table.row(words("micro-batch", |plan| format!("{} × {}", plan.micro_batch, plan.accumulation)));
    table.row(words("recompute", |plan| plan.recompute.into()));
    table.row(words("precision", |plan| plan.precision.into()));
    table.row(words("step", |plan| format_seconds(plan.predicted_step_ms / 1e3)));
    table.row(words("samples/s", |plan| {
        format!("{:.1}", 1e3 * plan.effective_batch as f64 / plan.predicted_step_ms.max(1e-9))
    }));
    table.to_text()
}

fn bytes_row(name: &str, [a, b]: [u64; 2]) -> [String; 4] {
    let sign = if b < a { "−" } else { "+" };
    let difference = if a == b { "·".into() } else { format!("{sign}{}", format_bytes(a.abs_diff(b))) };
    [name.into(), format_bytes(a), format_bytes(b), difference]
}
