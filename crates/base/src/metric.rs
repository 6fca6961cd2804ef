//! By which number a model is judged: the words that recipes and scores share.

#![deny(missing_docs)]

use crate::named;

named! {
    /// What an evaluation tells about a model.
    pub enum Metric {
        /// The mean of what is minimized.
        Loss = "loss",
        /// How many tokens are as likely as the right one.
        Perplexity = "perplexity",
        /// Right answers, as a part of all.
        Accuracy = "accuracy",
        /// The mean of the F1 of the classes.
        F1 = "f1",
        /// The correlation of answers and labels.
        Pearson = "pearson",
        /// The same of their ranks.
        Spearman = "spearman",
        /// Captions found by their image, and images by their caption, at the first place.
        RecallAt1 = "recall_at_1",
        /// Among the first five.
        RecallAt5 = "recall_at_5",
        /// Among the first ten.
        RecallAt10 = "recall_at_10",
        /// Classes of images named in words.
        ZeroShot = "zero_shot",
        /// Texts written as they should be, as a part of all.
        ExactMatch = "exact_match",
        /// Words in common.
        Rouge1 = "rouge_1",
        /// Pairs of words in common.
        Rouge2 = "rouge_2",
        /// The longest row of words in common.
        RougeL = "rouge_l",
    }
}

impl Metric {
    /// Whether a lower number is the better one.
    pub(crate) fn falls(self) -> bool {
        matches!(self, Metric::Loss | Metric::Perplexity)
    }

    /// Whether it takes texts that the model writes.
    pub fn needs_writing(self) -> bool {
        matches!(self, Metric::ExactMatch | Metric::Rouge1 | Metric::Rouge2 | Metric::RougeL)
    }

    /// Whether the new number is.
    pub fn is_better(self, new: f64, old: f64) -> bool {
        if self.falls() { new < old } else { new > old }
    }
}
