//! Sizes are read from two places with the same keys and ranges: the recipe's table, and a checkpoint's config.json.

use std::ops::RangeInclusive;

use crate::reading::section::{Range, Section};
use plimsoll_base::names::Named;

/// A table of keys. `None` means absent, or reported.
pub trait Keys: Sized {
    fn size(&self, key: &'static str, range: RangeInclusive<usize>) -> Option<usize>;
    fn number(&self, key: &'static str, range: Range) -> Option<f64>;
    fn flag(&self, key: &'static str) -> Option<bool>;
    fn choice<T: Named>(&self, key: &'static str) -> Option<T>;

    /// Reads a table inside this one; it is empty where it is not written.
    fn nested<R>(&self, key: &'static str, read: impl FnOnce(&Self) -> R) -> R;

    /// A share of values that dropout takes away.
    fn dropout(&self, key: &'static str) -> Option<f32> {
        self.number(key, Range::closed(0.0, 0.99)).map(|n| n as f32)
    }
}

impl Keys for Section<'_> {
    fn size(&self, key: &'static str, range: RangeInclusive<usize>) -> Option<usize> {
        Section::size(self, key, range)
    }

    fn number(&self, key: &'static str, range: Range) -> Option<f64> {
        Section::number(self, key, range)
    }

    fn flag(&self, key: &'static str) -> Option<bool> {
        Section::flag(self, key)
    }

    fn choice<T: Named>(&self, key: &'static str) -> Option<T> {
        Section::choice(self, key)
    }

    fn nested<R>(&self, key: &'static str, read: impl FnOnce(&Self) -> R) -> R {
        let section = self.section_or_empty(key);
        let result = read(&section);
        section.finish();
        result
    }
}
