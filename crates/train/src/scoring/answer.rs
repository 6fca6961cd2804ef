//! Answers to rows of a file, as they are written out.

use super::metrics::likeliest;
use plimsoll_models::recipe::ProblemType;
use serde::Serialize;

/// The answer to one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Which window of a series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// The row of the file, from 0; of a window its last.
    pub row: usize,
    #[serde(flatten)]
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// One class of several.
    Class {
        label: String,
        class: usize,
        probabilities: Vec<f64>,
    },
    /// Each label that is more likely than not.
    Labels {
        labels: Vec<String>,
        probabilities: Vec<f64>,
    },
    Numbers {
        values: Vec<f32>,
    },
    Text {
        text: String,
    },
    /// Of length 1; similarity is their product.
    Embeddings {
        similarity: f64,
        image_embedding: Vec<f32>,
        text_embedding: Vec<f32>,
    },
}

impl Answer {
    pub fn of(problem: ProblemType, logits: &[f32], names: &[String]) -> Answer {
        match problem {
            ProblemType::Single => Answer::class(logits, names),
            ProblemType::Multi => Answer::labels(logits, names),
            ProblemType::Regression => Answer::Numbers { values: logits.to_vec() },
        }
    }

    /// Classes without a name are no answers: the training data never had them.
    pub fn class(logits: &[f32], names: &[String]) -> Answer {
        let all: Vec<f64> = softmax(logits).collect();
        let probabilities = all[..all.len().min(names.len())].to_vec();
        let class = likeliest(&logits[..probabilities.len()]);
        Answer::Class { label: names.get(class).cloned().unwrap_or_default(), class, probabilities }
    }

    fn labels(logits: &[f32], names: &[String]) -> Answer {
        let probabilities: Vec<f64> = logits.iter().map(|&x| 1.0 / (1.0 + f64::from(-x).exp())).collect();
        let likely = names.iter().zip(&probabilities).filter(|(_, p)| **p > 0.5);
        Answer::Labels { labels: likely.map(|(name, _)| name.clone()).collect(), probabilities }
    }

    pub fn embeddings(image: Vec<f32>, text: Vec<f32>) -> Answer {
        let similarity = image.iter().zip(&text).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        Answer::Embeddings { similarity, image_embedding: image, text_embedding: text }
    }
}

fn softmax(logits: &[f32]) -> impl Iterator<Item = f64> + '_ {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = move |&x: &f32| f64::from(x - highest).exp();
    let total: f64 = logits.iter().map(weight).sum();
    logits.iter().map(move |x| weight(x) / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("c{i}")).collect()
    }

    #[test]
    fn probabilities_sum_to_one_even_far_from_zero() {
        let p: Vec<f64> = softmax(&[1000.0, 1000.0, 999.0]).collect();
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12 && p[0] == p[1] && p[2] < p[0], "{p:?}");
    }

    #[test]
    fn a_class_without_a_name_is_no_answer() {
        let Answer::Class { label, class, probabilities } = Answer::class(&[1.0, 2.0, 9.0], &names(2)) else {
            panic!("not a class")
        };
        assert_eq!((label.as_str(), class, probabilities.len()), ("c1", 1, 2));
    }

    #[test]
    fn several_labels_are_those_more_likely_than_not() {
        let answer = Answer::of(ProblemType::Multi, &[0.1, -0.1, 3.0], &names(3));
        assert!(matches!(answer, Answer::Labels { labels, .. } if labels == ["c0", "c2"]));
    }
}
