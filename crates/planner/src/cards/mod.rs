//! Cards that plans can be made for without having one.

mod catalog;
mod profile;

pub use catalog::{Card, UnknownCard, card, catalog, nearest_card};
