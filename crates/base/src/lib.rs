//! What every other crate of plimsoll stands on: sizes and their units, names, random streams, files.
//!
//! ```text
//! explain, files, guard, heap, names, random, simd, units ◄─ batching, folders, formats, metric, safetensors
//! ```

pub mod batching;
pub mod explain;
pub mod files;
// What replaces folders needs renames that exchange: Linux's own. Plans are made without it.
#[cfg(target_os = "linux")]
pub mod folders;
pub mod formats;
pub mod guard;
pub mod heap;
pub mod metric;
pub mod names;
pub mod random;
pub mod safetensors;
pub mod simd;
pub mod units;
