//! A series: which columns are features, what the label is, and how long a window the rows allow.

use super::fitted::{Fitted, nothing_suits};
use super::look::{Holds, Seen, among, by_name};
use super::setting::{Setting, quoted, set, set_text, set_texts};
use super::target::{LABEL, Target, decimal_comma, holds_classes, quoted_number, target};
use crate::failure::Failure;
use plimsoll_data::{DataError, SurveyedColumn};
use std::collections::HashSet;

const TIME: [&str; 10] =
    ["time", "timestamp", "datetime", "date", "open_time", "open time", "close_time", "close time", "unix", "epoch"];
const PRICE: [&str; 6] = ["close", "adj close", "adj_close", "price", "value", "target"];
const ROW_NUMBER: [&str; 6] = ["", "unnamed: 0", "index", "id", "row", "row_number"];

/// The part of a series that is held out; the last one.
pub(super) const HELD_OUT: f64 = 0.2;
/// Rows that the label of a row looks ahead where it is derived.
const HORIZON: usize = 1;

/// The columns of a series.
struct Series<'a> {
    seen: &'a Seen,
    time: Option<&'a SurveyedColumn>,
    label: Option<(&'a SurveyedColumn, usize)>,
    features: Vec<&'a SurveyedColumn>,
}

pub(super) fn fit(seen: &Seen) -> Result<Fitted, Failure> {
    refuse_misread(seen)?;
    let series = Series::of(seen)?;
    series.refuse_wrong_order()?;
    let derived_from = if series.label.is_none() { Some(series.derived_from()?) } else { None };
    let window = series.window(derived_from.map_or(0, |_| HORIZON))?;
    let classes = series.label.map_or(3, |(_, classes)| classes);
    Ok(Fitted {
        sizes: vec![
            set("model.features", series.features.len()),
            set("model.window", window),
            set("model.classes", classes),
        ],
        columns: series.columns(derived_from),
        notes: series.notes(derived_from, window),
    })
}

/// Numbers that no program reads would be taken for words, and left out in silence. Whole numbers in quotes may be names of
/// things: they are left out, and that is said.
fn refuse_misread(seen: &Seen) -> Result<(), Failure> {
    let has_numbers = seen.columns().iter().any(SurveyedColumn::is_numeric);
    let is_quoted =
        |column: &SurveyedColumn| column.has_quoted_fractions() || column.has_quoted_numbers() && !has_numbers;
    let error = seen.columns().iter().find_map(|column| match column {
        _ if column.has_decimal_commas() => decimal_comma(seen, column),
        _ if is_quoted(column) => quoted_number(seen, column),
        _ => None,
    });
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// The column that rows run along: by its name, or because it holds texts that are times. Where rows run along none, it is one
/// that tells their order; a time of day tells none, for it begins again every day.
fn time(seen: &Seen) -> Option<&SurveyedColumn> {
    let times = || seen.columns().iter().filter(|column| column.is_numeric() || column.is_time());
    let named = TIME.iter().filter_map(|name| by_name(times(), &[name]));
    let candidates = named.chain(times().filter(|column| column.is_time()));
    let goes_on = |column: &SurveyedColumn| column.values().is_none_or(|values| values.len() > 1);
    candidates.min_by_key(|column| match (column.has_order(), column.backwards) {
        (true, None) if goes_on(column) => 0,
        (true, Some(_)) if !column.is_time_of_day() => 1,
        (false, _) => 2,
        (true, _) => 3,
    })
}

impl<'a> Series<'a> {
    fn of(seen: &'a Seen) -> Result<Self, Failure> {
        let time = time(seen);
        let is_other = |column: &&SurveyedColumn| time.is_none_or(|time| time.name != column.name);
        let label = label(seen)?.filter(|(label, _)| is_other(label));
        let is_feature = |column: &&SurveyedColumn| {
            let is_label = label.is_some_and(|(label, _)| label.name == column.name);
            column.is_numeric() && !is_label && !among(&TIME, &column.name) && !is_row_number(column)
        };
        let features: Vec<_> = seen.columns().iter().filter(is_other).filter(is_feature).collect();
        match features.is_empty() {
            true => Err(nothing_suits(seen, "a series needs columns of numbers")),
            false => Ok(Series { seen, time, label, features }),
        }
    }

    /// Rows that run backwards would be learned from the end to the beginning.
    fn refuse_wrong_order(&self) -> Result<(), Failure> {
        let ordered = self.time.filter(|time| time.has_order());
        match ordered.and_then(|time| Some((time, time.backwards?))) {
            None => Ok(()),
            Some((time, place)) => {
                let (file, column) = (self.seen.path.clone(), time.name.clone());
                Err(DataError::Unsorted { file, place, column }.into())
            }
        }
    }

    /// The column whose change is the label: there is none from zero.
    fn derived_from(&self) -> Result<&'a SurveyedColumn, Failure> {
        let usable = || self.features.iter().copied().filter(|column| column.zeros == 0);
        by_name(usable(), &PRICE).or_else(|| usable().next_back()).ok_or_else(|| {
            let cause = "has no label, and none can be derived: every column of numbers holds a 0, from which there is no relative change";
            let hint = "add a column `label` with the class of each row, whole numbers or words";
            Failure::bad_input(format!("{}: {cause}", self.seen.path.display()), hint)
        })
    }

    /// As long as usual, where the part that is held out has room for as many windows as one is long.
    fn window(&self, horizon: usize) -> Result<usize, Failure> {
        const USUAL: usize = 60;
        let Holds::Rows(survey) = &self.seen.holds else { return Ok(USUAL) };
        let ends = |rows: usize| ((rows as f64 * HELD_OUT).round() as usize).saturating_sub(horizon);
        match ends(survey.rows) {
            _ if !survey.whole => Ok(USUAL),
            0 | 1 => {
                let needed = (survey.rows..).find(|&rows| ends(rows) > 1).unwrap_or(survey.rows);
                let path = self.seen.path.display();
                let message = format!("{path}: {} rows are too few for a series", survey.rows);
                let hint = format!("at least {needed} are needed: a fifth is held out, and holds a window, too");
                Err(Failure::bad_input(message, hint))
            }
            ends => Ok(USUAL.min(ends.div_ceil(2)).max(2)),
        }
    }

    fn columns(&self, derived_from: Option<&SurveyedColumn>) -> Vec<Setting> {
        let time = self.time.filter(|time| time.has_order()).map(|column| set_text("data.time", &column.name));
        let names = self.features.iter().map(|column| column.name.as_str());
        let listed = (!self.left_out().is_empty()).then(|| set_texts("data.columns", names));
        let label = self.label.map(|(column, _)| set_text("data.label", &column.name));
        let derived = derived_from.map(|column| {
            let column = quoted(&column.name);
            set("data.label_from", format!("{{ column = {column}, horizon = {HORIZON}, threshold = 0.0 }}"))
        });
        let gaps = (self.gaps() > 0).then(|| set_text("data.gaps", "forward"));
        listed.into_iter().chain(time).chain(label).chain(derived).chain(gaps).collect()
    }

    /// Cells without a value in the columns that count.
    fn gaps(&self) -> usize {
        let label = self.label.map(|(label, _)| label);
        self.features.iter().copied().chain(label).map(|column| column.missing).sum()
    }

    /// Columns with numbers that are no features, which have to be told apart by listing the others.
    fn left_out(&self) -> Vec<&str> {
        let is_label = |column: &SurveyedColumn| self.label.is_some_and(|(label, _)| label.name == column.name);
        let is_time = |column: &SurveyedColumn| self.time.is_some_and(|t| t.name == column.name && t.has_order());
        let features: HashSet<&str> = self.features.iter().map(|column| column.name.as_str()).collect();
        let counts =
            |column: &&SurveyedColumn| column.numbers + column.infinite + column.commas.count + column.quoted.count > 0;
        let others = self.seen.columns().iter().filter(counts);
        let others =
            others.filter(|column| !is_label(column) && !is_time(column) && !features.contains(column.name.as_str()));
        others.map(|column| column.name.as_str()).collect()
    }

    /// Columns with neither numbers nor times, which training leaves out by itself.
    fn wordy(&self) -> Option<String> {
        let is_label = |column: &SurveyedColumn| self.label.is_some_and(|(label, _)| label.name == column.name);
        let holds_other = |column: &SurveyedColumn| column.others + column.lists.count > 0;
        let is_wordy = |column: &&SurveyedColumn| {
            let holds_words = column.is_text() && !column.is_time() && !column.has_quoted_numbers();
            (holds_words || holds_other(column)) && column.numbers == 0 && !is_label(column)
        };
        let names: Vec<&str> = self.seen.columns().iter().filter(is_wordy).map(|column| column.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    fn quoted(&self) -> Option<String> {
        let is_label = |column: &&SurveyedColumn| self.label.is_some_and(|(label, _)| label.name == column.name);
        let quoted = self.seen.columns().iter().filter(|column| column.has_quoted_numbers() && !is_label(column));
        let names: Vec<&str> = quoted.map(|column| column.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    fn notes(&self, derived_from: Option<&SurveyedColumn>, window: usize) -> Vec<String> {
        let left_out = Some(self.left_out()).filter(|names| !names.is_empty()).map(|names| {
            format!("left out as features (times, row numbers, or not only numbers): {}", names.join(", "))
        });
        let wordy = self.wordy().map(|names| format!("no features, because they hold no numbers: {names}"));
        let quoted = self.quoted().map(|names| format!("numbers in quotes are texts, and no features: {names}"));
        let unordered = self.time.filter(|time| !time.has_order()).map(|time| {
            format!("rows are taken as they come, the oldest first: the texts of `{}` have another order", time.name)
        });
        let derived = derived_from.map(|column| {
            format!(
                "no column of labels: the label is whether `{}` goes down, stays or goes up in the next row",
                column.name
            )
        });
        let answer = by_name(self.features.iter().copied(), &LABEL).map(|column| {
            format!(
                "`{}` is a feature, for it holds no classes: if it is the answer, leave it out with data.columns",
                column.name
            )
        });
        let gaps = Some(self.gaps()).filter(|gaps| *gaps > 0);
        let gaps =
            gaps.map(|gaps| format!("{gaps} cells without a value are filled with the value before (data.gaps)"));
        let short = (window < 60)
            .then(|| format!("a window of {window} rows: what is held out of this file has room for few longer ones"));
        [left_out, wordy, quoted, unordered, derived, answer, gaps, short].into_iter().flatten().collect()
    }
}

/// The column that is called a label, where it holds classes that a series can have. Classes with gaps are no feature instead:
/// the model would read the answer.
fn label(seen: &Seen) -> Result<Option<(&SurveyedColumn, usize)>, Failure> {
    let is_pure = |column: &&SurveyedColumn| column.is_numeric() || column.is_text() && column.numbers == 0;
    let Some(named) = by_name(seen.columns().iter().filter(is_pure), &LABEL) else { return Ok(None) };
    match target(seen, named) {
        Ok(Target::Classes(classes)) => Ok(Some((named, classes))),
        Err(refused) if named.stand_ins > 0 && holds_classes(named) => Err(refused),
        _ => Ok(None),
    }
}

/// Whether a column only counts the rows.
fn is_row_number(column: &SurveyedColumn) -> bool {
    among(&ROW_NUMBER, &column.name) && column.fractions == 0 && column.missing == 0 && column.backwards.is_none()
}
