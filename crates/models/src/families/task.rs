//! What can be learned.

use plimsoll_base::named;

named! {
    pub enum Task {
        Classify = "classify",
        Series = "series",
        LanguageModel = "language-model",
        Seq2seq = "seq2seq",
        Contrastive = "contrastive",
    }
}
