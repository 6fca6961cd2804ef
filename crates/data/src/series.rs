//! A series file becomes windows: columns chosen, split by time, normalized by what the training rows show, cut.

use super::{
    DataError, LabelRule, Normalizer, Windows,
    formats::table,
    formats::table::{MostNumbers, Selection, Table},
    normalizer::{moments, room},
    report::{DataReport, SeriesReport},
    windows::window_count,
};
use plimsoll_base::formats::Format;
use std::{
    ops::Range,
    path::{Path, PathBuf},
};

#[derive(Clone, Debug, PartialEq)]
pub struct SeriesOptions {
    pub train: PathBuf,
    /// Of the training file; `None`: as its extension says.
    pub format: Option<Format>,
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
    /// Numbers of a file that are kept while it is read; of larger ones, columns are read again, some at a time.
    pub most_numbers: MostNumbers,
    /// What all rows may take in memory; `None`: whatever they need.
    pub most_bytes: Option<u64>,
}

impl SeriesOptions {
    pub fn new(train: impl Into<PathBuf>, label: LabelRule) -> Self {
        SeriesOptions {
            train: train.into(),
            format: None,
            validation: None,
            features: Vec::new(),
            label,
            time: None,
            window: 60,
            stride: 1,
            validation_fraction: 0.2,
            classes: None,
            most_numbers: MostNumbers::default(),
            most_bytes: None,
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
    let selection = Selection {
        most_numbers: options.most_numbers,
        ..selection(&options.features, Some(&options.label), options.time.as_deref())
    };
    let read = table(&options.train, options.format, &selection);
    let table = read.map_err(|error| name_key(error, &options.features, &options.label, options.time.as_deref()))?;
    assemble(&table, options, &selection)
}

pub(super) fn check(options: &SeriesOptions) -> Result<(), DataError> {
    check_cuts(options.window, options.stride)?;
    check_fraction(options.validation_fraction)?;
    options.label.check()
}

/// From the training table to windows of both parts.
pub(super) fn assemble(table: &Table, options: &SeriesOptions, selection: &Selection) -> Result<SeriesData, DataError> {
    let (train_rows, held_out) = split_rows(table, options);
    let mut normalizer = outline(table, train_rows.clone(), options, selection)?;
    check_room(table, normalizer.width(), options.most_bytes)?;
    let train_labels = labels_of(table, &train_rows, &normalizer, Labels::Read, "training")?;
    let held_out_labels = match &held_out {
        Some(rows) => labels_of(table, rows, &normalizer, Labels::Read, "validation")?,
        None => Some(Vec::new()),
    };
    let [values, held_out_values] = scale(table, [train_rows, held_out.unwrap_or(0..0)], &mut normalizer)?;
    let train = windows(values, train_labels, &normalizer);
    let validation = match &options.validation {
        Some(file) => {
            let format = Format::beside(file, &options.train, options.format);
            read_windows(file, format, &normalizer, Labels::Read)?
        }
        None => windows(held_out_values, held_out_labels, &normalizer),
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
pub fn read_windows(
    file: &Path,
    format: Option<Format>,
    normalizer: &Normalizer,
    labels: Labels,
) -> Result<Windows, DataError> {
    normalizer.check()?;
    check_cuts(normalizer.window, normalizer.stride)?;
    normalizer.label.check()?;
    let rule = (labels == Labels::Read).then_some(&normalizer.label);
    let time = normalizer.time.as_deref();
    let table = table(file, format, &selection(&normalizer.features, rule, time))
        .map_err(|error| name_key(error, &normalizer.features, &normalizer.label, time))?;
    let row_labels = labels_of(&table, &(0..table.rows), normalizer, labels, "windows")?;
    Ok(windows(normalizer.apply(&table, 0..table.rows)?, row_labels, normalizer))
}

fn windows(values: Vec<f32>, labels: Option<Vec<i32>>, normalizer: &Normalizer) -> Windows {
    Windows::new(values, normalizer.width(), labels, normalizer.window, normalizer.stride)
}

/// All rows in the form that training reads must fit before room for them is taken.
fn check_room(table: &Table, width: usize, most_bytes: Option<u64>) -> Result<(), DataError> {
    let needed = (table.rows as u64).saturating_mul(4 * (width as u64 + 1));
    match most_bytes {
        Some(most) if needed > most => {
            Err(DataError::DoesNotFit { file: table.file.clone(), rows: table.rows, needed, most })
        }
        _ => Ok(()),
    }
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
    let (mut others, mut kept) = (Vec::new(), Vec::new());
    match label {
        Some(LabelRule::Column(column)) => others.push(column.clone()),
        // The source of a derived label is a number; where features are guessed it is one of them anyway.
        Some(LabelRule::Return { column, .. }) => {
            numbers.push(column.clone());
            kept.push(column.clone());
        }
        None => {}
    }
    let (numbers, ordered) = ((!features.is_empty()).then_some(numbers), time.map(String::from));
    Selection { numbers, others, ordered, kept, ..Selection::default() }
}

/// Says by which key a column is named that is not there.
fn name_key(error: DataError, features: &[String], label: &LabelRule, time: Option<&str>) -> DataError {
    let label = match label {
        LabelRule::Column(column) => (column.as_str(), "label"),
        LabelRule::Return { column, .. } => (column.as_str(), "label_from.column"),
    };
    let columns = features.iter().map(|name| (name.as_str(), "columns"));
    let keys: Vec<_> = [label].into_iter().chain(time.map(|time| (time, "time"))).chain(columns).collect();
    error.named_by(&keys)
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

/// A normalizer whose means and spreads are not known yet.
fn outline(
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
    Ok(Normalizer {
        classes: options.label.classes(table, training, options.classes)?,
        mean: vec![0.0; features.len()],
        std: vec![1.0; features.len()],
        features,
        label: options.label.clone(),
        time: options.time.clone(),
        window: options.window,
        stride: options.stride,
    })
}

/// Fits the normalizer on the first part and normalizes both, column by column.
fn scale(table: &Table, parts: [Range<usize>; 2], normalizer: &mut Normalizer) -> Result<[Vec<f32>; 2], DataError> {
    let features = normalizer.features.clone();
    let [mut train, mut held_out] = [room(parts[0].len(), features.len())?, room(parts[1].len(), features.len())?];
    table.for_each_column(&features, |feature, column| {
        let (mean, std) = moments(&column[parts[0].clone()]);
        if !mean.is_finite() || !std.is_finite() {
            let cause = format!("values of column `{}` are too large to normalize", features[feature]);
            return Err(DataError::Malformed { file: table.file.clone(), place: table.place(parts[0].start), cause });
        }
        (normalizer.mean[feature], normalizer.std[feature]) = (mean, std);
        normalizer.put(table, feature, column, parts[0].clone(), &mut train)?;
        normalizer.put(table, feature, column, parts[1].clone(), &mut held_out)
    })?;
    Ok([train, held_out])
}

/// Labels of the rows `rows`, which see no other row; at least one window must have room in them.
fn labels_of(
    table: &Table,
    rows: &Range<usize>,
    normalizer: &Normalizer,
    labels: Labels,
    part: &'static str,
) -> Result<Option<Vec<i32>>, DataError> {
    let horizon = if labels == Labels::Read { normalizer.label.horizon() } else { 0 };
    if window_count(rows.len().saturating_sub(horizon), normalizer.window, normalizer.stride) == 0 {
        let needed = normalizer.window.saturating_add(horizon);
        return Err(DataError::TooShort { file: table.file.clone(), part, rows: rows.len(), needed });
    }
    match labels {
        Labels::Read => Ok(Some(normalizer.label.labels(table, rows.clone(), &normalizer.classes)?)),
        Labels::Absent => Ok(None),
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;
