//! Whether buffers that do not live at the same time share memory; switched off only to compare.

use super::{Lever, Situation};
use crate::program::Settings;
use plimsoll_models::recipe::Memory;

pub(super) struct Sharing;

impl Lever for Sharing {
    fn key(&self) -> &'static str {
        "sharing"
    }

    fn is_pinned(&self, memory: &Memory) -> bool {
        !memory.sharing
    }

    fn free(&self) -> &'static str {
        "true"
    }

    fn start(&self, at: &Situation<'_>, settings: &mut Settings) {
        settings.sharing = !at.pins.no_sharing;
    }
}
