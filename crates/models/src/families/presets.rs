//! Models by their usual names. Each family has its own list.

#![deny(missing_docs)]

use super::model::preset_of;
use super::{FamilyName, Model};
use plimsoll_base::names::Named;
use serde::Serialize;

/// A name with its organisation, and other names of the same sizes. The organisation may be left out.
pub(super) type Names = &'static [&'static str];

pub(super) fn is_called(names: Names, name: &str) -> bool {
    names.iter().any(|full| *full == name || short(full) == name)
}

/// Without the organisation.
pub(super) fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Every preset's names, with its family.
fn all() -> impl Iterator<Item = (Names, FamilyName)> {
    FamilyName::ALL.iter().flat_map(|&family| family.presets().into_iter().map(move |names| (names, family)))
}

/// The names of a family's presets, without organisations.
pub(crate) fn of_family(family: FamilyName) -> impl Iterator<Item = &'static str> {
    all().filter(move |(_, of)| *of == family).flat_map(|(names, _)| names).map(|name| short(name))
}

/// The family that a preset belongs to.
pub(super) fn family_of(name: &str) -> Option<FamilyName> {
    all().find(|(names, _)| is_called(names, name)).map(|(_, family)| family)
}

/// A preset with what it stands for.
#[derive(Clone, Debug, Serialize)]
pub struct Preset {
    /// Without its organisation.
    pub name: &'static str,
    /// Every name of the same sizes, with organisations.
    pub names: Names,
    /// The architecture.
    pub family: FamilyName,
    /// Numbers that are trained.
    pub parameters: Option<u64>,
    /// The sizes, in the keys of `[model]`.
    pub sizes: Model,
}

/// Every preset, by family.
pub fn presets() -> Vec<Preset> {
    all().filter_map(|(names, family)| Preset::of(names, family)).collect()
}

impl Preset {
    fn of(names: Names, family: FamilyName) -> Option<Self> {
        let name = short(names.first()?);
        let sizes = preset_of(family, name)?;
        Some(Self { name, names, family, parameters: sizes.family().parameters(), sizes })
    }
}

/// Words of a preset's name that say how large it is, from the smallest.
const SIZES: [&str; 10] = ["tiny", "mini", "xsmall", "small", "medium", "base", "large", "xl", "3b", "xxl"];

/// The same model in smaller sizes, the largest of them first: `bert-base-uncased` below `bert-large-uncased`.
pub fn smaller_siblings(name: &str) -> Vec<&'static str> {
    let size = |word: &str| SIZES.iter().position(|size| *size == word);
    let rank = |name: &str| short(name).split('-').find_map(size);
    let without_size = |name: &str| {
        let words = short(name).split('-').map(|word| if size(word).is_some() { "*" } else { word });
        words.collect::<Vec<_>>().join("-")
    };
    let line = without_size(name);
    let others = family_of(name).into_iter().flat_map(of_family);
    let mut smaller: Vec<&'static str> =
        others.filter(|other| without_size(other) == line && rank(other) < rank(name)).collect();
    smaller.sort_by_key(|other| std::cmp::Reverse(rank(other)));
    smaller
}

/// Parameters of presets as transformers counts them: the lines of a family's `presets.txt`, which
/// `tools/reference/hf_presets.py` prints.
#[cfg(test)]
pub(super) fn assert_counts(list: &str, families: &[FamilyName], ours: impl Fn(&str) -> Option<u64>) {
    let counts: Vec<(&str, &str)> =
        list.lines().map(|line| line.split_once(' ').expect("a name and a count")).collect();
    for (name, count) in &counts {
        assert!(family_of(name).is_some_and(|family| families.contains(&family)), "{name} is another family's");
        assert_eq!(ours(name), count.parse().ok(), "{name}");
    }
    for names in families.iter().flat_map(|family| family.presets()) {
        assert!(
            names.iter().any(|n| counts.iter().any(|(counted, _)| short(n) == *counted)),
            "{names:?} are not counted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_presets_share_a_name() {
        let mut names: Vec<&str> = all().flat_map(|(names, _)| names).map(|n| short(n)).collect();
        let total = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), total);
    }

    #[test]
    fn smaller_siblings_differ_in_size_alone() {
        assert_eq!(smaller_siblings("google-bert/bert-large-uncased"), ["bert-base-uncased"]);
        assert_eq!(smaller_siblings("flan-t5-xl"), ["flan-t5-large", "flan-t5-base", "flan-t5-small"]);
        assert!(smaller_siblings("flan-t5-small").is_empty() && smaller_siblings("bert-base-uncased").is_empty());
        assert!(smaller_siblings("all-MiniLM-L6-v2").is_empty() && smaller_siblings("abacus").is_empty());
    }
}
