//! Answers to rows of a file, as they are written out.

#![deny(missing_docs)]

use super::metrics::likeliest;
use plimsoll_models::recipe::ProblemType;
use serde::Serialize;

/// The answer to one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Which window of a series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// The row of the file, from 0, whatever becomes of the rows before it; of a window its last.
    pub row: usize,
    /// What the row is called in its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<serde_json::Value>,
    /// The image's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What the model says, or why it says nothing.
    #[serde(flatten)]
    pub answer: Answer,
}

/// What a model says of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// One class of several.
    Class {
        /// Its name.
        label: String,
        /// Its place among the model's outputs.
        class: usize,
        /// Of every class that has a name; they sum to 1 where all have.
        probabilities: Vec<f64>,
    },
    /// Each label that is more likely than not.
    Labels {
        /// Their names.
        labels: Vec<String>,
        /// Of every label by itself.
        probabilities: Vec<f64>,
    },
    /// Numbers, in the order of the model's outputs.
    Numbers {
        /// One for each output.
        values: Vec<f32>,
    },
    /// What the model writes.
    Text {
        /// Without the tokens that only end it.
        text: String,
    },
    /// Of length 1; similarity is their product. Of an image alone or a text alone there is but one.
    Embeddings {
        /// Of image and text, where there are both.
        #[serde(skip_serializing_if = "Option::is_none")]
        similarity: Option<f64>,
        /// Of the image.
        #[serde(skip_serializing_if = "Option::is_none")]
        image_embedding: Option<Vec<f32>>,
        /// Of the text.
        #[serde(skip_serializing_if = "Option::is_none")]
        text_embedding: Option<Vec<f32>>,
    },
    /// There is none, and this is why.
    None {
        /// What is wrong with the row, or with the numbers.
        error: String,
    },
}

/// What is said where a model's numbers are none.
const NOT_FINITE: &str = "the model's answer is no finite number";

impl Answer {
    pub(crate) fn of(problem: ProblemType, logits: &[f32], names: &[String]) -> Answer {
        match problem {
            ProblemType::Single => Answer::class(logits, names),
            ProblemType::Multi if is_finite(logits) => Answer::labels(logits, names),
            ProblemType::Regression if is_finite(logits) => Answer::Numbers { values: logits.to_vec() },
            _ => Answer::none(NOT_FINITE),
        }
    }

    pub(crate) fn none(error: impl Into<String>) -> Answer {
        Answer::None { error: error.into() }
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        matches!(self, Answer::None { .. })
    }

    /// Classes without a name are no answers: the training data never had them.
    pub(crate) fn class(logits: &[f32], names: &[String]) -> Answer {
        if !is_finite(logits) {
            return Answer::none(NOT_FINITE);
        }
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

    /// Those that there are.
    pub(crate) fn embeddings(image: Option<&[f32]>, text: Option<&[f32]>) -> Answer {
        if ![image, text].into_iter().flatten().all(is_finite) {
            return Answer::none(NOT_FINITE);
        }
        let product =
            |(image, text): (&[f32], &[f32])| image.iter().zip(text).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        let own = |embedding: Option<&[f32]>| embedding.map(<[f32]>::to_vec);
        Answer::Embeddings {
            similarity: image.zip(text).map(product),
            image_embedding: own(image),
            text_embedding: own(text),
        }
    }
}

fn is_finite(values: &[f32]) -> bool {
    values.iter().all(|x| x.is_finite())
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
    fn what_is_no_number_is_no_answer() {
        for problem in [ProblemType::Single, ProblemType::Multi, ProblemType::Regression] {
            let answer = Answer::of(problem, &[0.1, f32::NAN], &names(2));
            assert!(
                answer.is_none() && serde_json::to_string(&answer).unwrap().starts_with("{\"error\":"),
                "{answer:?}"
            );
        }
        assert!(Answer::embeddings(Some(&[f32::INFINITY]), None).is_none());
        assert!(!Answer::embeddings(Some(&[1.0]), None).is_none());
    }

    #[test]
    fn several_labels_are_those_more_likely_than_not() {
        let answer = Answer::of(ProblemType::Multi, &[0.1, -0.1, 3.0], &names(3));
        assert!(matches!(answer, Answer::Labels { labels, .. } if labels == ["c0", "c2"]));
    }
}
