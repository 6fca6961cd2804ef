//! How close written texts are to true ones: to the letter, and by the words that they share (ROUGE, as the package
//! rouge-score counts it without stemming).

use plimsoll_runs::Scores;
use std::collections::HashMap;

/// Sums over the texts so far.
#[derive(Clone, Debug, Default)]
pub struct WrittenTexts {
    count: usize,
    exact: usize,
    rouge: [f64; 3],
}

impl WrittenTexts {
    pub fn add(&mut self, written: &str, truth: &str) {
        self.count += 1;
        self.exact += usize::from(written.trim() == truth.trim());
        let rouge = rouge(written, truth);
        self.rouge.iter_mut().zip(rouge).for_each(|(sum, one)| *sum += one);
    }

    /// How many texts were compared.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Other scores with what the texts say.
    pub(crate) fn lay_over(&self, scores: Scores) -> Scores {
        if self.count == 0 {
            return scores;
        }
        let mean = |sum: f64| Some(sum / self.count as f64);
        let [rouge_1, rouge_2, rouge_l] = self.rouge.map(mean);
        Scores { exact_match: mean(self.exact as f64), rouge_1, rouge_2, rouge_l, ..scores }
    }
}

/// F1 of shared words, of shared pairs of words, and of the longest common sequence.
fn rouge(written: &str, truth: &str) -> [f64; 3] {
    let is_foreign = |c: char| !c.is_ascii() && c.is_alphanumeric();
    let foreign = truth.chars().any(is_foreign);
    let (written, truth) = (words(written, foreign), words(truth, foreign));
    let shared = |n: usize| f1(overlap(&written, &truth, n), grams(&written, n), grams(&truth, n));
    let longest = longest_common(&written, &truth);
    [shared(1), shared(2), f1(longest, written.len(), truth.len())]
}

fn f1(shared: usize, written: usize, truth: usize) -> f64 {
    if shared == 0 { 0.0 } else { 2.0 * shared as f64 / (written + truth) as f64 }
}

fn grams(words: &[String], n: usize) -> usize {
    (words.len() + 1).saturating_sub(n)
}

/// Lower-case words of Latin letters and digits; where the true text is in another script, of its letters too.
fn words(text: &str, foreign: bool) -> Vec<String> {
    let belongs = |c: char| c.is_ascii_alphanumeric() || (foreign && c.is_alphanumeric());
    let lower = text.to_lowercase();
    lower.split(|c: char| !belongs(c)).filter(|word| !word.is_empty()).map(String::from).collect()
}

/// Runs of `n` words that both have, as often as both have them.
fn overlap(written: &[String], truth: &[String], n: usize) -> usize {
    let mut counts: HashMap<&[String], usize> = HashMap::new();
    truth.windows(n).for_each(|gram| *counts.entry(gram).or_default() += 1);
    let mut take = |gram: &[String]| match counts.get_mut(gram) {
        Some(left) if *left > 0 => {
            *left -= 1;
            1
        }
        _ => 0,
    };
    written.windows(n).map(&mut take).sum()
}

fn longest_common(a: &[String], b: &[String]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for x in a {
        let mut diagonal = 0;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if x == y { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written, true, and what rouge-score 0.1.2 says (`tools/reference/metrics.py`).
    const GOLDENS: &str = include_str!("../../tests/goldens/rouge.jsonl");

    #[test]
    fn rouge_is_what_rouge_score_says() {
        let mut lines = 0;
        for line in GOLDENS.lines() {
            let golden: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| golden[key].as_str().unwrap();
            let found = rouge(text("written"), text("truth"));
            for (found, key) in found.iter().zip(["rouge1", "rouge2", "rougeL"]) {
                let expected = golden[key].as_f64().unwrap();
                assert!((found - expected).abs() < 1e-12, "{key} of {line}: {found}");
            }
            lines += 1;
        }
        assert!(lines >= 40, "{lines}");
    }

    #[test]
    fn texts_of_other_scripts_have_words_too() {
        assert_eq!(rouge("кот сидит", "кот сидит на стуле")[0], 2.0 * 2.0 / 6.0);
        assert_eq!(rouge("", "кот"), [0.0; 3]);
    }

    #[test]
    fn exact_is_to_the_letter_but_for_space_around() {
        let mut texts = WrittenTexts::default();
        for (written, truth) in [("a b ", "a b"), ("A b", "a b"), ("a", "b"), ("", "")] {
            texts.add(written, truth);
        }
        let scores = texts.lay_over(Scores { loss: 1.0, ..Scores::default() });
        assert_eq!((scores.exact_match, scores.loss, texts.count()), (Some(0.5), 1.0, 4));
        assert_eq!(WrittenTexts::default().lay_over(Scores::default()).exact_match, None);
    }
}
