//! What a trained model is used for: scores, answers, texts.

mod use_model;

pub use crate::tasks::Question;
pub use use_model::{Evaluated, TrainedRun, Within};
