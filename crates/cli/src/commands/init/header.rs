//! Tables without a row of names: the first of their rows would be lost, and its values be what columns are called.

use crate::failure::Failure;
use plimsoll_data::{Survey, SurveyedColumn};
use std::path::Path;

/// Refuses a file whose first row holds values like those below it.
pub(super) fn must_be_there(path: &Path, survey: &Survey) -> Result<(), Failure> {
    let columns = &survey.columns;
    let says = |is_value: bool| columns.iter().any(|column| column.is_called_like_a_value() == Some(is_value));
    if survey.typed || says(false) || !says(true) || are_names(columns) {
        return Ok(());
    }
    let names: Vec<&str> = columns.iter().take(MOST_QUOTED).map(|column| column.name.as_str()).collect();
    let more = if columns.len() > MOST_QUOTED { ", …" } else { "" };
    let cause = format!(
        "{}: line 1: there are no names of columns: `{}{more}` holds values as the rows below it do",
        path.display(),
        names.join(", ")
    );
    Err(Failure::bad_input(cause, "begin the file with a line that names its columns, such as `time,price,label`"))
}

const MOST_QUOTED: usize = 6;

/// Numbers are names, too: places of columns, years, or measures in equal steps.
fn are_names(columns: &[SurveyedColumn]) -> bool {
    let number = |column: &SurveyedColumn| column.name.trim().parse::<f64>().ok();
    let above_numbers: Vec<Option<f64>> = columns.iter().filter(|c| c.is_numeric()).map(number).collect();
    let Some(numbers) = above_numbers.into_iter().collect::<Option<Vec<f64>>>() else { return false };
    let steps: Vec<f64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let is_year = |number: &f64| (1800.0..2200.0).contains(number) && number.fract() == 0.0;
    let are_even = |steps: &[f64]| steps.iter().all(|step| *step != 0.0 && (step - steps[0]).abs() < 1e-9);
    let are_years = numbers.iter().all(is_year) && steps.iter().all(|step| *step > 0.0);
    let are_places = columns.iter().enumerate().all(|(at, c)| number(c).is_some_and(|n| n == at as f64))
        || columns.iter().enumerate().all(|(at, c)| number(c).is_some_and(|n| n == at as f64 + 1.0));
    !numbers.is_empty() && (are_years || steps.len() >= 2 && are_even(&steps)) || are_places
}
