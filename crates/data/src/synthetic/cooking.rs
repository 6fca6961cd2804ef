//! `recipes`: from a list of ingredients to the steps, by fixed rules: a perfect model writes every target without fault.

use super::{Noise, WordStyle, word_tokenizer};
use crate::formats::{Cell, Content, Row};
use crate::texts::assemble_pairs;
use crate::{DataError, PairsData, PairsOptions, Place, TextTokenizer};

/// What is done with an ingredient.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Chopped,
    Mixed,
    Poured,
    Fried,
    Sprinkled,
}
use Group::*;

const PANTRY: [(&str, Group); 30] = [
    ("onions", Chopped),
    ("carrots", Chopped),
    ("peppers", Chopped),
    ("leeks", Chopped),
    ("tomatoes", Chopped),
    ("apples", Chopped),
    ("flour", Mixed),
    ("sugar", Mixed),
    ("oats", Mixed),
    ("cocoa", Mixed),
    ("yeast", Mixed),
    ("rice", Mixed),
    ("milk", Poured),
    ("water", Poured),
    ("cream", Poured),
    ("broth", Poured),
    ("oil", Poured),
    ("juice", Poured),
    ("chicken", Fried),
    ("beef", Fried),
    ("tofu", Fried),
    ("eggs", Fried),
    ("shrimp", Fried),
    ("bacon", Fried),
    ("salt", Sprinkled),
    ("basil", Sprinkled),
    ("cinnamon", Sprinkled),
    ("cheese", Sprinkled),
    ("nuts", Sprinkled),
    ("parsley", Sprinkled),
];

fn step(group: Group) -> [&'static str; 2] {
    match group {
        Chopped => ["chop the", "finely ."],
        Mixed => ["mix the", "in a bowl ."],
        Poured => ["pour in the", "slowly ."],
        Fried => ["fry the", "until golden ."],
        Sprinkled => ["sprinkle with the", "."],
    }
}

/// The last step follows from what is in the dish.
fn ending(has: impl Fn(Group) -> bool) -> &'static str {
    match (has(Mixed) && has(Poured), has(Fried)) {
        (true, _) => "bake for thirty minutes .",
        (false, true) => "serve hot .",
        (false, false) => "serve cold .",
    }
}

/// Ingredients in any order, and the steps they lead to.
fn recipe(noise: &mut Noise) -> (String, String) {
    let count = 2 + (noise.uniform() * 6.0) as usize;
    let mut chosen: Vec<(&str, Group)> = Vec::new();
    while chosen.len() < count {
        let ingredient = *noise.pick(&PANTRY);
        if !chosen.contains(&ingredient) {
            chosen.push(ingredient);
        }
    }
    let source = chosen.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" , ");
    let mut target = String::new();
    for group in [Chopped, Mixed, Poured, Fried, Sprinkled] {
        let names: Vec<&str> = chosen.iter().filter(|(_, g)| *g == group).map(|(name, _)| *name).collect();
        if !names.is_empty() {
            let [before, behind] = step(group);
            target += &format!("{before} {} {behind} ", names.join(" and the "));
        }
    }
    (source, target + ending(|group| chosen.iter().any(|(_, g)| *g == group)))
}

fn words(prefix: &str) -> impl Iterator<Item = &str> {
    let steps = [Chopped, Mixed, Poured, Fried, Sprinkled].into_iter().flat_map(step);
    let endings = ["bake for thirty minutes .", "serve hot .", "serve cold .", "and the ,"];
    let texts = steps.chain(endings).chain(PANTRY.map(|(name, _)| name)).map(|text: &str| text).chain([prefix]);
    texts.flat_map(str::split_whitespace)
}

/// `samples` pairs. Of `options`, what is said about files is not used. Without a tokenizer, one is made of the words
/// that occur.
pub fn recipes(
    samples: usize,
    seed: u64,
    options: &PairsOptions,
    tokenizer: Option<TextTokenizer>,
) -> Result<PairsData, DataError> {
    let options = PairsOptions { train: "synthetic:recipes".into(), validation: None, ..options.clone() };
    let made = || word_tokenizer("synthetic:recipes", words(&options.prefix), WordStyle::T5);
    let tokenizer = tokenizer.map_or_else(made, Ok)?;
    let mut noise = Noise::new(seed, "recipes");
    let mut rows = (1..=samples as u64).map(|row| {
        let (source, target) = recipe(&mut noise);
        let cells = vec![Cell::Text(source.into()), Cell::Text(target.into())];
        Row { place: Place::Row(row), offset: 0, bytes: 0, content: Content::Cells(cells) }
    });
    assemble_pairs(&options, tokenizer, || Ok(rows.next()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Composition, Dataset};
    use plimsoll_base::batching::{Batching, Buckets, Compose};
    use std::collections::HashMap;

    #[test]
    fn the_steps_follow_from_the_ingredients() {
        let mut noise = Noise::new(2, "test");
        let mut known: HashMap<String, String> = HashMap::new();
        for _ in 0..20_000 {
            let (source, target) = recipe(&mut noise);
            let before = known.insert(source.clone(), target.clone());
            assert!(before.is_none_or(|before| before == target), "{source} has two targets");
        }
    }

    #[test]
    fn pairs_are_a_dataset_and_every_word_is_known() {
        let batching = Batching { buckets: Buckets::Auto, compose: Compose::Length };
        let composition = Composition { batch: 8, seed: 1, batching };
        let options = PairsOptions { prefix: "cook: ".into(), ..PairsOptions::new("", 24, 64, 100, composition) };
        let data = recipes(1000, 3, &options, None).unwrap();
        assert_eq!((data.train.len(), data.validation.len()), (900, 100));
        let unknown = data.tokenizer.id("<unk>").unwrap();
        assert!((0..900).all(|s| data.train.target(s).unwrap().iter().all(|&id| id != unknown)));
        let ids: Vec<i32> = data.train.target(0).unwrap().iter().map(|&id| id as i32).collect();
        let text = data.tokenizer.decode(&ids).unwrap();
        assert!(text.contains(" the ") && text.ends_with('.'), "{text}");
        assert!(data.report.to_string().contains("targets: "), "{}", data.report);
    }
}
