//! The line that each row begins at. Rows mostly follow each other, so only where they do not is kept.

#[derive(Clone, Debug, Default)]
pub(crate) struct RowLines {
    rows: usize,
    /// (row, line) where a row does not begin one line behind the row before it.
    jumps: Vec<(usize, u64)>,
}

impl RowLines {
    pub(crate) fn push(&mut self, line: u64) {
        if self.rows == 0 || self.get(self.rows - 1).is_some_and(|last| last + 1 != line) {
            self.jumps.push((self.rows, line));
        }
        self.rows += 1;
    }

    pub(crate) fn get(&self, row: usize) -> Option<u64> {
        let after = self.jumps.partition_point(|&(first, _)| first <= row);
        let (first, line) = *self.jumps.get(after.checked_sub(1)?)?;
        (row < self.rows).then(|| line + (row - first) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_row_knows_its_line(steps in proptest::collection::vec(1u64..4, 0..60)) {
            let all: Vec<u64> = steps.iter().scan(1, |line, step| { *line += step; Some(*line) }).collect();
            let mut lines = RowLines::default();
            all.iter().for_each(|&line| lines.push(line));
            prop_assert_eq!((0..all.len()).map(|row| lines.get(row).unwrap()).collect::<Vec<_>>(), all.clone());
            prop_assert_eq!(lines.get(all.len()), None);
        }
    }
}
