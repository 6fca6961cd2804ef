//! Trainings that stay in PyTorch: what an out-of-memory error says, and settings under which a recipe fits a card there.
//!
//! ```
//! use plimsoll::advise::{advise, read};
//! use plimsoll::{Device, Recipe};
//!
//! let text = "
//!     [model]
//!     preset = \"bert-large-uncased\"
//!     [data]
//!     train = \"reviews.jsonl\"
//!     max_length = 384
//!     [train]
//!     effective_batch = 64
//! ";
//! let recipe = Recipe::parse(text, "reviews.toml", &[])?;
//! let log = "step 1\n  File \"train.py\", line 88, in main\n    loss.backward()\n\
//!     torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 386.00 MiB. GPU 0 has a total capacity of 23.64 GiB \
//!     of which 101.50 MiB is free. Of the allocated memory 22.71 GiB is allocated by PyTorch, and 312.44 MiB is reserved \
//!     by PyTorch but unallocated.";
//! let reading = read(log, Some(&recipe))?.expect("the log ends in such an error");
//! println!("{:?}: {}", reading.causes[0].kind, reading.causes[0].why);
//!
//! let card = Device::of_memory(reading.oom.total_bytes.expect("the error says it")); // or Device::from_name("rtx-4090")
//! let advice = advise(&recipe, &card)?;
//! assert!(advice.fits && advice.card_bytes <= advice.budget_bytes);
//! assert_eq!(advice.per_device_train_batch_size * advice.gradient_accumulation_steps, 64); // learning is left alone
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{Device, PlanFailure};
use plimsoll_core::plan::PlanError;
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::advise as planning;

pub use plimsoll_planner::advise::{
    Advice, Amount, Attention, Candidate, Cause, CauseKind, Form, Likely, Log, Need, Oom, Optimizer, Process, Progress,
    Reading, Remedy, Setting, Stage, Verdict, WayOut, remedies,
};

/// Settings under which a recipe fits a card in PyTorch, the effective batch unchanged; the smallest step where none does.
///
/// # Errors
/// The model of the recipe cannot be built at all.
pub fn advise(recipe: &Recipe, device: &Device) -> Result<Advice, PlanFailure> {
    planning::advise(recipe, device).map_err(|error| PlanError::from(error).into())
}

/// What the last out-of-memory error of a text means, with the recipe of the run that died where that is known; `None`
/// where the text has no such error.
///
/// # Errors
/// The model of the recipe cannot be built at all.
pub fn read(text: &str, recipe: Option<&Recipe>) -> Result<Option<Reading>, PlanFailure> {
    Reading::of(text, recipe).map_err(|error| PlanError::from(error).into())
}
