//! A series file becomes windows: columns chosen, split by time, normalized by what the training rows show, cut.

use super::{
    DataError, LabelRule, Normalizer, Windows,
    normalizer::moments,
    report::{DataReport, SeriesReport},
    table::{Selection, Table, Values},
    windows::window_count,
};
use std::{ops::Range, path::PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub struct SeriesOptions {
    /// CSV, JSONL or Parquet, told by the extension.
    pub train: PathBuf,
    /// Without it, the last `validation_fraction` of the training file.
    pub validation: Option<PathBuf>,
    /// Feature columns; empty: all numeric columns but label and time.
    pub features: Vec<String>,
    pub label: LabelRule,
    /// A column that must not go backwards.
    pub time: Option<String>,
    pub window: usize,
    pub stride: usize,
    pub validation_fraction: f64,
    /// Classes of the model, to check labels against; `None`: as many as the training rows have.
    pub classes: Option<usize>,
}

impl SeriesOptions {
    pub fn new(train: impl Into<PathBuf>, label: LabelRule) -> Self {
        SeriesOptions {
            train: train.into(),
            validation: None,
            features: Vec::new(),
            label,
            time: None,
            window: 60,
            stride: 1,
            validation_fraction: 0.2,
            classes: None,
        }
    }
}

/// A series ready for training.
#[derive(Debug)]
pub struct SeriesData {
    pub train: Windows,
    /// Empty when the validation fraction is 0.
    pub validation: Windows,
    pub normalizer: Normalizer,
    /// Accuracy of the best possible classifier on the validation windows, where the source knows it.
    pub best_accuracy: Option<f64>,
    pub report: DataReport,
}

/// Reads, splits, normalizes and cuts the files of `options`.
pub fn load_series(options: &SeriesOptions) -> Result<SeriesData, DataError> {
    check(options)?;
    let selection = selection(&options.features, Some(&options.label), options.time.as_deref());
    assemble(&Table::read(&options.train, &selection)?, options, &selection)
}

pub(super) fn check(options: &SeriesOptions) -> Result<(), DataError> {
    check_cuts(options.window, options.stride)?;
    check_fraction(options.validation_fraction)?;
    options.label.check()
}

/// From the training table to windows of both parts.
pub(super) fn assemble(table: &Table, options: &SeriesOptions, selection: &Selection) -> Result<SeriesData, DataError> {
    check_time(table, options.time.as_deref())?;
    let (train_rows, validation_rows) = split_rows(table, options);
    let normalizer = fit(table, train_rows.clone(), options, selection)?;
    let train = cut(table, train_rows, &normalizer, Labels::Read, "training")?;
    let validation = match (&options.validation, validation_rows) {
        (Some(file), _) => read_windows(file, &normalizer, Labels::Read)?,
        (None, Some(rows)) => cut(table, rows, &normalizer, Labels::Read, "validation")?,
        (None, None) => Windows::new(Vec::new(), normalizer.width(), Some(Vec::new()), options.window, options.stride),
    };
    let source = options.train.display().to_string();
    let report = DataReport::Series(SeriesReport::new(source, table.rows, &train, &validation, &normalizer));
    Ok(SeriesData { train, validation, normalizer, best_accuracy: None, report })
}

/// Whether a file is expected to hold labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    Read,
    /// Windows get [`super::NO_LABEL`]; every window of the file is kept.
    Absent,
}

/// All windows of another file (evaluation, prediction), read and normalized as the training file was.
pub fn read_windows(file: &std::path::Path, normalizer: &Normalizer, labels: Labels) -> Result<Windows, DataError> {
    normalizer.check()?;
    check_cuts(normalizer.window, normalizer.stride)?;
    normalizer.label.check()?;
    let rule = (labels == Labels::Read).then_some(&normalizer.label);
    let table = Table::read(file, &selection(&normalizer.features, rule, normalizer.time.as_deref()))?;
    check_time(&table, normalizer.time.as_deref())?;
    cut(&table, 0..table.rows, normalizer, labels, "windows")
}

fn check_cuts(window: usize, stride: usize) -> Result<(), DataError> {
    match (window, stride) {
        (0, _) => Err(DataError::option("window", "must be at least 1 row")),
        (_, 0) => Err(DataError::option("stride", "must be at least 1 row")),
        _ => Ok(()),
    }
}

pub(super) fn check_fraction(fraction: f64) -> Result<(), DataError> {
    if (0.0..1.0).contains(&fraction) {
        return Ok(());
    }
    Err(DataError::option("validation_fraction", format!("{fraction} must be at least 0 and below 1")))
}

fn selection(features: &[String], label: Option<&LabelRule>, time: Option<&str>) -> Selection {
    let mut numbers = features.to_vec();
    let mut others: Vec<String> = time.map(String::from).into_iter().collect();
    match label {
        Some(LabelRule::Column(column)) => others.push(column.clone()),
        // The source of a derived label is a number; where features are guessed it is one of them anyway.
        Some(LabelRule::Return { column, .. }) => numbers.push(column.clone()),
        None => {}
    }
    Selection { numbers: (!features.is_empty()).then_some(numbers), others }
}

fn check_time(table: &Table, time: Option<&str>) -> Result<(), DataError> {
    let Some(column) = time else { return Ok(()) };
    let backwards = match table.column(column)? {
        Values::Numbers(times) => times.windows(2).position(|pair| pair[1] < pair[0]),
        Values::Text(times) => times.windows(2).position(|pair| pair[1] < pair[0]),
    };
    match backwards {
        None => Ok(()),
        Some(row) => {
            Err(DataError::Unsorted { file: table.file.clone(), place: table.place(row + 1), column: column.into() })
        }
    }
}

/// Training rows come first in time. Windows are cut inside each part, so none straddles the split.
fn split_rows(table: &Table, options: &SeriesOptions) -> (Range<usize>, Option<Range<usize>>) {
    let held_out = match options.validation {
        Some(_) => 0,
        None => (table.rows as f64 * options.validation_fraction).round() as usize,
    };
    let split = table.rows - held_out.min(table.rows);
    (0..split, (held_out > 0).then_some(split..table.rows))
}

fn fit(
    table: &Table,
    training: Range<usize>,
    options: &SeriesOptions,
    selection: &Selection,
) -> Result<Normalizer, DataError> {
    let features = if options.features.is_empty() { table.number_names(selection) } else { options.features.clone() };
    if features.is_empty() {
        return Err(DataError::Empty { file: table.file.clone(), what: "numeric columns" });
    }
    let needed = options.window.saturating_add(options.label.horizon());
    if training.len() < needed {
        return Err(DataError::TooShort { file: table.file.clone(), part: "training", rows: training.len(), needed });
    }
    let fitted = features.iter().map(|name| Ok(moments(&table.numbers(name)?[training.clone()])));
    let (mean, std): (Vec<f64>, Vec<f64>) = fitted.collect::<Result<Vec<_>, DataError>>()?.into_iter().unzip();
    if let Some(at) = mean.iter().zip(&std).position(|(mean, std)| !mean.is_finite() || !std.is_finite()) {
        let cause = format!("values of column `{}` are too large to normalize", features[at]);
        return Err(DataError::Malformed { file: table.file.clone(), place: table.place(training.start), cause });
    }
    Ok(Normalizer {
        classes: options.label.classes(table, training, options.classes)?,
        features,
        mean,
        std,
        label: options.label.clone(),
        time: options.time.clone(),
        window: options.window,
        stride: options.stride,
    })
}

/// Windows of the rows `rows`, which see no other row: neither their values nor their labels.
fn cut(
    table: &Table,
    rows: Range<usize>,
    normalizer: &Normalizer,
    labels: Labels,
    part: &'static str,
) -> Result<Windows, DataError> {
    let horizon = if labels == Labels::Read { normalizer.label.horizon() } else { 0 };
    if window_count(rows.len().saturating_sub(horizon), normalizer.window, normalizer.stride) == 0 {
        let needed = normalizer.window.saturating_add(horizon);
        return Err(DataError::TooShort { file: table.file.clone(), part, rows: rows.len(), needed });
    }
    let row_labels = match labels {
        Labels::Read => Some(normalizer.label.labels(table, rows.clone(), &normalizer.classes)?),
        Labels::Absent => None,
    };
    let values = normalizer.apply(table, rows)?;
    Ok(Windows::new(values, normalizer.width(), row_labels, normalizer.window, normalizer.stride))
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;
