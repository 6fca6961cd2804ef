//! Mean and standard deviation per feature, fitted on training rows only, with the names that later files must match.

use super::{DataError, LabelRule, formats::table::Table};
use plimsoll_base::batching::Gaps;
use serde::{Deserialize, Serialize};

/// What evaluation and prediction need to read other files the way the training file was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalizer {
    pub features: Vec<String>,
    pub mean: Vec<f64>,
    /// 1 where a feature is constant.
    pub std: Vec<f64>,
    pub classes: Vec<String>,
    pub label: LabelRule,
    pub time: Option<String>,
    pub window: usize,
    pub stride: usize,
    /// What becomes of rows that lack a value.
    #[serde(default = "Normalizer::usual_gaps")]
    pub gaps: Gaps,
}

/// Mean and standard deviation of the population, in two passes and in row order. Gaps do not count.
pub(super) fn moments(values: &[f64]) -> (f64, f64) {
    let there = || values.iter().copied().filter(|value| !value.is_nan());
    let n = there().count().max(1) as f64;
    let first = there().next().unwrap_or(0.0);
    // Exactly constant columns: rounding in the mean would otherwise leave a tiny spread to divide by.
    if there().all(|value| value == first) {
        return (first, 1.0);
    }
    let mean = there().sum::<f64>() / n;
    let std = (there().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt();
    (mean, if std > 0.0 { std } else { 1.0 })
}

/// Zeros for so many rows; pages are taken as they are written.
pub(super) fn room(rows: usize, width: usize) -> Result<Vec<f32>, DataError> {
    let cells = rows.checked_mul(width).filter(|cells| *cells <= isize::MAX as usize / 4);
    let cells = cells.ok_or_else(|| DataError::option("features", "rows × features overflow"))?;
    Ok(vec![0f32; cells])
}

impl Normalizer {
    pub fn width(&self) -> usize {
        self.features.len()
    }

    /// Runs from before there was a choice had none.
    fn usual_gaps() -> Gaps {
        Gaps::Error
    }

    /// The rows `rows` of `table` normalized, row after row. Gaps are the value before them, or the mean, which is 0.
    pub(super) fn apply(&self, table: &Table, rows: std::ops::Range<usize>) -> Result<Vec<f32>, DataError> {
        let mut values = room(rows.len(), self.width())?;
        table.for_each_column(&self.features, |feature, column| {
            self.put(table, feature, column, rows.clone(), &mut values)
        })?;
        Ok(values)
    }

    /// Writes the rows `rows` of one column into `values` (rows, features), normalized.
    pub(super) fn put(
        &self,
        table: &Table,
        feature: usize,
        column: &[f64],
        rows: std::ops::Range<usize>,
        values: &mut [f32],
    ) -> Result<(), DataError> {
        let (width, mean, std) = (self.width(), self.mean[feature], self.std[feature]);
        let before = column[..rows.start].iter().rev().copied().find(|value| !value.is_nan());
        let mut last = before.unwrap_or(mean);
        for (row, &value) in column[rows.clone()].iter().enumerate() {
            let value = match (value.is_nan(), self.gaps) {
                (false, _) => value,
                (true, Gaps::Forward) => last,
                (true, _) => mean,
            };
            last = value;
            let scaled = ((value - mean) / std) as f32;
            if !scaled.is_finite() {
                let (file, place, column) =
                    (table.file.clone(), table.place(rows.start + row), self.features[feature].clone());
                return Err(DataError::NotFinite { file, place, column, value: scaled.into() });
            }
            values[row * width + feature] = scaled;
        }
        Ok(())
    }

    /// A stored normalizer comes from a file: its lists must agree before anything indexes them.
    pub(super) fn check(&self) -> Result<(), DataError> {
        let width = self.width();
        if width == 0 || self.mean.len() != width || self.std.len() != width {
            return Err(DataError::option("normalizer", "features, mean and std differ in length"));
        }
        let usable = |(mean, std): (&f64, &f64)| mean.is_finite() && std.is_finite() && *std > 0.0;
        if !self.mean.iter().zip(&self.std).all(usable) {
            return Err(DataError::option("normalizer", "mean and std must be finite, std positive"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_small_columns() {
        assert_eq!(moments(&[1.0, 3.0]), (2.0, 1.0));
        assert_eq!(moments(&[5.0; 7]), (5.0, 1.0));
        assert_eq!(moments(&[f64::NAN, 1.0, f64::NAN, 3.0]), (2.0, 1.0));
        assert_eq!(moments(&[f64::NAN; 3]), (0.0, 1.0));
        assert_eq!(moments(&[0.1; 1_000_003]), (0.1, 1.0), "rounding must not make a constant column vary");
    }
}
