//! By which number a model is judged: the words that recipes and scores share.

use crate::named;

named! {
    /// What an evaluation tells about a model.
    pub enum Metric {
        Loss = "loss",
        Perplexity = "perplexity",
        Accuracy = "accuracy",
        F1 = "f1",
        Pearson = "pearson",
        Spearman = "spearman",
        RecallAt1 = "recall_at_1",
        RecallAt5 = "recall_at_5",
        RecallAt10 = "recall_at_10",
        ZeroShot = "zero_shot",
        ExactMatch = "exact_match",
        Rouge1 = "rouge_1",
        Rouge2 = "rouge_2",
        RougeL = "rouge_l",
    }
}

impl Metric {
    /// Whether a lower number is the better one.
    pub fn falls(self) -> bool {
        matches!(self, Metric::Loss | Metric::Perplexity)
    }

    /// Whether it takes texts that the model writes.
    pub fn needs_writing(self) -> bool {
        matches!(self, Metric::ExactMatch | Metric::Rouge1 | Metric::Rouge2 | Metric::RougeL)
    }

    pub fn is_better(self, new: f64, old: f64) -> bool {
        if self.falls() { new < old } else { new > old }
    }
}
