//! Sizes in running text, as frameworks print them.

#![deny(missing_docs)]

use serde::Serialize;

/// A size as it was printed. `grain_bytes` is what the last printed digit is worth: `2.69 GiB` may be up to half of it
/// more or less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Amount {
    /// As printed.
    pub bytes: u64,
    /// What the last printed digit is worth.
    pub grain_bytes: u64,
}

/// Frameworks print powers of two, whatever they call them; a plain `GB` in their messages is 2³⁰ too.
const UNITS: [(&str, u64); 17] = [
    ("bytes", 1),
    ("byte", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("kb", 1 << 10),
    ("k", 1 << 10),
    ("mib", 1 << 20),
    ("mb", 1 << 20),
    ("m", 1 << 20),
    ("gib", 1 << 30),
    ("gb", 1 << 30),
    ("g", 1 << 30),
    ("tib", 1 << 40),
    ("tb", 1 << 40),
    ("pib", 1 << 50),
    ("eib", 1 << 60),
    ("eb", 1 << 60),
];

impl Amount {
    /// Reads `2.69 GiB`, `0 bytes`, `512MiB` at the beginning of `text`; also says where it ends.
    pub fn at_start(text: &str) -> Option<(Amount, usize)> {
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let number = text[..digits].trim_end_matches('.');
        let after = &text[digits..];
        let space = after.len() - after.trim_start_matches(' ').len();
        let word = after[space..].find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len() - space);
        let unit = after[space..space + word].to_ascii_lowercase();
        let &(_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        Some((Amount::of(number, factor)?, digits + space + word))
    }

    /// Sizes beyond what 64 bits hold saturate: they are absurd either way.
    fn of(number: &str, factor: u64) -> Option<Amount> {
        let value: f64 = number.parse().ok()?;
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len().min(18) as i32);
        let grain_bytes = ((factor as f64 / 10f64.powi(decimals)) as u64).max(1);
        Some(Amount { bytes: (value * factor as f64) as u64, grain_bytes })
    }

    /// The first size behind `phrase`, with nothing but spaces and punctuation between.
    pub fn after(text: &str, phrase: &str) -> Option<Amount> {
        text.match_indices(phrase).find_map(|(at, _)| {
            let rest = text[at + phrase.len()..].trim_start_matches([' ', ':', '=', '(', '~']);
            Amount::at_start(rest).map(|(amount, _)| amount)
        })
    }

    /// The first size that stands right before `phrase`.
    pub fn before(text: &str, phrase: &str) -> Option<Amount> {
        text.match_indices(phrase).find_map(|(at, _)| {
            let head = text[..at].trim_end();
            let unit = head.rfind(|c: char| !c.is_ascii_alphabetic()).map_or(0, |i| i + next_char(head, i));
            let number = head[..unit].trim_end();
            let start =
                number.rfind(|c: char| !(c.is_ascii_digit() || c == '.')).map_or(0, |i| i + next_char(number, i));
            Amount::at_start(&head[start..]).filter(|(_, end)| start + end == head.len()).map(|(amount, _)| amount)
        })
    }

    /// Every size of a line.
    pub fn all(text: &str) -> Vec<Amount> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(digit) = text[at..].find(|c: char| c.is_ascii_digit()) {
            let start = at + digit;
            let inside_word = text[..start].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
            at = match Amount::at_start(&text[start..]).filter(|_| !inside_word) {
                Some((amount, end)) => {
                    found.push(amount);
                    start + end
                }
                None => start + text[start..].find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len() - start),
            };
        }
        found
    }
}

/// Bytes of the character at `at`, which is a boundary.
fn next_char(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(1, char::len_utf8)
}

/// Text as people read it: no colour codes, no marks of ranks and quotations, every run of white space one space. Logs
/// wrap lines anywhere.
pub(super) fn flowing(text: &str) -> String {
    let plain = without_colours(text);
    let words = plain.lines().flat_map(|line| {
        line.trim_start_matches([' ', '\t', '>', '#', '|', '*']).split(|c: char| c.is_whitespace() || c.is_control())
    });
    let is_mark = |word: &str| word.starts_with("[rank") && word.ends_with("]:");
    words.filter(|word| !word.is_empty() && !is_mark(word)).collect::<Vec<_>>().join(" ")
}

/// An escape sequence ends with its first letter.
pub(super) fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                let _ = chars.find(char::is_ascii_alphabetic);
            }
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_what_their_last_digit_is_worth() {
        let of = |text: &str| Amount::at_start(text).map(|(amount, _)| (amount.bytes, amount.grain_bytes));
        assert_eq!(of("360.00 MiB."), Some((360 << 20, (1 << 20) / 100)));
        assert_eq!(of("0 bytes is free"), Some((0, 1)));
        assert_eq!(of("1024MB"), Some((1 << 30, 1 << 20)));
        assert_eq!(of("17179869184.00 GiB"), Some((u64::MAX, (1 << 30) / 100)));
        for text in ["", "MiB", "12", "1.2.3 GiB", "7 apples", "12 gibberish"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_around_words() {
        let text = "GPU 0; 7.79 GiB total capacity; 14.19 MiB free";
        assert_eq!(Amount::before(text, "total capacity").unwrap().bytes, (7.79 * (1u64 << 30) as f64) as u64);
        assert_eq!(Amount::before(text, "free").unwrap().bytes, (14.19 * (1u64 << 20) as f64) as u64);
        assert_eq!(Amount::before("é5 KiB free", "free").unwrap().bytes, 5 << 10);
        assert_eq!(
            Amount::after("allocated: 5.05 GB", "allocated").unwrap().bytes,
            (5.05 * (1u64 << 30) as f64) as u64
        );
        assert_eq!(
            Amount::all("step 12 mem 3GiB, v2 7 MiB").iter().map(|a| a.bytes).collect::<Vec<_>>(),
            [3 << 30, 7 << 20]
        );
    }

    #[test]
    fn colours_and_wrapped_lines_are_read_over() {
        assert_eq!(flowing("\u{1b}[31mTried to\n > allocate\u{1b}[0m\n[rank1]:   2 MiB"), "Tried to allocate 2 MiB");
    }
}
