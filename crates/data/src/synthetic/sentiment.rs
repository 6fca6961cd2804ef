//! `sentiment`: reviews of one to five opinions, some of them negated. Each opinion agrees with the label with a known
//! probability, independently of the others, so the best classifier is a vote and its accuracy is known.

use super::{Noise, WordStyle, word_tokenizer};
use crate::texts::{Cell, Content, Row, assemble_labelled};
use crate::{DataError, LabelledData, LabelledOptions, Place, TextTokenizer};

const SUBJECTS: [&str; 12] = [
    "the food",
    "the service",
    "the room",
    "the view",
    "the price",
    "the music",
    "the staff",
    "the coffee",
    "the story",
    "the ending",
    "the battery",
    "the screen",
];
const VERBS: [&str; 4] = ["was", "is", "seemed", "felt"];
const DEGREES: [&str; 5] = ["very", "really", "quite", "truly", "so"];
const JOINTS: [&str; 4] = [",", "and", "but then", "; also"];
const GOOD: [&str; 10] =
    ["great", "lovely", "good", "excellent", "pleasant", "perfect", "charming", "fresh", "bright", "fine"];
const BAD: [&str; 10] = ["awful", "bad", "poor", "dreadful", "boring", "stale", "noisy", "dull", "broken", "dirty"];

/// How often an opinion agrees with the label.
const AGREEMENT: f64 = 0.8;
const NEGATED: f64 = 0.3;
/// Odd, so that a vote decides.
const OPINIONS: [usize; 3] = [1, 3, 5];
const LABELS: [&str; 2] = ["negative", "positive"];

/// The share of texts whose majority of opinions agrees with the label.
fn best_accuracy() -> f64 {
    let majority = |n: usize| (n / 2 + 1..=n).map(|k| choose(n, k) * agree(k, n)).sum::<f64>();
    let agree = OPINIONS.iter().map(|&n| majority(n)).sum::<f64>();
    agree / OPINIONS.len() as f64
}

fn agree(k: usize, n: usize) -> f64 {
    AGREEMENT.powi(k as i32) * (1.0 - AGREEMENT).powi((n - k) as i32)
}

fn choose(n: usize, k: usize) -> f64 {
    (1..=k).map(|i| (n - k + i) as f64 / i as f64).product()
}

/// One text and its class.
fn review(noise: &mut Noise) -> (String, usize) {
    let class = usize::from(noise.uniform() < 0.5);
    let opinions = *noise.pick(&OPINIONS);
    let mut text = String::new();
    for opinion in 0..opinions {
        if opinion > 0 {
            text = format!("{text} {} ", noise.pick(&JOINTS));
        }
        let good = (noise.uniform() < AGREEMENT) == (class == 1);
        let negated = noise.uniform() < NEGATED;
        let adjective = *noise.pick(if good != negated { &GOOD } else { &BAD });
        let degree = if noise.uniform() < 0.3 { *noise.pick(&DEGREES) } else { "" };
        let (subject, verb) = (*noise.pick(&SUBJECTS), *noise.pick(&VERBS));
        let words = [subject, verb, if negated { "not" } else { "" }, degree, adjective];
        text += &words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    }
    (text + " .", class)
}

fn words() -> impl Iterator<Item = &'static str> {
    let lists: [&[&'static str]; 6] = [&SUBJECTS, &VERBS, &DEGREES, &JOINTS, &GOOD, &BAD];
    lists.into_iter().flatten().flat_map(|text| text.split(' ')).chain(["not", "."])
}

/// `samples` labelled texts. Of `options`, what is said about files is not used. Without a tokenizer, one is made of
/// the words that occur.
pub fn sentiment(
    samples: usize,
    seed: u64,
    options: &LabelledOptions,
    tokenizer: Option<TextTokenizer>,
) -> Result<LabelledData, DataError> {
    let options = LabelledOptions {
        train: "synthetic:sentiment".into(),
        validation: None,
        text_pair: None,
        label: vec!["label".into()],
        labels: Some(LABELS.map(String::from).to_vec()),
        ..options.clone()
    };
    let made = || word_tokenizer("synthetic:sentiment", words(), WordStyle::Encoder);
    let tokenizer = tokenizer.map_or_else(made, Ok)?;
    let mut noise = Noise::new(seed, "sentiment");
    let mut rows = (1..=samples as u64).map(|row| {
        let (text, class) = review(&mut noise);
        let cells = vec![Cell::Text(text), Cell::Text(LABELS[class].into())];
        Row { place: Place::Row(row), offset: 0, bytes: 0, content: Content::Cells(cells) }
    });
    assemble_labelled(&options, tokenizer, || Ok(rows.next()), Some(best_accuracy()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Composition, Dataset};
    use plimsoll_base::batching::{Batching, Buckets, Compose};

    fn options() -> LabelledOptions {
        let batching = Batching { buckets: Buckets::Auto, compose: Compose::Length };
        LabelledOptions::new("", 2, 64, 100, Composition { batch: 8, seed: 1, batching })
    }

    /// What a perfect reader of the grammar answers.
    fn vote(text: &str) -> usize {
        let words: Vec<&str> = text.split(' ').collect();
        let opinion = |(at, word): (usize, &&str)| {
            let good = GOOD.contains(word).then_some(1i32).or(BAD.contains(word).then_some(-1))?;
            let negated = words[at.saturating_sub(2)..at].contains(&"not");
            Some(if negated { -good } else { good })
        };
        usize::from(words.iter().enumerate().filter_map(opinion).sum::<i32>() > 0)
    }

    #[test]
    fn the_best_accuracy_is_that_of_a_vote() {
        let mut noise = Noise::new(4, "test");
        let right = (0..40_000).filter(|_| {
            let (text, class) = review(&mut noise);
            vote(&text) == class
        });
        let (measured, computed) = (right.count() as f64 / 40_000.0, best_accuracy());
        assert!((measured - computed).abs() < 0.006, "{measured} against {computed}");
        assert!((0.85..0.92).contains(&computed));
    }

    #[test]
    fn texts_are_a_dataset_like_any_other() {
        let data = sentiment(500, 7, &options(), None).unwrap();
        assert_eq!((data.train.len(), data.validation.len()), (450, 50));
        assert_eq!(data.classes, LABELS);
        let unknown = data.tokenizer.id("[UNK]").unwrap() as i32;
        let mut batch = Batch::new(data.train.fields(), 450).unwrap();
        batch.fill(&data.train, 0..450).unwrap();
        assert!(batch.i32(0, 0..450).iter().all(|&id| id != unknown), "every word is known");
        assert!(data.report.to_string().contains("best possible accuracy: 8"), "{}", data.report);
        let again = sentiment(500, 7, &options(), None).unwrap();
        let mut other = Batch::new(again.train.fields(), 450).unwrap();
        other.fill(&again.train, 0..450).unwrap();
        assert!(batch == other);
        let narrow = sentiment(5, 7, &LabelledOptions { vocab: 10, ..options() }, None).unwrap_err();
        assert!(matches!(narrow, DataError::TokenBeyondVocabulary { .. }), "{narrow}");
    }
}
