//! The algorithms that a library was told to use. They are part of a plan: the bits depend on them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The library's name of an algorithm. Valid for the same version of the library.
pub type Algorithm = [u64; 8];

/// Which algorithm does which product. With another version of the library the names mean nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Algorithms {
    pub library: usize,
    pub algorithms: BTreeMap<String, Algorithm>,
}
