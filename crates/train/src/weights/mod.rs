//! Weights between files and the arena: a checkpoint's tensors in, a model's folder out.

pub(crate) mod export;
mod generation_config;
mod load;
mod model_folder;

pub(crate) use export::is_exported;
pub use export::{Export, SHARD_BYTES};
pub(crate) use generation_config::unfollowed;
pub(crate) use load::check_names;
pub use load::{LoadReport, load_into};
pub use model_folder::{Companions, TokenizerSource};
pub(crate) use model_folder::{check_folder, load_folder, source_checkpoint, write_folder};
