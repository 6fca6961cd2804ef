//! What a key of the recipe may be, as data: in words for people, as JSON Schema for editors.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::section::Range;
use plimsoll_base::names::Named;

/// The values that one key takes.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyKind {
    Integer {
        least: usize,
        most: usize,
    },
    Number(Range),
    Flag,
    /// Any string, the empty one too.
    Text,
    /// A string with something in it: a column, a field.
    Name,
    Path,
    /// Bytes with a unit, or a percentage.
    Size,
    /// One of these words.
    Words(Vec<&'static str>),
    List {
        of: Box<KeyKind>,
        least: usize,
        most: usize,
    },
    Table,
    Any(Vec<KeyKind>),
}

impl KeyKind {
    pub fn integer(range: &RangeInclusive<usize>) -> Self {
        Self::Integer { least: *range.start(), most: *range.end() }
    }

    pub(crate) fn choice<T: Named>() -> Self {
        Self::Words(T::names().collect())
    }

    pub(crate) fn words(words: impl IntoIterator<Item = &'static str>) -> Self {
        Self::Words(words.into_iter().collect())
    }

    pub(crate) fn list(of: KeyKind, length: &RangeInclusive<usize>) -> Self {
        Self::List { of: Box::new(of), least: *length.start(), most: *length.end() }
    }

    pub(crate) fn any(kinds: impl IntoIterator<Item = KeyKind>) -> Self {
        Self::Any(kinds.into_iter().collect())
    }

    /// What a message calls several of them.
    pub(crate) fn plural(&self) -> &'static str {
        match self {
            Self::Integer { .. } => "integers",
            Self::Number(_) => "numbers",
            Self::Flag => "flags",
            Self::List { .. } => "lists",
            Self::Table => "tables",
            Self::Text | Self::Name | Self::Path | Self::Size | Self::Words(_) => "strings",
            Self::Any(_) => "values",
        }
    }

    /// The same as JSON Schema.
    pub(crate) fn schema(&self) -> Value {
        match self {
            Self::Integer { least, most } => json!({"type": "integer", "minimum": least, "maximum": most}),
            Self::Number(range) => number_schema(*range),
            Self::Flag => json!({"type": "boolean"}),
            Self::Text => json!({"type": "string"}),
            Self::Name | Self::Path | Self::Size => json!({"type": "string", "minLength": 1}),
            Self::Words(words) => json!({"enum": words}),
            Self::List { of, least, most } => {
                json!({"type": "array", "items": of.schema(), "minItems": least, "maxItems": most})
            }
            Self::Table => json!({"type": "object"}),
            Self::Any(kinds) => json!({"anyOf": kinds.iter().map(KeyKind::schema).collect::<Vec<_>>()}),
        }
    }
}

fn number_schema(range: Range) -> Value {
    let [(low, low_open), (high, high_open)] = range.ends();
    let least = if low_open { "exclusiveMinimum" } else { "minimum" };
    let most = if high_open { "exclusiveMaximum" } else { "maximum" };
    json!({"type": "number", least: low, most: high})
}

/// Longer lists of words are cut: `plimsoll keys --json` has them all.
const MOST_WORDS: usize = 8;

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer { least, most } if *most == i64::MAX as usize => write!(f, "integer, at least {least}"),
            Self::Integer { least, most } => write!(f, "integer, {least} to {most}"),
            Self::Number(range) => f.write_str(&number_words(*range)),
            Self::Flag => f.write_str("true or false"),
            Self::Text | Self::Name => f.write_str("string"),
            Self::Path => f.write_str("path"),
            Self::Size => f.write_str("size such as \"12GiB\" or \"90%\""),
            Self::Words(words) => f.write_str(&choice_words(words)),
            Self::List { of, least, most } if least == most => write!(f, "list of {most} × ({of})"),
            Self::List { of, .. } => write!(f, "list of {}", of.plural()),
            Self::Table => f.write_str("table"),
            Self::Any(kinds) => f.write_str(&kinds.iter().map(KeyKind::to_string).collect::<Vec<_>>().join("; or ")),
        }
    }
}

fn number_words(range: Range) -> String {
    let [(low, low_open), (high, high_open)] = range.ends();
    let above = if low_open { "above " } else { "" };
    let below = if high_open { "below " } else { "" };
    format!("number, {above}{low} to {below}{high}")
}

fn choice_words(words: &[&str]) -> String {
    let shown: Vec<String> = words.iter().take(MOST_WORDS).map(|word| format!("\"{word}\"")).collect();
    let rest = words.len() - shown.len();
    let more = if rest > 0 { format!(" | … ({rest} more)") } else { String::new() };
    shown.join(" | ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_schema_say_the_same() {
        let every = KeyKind::any([KeyKind::words(["epoch", "never"]), KeyKind::integer(&(1..=9))]);
        assert_eq!(every.to_string(), "\"epoch\" | \"never\"; or integer, 1 to 9");
        let schema = json!({"anyOf": [{"enum": ["epoch", "never"]}, {"type": "integer", "minimum": 1, "maximum": 9}]});
        assert_eq!(every.schema(), schema);
        let rate = KeyKind::Number(Range::above(0.0, 1.0));
        assert_eq!(rate.to_string(), "number, above 0 to 1");
        assert_eq!(rate.schema(), json!({"type": "number", "exclusiveMinimum": 0.0, "maximum": 1.0}));
    }
}
