//! A series file becomes windows: columns chosen, split by time, normalized by what the training rows show, cut.

use super::{
    DataError, Dataset, LabelRule, Normalizer, Windows,
    asked::id_of,
    formats::table::{Keeps, MostNumbers, Selection, Table},
    formats::{self, Cell, Columns, Wanted, table},
    normalizer::{moments, room},
    report::{DataReport, GapReport, SeriesReport},
    windows::{NO_LABEL, window_count},
};
use plimsoll_base::batching::Gaps;
use plimsoll_base::formats::Format;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// What becomes of rows that lack a value.
    pub gaps: Gaps,
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
            gaps: Gaps::Error,
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
        keeps: if options.gaps == Gaps::Error { Keeps::Nothing } else { Keeps::Gaps },
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
    let parts = [train_rows, held_out.clone().unwrap_or(0..0)];
    let [values, held_out_values] = scale(table, parts.clone(), &mut normalizer)?;
    let part = |values, labels, at: usize| Whole { values, labels, rows: parts[at].clone() };
    let train = part(values, train_labels, 0).windows_of(table, &normalizer, Labels::Read, "training")?;
    let validation = match &options.validation {
        Some(file) => {
            let format = Format::beside(file, &options.train, options.format);
            read_windows(file, format, &normalizer, Labels::Read)?
        }
        None if held_out.is_none() => part(held_out_values, held_out_labels, 1).windows(&normalizer),
        None => part(held_out_values, held_out_labels, 1).windows_of(table, &normalizer, Labels::Read, "validation")?,
    };
    let source = options.train.display().to_string();
    let mut report = SeriesReport::new(source, table.rows, &train, &validation, &normalizer);
    report.gaps = GapReport::of(table, &normalizer);
    if options.features.is_empty() {
        report.left_out = table.left_out();
    }
    let report = DataReport::Series(report);
    Ok(SeriesData { train, validation, normalizer, best_accuracy: None, report })
}

/// Whether a file is expected to hold labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    Read,
    /// Windows get [`super::NO_LABEL`]; every window of the file is kept.
    Absent,
}

/// All windows of another file, read and normalized as the training file was.
pub(crate) fn read_windows(
    file: &Path,
    format: Option<Format>,
    normalizer: &Normalizer,
    labels: Labels,
) -> Result<Windows, DataError> {
    let keeps = if normalizer.gaps == Gaps::Error { Keeps::Nothing } else { Keeps::Gaps };
    let table = read_as(file, format, normalizer, labels, keeps)?;
    cut(&table, normalizer, labels)
}

/// All windows of a table.
fn cut(table: &Table, normalizer: &Normalizer, labels: Labels) -> Result<Windows, DataError> {
    let rows = 0..table.rows;
    let row_labels = labels_of(table, &rows, normalizer, labels, "windows")?;
    let whole = Whole { values: normalizer.apply(table, rows.clone())?, labels: row_labels, rows };
    whole.windows_of(table, normalizer, labels, "windows")
}

/// Windows of a file that a model is asked about, and those that have no answer.
pub struct AskedWindows {
    pub windows: Windows,
    pub unanswered: Vec<UnansweredWindow>,
    /// What rows are called, where the file says it.
    ids: Vec<Value>,
}

/// A window that holds something that cannot be used, or a row that is left out.
#[derive(Clone, Debug, PartialEq)]
pub struct UnansweredWindow {
    pub window: Option<usize>,
    /// Its last row, from 0.
    pub row: usize,
    pub cause: String,
}

impl AskedWindows {
    /// What a row of the file is called.
    pub fn id(&self, row: usize) -> Option<&Value> {
        self.ids.get(row).filter(|id| !id.is_null())
    }
}

/// The windows of a file to predict on. Where gaps are neither filled nor left out, the windows that hold one have no
/// answer; the others have.
pub fn ask_windows(
    file: &Path,
    format: Option<Format>,
    normalizer: &Normalizer,
    id: Option<&str>,
) -> Result<AskedWindows, DataError> {
    let keeps = if normalizer.gaps == Gaps::Error { Keeps::Faults } else { Keeps::Gaps };
    let table = read_as(file, format, normalizer, Labels::Absent, keeps)?;
    let windows = cut(&table, normalizer, Labels::Absent)?;
    let faults = Faults::of(&table, normalizer);
    let (windows, unanswered) = match normalizer.gaps {
        Gaps::Error => faults.without_windows(windows, normalizer),
        Gaps::Drop => (windows, faults.rows()),
        Gaps::Forward | Gaps::Mean => (windows, Vec::new()),
    };
    let ids = id.map_or(Ok(Vec::new()), |id| ids(file, format, id))?;
    Ok(AskedWindows { windows, unanswered, ids })
}

/// What rows are called, read by itself: a table's numbers have not every digit, and no zeros before them.
fn ids(file: &Path, format: Option<Format>, column: &str) -> Result<Vec<Value>, DataError> {
    let columns = Columns::new([column.to_string()]).with_exact_last();
    let mut reader = formats::open(file, format, Wanted::SERIES, &columns)?;
    let is_typed = reader.typed();
    let mut ids = Vec::new();
    while let Some(mut row) = reader.next()? {
        let cell = row.cells(file, &columns)?.pop().unwrap_or(Cell::Missing);
        let id = match cell {
            Cell::Text(text) if !is_typed => untyped_id(text.trim()),
            cell => id_of(cell),
        };
        ids.push(id.unwrap_or_default());
    }
    Ok(ids)
}

/// Where cells have no types, a number is what is written again as it stands there; `007` is a name.
fn untyped_id(text: &str) -> Option<Value> {
    let is_written = |value: &Value| value.is_number() && format!("{value}") == text;
    let number = serde_json::from_str(text).ok().filter(is_written);
    number.or_else(|| (!text.is_empty()).then(|| text.into()))
}

/// Rows with a cell that cannot be used, in order, and the first such column of each.
struct Faults<'a> {
    table: &'a Table,
    rows: BTreeMap<usize, &'a str>,
}

impl<'a> Faults<'a> {
    fn of(table: &'a Table, normalizer: &'a Normalizer) -> Faults<'a> {
        let mut rows = BTreeMap::new();
        for name in &normalizer.features {
            for &row in table.gaps(name) {
                rows.entry(row as usize).or_insert(name.as_str());
            }
        }
        Faults { table, rows }
    }

    fn cause(&self, row: usize, column: &str) -> String {
        let (file, place, column) = (self.table.file.clone(), self.table.place(row), column.to_string());
        DataError::MissingValue { file, place, column }.to_string()
    }

    fn without_windows(&self, windows: Windows, normalizer: &Normalizer) -> (Windows, Vec<UnansweredWindow>) {
        let (window, stride) = (normalizer.window, normalizer.stride);
        let mut unanswered = Vec::new();
        for number in 0..windows.len() {
            let rows = number * stride..number * stride + window;
            if let Some((&row, column)) = self.rows.range(rows.clone()).next() {
                let cause = self.cause(row, column);
                unanswered.push(UnansweredWindow { window: Some(number), row: rows.end - 1, cause });
            }
        }
        (windows.only(|rows| self.rows.range(rows).next().is_none()), unanswered)
    }

    fn rows(&self) -> Vec<UnansweredWindow> {
        let told =
            |(&row, column): (&usize, &&str)| UnansweredWindow { window: None, row, cause: self.cause(row, column) };
        self.rows.iter().map(told).collect()
    }
}

fn read_as(
    file: &Path,
    format: Option<Format>,
    normalizer: &Normalizer,
    labels: Labels,
    keeps: Keeps,
) -> Result<Table, DataError> {
    normalizer.check()?;
    check_cuts(normalizer.window, normalizer.stride)?;
    normalizer.label.check()?;
    let rule = (labels == Labels::Read).then_some(&normalizer.label);
    let time = normalizer.time.as_deref();
    let selection = Selection { keeps, ..selection(&normalizer.features, rule, time) };
    let table = table(file, format, &selection)
        .map_err(|error| name_key(error, &normalizer.features, &normalizer.label, time))?;
    Ok(table)
}

/// Rows that lack a value in any column that counts.
fn incomplete(table: &Table, normalizer: &Normalizer, labels: Labels) -> BTreeSet<u32> {
    let label = (labels == Labels::Read).then(|| normalizer.label.column());
    let names = normalizer.features.iter().map(String::as_str).chain(label);
    names.flat_map(|name| table.gaps(name).iter().copied()).collect()
}

/// A stretch of rows, normalized.
struct Whole {
    /// (rows, width)
    values: Vec<f32>,
    labels: Option<Vec<i32>>,
    /// The rows of the table that they are.
    rows: Range<usize>,
}

impl Whole {
    /// Windows as the rule about gaps has them; an error if there are none.
    fn windows_of(
        self,
        table: &Table,
        normalizer: &Normalizer,
        labels: Labels,
        part: &'static str,
    ) -> Result<Windows, DataError> {
        let rows = self.rows.len();
        let found = match normalizer.gaps {
            Gaps::Drop => self.without(&incomplete(table, normalizer, labels), normalizer),
            _ => self.windows(normalizer),
        };
        match found.is_empty() {
            false => Ok(found),
            true => Err(DataError::TooShort { file: table.file.clone(), part, rows, needed: normalizer.window }),
        }
    }

    /// All windows but those that end in a row whose label is not known.
    fn windows(self, normalizer: &Normalizer) -> Windows {
        let known = self.labels.as_ref().filter(|labels| labels.contains(&NO_LABEL)).cloned();
        let windows = Windows::new(self.values, normalizer.width(), self.labels, normalizer.window, normalizer.stride);
        match known {
            Some(labels) => windows.only(|rows| labels[rows.end - 1] != NO_LABEL),
            None => windows,
        }
    }

    /// The same with some rows of the table left out: what stood around them is now side by side.
    fn without(mut self, rows: &BTreeSet<u32>, normalizer: &Normalizer) -> Windows {
        let (width, first) = (normalizer.width(), self.rows.start as u32);
        let kept: Vec<u32> = (0..self.rows.len() as u32).filter(|row| !rows.contains(&(row + first))).collect();
        for (to, &from) in kept.iter().enumerate() {
            self.values.copy_within(from as usize * width..(from as usize + 1) * width, to * width);
        }
        self.values.truncate(kept.len() * width);
        let of_kept = |labels: Vec<i32>| kept.iter().filter_map(|&row| labels.get(row as usize).copied()).collect();
        self.labels = self.labels.map(of_kept);
        self.windows(normalizer).of_rows(kept)
    }
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
        gaps: options.gaps,
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
            let (file, place) = (table.file.clone(), table.place(parts[0].start));
            let hint = "scale the column, or list the feature columns without it with data.columns";
            return Err(DataError::Malformed { file, place, cause, hint });
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
