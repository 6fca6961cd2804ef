//! Folders of Hugging Face checkpoints: config.json, tensors and tokenizer files, read and written.
//!
//! Names and shapes are checked against the program before the first byte is copied; then tensors stream in small
//! pieces from the file into the arena, converted on the way, so that the weights exist once.

mod checkpoint;
mod config;
mod convert;
mod error;
mod export;
mod load;
mod names;

pub use checkpoint::Checkpoint;
pub use config::Config;
pub use error::{HfError, Mismatch};
pub use export::{Export, SHARD_BYTES};
pub use load::LoadReport;
