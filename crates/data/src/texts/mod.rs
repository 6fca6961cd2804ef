//! Texts for models that read tokens: with labels, or in pairs of source and target.
//!
//! ```text
//! rows ─► read (worker threads: parse, check, tokenize) ─► store (tokens, or where rows lie) ─► datasets
//! ```
//! A file of ordinary size is tokenized once, before training; of a larger one only the places of the rows are kept,
//! and the loader's workers read and tokenize what they need.

mod beside;
mod captions;
mod composition;
mod labelled;
mod options;
mod pairs;
mod read;
mod split;
mod store;
mod targets;
mod tokenizer;
mod wordpiece;

pub use captions::CaptionTokenizer;
pub use composition::Composition;
pub use labelled::{LabelledData, Texts, load_labelled, read_texts};
pub use options::{LabelledOptions, PairsOptions};
pub use pairs::{PairedTexts, PairsData, encode_source, load_pairs, read_sources};
pub use targets::LabelKind;
pub use tokenizer::TextTokenizer;

pub(crate) use labelled::assemble_labelled;
pub(crate) use pairs::assemble_pairs;
