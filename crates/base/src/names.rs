//! Enumerations that a recipe spells as strings.

#![deny(missing_docs)]

/// An enumeration whose variants have names in recipes, plan files and messages.
pub trait Named: Copy + 'static {
    /// Every variant, in the order of their declaration.
    const ALL: &'static [Self];
    /// What it is called.
    fn name(self) -> &'static str;

    /// The variant of this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|v| v.name() == name)
    }

    /// All names.
    fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|v| v.name())
    }
}

/// Declares an enum with the name of each variant in recipes, plan files and messages.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[$variant_meta])* $variant),+ }

        impl $crate::names::Named for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::names::Named::name(*self))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::names::Named::name(*self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <std::borrow::Cow<'_, str> as serde::Deserialize>::deserialize(deserializer)?;
                $crate::names::Named::from_name(&name)
                    .ok_or_else(|| serde::de::Error::unknown_variant(&name, &[$($text),+]))
            }
        }
    };
}

/// The candidate a mistyped `word` most likely meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Jaro-Winkler rewards a common start, which suits key names; below 0.75 a suggestion is more often wrong.
    candidates
        .into_iter()
        .map(|c| (strsim::jaro_winkler(&word.to_lowercase(), c), c))
        .filter(|(score, _)| *score >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use super::{Named, nearest};

    named! {
        enum Colour { Red = "red", DeepBlue = "deep-blue" }
    }

    #[test]
    fn names_survive_files_and_strangers_are_refused() {
        for colour in Colour::ALL {
            let text = serde_json::to_string(colour).unwrap();
            assert_eq!(serde_json::from_str::<Colour>(&text).unwrap(), *colour);
        }
        let error = serde_json::from_str::<Colour>("\"green\"").unwrap_err().to_string();
        assert!(error.contains("deep-blue"), "{error}");
    }

    #[test]
    fn nearest_finds_typing_errors_and_leaves_strangers_alone() {
        let keys = ["effective_batch", "epochs", "seed", "clip_norm"];
        assert_eq!(nearest("efective_batch", keys), Some("effective_batch"));
        assert_eq!(nearest("Epoch", keys), Some("epochs"));
        assert_eq!(nearest("zzz", keys), None);
        assert_eq!(nearest("", keys), None);
    }
}
