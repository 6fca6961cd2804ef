//! `plimsoll plan --largest`: the largest batch of each card, whatever the recipe's own is.

use super::Arguments;
use crate::cards::devices;
use crate::counter::Counter;
use crate::failure::{Code, Failure};
use crate::printer;
use plimsoll_models::recipe::Draft;
use plimsoll_planner::Device;
use plimsoll_planner::whatif::largest;
use plimsoll_report::largest_table;

pub(crate) fn run(arguments: &Arguments, draft: &Draft, device: &Device) -> Result<(), Failure> {
    let named = match arguments.cards.is_empty() {
        true => vec![device.clone()],
        false => devices(&arguments.cards, &arguments.common.machine)?,
    };
    let counter = Counter::new();
    let rows = largest(draft, &named, &|done, of| counter.show(done, of))?;
    drop(counter);
    match arguments.common.json {
        true => printer::json(&rows)?,
        false => printer::out(&largest_table(&rows))?,
    };
    match rows.iter().any(|row| row.largest.is_some()) {
        true => Ok(()),
        false => Err(Failure {
            code: Code::DoesNotFit,
            message: "not even one sample fits".into(),
            hints: vec!["`plimsoll plan RECIPE` says what could be given up, and which card would do".into()],
        }),
    }
}
