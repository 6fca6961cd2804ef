//! Recipes and the models they name: sizes, graphs, and Hugging Face's files.

pub mod hf;

pub mod families;
pub mod recipe;
