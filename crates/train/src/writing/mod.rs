//! Texts token by token.

pub mod generation;
mod next_token;

pub use next_token::{Sampling, generate};
