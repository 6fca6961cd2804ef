//! Models by their usual names. Each family has its own list.

use super::FamilyName;
use plimsoll_base::names::Named;

/// A name with its organisation, and other names of the same sizes. The organisation may be left out.
pub(super) type Names = &'static [&'static str];

pub(super) fn is_called(names: Names, name: &str) -> bool {
    names.iter().any(|full| *full == name || short(full) == name)
}

/// Without the organisation.
pub fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Every preset's names, with its family.
fn all() -> impl Iterator<Item = (Names, FamilyName)> {
    FamilyName::ALL.iter().flat_map(|&family| family.presets().into_iter().map(move |names| (names, family)))
}

/// The names of a family's presets, without organisations.
pub fn of_family(family: FamilyName) -> impl Iterator<Item = &'static str> {
    all().filter(move |(_, of)| *of == family).flat_map(|(names, _)| names).map(|name| short(name))
}

/// The family that a preset belongs to.
pub fn family_of(name: &str) -> Option<FamilyName> {
    all().find(|(names, _)| is_called(names, name)).map(|(_, family)| family)
}

/// Words of a preset's name that say how large it is.
const SIZES: [&str; 10] = ["tiny", "mini", "xsmall", "small", "medium", "base", "large", "xl", "3b", "xxl"];

/// The same model in other sizes: `bert-base-uncased` beside `bert-large-uncased`.
pub fn siblings(name: &str) -> Vec<&'static str> {
    let without_size = |name: &str| {
        let words = short(name).split('-').map(|word| if SIZES.contains(&word) { "*" } else { word });
        words.collect::<Vec<_>>().join("-")
    };
    let line = without_size(name);
    let others = family_of(name).into_iter().flat_map(of_family);
    others.filter(|other| *other != short(name) && without_size(other) == line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::encoder::EncoderKind;
    use crate::families::{Clip, Encoder, Sizes, T5};

    /// Parameters of transformers' `…ForSequenceClassification` with two labels, `T5ForConditionalGeneration` (tied,
    /// as it always counts) and `CLIPModel`; `tools/reference/hf_presets.py` prints them.
    #[test]
    fn parameters_are_those_of_transformers() {
        for line in include_str!("presets.txt").lines() {
            let (name, count) = line.split_once(' ').unwrap();
            let tied = |sizes: T5| T5 { tie_word_embeddings: true, ..sizes }.parameters();
            let ours = match family_of(name).unwrap() {
                FamilyName::T5 => T5::of_preset(name).and_then(tied),
                FamilyName::Clip => Clip::of_preset(name).and_then(|s| s.parameters()),
                family => {
                    let kind = *EncoderKind::ALL.iter().find(|kind| kind.family() == family).unwrap();
                    Encoder::of_preset(kind, name).and_then(|s| s.parameters())
                }
            };
            assert_eq!(ours, count.parse().ok(), "{name}");
        }
    }

    #[test]
    fn every_preset_is_counted_and_no_two_share_a_name() {
        let counted: Vec<&str> = include_str!("presets.txt").lines().filter_map(|l| l.split(' ').next()).collect();
        let mut names: Vec<&str> = all().flat_map(|(names, _)| names).map(|n| short(n)).collect();
        assert!(all().all(|(names, _)| names.iter().any(|n| counted.contains(&short(n)))));
        let total = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), total);
    }

    #[test]
    fn siblings_differ_in_size_alone() {
        assert_eq!(siblings("google-bert/bert-large-uncased"), ["bert-base-uncased"]);
        assert_eq!(siblings("flan-t5-large"), ["flan-t5-small", "flan-t5-base", "flan-t5-xl", "flan-t5-xxl"]);
        assert!(siblings("all-MiniLM-L6-v2").is_empty() && siblings("abacus").is_empty());
    }

    #[test]
    fn version_1_1_has_a_head_of_its_own() {
        let xl = T5::of_preset("google/flan-t5-xl").unwrap();
        assert_eq!(xl.parameters(), Some(2_783_959_040 + 32_128 * 2048));
        assert!(!xl.scale_decoder_outputs && !xl.tie_word_embeddings);
        assert!(T5::of_preset("t5-3b").unwrap().scale_decoder_outputs);
    }
}
