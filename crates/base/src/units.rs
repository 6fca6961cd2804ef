//! Sizes, counts and times as people write and read them.

#![deny(missing_docs)]

/// The most bytes one process can address (47 bits on x86-64). A size beyond it is a mistake, and every sum of sizes
/// below it stays far from overflow.
pub const ADDRESSABLE_BYTES: u64 = 1 << 47;

/// A memory size as written by a user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// Of whatever is available; above 0, at most 100.
    Percent(f64),
}

/// Why it is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It cannot be read at all.
    #[error("`{0}` is not a memory size: write bytes (`1048576`), a unit (`12GiB`, `8000MB`) or a percentage (`90%`)")]
    Malformed(String),
    /// Nobody knows the unit.
    #[error("unknown unit `{0}`: use KiB, MiB, GiB, TiB (powers of two), KB, MB, GB, TB (powers of ten), B or %")]
    Unit(String),
    /// No machine has so much.
    #[error("`{0}` is out of range: above 0, at most 100% or 128TiB")]
    Range(String),
}

const UNITS: [(&str, u64); 9] = [
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Reads `12GiB`, `8000MB`, `1.5 GiB`, `90%` or plain bytes; units in any case.
pub fn parse_size(text: &str) -> Result<Size, SizeError> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim().to_ascii_lowercase());
    if number.is_empty() || number.parse::<f64>().is_err() {
        return Err(SizeError::Malformed(text.into()));
    }
    if unit == "%" { percent(number, text) } else { bytes(number, &unit, text) }
}

fn percent(number: &str, text: &str) -> Result<Size, SizeError> {
    match number.parse::<f64>() {
        Ok(p) if p > 0.0 && p <= 100.0 => Ok(Size::Percent(p)),
        _ => Err(SizeError::Range(text.into())),
    }
}

fn bytes(number: &str, unit: &str, text: &str) -> Result<Size, SizeError> {
    let unit = if unit.is_empty() { "b" } else { unit };
    let Some(&(_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(SizeError::Unit(unit.into()));
    };
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor),
        // A fraction of a unit; the cast saturates, and the range check below refuses what is too large.
        Err(_) => number.parse::<f64>().ok().map(|n| (n * factor as f64) as u64),
    };
    match bytes {
        Some(b) if (1..=ADDRESSABLE_BYTES).contains(&b) => Ok(Size::Bytes(b)),
        _ => Err(SizeError::Range(text.into())),
    }
}

/// `1536` → `1.5 KiB`: powers of two, two significant decimals at most.
pub fn format_bytes(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.995 would print as 1024.00: the next unit reads better.
    while value >= 1023.995 && unit + 1 < NAMES.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = format!("{value:.2}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits} {}", NAMES[unit])
}

/// The unit to write sizes up to this one in, and its name.
pub fn unit_of(bytes: f64) -> (f64, &'static str) {
    match bytes {
        b if b >= (1u64 << 30) as f64 => ((1u64 << 30) as f64, "GiB"),
        b if b >= (1u64 << 20) as f64 => ((1u64 << 20) as f64, "MiB"),
        _ => (1024.0, "KiB"),
    }
}

/// `2700000` → `2,700,000`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let comma = |i: usize| i > 0 && (digits.len() - i).is_multiple_of(3);
    digits.chars().enumerate().flat_map(|(i, digit)| comma(i).then_some(',').into_iter().chain([digit])).collect()
}

/// `0.00231` → `2.3 ms`, `75` → `1 min 15 s`.
pub fn format_seconds(seconds: f64) -> String {
    if seconds < 0.01 {
        return format!("{:.1} ms", seconds * 1e3);
    }
    if seconds < 1.0 {
        return format!("{:.0} ms", seconds * 1e3);
    }
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("12GiB", 12 << 30),
            ("12 gib", 12 << 30),
            ("8000MB", 8_000_000_000),
            ("1.5GiB", 3 << 29),
            ("64KiB", 64 << 10),
            ("7B", 7),
            ("128TiB", 1 << 47),
        ] {
            assert_eq!(parse_size(text), Ok(Size::Bytes(bytes)), "{text}");
        }
        assert_eq!(parse_size("90%"), Ok(Size::Percent(90.0)));
        assert_eq!(parse_size("12.5 %"), Ok(Size::Percent(12.5)));
    }

    #[test]
    fn sizes_that_are_refused() {
        for text in ["", "GiB", "-1", "1e9", "1.2.3GiB", "nan", "."] {
            assert!(matches!(parse_size(text), Err(SizeError::Malformed(_) | SizeError::Unit(_))), "{text}");
        }
        for text in ["0", "0GiB", "0%", "101%", "129TiB", "99999999999999999999", "18446744073709551615TiB"] {
            assert!(matches!(parse_size(text), Err(SizeError::Range(_))), "{text}");
        }
        assert_eq!(parse_size("12Gib/s"), Err(SizeError::Unit("gib/s".into())));
    }

    #[test]
    fn bytes_as_people_read_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (1 << 20, "1 MiB"),
            ((1 << 20) - 1, "1 MiB"),
            (15 << 30, "15 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
    }

    #[test]
    fn numbers_in_groups_of_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (26_700_123, "26,700,123")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn times_as_people_read_them() {
        let cases = [
            (0.00231, "2.3 ms"),
            (0.9461, "946 ms"),
            (5.25, "5.2 s"),
            (75.0, "1 min 15 s"),
            (7260.0, "2 h 1 min"),
            (90_000.0, "1 d 1 h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(format_seconds(seconds), text);
        }
    }
}
