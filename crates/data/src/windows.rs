//! Windows over a normalized series: the rows are stored once, a sample is a slice of them.

use super::{DataError, Dataset, Element, FieldSpec, RowMut};
use std::ops::Range;

/// The label of windows that have none (prediction).
pub(crate) const NO_LABEL: i32 = -1;

/// Fields: `x` (window × features, f32), `label` (i32) and `weight` (f32; 0 for a window without a label).
#[derive(Clone, Debug)]
pub struct Windows {
    /// (rows, width)
    values: Vec<f32>,
    /// Label of each row that can end a window; empty: no labels.
    labels: Vec<i32>,
    width: usize,
    window: usize,
    stride: usize,
    count: usize,
    /// The numbers of the windows that are left, where some are not.
    left: Option<Vec<u32>>,
    /// The rows of the file, where some were left out.
    origins: Option<Vec<u32>>,
    fields: [FieldSpec; 3],
}

/// Windows of `window` rows, `stride` apart, whose last row is among the first `ends` of a series.
pub fn window_count(ends: usize, window: usize, stride: usize) -> usize {
    ends.checked_sub(window).map_or(0, |rest| rest / stride.max(1) + 1)
}

impl Windows {
    /// `labels` may be shorter than the series: rows without a label end no window.
    pub(super) fn new(values: Vec<f32>, width: usize, labels: Option<Vec<i32>>, window: usize, stride: usize) -> Self {
        let ends = labels.as_ref().map_or(values.len() / width.max(1), Vec::len);
        Windows {
            count: window_count(ends, window, stride),
            left: None,
            origins: None,
            fields: Windows::sample_fields(window, width),
            labels: labels.unwrap_or_default(),
            values,
            width,
            window,
            stride,
        }
    }

    /// What a sample of `window` rows of `width` features consists of.
    pub fn sample_fields(window: usize, width: usize) -> [FieldSpec; 3] {
        [
            FieldSpec::new("x", Element::F32, &[window, width]),
            FieldSpec::new("label", Element::I32, &[]),
            FieldSpec::new("weight", Element::F32, &[]),
        ]
    }

    /// Without the windows that `keeps` does not want; it is asked about the rows of each.
    pub(super) fn only(mut self, keeps: impl Fn(Range<usize>) -> bool) -> Self {
        let kept: Vec<u32> =
            (0..self.count).filter(|&sample| keeps(self.rows(sample))).map(|sample| sample as u32).collect();
        if kept.len() < self.count {
            self.count = kept.len();
            self.left = Some(kept);
        }
        self
    }

    /// With the row of the file that each row is.
    pub(super) fn of_rows(self, origins: Vec<u32>) -> Self {
        Windows { origins: Some(origins), ..self }
    }

    /// Which of all windows a sample is.
    pub fn number(&self, sample: usize) -> usize {
        self.left.as_ref().map_or(sample, |left| left[sample] as usize)
    }

    fn rows(&self, sample: usize) -> Range<usize> {
        let start = self.number(sample) * self.stride;
        start..start + self.window
    }

    /// The row of the file (of this part of it, where it was split) that ends window `sample`.
    pub fn last_row(&self, sample: usize) -> usize {
        let row = self.rows(sample).end - 1;
        self.origins.as_ref().map_or(row, |origins| origins[row] as usize)
    }

    pub(crate) fn label(&self, sample: usize) -> i32 {
        self.labels.get(self.rows(sample).end - 1).copied().unwrap_or(NO_LABEL)
    }

    /// How many windows have each label.
    pub(crate) fn class_counts(&self, classes: usize) -> Vec<u64> {
        let mut counts = vec![0; classes];
        for sample in 0..self.count {
            if let Some(count) = usize::try_from(self.label(sample)).ok().and_then(|class| counts.get_mut(class)) {
                *count += 1;
            }
        }
        counts
    }
}

impl Dataset for Windows {
    fn len(&self) -> usize {
        self.count
    }

    fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let start = self.rows(sample).start * self.width;
        row.f32(0).copy_from_slice(&self.values[start..start + self.window * self.width]);
        let label = self.label(sample);
        row.i32(1)[0] = label.max(0);
        row.f32(2)[0] = if label == NO_LABEL { 0.0 } else { 1.0 };
        Ok(())
    }

    fn resident_bytes(&self) -> usize {
        let indices = self.left.iter().chain(&self.origins).map(Vec::len).sum::<usize>();
        4 * (self.values.len() + self.labels.len() + indices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;
    use proptest::prelude::*;

    proptest! {
        /// Window `i` is rows `i·stride .. i·stride + window`, its label that of its last row, and one more would not fit.
        #[test]
        fn windows_are_the_rows_they_claim(
            rows in 1usize..60, width in 1usize..4, window in 1usize..20, stride in 1usize..7, unlabeled in 0usize..5,
        ) {
            let values: Vec<f32> = (0..rows * width).map(|i| i as f32).collect();
            let ends = rows.saturating_sub(unlabeled);
            let labels: Vec<i32> = (0..ends as i32).collect();
            let windows = Windows::new(values.clone(), width, Some(labels), window, stride);
            prop_assert_eq!(windows.len(), (0..ends).filter(|e| e + 1 >= window && (e + 1 - window) % stride == 0).count());
            let mut batch = Batch::new(windows.fields(), 1).unwrap();
            for sample in 0..windows.len() {
                batch.fill(&windows, [sample].into_iter()).unwrap();
                let first = sample * stride;
                prop_assert_eq!(batch.f32(0, 0..1), &values[first * width..(first + window) * width]);
                prop_assert_eq!(batch.i32(1, 0..1), &[(first + window - 1) as i32]);
            }
        }
    }

    #[test]
    fn windows_that_are_left_keep_their_numbers_and_rows() {
        let windows = Windows::new((0..6).map(|i| i as f32).collect(), 1, None, 2, 1).only(|rows| !rows.contains(&2));
        assert_eq!((windows.len(), [0, 1, 2].map(|s| windows.number(s))), (3, [0, 3, 4]));
        let moved = windows.of_rows(vec![0, 1, 5, 6, 7, 9]);
        assert_eq!([0, 1, 2].map(|s| moved.last_row(s)), [1, 7, 9]);
        let mut batch = Batch::new(moved.fields(), 3).unwrap();
        batch.fill(&moved, 0..3).unwrap();
        assert_eq!(batch.f32(0, 0..3), [0.0, 1.0, 3.0, 4.0, 4.0, 5.0]);
    }

    #[test]
    fn windows_without_labels_say_so() {
        let windows = Windows::new(vec![0.0; 6], 1, None, 2, 1);
        assert_eq!((windows.len(), windows.label(0)), (5, NO_LABEL));
        let mut batch = Batch::new(windows.fields(), 2).unwrap();
        batch.fill(&windows, 0..2).unwrap();
        assert_eq!((batch.i32(1, 0..2), batch.f32(2, 0..2)), (&[0, 0][..], &[0.0, 0.0][..]), "they count nothing");
    }
}
