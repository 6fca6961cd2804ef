//! What a trained model is used for: scores, answers, texts.

mod use_model;

pub use use_model::TrainedRun;
