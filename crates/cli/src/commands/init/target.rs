//! What a column of labels makes a model learn: classes, several of them at once, or numbers.

use super::fitted::nothing_suits;
use super::look::{Seen, among, by_name};
use crate::failure::Failure;
use plimsoll_data::{DataError, Lists, SurveyedColumn};

pub(super) const LABEL: [&str; 8] = ["label", "labels", "target", "class", "category", "sentiment", "score", "y"];

/// So many different labels are classes even where each was seen only once or twice.
const FEW: usize = 10;

/// Outputs of the model, and what they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    Classes(usize),
    /// Any number of so many.
    Several(usize),
    Numbers(usize),
}

/// The column of labels, other than `but`, and what it asks for: one that is called so, or else the one with the fewest
/// classes.
pub(super) fn label<'a>(seen: &'a Seen, but: &[&str]) -> Result<(&'a SurveyedColumn, Target), Failure> {
    let others = || seen.columns().iter().filter(|column| !among(but, &column.name));
    let is_label = |column: &&SurveyedColumn| !column.is_time() && among(&LABEL, &column.name);
    if let Some(named) = by_name(others().filter(is_label), &LABEL) {
        return Ok((named, target(seen, named)?));
    }
    let classes = |column: &&SurveyedColumn| matches!(target(seen, column), Ok(Target::Classes(_)));
    let fewest = others().filter(|column| column.classes().is_some()).filter(classes);
    let found = fewest.min_by_key(|column| column.classes().map(|classes| classes.len()));
    let column = found.ok_or_else(|| nothing_suits(seen, "there is no column of labels"))?;
    Ok((column, target(seen, column)?))
}

/// What the labels of a column are, or why they are none.
pub(super) fn target(seen: &Seen, column: &SurveyedColumn) -> Result<Target, Failure> {
    let refuse = |cause: &str, hint: &str| {
        let place = format!("{}: column `{}`", seen.path.display(), column.name);
        Err(Failure::bad_input(format!("{place} {cause}"), hint))
    };
    if let Some(error) = decimal_comma(seen, column) {
        return Err(error.into());
    }
    let has_words = column.texts > 0 && !column.has_quoted_numbers();
    match column {
        _ if column.is_empty() => {
            refuse("holds no label in any row that was looked at", "fill it, or name the column otherwise")
        }
        _ if column.lists.count > 0 => of_lists(column).or_else(|(cause, hint)| refuse(cause, hint)),
        _ if column.infinite + column.others > 0 => {
            refuse("holds values that are no labels", "a label is a word, a number or a list of them")
        }
        _ if !has_words && column.stand_ins > 0 => {
            let hint = "leave the cells empty where a label is not known, or give such rows a class of their own";
            refuse("holds numbers, and words that stand for none", hint)
        }
        _ if column.values().is_some_and(|values| values.len() < 2) => {
            refuse("holds the same label in every row that was looked at", "there is nothing to tell apart")
        }
        _ => of_cells(column).or_else(|(cause, hint)| match quoted_number(seen, column) {
            Some(error) if column.has_quoted_numbers() => Err(error.into()),
            _ => refuse(cause, hint),
        }),
    }
}

/// The first number of a column that is written with a comma, or in groups.
pub(super) fn decimal_comma(seen: &Seen, column: &SurveyedColumn) -> Option<DataError> {
    let (place, content) = column.commas.first.clone()?;
    Some(DataError::DecimalComma { file: seen.path.clone(), place, column: column.name.clone(), content })
}

/// The first number of a column that is written in quotes.
pub(super) fn quoted_number(seen: &Seen, column: &SurveyedColumn) -> Option<DataError> {
    let (place, content) = column.quoted.first.clone()?;
    Some(DataError::QuotedNumber { file: seen.path.clone(), place, column: column.name.clone(), content })
}

/// Whether the values that are there are classes.
pub(super) fn holds_classes(column: &SurveyedColumn) -> bool {
    matches!(of_cells(column), Ok(Target::Classes(_)))
}

type Refused = (&'static str, &'static str);

/// Whole numbers of few kinds are classes, as words are; other numbers are what to predict.
fn of_cells(column: &SurveyedColumn) -> Result<Target, Refused> {
    let rows = column.numbers + column.texts;
    let are_few = |&different: &usize| different <= FEW && different < rows.max(3);
    let few = column.values().map(|values| values.len()).filter(are_few);
    let classes =
        column.classes().map(|classes| classes.len()).or(few).filter(|_| column.fractions == 0 || column.texts > 0);
    match classes {
        Some(classes) => Ok(Target::Classes(classes)),
        None if column.texts == 0 && column.numbers > 0 => Ok(Target::Numbers(1)),
        None => Err((
            "holds too many different texts for classes",
            "a text to be written is the target of a t5 (--family t5)",
        )),
    }
}

/// Words that a row has, or a number for each output.
fn of_lists(column: &SurveyedColumn) -> Result<Target, Refused> {
    let lists = &column.lists;
    let words = lists.words.get().map_or(usize::MAX, |words| words.len());
    let hint = "write the labels that a row has as words, or a number for each output, 0 and 1 for labels";
    match lists {
        _ if column.texts + column.numbers + column.others + lists.others > 0 || (words > 0 && lists.numbers > 0) => {
            Err(("holds lists and other values", hint))
        }
        _ if words == usize::MAX => Err(("holds too many different labels", hint)),
        _ if words > 0 => Ok(Target::Several(words)),
        Lists { shortest, longest, .. } if shortest != longest || *longest == 0 => {
            Err(("holds lists of numbers that are not equally long", hint))
        }
        Lists { are_shares: true, longest, .. } => Ok(Target::Several(*longest)),
        Lists { longest, .. } => Ok(Target::Numbers(*longest)),
    }
}
