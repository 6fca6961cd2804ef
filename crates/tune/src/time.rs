//! Moments in time as storages write them: UTC with microseconds.

use chrono::{DateTime, Local, NaiveDateTime, TimeZone, Utc};

/// A moment, in microseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub(crate) fn now() -> Self {
        Self(Utc::now().timestamp_micros())
    }

    pub(crate) fn seconds_since(self, earlier: Self) -> f64 {
        (self.0 - earlier.0) as f64 * 1e-6
    }

    /// `2026-11-16T03:06:08.000000+00:00`
    pub fn to_iso(self) -> String {
        self.date_time().format("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
    }

    /// `2026-11-16 03:06:08.000000`, as the tables of a database hold it.
    pub(crate) fn to_sql(self) -> String {
        self.date_time().format("%Y-%m-%d %H:%M:%S%.6f").to_string()
    }

    pub(crate) fn from_sql(text: &str) -> Option<Self> {
        parse_naive(text).map(|naive| Self(naive.and_utc().timestamp_micros()))
    }

    /// With an offset as it says; without one (Optuna before 5.0) in the time of this machine.
    pub(crate) fn from_iso(text: &str) -> Option<Self> {
        if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
            return Some(Self(moment.timestamp_micros()));
        }
        let local = Local.from_local_datetime(&parse_naive(text)?).earliest()?;
        Some(Self(local.timestamp_micros()))
    }

    fn date_time(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or(DateTime::UNIX_EPOCH)
    }
}

fn parse_naive(text: &str) -> Option<NaiveDateTime> {
    let formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
    formats.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_back_from_both_ways_of_writing_it() {
        let moment = Timestamp(1_794_798_368_123_456);
        assert_eq!(moment.to_iso(), "2026-11-16T03:06:08.123456+00:00");
        assert_eq!(Timestamp::from_iso(&moment.to_iso()), Some(moment));
        assert_eq!(Timestamp::from_sql(&moment.to_sql()), Some(moment));
        assert_eq!(Timestamp::from_sql("2026-11-16 03:06:08"), Some(Timestamp(1_794_798_368_000_000)));
        assert_eq!(Timestamp::from_iso("2026-11-16T04:06:08.123456+01:00"), Some(moment));
        assert_eq!(Timestamp::from_iso("yesterday"), None);
    }
}
