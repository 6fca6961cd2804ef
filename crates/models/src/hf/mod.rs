//! Folders of Hugging Face checkpoints: config.json, tensors and tokenizer files, and how they are read.

pub mod checkpoint;
mod config;
pub mod config_out;
pub mod convert;
mod error;
pub mod names;
mod naming;

pub use checkpoint::Checkpoint;
pub use config::Config;
pub use error::{HfError, Mismatch};
pub use naming::HuggingFace;
