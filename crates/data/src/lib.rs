//! From files to batches:
//!
//! ```text
//! file ─► formats (rows, columns) ─► table ─► series (labels, split, normalizer) ─► windows ─┐
//!                   └─► vocabulary ─► corpus (split) ─► sequences ───────────────────────────┼─► loader ─► batches
//!                   └─► texts (tokens, labels, split) ─► labelled texts, pairs, captions ────┤   order, compose, ladder
//! seed ─► synthetic (regimes, grammar, …; the best result is known) ─────────────────────────┘
//! ```
//! Everything from outside is checked before memory is taken for it; whatever is wrong is a [`DataError`] with file,
//! place, cause and hint.
//!
//! ```text
//! error, fields, order, whole ◄─ dataset, ladder, problems, text, vocabulary ◄─ compose, formats, weighted, windows
//!   ◄─ asked, batch, labels, survey ◄─ loader, normalizer ◄─ report ◄─ series ◄─ corpus, texts ◄─ images
//!   ◄─ beginning, synthetic
//! ```

mod asked;
mod batch;
mod beginning;
mod compose;
mod corpus;
mod dataset;
mod error;
mod fields;
mod formats;
pub mod images;
mod labels;
mod ladder;
mod loader;
mod normalizer;
mod order;
mod problems;
mod report;
mod series;
mod survey;
mod synthetic;
mod text;
mod texts;
mod vocabulary;
mod weighted;
mod whole;
mod windows;

pub use asked::{Asked, Unanswered};
pub use batch::Batch;
pub(crate) use batch::batch_bytes;
pub use beginning::check_columns;
pub use corpus::{CorpusData, CorpusOptions, Sequences, load_corpus};
pub use dataset::{Dataset, FieldMut, RowMut};
pub use error::{DataError, ImagePlace, Place};
pub use fields::{Element, FieldSpec, Padding};
pub use formats::column_names;
pub use formats::table::MostNumbers;
pub use labels::LabelRule;
pub use ladder::Ladder;
pub use loader::{Loader, LoaderOptions, LoaderStats};
pub use normalizer::Normalizer;
pub use order::{Order, Position};
pub use report::{
    CaptionReport, ClassReport, CorpusReport, DataReport, FeatureReport, GapReport, LengthReport, Reading,
};
pub use report::{SeriesReport, TextsReport};
pub use series::{AskedWindows, Labels, SeriesData, SeriesOptions, UnansweredWindow, ask_windows, load_series};
pub use survey::{Lists, Misread, Survey, SurveyedColumn, Values, survey};
pub use synthetic::{GrammarOptions, REGIMES, RegimesOptions, WordStyle, grammar, recipes, regimes, sentiment};
pub use synthetic::{SHAPES_END, SHAPES_VOCABULARY, Shapes, ShapesData, ShapesOptions, shapes, shapes_tokenizer};
pub use texts::{
    CaptionTokenizer, Composition, LabelKind, LabelledData, LabelledOptions, PairedTexts, PairsData, PairsOptions,
    TextTokenizer, Texts, encode_source, load_labelled, load_pairs, read_sources, read_texts,
};
pub use vocabulary::{FileVocabulary, Vocabulary, VocabularyChoice};
pub use weighted::Weighted;
pub use windows::{Windows, window_count};
