//! What a trained model is used for: scores, answers, texts.

pub mod generation;
mod next_token;
mod use_model;

pub use next_token::{Sampling, generate};
pub use use_model::TrainedRun;
