//! Pictures: header → decode → resize → normalize, straight into the row of a batch.

mod decode;
mod fault;
mod header;
mod prepare;

pub use fault::PictureFault;
pub use header::{Format, Header, Orientation};
pub use prepare::{Filter, Preparation, Scaling, Studio};
