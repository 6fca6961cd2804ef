//! Weights between files and the arena: a checkpoint's tensors in, a model's folder out.

pub(crate) mod export;
mod load;
mod model_folder;

pub use export::{Export, SHARD_BYTES, is_exported};
pub use load::{LoadReport, load_into};
pub use model_folder::{Companions, TokenizerSource, load_folder, source_checkpoint, write_folder};
