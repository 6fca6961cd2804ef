//! Shared libraries as files: what they ask for, and small ones written from a list of names.

mod read;
mod write;

pub use read::{ElfError, Library};
pub use write::Carrier;
pub(crate) use write::shim;
