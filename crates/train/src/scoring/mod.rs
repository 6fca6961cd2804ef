//! Answers of a model and how good they are.

mod answer;
mod metrics;

pub use answer::{Answer, Prediction};
pub use metrics::{Answers, Truth};
