//! The programs of the shipped recipes as they would run on a card: every family, every precision.

use plimsoll_core::graph::Target;
use plimsoll_core::plan::Profile;
use plimsoll_models::recipe::{Precision, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::cards::card;
use plimsoll_planner::choose::{Planned, plan};
use std::error::Error;
use std::path::Path;

/// A recipe of `recipes/` and what is set on top of it.
pub(crate) struct Shipped {
    pub name: &'static str,
    file: &'static str,
    settings: &'static [&'static str],
}

/// At the recipe's own rate the first updates of a fresh CLIP overshoot, and carry any difference far: on the CPU
/// the tenth loss moves by 1 % when weights keep 15 bits, by 1e-5 at this one.
const CALM: &str = "train.optimizer.lr=1e-4";

/// Small enough to plan at once; each family and each form of its layers once.
pub(crate) const SHIPPED: [Shipped; 13] = [
    Shipped { name: "hybrid", file: "quickstart", settings: &[] },
    Shipped { name: "hybrid, materialized", file: "quickstart", settings: &["memory.attention=materialized"] },
    Shipped { name: "mu-sota", file: "mu-sota-small", settings: &[] },
    Shipped { name: "bert", file: "encoder-small", settings: &[] },
    Shipped { name: "bert, accumulated", file: "encoder-small", settings: &["memory.micro_batch=8"] },
    Shipped { name: "bert, materialized", file: "encoder-small", settings: &["memory.attention=materialized"] },
    Shipped { name: "bert, recomputed", file: "encoder-small", settings: &["memory.recompute=layers"] },
    Shipped { name: "roberta", file: "encoder-small", settings: &["model.family=roberta", "data.max_length=32"] },
    Shipped {
        name: "deberta-v3",
        file: "encoder-small",
        settings: &["model.family=deberta-v3", "model.position_buckets=32"],
    },
    Shipped { name: "t5", file: "flan-t5-xl-small", settings: &[] },
    Shipped { name: "t5, adafactor", file: "flan-t5-xl-small", settings: &["train.optimizer.name=adafactor"] },
    Shipped { name: "clip", file: "clip-small", settings: &[CALM] },
    Shipped { name: "clip, accumulated", file: "clip-small", settings: &[CALM, "memory.micro_batch=16"] },
];

/// Only compiled, never compared with the CPU: too large for it, or what it does not run.
pub(crate) const ON_CARDS_ONLY: [Shipped; 5] = [
    Shipped {
        name: "bert, bf16 moments, accumulated",
        file: "encoder-small",
        settings: &["memory.optimizer_state=bf16", "memory.micro_batch=8"],
    },
    Shipped {
        name: "bert, sgd, bf16 momentum",
        file: "encoder-small",
        settings: &["train.optimizer={name=\"sgd\",momentum=0.9}", "memory.optimizer_state=bf16"],
    },
    Shipped {
        name: "t5, adafactor, bf16 moments",
        file: "flan-t5-xl-small",
        settings: &["train.optimizer.name=adafactor", "memory.optimizer_state=bf16"],
    },
    // Recurrences of so many rows have variants of their own: the most rows on some cards, fewer on all.
    Shipped {
        name: "hybrid, wide",
        file: "quickstart",
        settings: &["model.hidden=256", "train.effective_batch=256", "memory.micro_batch=256"],
    },
    Shipped {
        name: "hybrid, wide, fewer rows",
        file: "quickstart",
        settings: &["model.hidden=256", "train.effective_batch=128", "memory.micro_batch=128"],
    },
];

pub(crate) const PRECISIONS: [Precision; 5] =
    [Precision::F32, Precision::Tf32, Precision::Bf16Mixed, Precision::Fp16Mixed, Precision::Bf16];

impl Shipped {
    pub(crate) fn recipe(&self, precision: Precision, more: &[String]) -> Result<Recipe, Box<dyn Error>> {
        let mut settings: Vec<String> = self.settings.iter().map(|s| s.to_string()).collect();
        settings.push(format!("memory.precision={precision}"));
        settings.extend(more.iter().cloned());
        Ok(Recipe::load(&Path::new("recipes").join(self.file).with_extension("toml"), &settings)?)
    }

    /// The plan of its recipe for a large card that need not be here.
    pub(crate) fn planned(&self, precision: Precision) -> Result<Planned, Box<dyn Error>> {
        Ok(plan(&self.recipe(precision, &[])?, &any_card())?)
    }
}

/// Of a card with all kinds of tensor cores: some forms are planned for these only.
pub(crate) fn card_profile() -> Profile {
    card("h200").expect("the catalog has an H200").profile()
}

fn any_card() -> Device {
    Device {
        name: "any card".into(),
        total_bytes: 80 << 30,
        free_bytes: 80 << 30,
        reserve_bytes: 1 << 30,
        beside: Default::default(),
        profile: card_profile(),
        target: Target::CUDA,
        precision: Precision::F32,
        runs: false,
        ordinal: 0,
    }
}
