//! What would fit when a recipe does not.

use crate::counter::Counter;
use crate::failure::Failure;
use plimsoll_models::recipe::Draft;
use plimsoll_planner::Device;
use plimsoll_planner::choose::Planned;
use plimsoll_planner::whatif::Ladder;

/// The ladder of a recipe, and every way out that fits in a sentence, with a count of plans on a terminal.
pub(crate) fn ways_out(draft: &Draft, device: &Device, smallest: &Planned) -> Result<(Ladder, Vec<String>), Failure> {
    let counter = Counter::new();
    Ok(plimsoll::ways_out(draft, device, smallest, &|done, of| counter.show(done, of))?)
}
