//! What a task does with data and answers: loading, feeding, scoring, predicting.

pub mod expect;
pub mod load;
pub mod metrics;
mod predict;

pub use expect::{ExpectedData, ExpectedSteps, expected_data, host_peak_bytes};
pub use load::{
    Extras, LoadedData, caption_options, classifier, decoder, labelled_options, load_data, loader_options,
    pairs_options, series_sizes, towers,
};
pub use predict::{Answer, Prediction};
