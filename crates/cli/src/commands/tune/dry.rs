//! `plimsoll tune --dry-run`: how many combinations fit, how, and how long they would take.

use crate::arguments::RecipeFlags;
use crate::counter::Counter;
use crate::device;
use crate::failure::{Code, Failure};
use crate::printer::{self, duration};
use plimsoll::Draft;
use plimsoll::search::Search;
use plimsoll_base::units::format_bytes;
use plimsoll_report::{Side, Table};
use plimsoll_tune::trials::{DryRun, ModelRow, Plans, dry_plan};

pub(crate) fn run(flags: &RecipeFlags, draft: &Draft, search: &Search) -> Result<(), Failure> {
    let device = device::to_plan_for(&flags.machine)?;
    let counter = Counter::new();
    let mut plans = Plans::new(draft.clone());
    let dry = dry_plan(&mut plans, search, &device, &|done, of| counter.show(done, of))?;
    drop(counter);
    match flags.json {
        true => printer::json(&dry)?,
        false => printer::out(&text(&dry))?,
    };
    match dry.feasible {
        0 => Err(nothing_fits(&dry)),
        _ => Ok(()),
    }
}

fn text(dry: &DryRun) -> String {
    let drawn = if dry.sampled { " (drawn evenly from more)" } else { "" };
    let (all, distinct) = (dry.combinations, dry.distinct);
    let mut text = format!("{all} combinations{drawn}, {distinct} different trainings, on {}", dry.device);
    text += &format!(" inside {}\n", format_bytes(dry.budget_bytes));
    let unfit = dry.infeasible.saturating_sub(dry.refused);
    text += &format!("  {} fit as asked, {} adapted, {unfit} do not fit", dry.as_asked, dry.adapted);
    if dry.refused < dry.combinations {
        text += &format!("; all fit from {} on", format_bytes(dry.smallest_budget_bytes));
    }
    text += "\n";
    match dry.predicted_hours {
        _ if dry.feasible == 0 => {}
        Some(hours) => text += &format!("  predicted: {} one after the other\n", duration(hours * 3600.0)),
        None => text += "  how long they take shows when the data is there\n",
    }
    if let Some(cause) = &dry.refusal {
        text += &format!("  {} are refused, the first because:\n{cause}\n", dry.refused);
    }
    text + "\n" + &table(&dry.rows)
}

fn table(rows: &[ModelRow]) -> String {
    let numbers = ["combinations", "fit", "adapted", "smallest", "largest", "time"].map(|name| (name, Side::Right));
    let mut table = Table::new(&[&[("", Side::Left)][..], &numbers[..], &[("recompute", Side::Left)]].concat());
    for row in rows {
        let levels: Vec<String> = row.recompute.iter().map(|(level, count)| format!("{level} {count}")).collect();
        table.row([
            row.name.clone(),
            row.combinations.to_string(),
            row.feasible.to_string(),
            row.adapted.to_string(),
            format_bytes(row.smallest_bytes),
            format_bytes(row.largest_bytes),
            row.predicted_hours.map_or("-".into(), |hours| duration(hours * 3600.0)),
            levels.join(", "),
        ]);
    }
    table.to_text()
}

fn nothing_fits(dry: &DryRun) -> Failure {
    match (dry.refused == dry.combinations, &dry.refusal) {
        (true, Some(cause)) => Failure::bad_input(format!("no combination can be planned: {cause}"), "mend the recipe"),
        _ => Failure {
            code: Code::DoesNotFit,
            message: format!("none of {} combinations fits", dry.combinations),
            hints: vec![format!("all fit from {} on: --memory", format_bytes(dry.smallest_budget_bytes))],
        },
    }
}
