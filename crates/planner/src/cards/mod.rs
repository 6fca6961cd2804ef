//! Cards that plans can be made for without having one.

#![deny(missing_docs)]

mod catalog;
mod profile;

pub(crate) use catalog::nearest_card;
pub use catalog::{Card, UnknownCard, card, catalog, variants};
