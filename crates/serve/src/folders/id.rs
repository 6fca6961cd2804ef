//! A run's name as clients say it: the name of its folder and nothing else. It is never a path.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The name of a run: one folder's, without separators, dots in front or control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 120, pattern = r"^[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*$")]
pub(crate) struct RunId(String);

const LONGEST: usize = 120;

impl RunId {
    pub(crate) fn parse(text: &str) -> Option<RunId> {
        let sound = !text.is_empty()
            && text.len() <= LONGEST
            && !text.starts_with('.')
            && !text.contains(['/', '\\'])
            && !text.contains(char::is_control);
        sound.then(|| RunId(text.into()))
    }

    /// Its name and its number: the tenth comes after the ninth.
    pub(crate) fn numbered(&self) -> (&str, u64) {
        let parts = self.0.rsplit_once('-').and_then(|(name, number)| Some((name, number.parse().ok()?)));
        parts.unwrap_or((&self.0, 0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RunId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<RunId, &'static str> {
        RunId::parse(&text).ok_or("a run's name is that of its folder: no slashes, no dot in front")
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> String {
        id.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenth_run_comes_after_the_ninth() {
        let mut ids = ["b-1", "a-10", "a-9", "a", "a-x"].map(|text| RunId::parse(text).unwrap());
        ids.sort_by(|a, b| a.numbered().cmp(&b.numbered()));
        assert_eq!(ids.each_ref().map(RunId::as_str), ["a", "a-9", "a-10", "a-x", "b-1"]);
    }

    #[test]
    fn what_leads_elsewhere_is_no_name() {
        for text in ["", ".", "..", ".serve", "a/b", "../a", "a\\b", "/etc", "a\0b", "a\nb", &"x".repeat(121)] {
            assert_eq!(RunId::parse(text), None, "{text:?}");
        }
        for text in ["quickstart-1", "a b", "ein Lauf", "опыт-7", "a..b", "<script>"] {
            assert!(RunId::parse(text).is_some(), "{text:?}");
        }
    }
}
