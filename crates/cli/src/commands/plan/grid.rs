//! `plimsoll plan --grid`: many recipes on one device.

use super::Arguments;
use crate::counter::Counter;
use crate::failure::{Code, Failure};
use crate::printer;
use plimsoll_models::recipe::Draft;
use plimsoll_planner::Device;
use plimsoll_planner::whatif::{Axis, Grid, grid};
use plimsoll_report::grid_table;

pub(crate) fn run(arguments: &Arguments, draft: &Draft, device: &Device) -> Result<(), Failure> {
    let axes = arguments.grid.iter().map(|text| Axis::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let counter = Counter::new();
    let grid = grid(draft, &axes, device, &|done, of| counter.show(done, of))?;
    drop(counter);
    match arguments.common.json {
        true => printer::json(&grid.rows)?,
        false => printer::out(&grid_table(&grid))?,
    };
    match grid.fitting() {
        0 => Err(none_fits(&grid)),
        _ => Ok(()),
    }
}

fn none_fits(grid: &Grid) -> Failure {
    let count = grid.rows.len();
    let hint = "`plimsoll plan RECIPE --set …` for one of them says what could be given up";
    match grid.rows.iter().map(|row| row.attempt.refused.as_deref()).collect::<Option<Vec<&str>>>() {
        // No memory is to blame for what cannot be planned at all.
        Some(causes) => Failure::bad_input(format!("none of {count} combinations can be planned: {}", causes[0]), hint),
        None => Failure {
            code: Code::DoesNotFit,
            message: format!("none of {count} combinations fits"),
            hints: vec![hint.into()],
        },
    }
}
