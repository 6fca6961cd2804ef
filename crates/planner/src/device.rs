//! A device to plan for or train on.

#![deny(missing_docs)]

use crate::cards::{Card, UnknownCard, card, catalog, likely_card, nearest_card};
use plimsoll_base::units::{ADDRESSABLE_BYTES, format_bytes};
use plimsoll_core::graph::Target;
use plimsoll_core::plan::{Layout, Profile, Program};
use plimsoll_models::recipe::{Precision, Recipe};

/// What a plan has to know about the device it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// `cpu`, `cuda:0 NVIDIA H200`, or a card of the catalog.
    pub name: String,
    /// All of its memory.
    pub total_bytes: u64,
    /// What of it nobody holds.
    pub free_bytes: u64,
    /// Bytes that the runtime takes beside the arena, whatever is trained.
    pub reserve_bytes: u64,
    /// What a recipe adds to that.
    pub beside: Beside,
    /// How long its work takes.
    pub profile: Profile,
    /// What plans for it are made for.
    pub target: Target,
    /// What `precision = "auto"` means here. It depends on the device alone, never on the budget.
    pub precision: Precision,
    /// Whether this program can run on it, not only plan for it.
    pub runs: bool,
    /// Which of several, as the driver counts them.
    pub ordinal: usize,
}

/// What a run has beside its arena in the same memory, as on a CPU: a fact about the program, so all of them are the same.
#[derive(Clone, Copy)]
pub struct Beside {
    /// By its recipe alone: batches ahead.
    pub recipe: fn(&Recipe) -> u64,
    /// By what it computes: graphs ready to run, what is offloaded.
    pub plan: fn(&Recipe, &Program, &Layout) -> u64,
}

impl Default for Beside {
    fn default() -> Beside {
        Beside { recipe: |_| 0, plan: |_, _, _| 0 }
    }
}

impl PartialEq for Beside {
    fn eq(&self, _: &Beside) -> bool {
        true
    }
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beside")
    }
}

impl Device {
    /// Bytes that a run of this recipe takes beside its arena, however it is planned.
    pub fn reserve_for(&self, recipe: &Recipe) -> u64 {
        self.reserve_bytes.saturating_add((self.beside.recipe)(recipe))
    }

    /// What this plan adds to that.
    pub fn reserve_of(&self, recipe: &Recipe, program: &Program, layout: &Layout) -> u64 {
        (self.beside.plan)(recipe, program, layout)
    }

    /// A card of the catalog, by its name: `rtx-4090`. It can be planned for, not run on.
    pub fn from_name(name: &str) -> Result<Device, UnknownCard> {
        card(name).map(Device::from_card)
    }

    /// A card of the catalog.
    pub fn from_card(card: &Card) -> Device {
        Device {
            name: card.name.into(),
            total_bytes: card.total_bytes,
            free_bytes: card.total_bytes,
            reserve_bytes: card.reserve_bytes,
            beside: Beside::default(),
            target: Target::CUDA,
            profile: card.profile(),
            precision: auto_precision(card.compute_capability),
            runs: false,
            ordinal: 0,
        }
    }

    /// A card of which nothing but its memory is known, as errors tell it: one of the catalog that has about as much, with
    /// just that memory.
    ///
    /// ```
    /// use plimsoll_planner::Device;
    ///
    /// let card = Device::of_memory(25_386_352_640);
    /// assert_eq!((card.name.as_str(), card.total_bytes), ("a card of 23.64 GiB, like rtx-4090", 25_386_352_640));
    /// ```
    pub fn of_memory(total_bytes: u64) -> Device {
        let total_bytes = total_bytes.min(ADDRESSABLE_BYTES);
        let card = likely_card(total_bytes);
        let name = format!("a card of {}, like {}", format_bytes(total_bytes), card.name);
        Device { name, total_bytes, free_bytes: total_bytes, ..Device::from_card(card) }
    }

    /// A GPU of this machine: the card of the catalog that it is, or the nearest one of its generation, with the memory
    /// that it has.
    pub fn from_gpu(
        (ordinal, name): (usize, &str),
        compute_capability: (u32, u32),
        [total_bytes, free_bytes]: [u64; 2],
    ) -> Device {
        Device {
            name: format!("cuda:{ordinal} {name}"),
            total_bytes,
            free_bytes,
            precision: auto_precision(compute_capability),
            runs: true,
            ordinal,
            ..Device::from_card(nearest_card(compute_capability, total_bytes))
        }
    }

    /// All cards of the catalog, by memory.
    pub fn catalog() -> Vec<Device> {
        catalog().iter().map(Device::from_card).collect()
    }

    /// A CPU of so many threads with so much memory free, as fast as one that was not measured is taken to be.
    pub fn cpu(threads: usize, free_bytes: u64) -> Device {
        Device {
            name: "cpu".into(),
            total_bytes: free_bytes,
            free_bytes,
            reserve_bytes: 0,
            beside: Beside::default(),
            profile: Profile::cpu(threads),
            target: Target::cpu(threads),
            precision: Precision::F32,
            runs: true,
            ordinal: 0,
        }
    }
}

/// Mixed precision where the card has tensor cores for it.
fn auto_precision(compute_capability: (u32, u32)) -> Precision {
    match compute_capability {
        (8.., _) => Precision::Bf16Mixed,
        // Volta and Turing.
        (7, _) => Precision::Fp16Mixed,
        _ => Precision::F32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_planned_as_the_card_it_is() {
        let total = 143771 << 20;
        let h200 = Device::from_gpu((1, "NVIDIA H200"), (9, 0), [total, total / 2]);
        assert_eq!((h200.reserve_bytes, h200.precision), (card("h200").unwrap().reserve_bytes, Precision::Bf16Mixed));
        assert_eq!((h200.ordinal, h200.runs, h200.free_bytes), (1, true, total / 2));
        let t4 = Device::from_gpu((0, "Tesla T4"), (7, 5), [15360 << 20, 15360 << 20]);
        assert_eq!((t4.reserve_bytes, t4.precision), (card("t4").unwrap().reserve_bytes, Precision::Fp16Mixed));
    }
}
