//! `grammar`: sentences about ships from a small probabilistic grammar with agreement over nested clauses. A text has
//! exactly one derivation, so the entropy of a sentence is that of its choices, and the best loss of a model that sees
//! enough context is known: entropy per sentence ÷ bytes per sentence.

use super::Noise;
use crate::corpus::{Parts, assemble, check};
use crate::{CorpusData, CorpusOptions, DataError, Vocabulary};

#[derive(Clone, Debug, PartialEq)]
pub struct GrammarOptions {
    pub seed: u64,
    /// At least this much text, ended by a whole sentence.
    pub bytes: usize,
    pub max_length: usize,
    pub validation_fraction: f64,
    /// Ids the model knows.
    pub vocab: usize,
}

impl Default for GrammarOptions {
    fn default() -> Self {
        GrammarOptions { seed: 1, bytes: 200_000, max_length: 128, validation_fraction: 0.1, vocab: 257 }
    }
}

/// Text of which more is a slip of the pen.
const MOST_BYTES: usize = 1 << 32;

enum Symbol {
    Text(&'static str),
    Rule(Rule),
}
use Symbol::{Rule as R, Text as T};

#[derive(Clone, Copy)]
enum Rule {
    Sentence,
    Adjective,
    One,
    Many,
    OneClause,
    ManyClause,
    OneVerb,
    ManyVerb,
    Object,
}
const RULES: usize = 9;

type Production = (f64, &'static [Symbol]);

/// Productions with their probabilities, which sum to 1 per rule.
fn productions(rule: Rule) -> &'static [Production] {
    use Rule::*;
    match rule {
        Sentence => &[
            (0.6, &[T("the "), R(Adjective), R(One), R(OneClause), T(" "), R(OneVerb), R(Object), T(".\n")]),
            (0.4, &[T("the "), R(Adjective), R(Many), R(ManyClause), T(" "), R(ManyVerb), R(Object), T(".\n")]),
        ],
        Adjective => &[(0.5, &[]), (0.2, &[T("old ")]), (0.2, &[T("small ")]), (0.1, &[T("bright ")])],
        One => &[(0.4, &[T("ship")]), (0.3, &[T("captain")]), (0.2, &[T("gull")]), (0.1, &[T("wave")])],
        Many => &[(0.4, &[T("ships")]), (0.3, &[T("captains")]), (0.2, &[T("gulls")]), (0.1, &[T("waves")])],
        OneClause => &[(0.7, &[]), (0.3, &[T(" that "), R(OneVerb), R(Object)])],
        ManyClause => &[(0.7, &[]), (0.3, &[T(" that "), R(ManyVerb), R(Object)])],
        OneVerb => &[(0.4, &[T("sees")]), (0.3, &[T("follows")]), (0.2, &[T("carries")]), (0.1, &[T("greets")])],
        ManyVerb => &[(0.4, &[T("see")]), (0.3, &[T("follow")]), (0.2, &[T("carry")]), (0.1, &[T("greet")])],
        Object => &[
            (0.4, &[]),
            (0.3, &[T(" the "), R(Adjective), R(One), R(OneClause)]),
            (0.3, &[T(" the "), R(Adjective), R(Many), R(ManyClause)]),
        ],
    }
}

const ALL: [Rule; RULES] = [
    Rule::Sentence,
    Rule::Adjective,
    Rule::One,
    Rule::Many,
    Rule::OneClause,
    Rule::ManyClause,
    Rule::OneVerb,
    Rule::ManyVerb,
    Rule::Object,
];

/// Expected (nats, bytes) of what each rule derives: the fixed point of its equations. Clauses nest with probability
/// 0.18 per level, so 64 rounds are exact to the last bit.
fn expectations() -> [(f64, f64); RULES] {
    let mut known = [(0.0, 0.0); RULES];
    for _ in 0..64 {
        known = ALL.map(|rule| {
            productions(rule).iter().fold((0.0, 0.0), |(nats, bytes), (p, symbols)| {
                let (inner_nats, inner_bytes) = symbols.iter().fold((-p.ln(), 0.0), |(n, b), symbol| match symbol {
                    T(text) => (n, b + text.len() as f64),
                    R(rule) => (n + known[*rule as usize].0, b + known[*rule as usize].1),
                });
                (nats + p * inner_nats, bytes + p * inner_bytes)
            })
        });
    }
    known
}

/// Nats per byte of endless text.
fn entropy_per_byte() -> f64 {
    let (nats, bytes) = expectations()[Rule::Sentence as usize];
    nats / bytes
}

/// Appends one sentence and returns its information in nats. `pending` is scratch.
fn sentence(noise: &mut Noise, text: &mut String, pending: &mut Vec<&'static Symbol>) -> f64 {
    const START: Symbol = R(Rule::Sentence);
    let mut nats = 0.0;
    pending.push(&START);
    while let Some(symbol) = pending.pop() {
        match symbol {
            T(word) => text.push_str(word),
            R(rule) => {
                let (p, symbols) = choose(productions(*rule), noise.uniform());
                nats -= p.ln();
                pending.extend(symbols.iter().rev());
            }
        }
    }
    nats
}

fn choose(productions: &'static [Production], mut draw: f64) -> &'static Production {
    for production in productions {
        draw -= production.0;
        if draw < 0.0 {
            return production;
        }
    }
    // Rounding may leave a crumb behind the last one.
    &productions[productions.len() - 1]
}

fn write_text(seed: u64, bytes: usize) -> (String, f64) {
    let (mut noise, mut text, mut pending) = (Noise::new(seed, "grammar"), String::new(), Vec::new());
    let mut nats = 0.0;
    while text.len() < bytes {
        nats += sentence(&mut noise, &mut text, &mut pending);
    }
    (text, nats)
}

/// A text over the byte vocabulary with `best_loss` known, in nats per byte. A model comes close to it from above: at
/// the start of each sequence it lacks the context.
pub fn grammar(options: &GrammarOptions) -> Result<CorpusData, DataError> {
    if options.bytes > MOST_BYTES {
        return Err(DataError::option("bytes", format!("{} is more than {MOST_BYTES}", options.bytes)));
    }
    let corpus = CorpusOptions {
        validation_fraction: options.validation_fraction,
        ..CorpusOptions::new("synthetic:grammar", options.max_length, options.vocab)
    };
    check(&corpus)?;
    let mut train = Vocabulary::Bytes.encode(&write_text(options.seed, options.bytes).0)?;
    let held_out = (train.len() as f64 * options.validation_fraction).round() as usize;
    let validation = train.split_off(train.len() - held_out);
    assemble(Parts { train, validation, documents: 1 }, Vocabulary::Bytes, &corpus, Some(entropy_per_byte()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dataset;
    use std::collections::HashMap;

    #[test]
    fn probabilities_sum_to_one_and_rules_are_numbered_in_order() {
        for (index, rule) in ALL.into_iter().enumerate() {
            assert_eq!(rule as usize, index);
            let sum: f64 = productions(rule).iter().map(|(p, _)| p).sum();
            assert!((sum - 1.0).abs() < 1e-12);
        }
    }

    /// The information of the text that was really drawn agrees with the entropy that was computed.
    #[test]
    fn the_entropy_is_that_of_the_text() {
        let (text, nats) = write_text(7, 2_000_000);
        let (drawn, computed) = (nats / text.len() as f64, entropy_per_byte());
        assert!((drawn / computed - 1.0).abs() < 0.005, "{drawn} nats per byte drawn, {computed} computed");
        assert!((0.1..0.5).contains(&computed), "{computed}");
    }

    /// One text, one derivation: otherwise the entropy of choices would overstate that of the text.
    #[test]
    fn no_sentence_has_two_derivations() {
        let mut noise = Noise::new(1, "ambiguity");
        let mut seen: HashMap<String, f64> = HashMap::new();
        let mut repeated = 0;
        for _ in 0..50_000 {
            let mut text = String::new();
            let nats = sentence(&mut noise, &mut text, &mut Vec::new());
            if let Some(before) = seen.insert(text.clone(), nats) {
                assert!((before - nats).abs() < 1e-9, "{text}");
                repeated += 1;
            }
        }
        assert!(repeated > 1000, "the test needs repetitions, had {repeated}");
        // Frequencies of texts are what their derivations say.
        let expected: f64 = seen.values().map(|nats| (-nats).exp()).sum();
        assert!(expected <= 1.0 + 1e-9, "probabilities of different texts sum to {expected}");
    }

    #[test]
    fn the_text_is_a_corpus_like_any_other() {
        let data = grammar(&GrammarOptions { bytes: 5000, ..Default::default() }).unwrap();
        assert!(data.train.len() >= 35 && data.validation.len() >= 3);
        let text = data.vocabulary.decode(data.train.tokens()).unwrap();
        assert!(text.starts_with("the ") && text.contains(".\nthe "), "{text}");
        assert!(data.report.to_string().contains("best possible loss: 0."));
        let again = grammar(&GrammarOptions { bytes: 5000, ..Default::default() }).unwrap();
        assert_eq!(again.train.tokens(), data.train.tokens());
        let narrow = grammar(&GrammarOptions { vocab: 100, ..Default::default() });
        assert!(matches!(narrow, Err(DataError::IdBeyondVocabulary { .. })));
        let huge = grammar(&GrammarOptions { bytes: usize::MAX, ..Default::default() });
        assert!(matches!(huge, Err(DataError::BadOption { .. })));
    }
}
