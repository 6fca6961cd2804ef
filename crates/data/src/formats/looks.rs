//! What words in a table look like, where no type says what they are.

use crate::whole::whole;

/// What people and programs write where there is no number.
const NOTHING: [&str; 12] = ["", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "nil", "?", "-", "#n/a n/a"];

/// Whether a word among numbers stands for none.
pub(crate) fn stands_for_nothing(word: &str) -> bool {
    NOTHING.contains(&word.trim().to_ascii_lowercase().as_str())
}

/// Whether a word is a number to people, and none to programs: `1,5`, `1.234,56`, `1,234,567` or `1 234,56`.
pub(crate) fn has_decimal_comma(word: &str) -> bool {
    let unsigned = word.trim().trim_start_matches(['+', '-']);
    if unsigned.contains(GAPS) {
        return is_in_groups(unsigned);
    }
    let Some((first, rest)) = unsigned.split_once(',') else { return false };
    let (groups, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
    let are_thousands = are_digits(fraction) && groups.split(',').all(is_group);
    first.split('.').all(are_digits) && (are_digits(rest) || are_thousands)
}

/// What stands between groups of three digits: a space that is plain, does not break, or is narrow.
const GAPS: [char; 3] = [' ', '\u{a0}', '\u{202f}'];

fn is_in_groups(word: &str) -> bool {
    let (whole, fraction) = word.split_once([',', '.']).unwrap_or((word, "0"));
    let Some((first, groups)) = whole.split_once(GAPS) else { return false };
    first.len() <= 3 && are_digits(first) && groups.split(GAPS).all(is_group) && are_digits(fraction)
}

fn is_group(part: &str) -> bool {
    part.len() == 3 && are_digits(part)
}

fn are_digits(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a number could be a time of day: 930, 1600 or 93059.
pub(crate) fn is_time_of_day(number: f64) -> bool {
    let Some(number) = whole(number).filter(|number| (0..=235_959).contains(number)) else { return false };
    let parts = |hours: i64, minutes: i64, seconds: i64| hours < 24 && minutes < 60 && seconds < 60;
    parts(number / 100, number % 100, 0) || parts(number / 10_000, number / 100 % 100, number % 100)
}

/// A part of a date or a time of day: its digits, or a word.
enum Part<'a> {
    Digits(&'a str),
    Word(&'a str),
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let kind = |c: char| (c.is_ascii_digit(), c.is_alphabetic());
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| kind(c) != kind(first)).unwrap_or(rest.len());
        match kind(first) {
            (true, _) => found.push(Part::Digits(&rest[..end])),
            (_, true) => found.push(Part::Word(&rest[..end])),
            _ => {}
        }
        rest = &rest[end..];
    }
    found
}

/// Longer texts are no moments.
const LONGEST_MOMENT: usize = 40;

/// Whether a text looks like a date or a time of day: `2024-01-31`, `31.1.2024 08:30`, `Jan 31, 2024`.
pub(crate) fn is_moment(text: &str) -> bool {
    let text = text.trim();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " -/.:,+".contains(c);
    if text.len() > LONGEST_MOMENT
        || !text.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !text.chars().all(is_plain)
    {
        return false;
    }
    let parts = parts(text);
    let digits: Vec<&str> =
        parts.iter().filter_map(|part| if let Part::Digits(d) = part { Some(*d) } else { None }).collect();
    let words: Vec<&str> =
        parts.iter().filter_map(|part| if let Part::Word(w) = part { Some(*w) } else { None }).collect();
    words.iter().all(|word| is_month(word) || is_day_or_zone(word))
        && digits_of_a_moment(text, &digits, words.iter().any(|word| is_month(word)))
}

/// A day, a month and a year; a year and a month; or an hour and minutes.
fn digits_of_a_moment(text: &str, digits: &[&str], has_month: bool) -> bool {
    let head = &digits[..digits.len().min(3)];
    let count = |length: fn(usize) -> bool| head.iter().filter(|part| length(part.len())).count();
    let (years, short) = (count(|length| length == 4), count(|length| length <= 2));
    let is_date = years <= 1 && years + short == head.len();
    match head {
        [] => false,
        _ if has_month => is_date,
        [first, _] => is_date && (text.contains(':') && years == 0 || first.len() == 4),
        [_, _, _] => is_date && text.contains(['-', '/', '.', ':']),
        _ => false,
    }
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS_AND_ZONES: [&str; 15] =
    ["mon", "tue", "wed", "thu", "fri", "sat", "sun", "t", "z", "am", "pm", "utc", "gmt", "est", "cet"];
const LONG_NAMES: [&str; 18] = [
    "january",
    "february",
    "march",
    "april",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

fn is_month(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    MONTHS.contains(&word.as_str()) || LONG_NAMES[..11].contains(&word.as_str())
}

fn is_day_or_zone(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    DAYS_AND_ZONES.contains(&word.as_str()) || LONG_NAMES[11..].contains(&word.as_str())
}

/// Whether moments written like this come in the order of their texts: the year first, every part with its zeros.
pub(crate) fn is_sortable_moment(text: &str) -> bool {
    let parts = parts(text.trim());
    let digits =
        |at: usize| parts.get(at).map_or(0, |part| if let Part::Digits(digits) = part { digits.len() } else { 0 });
    let has_no_zone = !text.trim().contains('+');
    has_no_zone
        && digits(0) == 4
        && (1..parts.len()).all(|at| matches!(parts[at], Part::Word("T" | "Z")) || digits(at) >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_are_told_from_other_texts() {
        for text in [
            "2024-01-31",
            "2024/1/31",
            "31.01.2024",
            "1/31/24",
            "31.1.2024 08:30",
            "2024-01-31T08:30:00.123Z",
            "2024-01-31 08:30:00+01:00",
            "Jan 31, 2024",
            "31-Jan-24",
            "Mon, 31 Jan 2024 08:30:00 GMT",
            "08:30",
            "2024-01",
            "January 2024",
            "1/31/2024 8:30 PM",
        ] {
            assert!(is_moment(text), "{text}");
        }
        for text in [
            "",
            "AAPL",
            "1,5",
            "2-1",
            "555-123-4567",
            "a good film",
            "may be",
            "I came in 1999",
            "3 of 4",
            "10.5",
            "v1.2.3b",
            "1234-5678-9012",
            "second",
            "2 may or may not be",
        ] {
            assert!(!is_moment(text), "{text}");
        }
    }

    #[test]
    fn moments_that_sort_as_texts_have_their_year_first() {
        for text in ["2024-01-31", "2024-01-31 08:30:00.123", "2024-01-31T08:30:00Z", "2024/01/31"] {
            assert!(is_sortable_moment(text), "{text}");
        }
        for text in
            ["2024-1-31", "31.01.2024", "Jan 31, 2024", "1/31/2024", "2024-01-31T08:30:00+01:00", "2024-01-31 8:30"]
        {
            assert!(!is_sortable_moment(text), "{text}");
        }
    }

    #[test]
    fn times_of_day_are_numbers_with_hours_and_minutes() {
        assert!([0.0, 930.0, 1600.0, 2359.0, 93_000.0, 235_959.0].into_iter().all(is_time_of_day));
        assert!(![-1.0, 1.5, 1660.0, 20_240_102.0, 2461.0, 240_000.0, f64::NAN].into_iter().any(is_time_of_day));
    }

    #[test]
    fn numbers_with_commas_are_told_from_lists_and_words() {
        let in_groups = ["1 234,50", "12 345", "-1 234 567", "1\u{a0}234,5", "123\u{202f}456.75"];
        for word in ["1,5", "-0,25", "1.234,56", "1,234,567", "1,234.5", "12,5"].into_iter().chain(in_groups) {
            assert!(has_decimal_comma(word), "{word}");
        }
        let spaced = ["1 2", "1234 567", "1 23,5", "12 345 a", " 1,5 2", "1 234,", "1  234", "Jan 123"];
        for word in ["1.5", "a,b", "1,2,3", "1, 5", ",5", "5,", "", "1,5e", "Jan 1,2024"].into_iter().chain(spaced) {
            assert!(!has_decimal_comma(word), "{word}");
        }
    }
}
