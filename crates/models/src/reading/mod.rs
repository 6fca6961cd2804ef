//! Reading tables: every value knows where it was written, every problem is reported with its place, and a key that
//! nobody asked for is one of them.

pub(crate) mod about;
pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod keys;
pub mod kind;
pub(crate) mod section;
pub(crate) mod set;
pub(crate) mod tree;

pub use error::{Finding, Problems, RecipeError};

use std::path::{Path, PathBuf};

/// `path` in `folder` or, if nothing is there, in the working directory.
pub(crate) fn resolve_in(folder: &Path, path: &Path) -> PathBuf {
    let beside = folder.join(path);
    if !beside.exists() && path.exists() { path.to_path_buf() } else { beside }
}
