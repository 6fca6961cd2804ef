//! Published sizes: one model over several vocabularies.

use super::DistilBert;
use crate::families::presets::{Names, is_called};

struct Preset {
    names: Names,
    vocab: usize,
}

const PRESETS: [Preset; 3] = [
    Preset {
        names: &["distilbert/distilbert-base-uncased", "distilbert/distilbert-base-uncased-finetuned-sst-2-english"],
        vocab: 30_522,
    },
    Preset { names: &["distilbert/distilbert-base-cased"], vocab: 28_996 },
    Preset { names: &["distilbert/distilbert-base-multilingual-cased"], vocab: 119_547 },
];

impl DistilBert {
    pub(super) fn all_presets() -> Vec<Names> {
        PRESETS.iter().map(|preset| preset.names).collect()
    }

    pub(super) fn of_preset(name: &str) -> Option<Self> {
        let preset = PRESETS.iter().find(|p| is_called(p.names, name))?;
        Some(Self { vocab_size: preset.vocab, ..Self::defaults() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::presets::assert_counts;
    use crate::families::{FamilyName, Sizes};

    /// With two labels.
    #[test]
    fn parameters_are_those_of_transformers() {
        let ours = |name: &str| DistilBert::of_preset(name)?.parameters();
        assert_counts(include_str!("presets.txt"), &[FamilyName::DistilBert], ours);
    }
}
