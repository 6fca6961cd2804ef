//! Everything that is wrong with a file, told at once: the first places by name, the rest by number.

use crate::DataError;
use std::path::Path;

/// Places that are named.
const NAMED: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Problems {
    /// In file order, whatever order they were met in.
    first: Vec<DataError>,
    more: usize,
}

impl Problems {
    /// Remembers a problem of one row; what is wrong with more than that ends the reading at once.
    pub(crate) fn note(&mut self, problem: DataError) -> Result<(), DataError> {
        if !problem.is_of_a_row() {
            return Err(problem);
        }
        let place = problem.place();
        let at = self.first.partition_point(|other| other.place() <= place);
        self.first.insert(at, problem);
        if self.first.len() > NAMED {
            self.first.truncate(NAMED);
            self.more += 1;
        }
        Ok(())
    }

    /// An error unless there were none. A single problem is its own error.
    pub(crate) fn none_of(mut self, file: &Path) -> Result<(), DataError> {
        match self.first.len() {
            0 => Ok(()),
            1 => Err(self.first.swap_remove(0)),
            _ => Err(DataError::Several { file: file.into(), problems: self.first, more: self.more }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    fn problem(line: u64) -> DataError {
        DataError::MissingValue { file: "a.csv".into(), place: Place::Line(line), column: "x".into() }
    }

    #[test]
    fn all_places_are_told_at_once_and_a_long_list_ends_in_a_number() {
        let mut problems = Problems::default();
        (2..30).for_each(|line| problems.note(problem(line)).unwrap());
        let error = problems.none_of("a.csv".as_ref()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("a.csv: 28 places cannot be used\n  line 2, column `x`: the value is missing"),
            "{text}"
        );
        assert!(text.ends_with("\n  and 8 more") && text.lines().count() == 22, "{text}");
    }

    #[test]
    fn one_problem_is_its_own_error_and_a_file_that_is_gone_ends_the_reading() {
        let mut problems = Problems::default();
        problems.note(problem(7)).unwrap();
        assert!(matches!(problems.none_of("a.csv".as_ref()), Err(DataError::MissingValue { .. })));
        let gone = DataError::Unreadable { file: "a.csv".into(), source: std::io::Error::other("gone") };
        assert!(Problems::default().note(gone).is_err());
        assert!(Problems::default().none_of("a.csv".as_ref()).is_ok());
    }
}
