//! Images: header → decode → resize → normalize, straight into the row of a batch; with captions, a dataset.

pub(super) mod captioned;
mod config;
mod decode;
mod fault;
mod header;
pub(crate) mod list;
mod prepare;

pub use captioned::{
    CaptionData, CaptionOptions, CaptionReport, CaptionSizes, Captioned, load_captions, read_captions,
};
pub use fault::ImageFault;
pub use header::{Format, Header, Orientation};
pub use list::ImagePlace;
pub use prepare::{Filter, Preparation, Scaling, Studio};
