//! Images with captions, a dataset; how they are prepared is read from the checkpoint.

pub(super) mod captioned;
mod config;
pub(crate) mod list;

pub use captioned::{CaptionData, CaptionOptions, CaptionSizes, Captioned, load_captions, read_captions};
pub use config::preparation_of;
pub use plimsoll_images::Preparation;
