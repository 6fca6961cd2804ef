//! What would fit when a recipe does not.

use crate::counter::Counter;
use crate::failure::Failure;
use plimsoll_base::units::format_bytes;
use plimsoll_models::recipe::{Draft, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::choose::{Planned, budget_bytes};
use plimsoll_planner::whatif::{Ladder, ladder};

/// The ladder of a recipe, and every way out that fits in a sentence. The last is always a budget that is enough.
pub fn ways_out(draft: &Draft, device: &Device, smallest: &Planned) -> Result<(Ladder, Vec<String>), Failure> {
    let counter = Counter::new();
    let ladder = ladder(draft, device, smallest, &Device::catalog(), &|done, of| counter.show(done, of))?;
    let hints = held_by_others(&draft.with(&[])?, device, smallest).into_iter().chain(ladder.hints()).collect();
    Ok((ladder, hints))
}

/// Where the machine has enough and other programs hold it.
fn held_by_others(recipe: &Recipe, device: &Device, smallest: &Planned) -> Option<String> {
    let held = device.total_bytes.saturating_sub(device.free_bytes);
    let empty = Device { free_bytes: device.total_bytes, ..device.clone() };
    let (now, then) = (budget_bytes(recipe, device), budget_bytes(recipe, &empty));
    (then > now && then >= smallest.planned_peak_bytes()).then(|| {
        format!("other programs hold {} of {}: `plimsoll devices` names them", format_bytes(held), device.name)
    })
}
