//! Recipes and the models they name: sizes, graphs, and Hugging Face's files.
//!
//! ```text
//! reading ◄─ hf ◄─ families ◄─ recipe
//! ```

pub mod reading;

pub mod hf;

pub mod families;

pub mod recipe;
