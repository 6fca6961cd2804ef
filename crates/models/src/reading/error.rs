//! What is wrong with a recipe: every problem with its place, key, cause, what is allowed, and a hint.

#![deny(missing_docs)]

use plimsoll_base::explain::{Explain, Fault};
use std::fmt;
use std::io;
use std::path::PathBuf;

use super::tree::Place;

/// Why a recipe is no recipe.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The file cannot be read.
    #[error("{}: cannot read the recipe: {cause}\n  = hint: {hint}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
        /// What to try.
        hint: &'static str,
    },
    /// What it says is wrong.
    #[error("{0}")]
    Invalid(Problems),
    /// It cannot be written.
    #[error("the recipe cannot be written as text: {0}\n  = hint: paths must be UTF-8")]
    Store(String),
}

/// All problems found in one reading, in the order of the file; each prints as a paragraph.
#[derive(Debug)]
pub struct Problems(Vec<Located>);

impl Problems {
    pub(super) fn locate(mut problems: Vec<Problem>, sources: &Sources) -> Self {
        problems.sort_by_key(|p| (p.place.source, p.place.start));
        Self(problems.into_iter().map(|p| sources.locate(p)).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One by one, for those who show them beside their fields.
    pub fn findings(&self) -> impl Iterator<Item = Finding<'_>> {
        self.0.iter().map(|Located { quote, problem, .. }| Finding {
            key: &problem.key,
            cause: &problem.cause,
            // A line of a `--set` says nothing.
            line: (problem.place.source == 0).then_some(quote.line),
            allowed: problem.allowed.as_deref(),
            hint: problem.hint.as_deref(),
        })
    }
}

/// One problem, taken apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding<'a> {
    /// The dotted path, empty where no key is at fault.
    pub key: &'a str,
    /// What is wrong.
    pub cause: &'a str,
    /// Of the recipe's text.
    pub line: Option<usize>,
    /// What it may be.
    pub allowed: Option<&'a str>,
    /// What was probably meant.
    pub hint: Option<&'a str>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// One problem, before its place is looked up in the text.
#[derive(Clone, Debug)]
pub struct Problem {
    key: String,
    cause: String,
    place: Place,
    allowed: Option<String>,
    hint: Option<String>,
}

impl Problem {
    /// `key` is the dotted path, empty where no key is at fault.
    pub fn new(key: impl Into<String>, cause: impl Into<String>, place: Place) -> Self {
        Self { key: key.into(), cause: cause.into(), place, allowed: None, hint: None }
    }

    pub(crate) fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The same, said of a key and a place that led to it.
    pub(crate) fn moved(self, key: &str, prefix: &str, place: Place) -> Self {
        Self { key: key.into(), cause: format!("{prefix}{}", self.cause), place, ..self }
    }

    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }
}

/// The texts a recipe is made of: the file, then each `--set`.
pub struct Sources {
    file_name: String,
    texts: Vec<String>,
}

impl Sources {
    pub fn new(file_name: &str, file: &str, sets: &[String]) -> Self {
        let texts = std::iter::once(file.to_string()).chain(sets.iter().cloned()).collect();
        Self { file_name: file_name.into(), texts }
    }

    pub fn text(&self, source: usize) -> &str {
        &self.texts[source]
    }

    /// The text at a place, shortened where it is long.
    pub(crate) fn excerpt(&self, place: Place) -> String {
        let text = self.texts[place.source].get(place.start..place.end).unwrap_or_default();
        let mut short: String = text.chars().take(40).map(printable).collect();
        if text.chars().nth(40).is_some() {
            short.push('…');
        }
        short
    }

    fn locate(&self, problem: Problem) -> Located {
        let quote = Quote::of(&self.texts[problem.place.source], problem.place);
        let place = match problem.place.source {
            0 => format!("{}:{}:{}", self.file_name, quote.line, quote.column),
            set => format!("--set {}", self.texts[set].chars().take(120).map(printable).collect::<String>()),
        };
        Located { place, quote, problem }
    }
}

/// A problem with its place in words, ready to print.
#[derive(Debug)]
struct Located {
    place: String,
    quote: Quote,
    problem: Problem,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { key, cause, allowed, hint, .. } = &self.problem;
        let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
        write!(f, "{}: {key}{cause}", self.place)?;
        // A `--set` is quoted in full by its place already.
        if self.problem.place.source == 0 {
            write!(f, "\n{}", self.quote)?;
        }
        if let Some(allowed) = allowed {
            write!(f, "\n  = allowed: {allowed}")?;
        }
        if let Some(hint) = hint {
            write!(f, "\n  = hint: {hint}")?;
        }
        Ok(())
    }
}

/// The source line of a place, with what to underline.
#[derive(Debug)]
struct Quote {
    line: usize,
    column: usize,
    text: String,
    caret_start: usize,
    caret_width: usize,
}

/// Longer lines are cut around the place.
const QUOTE_WIDTH: usize = 100;

impl Quote {
    fn of(text: &str, place: Place) -> Self {
        let start = floor_boundary(text, place.start);
        let end = floor_boundary(text, place.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let before = text[line_start..start].chars().count();
        let marked = text[start..end.min(line_end)].chars().count().max(1);
        // Where the place would be off the quote, keep as much before it as after it.
        let skipped = if before + marked > QUOTE_WIDTH { before.saturating_sub(QUOTE_WIDTH / 2) } else { 0 };
        let line = text[line_start..line_end].trim_end_matches('\r');
        Self {
            line: text[..line_start].matches('\n').count() + 1,
            column: before + 1,
            text: line.chars().skip(skipped).take(QUOTE_WIDTH).map(printable).collect(),
            caret_start: before - skipped,
            caret_width: marked.min(QUOTE_WIDTH - (before - skipped)),
        }
    }
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        let (indent, carets) = (" ".repeat(self.caret_start), "^".repeat(self.caret_width));
        write!(f, "{gutter} |\n{number} | {}\n{gutter} | {indent}{carets}", self.text)
    }
}

/// Control characters would tear the quote or the terminal.
fn printable(c: char) -> char {
    match c {
        '\t' | '\n' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

/// The error's own text carries place and hint.
impl Explain for RecipeError {
    fn fault(&self) -> Fault {
        Fault::BadInput
    }

    fn hints(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quote(text: &str, start: usize, end: usize) -> Quote {
        Quote::of(text, Place { source: 0, start, end })
    }

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let q = quote("a = 1\né = \"ü\"\n", 11, 15);
        assert_eq!((q.line, q.column, q.text.as_str()), (2, 5, "é = \"ü\""));
        assert_eq!(q.caret_width, 3);
    }

    #[test]
    fn places_off_the_text_do_not_panic() {
        for (start, end) in [(0, 0), (5, 2), (99, 120), (1, 1)] {
            assert!(quote("é\n", start, end).caret_width >= 1);
        }
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let q = quote(&"x".repeat(10_000), 5_000, 9_000);
        assert_eq!(q.column, 5_001);
        assert_eq!(q.text.len(), QUOTE_WIDTH);
        assert_eq!(q.caret_start + q.caret_width, QUOTE_WIDTH);
    }
}
