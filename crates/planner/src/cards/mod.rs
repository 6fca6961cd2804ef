//! Cards that plans can be made for without having one.

#![deny(missing_docs)]

mod catalog;
mod profile;

pub use catalog::{Card, UnknownCard, card, catalog, variants};
pub(crate) use catalog::{likely_card, nearest_card};
