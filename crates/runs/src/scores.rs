//! How good a model was.

use plimsoll_base::metric::Metric;
use serde::{Deserialize, Serialize};

/// What an evaluation found. Means over the samples or tokens of a dataset; what a task does not have is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// The mean over samples or tokens.
    pub loss: f64,
    /// Share of right answers: labels, next tokens, or for several labels per text the share of texts with all right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The mean of the classes' F1: a class that is never right counts as much as the most frequent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f1: Option<f64>,
    /// Pearson's correlation of answers and truth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pearson: Option<f64>,
    /// Spearman's: the correlation of ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spearman: Option<f64>,
    /// e to the power of the loss: among how many equally likely tokens a language model chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
    /// Of images and texts the share that find their other half first, the mean of both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall_at_1: Option<f64>,
    /// The same among the first five.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall_at_5: Option<f64>,
    /// The same among the first ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall_at_10: Option<f64>,
    /// The share of images whose own caption is the likeliest of all different captions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_shot: Option<f64>,
    /// The share of texts written as they should be, to the letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_match: Option<f64>,
    /// Words that written and true texts share, as F1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rouge_1: Option<f64>,
    /// The same of pairs of words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rouge_2: Option<f64>,
    /// The same of the longest common sequence of words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rouge_l: Option<f64>,
}

impl Scores {
    /// What it says by one measure; nothing where the task does not have it.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Loss => Some(self.loss),
            Metric::Perplexity => self.perplexity,
            Metric::Accuracy => self.accuracy,
            Metric::F1 => self.f1,
            Metric::Pearson => self.pearson,
            Metric::Spearman => self.spearman,
            Metric::RecallAt1 => self.recall_at_1,
            Metric::RecallAt5 => self.recall_at_5,
            Metric::RecallAt10 => self.recall_at_10,
            Metric::ZeroShot => self.zero_shot,
            Metric::ExactMatch => self.exact_match,
            Metric::Rouge1 => self.rouge_1,
            Metric::Rouge2 => self.rouge_2,
            Metric::RougeL => self.rouge_l,
        }
    }

    /// Whether it is better than another by one measure. What cannot be measured is never better.
    pub fn is_better(&self, other: &Scores, metric: Metric) -> bool {
        match (self.get(metric).filter(|x| x.is_finite()), other.get(metric).filter(|x| x.is_finite())) {
            (Some(new), Some(old)) => metric.is_better(new, old),
            (new, _) => new.is_some(),
        }
    }
}

impl std::fmt::Display for Scores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "loss {:.4}", self.loss)?;
        let mut share = |name: &str, x: Option<f64>| x.map_or(Ok(()), |x| write!(f, ", {name} {:.1} %", 100.0 * x));
        share("accuracy", self.accuracy)?;
        share("zero-shot accuracy", self.zero_shot)?;
        share("recall at 1", self.recall_at_1)?;
        share("at 5", self.recall_at_5)?;
        share("at 10", self.recall_at_10)?;
        share("exact match", self.exact_match)?;
        let mut number = |name: &str, x: Option<f64>| x.map_or(Ok(()), |x| write!(f, ", {name} {x:.3}"));
        number("perplexity", self.perplexity)?;
        number("F1", self.f1)?;
        number("correlation", self.pearson)?;
        number("of ranks", self.spearman)?;
        number("ROUGE-1", self.rouge_1)?;
        number("ROUGE-2", self.rouge_2)?;
        number("ROUGE-L", self.rouge_l)
    }
}

/// The best evaluation of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Updates that were done by then.
    pub step: usize,
    /// What it came to.
    #[serde(flatten)]
    pub scores: Scores,
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_base::names::Named;

    #[test]
    fn each_measure_knows_which_way_is_better_and_nothing_is_never_better() {
        let low = Scores { loss: 1.0, accuracy: Some(0.5), ..Scores::default() };
        let high = Scores { loss: 2.0, accuracy: Some(0.9), ..Scores::default() };
        assert!(low.is_better(&high, Metric::Loss) && !high.is_better(&low, Metric::Loss));
        assert!(high.is_better(&low, Metric::Accuracy) && !low.is_better(&high, Metric::Accuracy));
        assert!(!low.is_better(&high, Metric::F1), "neither has one");
        let broken = Scores { loss: f64::NAN, ..low };
        assert!(!broken.is_better(&high, Metric::Loss) && high.is_better(&broken, Metric::Loss));
        assert!(!low.is_better(&low, Metric::Loss), "the same is no improvement");
    }

    #[test]
    fn a_measure_is_called_alike_in_recipes_and_in_events() {
        for &metric in Metric::ALL.iter().filter(|metric| **metric != Metric::Loss) {
            let line = format!("{{\"loss\": 1.0, \"{}\": 0.25}}", metric.name());
            let scores: Scores = serde_json::from_str(&line).unwrap();
            assert_eq!(scores.get(metric), Some(0.25), "{metric}");
        }
    }
}
