//! One image: header → decode → resize → normalize, straight into the row of a batch.
//!
//! A crate of its own because filters that are unrolled for every width take long to compile, and rarely change.
//!
//! fault ◄─ header ◄─ decode ◄─ prepare

mod decode;
mod fault;
mod header;
mod prepare;

pub use fault::ImageFault;
pub use header::Header;
pub use prepare::{Filter, Preparation, Scaling, Studio};
