//! What would fit when a recipe does not.

use crate::counter::Counter;
use crate::device;
use crate::failure::Failure;
use plimsoll::recipe::{Budget, Draft};
use plimsoll::train::answers::{Ladder, ladder};
use plimsoll::train::{Device, Planned};
use plimsoll::units::format_bytes;

/// The ladder of a recipe, and every way out that fits in a sentence. The last is always a budget that is enough.
pub fn ways_out(draft: &Draft, device: &Device, smallest: &Planned) -> Result<(Ladder, Vec<String>), Failure> {
    let counter = Counter::new();
    let ladder = ladder(draft, device, smallest, &device::catalog_cards(), &|done, of| counter.show(done, of))?;
    let budget = draft.with(&[])?.memory.budget;
    let hints = held_by_others(&budget, device, smallest).into_iter().chain(ladder.hints()).collect();
    Ok((ladder, hints))
}

/// Where the machine has enough and other programs hold it.
fn held_by_others(budget: &Budget, device: &Device, smallest: &Planned) -> Option<String> {
    let share = match budget {
        Budget::Auto => 0.95,
        Budget::Percent(percent) => percent / 100.0,
        Budget::Bytes(_) => return None,
    };
    let held = device.total_bytes.saturating_sub(device.free_bytes);
    let enough = (device.total_bytes as f64 * share) as u64 >= smallest.planned_peak_bytes();
    (held > 0 && enough).then(|| {
        format!("other programs hold {} of {}: `plimsoll devices` names them", format_bytes(held), device.name)
    })
}
