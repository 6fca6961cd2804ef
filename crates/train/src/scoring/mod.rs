//! Answers of a model and how good they are.

mod answer;
mod classes;
mod metrics;
mod retrieval;
mod texts;

pub use answer::{Answer, Prediction};
pub use classes::{ClassScore, Classes};
pub use metrics::{Answers, Truth};
pub use retrieval::{Recall, Retrieval, Retrieved};
pub use texts::WrittenTexts;
