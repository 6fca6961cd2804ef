//! What can be learned.

#![deny(missing_docs)]

use plimsoll_base::named;

named! {
    /// What a model learns.
    pub enum Task {
        /// A label for a text.
        Classify = "classify",
        /// A label for a window of a series.
        Series = "series",
        /// The next token.
        LanguageModel = "language-model",
        /// What a text is to become.
        Seq2seq = "seq2seq",
        /// Which caption belongs to which image.
        Contrastive = "contrastive",
    }
}
