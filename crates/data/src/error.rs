//! What can be wrong with data: every variant names the file, the place and the cause; [`DataError::hint`] advises.

use plimsoll_base::explain::{Explain, Fault};
use plimsoll_base::units::format_bytes;
use plimsoll_images::ImageFault;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Where in a file: a line of a text file, or a row of a table without lines. Both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Line(u64),
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Row(row) => write!(f, "row {row}"),
        }
    }
}

/// Where an image was found: shown before what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePlace {
    pub image: PathBuf,
    /// Table, row and column that name it.
    pub row: Option<(PathBuf, Place, String)>,
}

impl fmt::Display for ImagePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((table, place, column)) = &self.row {
            write!(f, "{}: {place}, column `{column}`: ", table.display())?;
        }
        write!(f, "{}", self.image.display())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("{}: cannot be read: {source}", file.display())]
    Unreadable { file: PathBuf, source: std::io::Error },
    #[error("{}: unknown kind of file for {wanted}", file.display())]
    UnknownFormat { file: PathBuf, wanted: &'static str, formats: String },
    #[error("{}: holds no {what}", file.display())]
    Empty { file: PathBuf, what: &'static str },
    #[error("{}: no column `{column}`; columns are {}", file.display(), list(columns))]
    MissingColumn {
        file: PathBuf,
        column: String,
        columns: Vec<String>,
        /// The key of the recipe that names the column.
        key: Option<&'static str>,
    },
    #[error("{}: {place}, column `{column}`: `{content}` is not a number", file.display())]
    NotNumeric { file: PathBuf, place: Place, column: String, content: String },
    #[error("{}: {place}, column `{column}`: {value} is not a finite number", file.display())]
    NotFinite { file: PathBuf, place: Place, column: String, value: f64 },
    #[error("{}: {place}, column `{column}`: the value is missing", file.display())]
    MissingValue { file: PathBuf, place: Place, column: String },
    #[error("{}: {place}: {found} cells where the header has {expected}", file.display())]
    RaggedRow { file: PathBuf, place: Place, found: u64, expected: u64 },
    /// A cell of texts, labels or images, which know no gaps.
    #[error("{}: {place}, column `{column}`: the value is missing", file.display())]
    MissingCell { file: PathBuf, place: Place, column: String },
    #[error("{}: {place}, column `{column}`: `{content}` is no number: decimals are written with a point", file.display())]
    DecimalComma { file: PathBuf, place: Place, column: String, content: String },
    #[error("{}: {place}, column `{column}`: \"{content}\" is a text: numbers are written without quotes", file.display())]
    QuotedNumber { file: PathBuf, place: Place, column: String, content: String },
    #[error("{}: {place}: {cause}", file.display())]
    Malformed { file: PathBuf, place: Place, cause: String, hint: &'static str },
    #[error("{}: is written in UTF-16, and UTF-8 is read", file.display())]
    Utf16 { file: PathBuf },
    #[error("{}: cannot be read as Parquet: {cause}", file.display())]
    Parquet { file: PathBuf, cause: String },
    #[error("{}: not UTF-8 at byte {byte} (line {line})", file.display())]
    BadUtf8 { file: PathBuf, byte: u64, line: u64 },
    #[error("{}: {rows} rows for {part}, one sample needs {needed}", file.display())]
    TooShort { file: PathBuf, part: &'static str, rows: usize, needed: usize },
    #[error("{}: of {rows} rows none is left for training", file.display())]
    TooFewSamples { file: PathBuf, rows: usize },
    #[error("{}: {tokens} tokens for {part}, one sample needs 2", file.display())]
    TooFewTokens { file: PathBuf, part: &'static str, tokens: usize },
    #[error("{}: {place}: time column `{column}` goes backwards", file.display())]
    Unsorted { file: PathBuf, place: Place, column: String },
    #[error("{}: {place}, column `{column}`: label {label} is not a whole number in 0..{classes}", file.display())]
    BadLabel { file: PathBuf, place: Place, column: String, label: f64, classes: usize },
    #[error("{}: {place}, column `{column}`: label `{}` is not among {}", file.display(), short(label), list(known))]
    UnknownLabel { file: PathBuf, place: Place, column: String, label: String, known: Vec<String> },
    #[error("{}: column `{column}` has {} different labels ({}), the model has {classes} classes",
        file.display(), names.len(), list(names))]
    TooManyLabels { file: PathBuf, column: String, names: Vec<String>, classes: usize },
    #[error("{}: cannot be used as a tokenizer: {cause}", file.display())]
    Tokenizer { file: PathBuf, cause: String },
    #[error("{}: token id {id} does not fit the model's vocabulary of {vocab}", file.display())]
    IdBeyondVocabulary { file: PathBuf, id: u32, vocab: usize },
    #[error("{}: token `{token}` has id {id}, the model's embedding has {vocab}", file.display())]
    TokenBeyondVocabulary { file: PathBuf, token: String, id: u32, vocab: usize },
    #[error("no tokenizer: {cause}")]
    NoTokenizer { cause: String },
    #[error("{}: {place}, column `{column}`: the text is empty", file.display())]
    EmptyText { file: PathBuf, place: Place, column: String },
    #[error("{}: {place}, column `{column}`: {found} where {wanted} is expected", file.display())]
    WrongCell { file: PathBuf, place: Place, column: String, found: &'static str, wanted: String },
    #[error("{place} {fault}")]
    Image { place: ImagePlace, fault: ImageFault },
    #[error("{}: has no caption", file.display())]
    NoCaption { file: PathBuf },
    #[error("{}: {cause}", file.display())]
    ImageConfig { file: PathBuf, cause: String },
    #[error("{}: its {rows} rows take {} in memory, {} are left for them", file.display(), format_bytes(*needed), format_bytes(*most))]
    DoesNotFit { file: PathBuf, rows: usize, needed: u64, most: u64 },
    #[error("data option `{name}`: {cause}")]
    BadOption { name: &'static str, cause: String },
    #[error("{}: {} places cannot be used\n{}", file.display(), problems.len() + more, lines(problems, *more))]
    Several {
        file: PathBuf,
        /// The first ones, in file order.
        problems: Vec<DataError>,
        /// How many there are beside these.
        more: usize,
    },
    #[error("loader worker failed: {cause}")]
    Worker { cause: String },
}

impl DataError {
    pub fn option(name: &'static str, cause: impl Into<String>) -> Self {
        DataError::BadOption { name, cause: cause.into() }
    }

    pub(crate) fn missing_column(file: &Path, column: &str, columns: &[String]) -> Self {
        DataError::MissingColumn { file: file.into(), column: column.into(), columns: columns.to_vec(), key: None }
    }

    /// The error with the key that names the column it is about, where `keys` (column, key) know it.
    pub(crate) fn named_by(mut self, keys: &[(&str, &'static str)]) -> Self {
        if let DataError::MissingColumn { column, key, .. } = &mut self {
            *key = keys.iter().find(|(name, _)| name == column).map(|(_, key)| *key);
        }
        self
    }

    /// The line or row that it is about; 0 where it is about no single one.
    pub(crate) fn place(&self) -> u64 {
        use DataError as E;
        match self {
            E::NotNumeric { place, .. }
            | E::NotFinite { place, .. }
            | E::MissingValue { place, .. }
            | E::MissingCell { place, .. }
            | E::DecimalComma { place, .. }
            | E::QuotedNumber { place, .. }
            | E::RaggedRow { place, .. }
            | E::Malformed { place, .. }
            | E::Unsorted { place, .. }
            | E::BadLabel { place, .. }
            | E::UnknownLabel { place, .. }
            | E::EmptyText { place, .. }
            | E::WrongCell { place, .. } => match place {
                Place::Line(at) | Place::Row(at) => *at,
            },
            E::BadUtf8 { line, .. } => *line,
            _ => 0,
        }
    }

    /// Whether it is a fault that one row has and the next may not.
    pub(crate) fn is_of_a_row(&self) -> bool {
        use DataError as E;
        matches!(
            self,
            E::Malformed { .. }
                | E::RaggedRow { .. }
                | E::BadUtf8 { .. }
                | E::EmptyText { .. }
                | E::WrongCell { .. }
                | E::NotNumeric { .. }
                | E::MissingValue { .. }
                | E::MissingCell { .. }
                | E::DecimalComma { .. }
                | E::QuotedNumber { .. }
                | E::NotFinite { .. }
                | E::UnknownLabel { .. }
                | E::BadLabel { .. }
                | E::NoCaption { .. }
                | E::Image { .. }
        )
    }

    /// What to try.
    pub fn hint(&self) -> String {
        match self {
            DataError::Unreadable { .. } => "check the path and its permissions; it is relative to the recipe".into(),
            DataError::UnknownFormat { formats, .. } => {
                format!("say which with data.format, or use the extension of one of these: {formats}")
            }
            DataError::Empty { .. } => "the file must hold at least one sample".into(),
            DataError::MissingColumn { column, columns, key, .. } => match (nearest(column, columns), key) {
                (Some(name), None) => format!("did you mean `{name}`?"),
                (Some(name), Some(key)) => format!("did you mean `{name}`? The column is named by data.{key}"),
                (None, None) => "name one of the columns listed".into(),
                (None, Some(key)) => format!("name one of the columns listed with data.{key}"),
            },
            DataError::NotNumeric { .. } => {
                "features must be numbers: correct the cell, or list the feature columns without this one".into()
            }
            DataError::NotFinite { .. } => {
                "correct the cell, or leave it empty and say with data.gaps what becomes of gaps: no value stands for \
                 an infinite one"
                    .into()
            }
            DataError::MissingValue { .. } => {
                "say what to do about gaps with data.gaps = \"forward\", \"mean\" or \"drop\"".into()
            }
            DataError::DecimalComma { .. } => {
                "write 1.5 for 1,5 and 1234.5 for 1 234,5 in the whole file, or list the feature columns without this one \
                 with data.columns"
                    .into()
            }
            DataError::QuotedNumber { .. } => {
                "write 1.5 for \"1.5\" in the whole file, or list the feature columns without this one with data.columns"
                    .into()
            }
            DataError::Utf16 { .. } => {
                "convert the file, for example with `iconv -f UTF-16 -t UTF-8`, or save it as \"CSV UTF-8\"".into()
            }
            DataError::TooFewSamples { .. } => "hold out less with data.validation, or use more rows".into(),
            DataError::RaggedRow { .. } => "quote cells that contain a comma or a line break".into(),
            DataError::Malformed { hint, .. } => (*hint).into(),
            DataError::Parquet { .. } => {
                "flat columns of integers, floats, booleans and strings are read; plain, snappy or zstd".into()
            }
            DataError::BadUtf8 { .. } => "convert the file to UTF-8, for example with iconv".into(),
            DataError::TooShort { .. } => "use a shorter window or horizon, a smaller split, or more rows".into(),
            DataError::TooFewTokens { .. } => "use more text, or another validation fraction".into(),
            DataError::Unsorted { .. } => "sort the file by its time column: the split is by time".into(),
            DataError::BadLabel { .. } => {
                "the model's number of classes (`classes`, `num_labels`) must be that of the different labels, or more \
                 than the highest where they count from 0; words are classes, too"
                    .into()
            }
            DataError::UnknownLabel { label, known, .. } => match nearest(label, known) {
                Some(name) => format!("did you mean `{name}`? Classes are those of the training rows"),
                None => "classes are those of the training rows".into(),
            },
            DataError::TooManyLabels { names, .. } => {
                format!("set the model's number of classes (`classes`, `num_labels`) to {}", names.len())
            }
            DataError::TokenBeyondVocabulary { vocab, .. } => {
                format!(
                    "the tokenizer belongs to another model: its ids must be below {vocab}; use the checkpoint's own"
                )
            }
            DataError::NoTokenizer { .. } => {
                "name one with data.tokenizer = \"path/to/tokenizer.json\", or put tokenizer.json into the checkpoint"
                    .into()
            }
            DataError::EmptyText { .. } | DataError::MissingCell { .. } | DataError::WrongCell { .. } => {
                "correct the row, or leave such rows out with data.on_bad_row = \"skip\"".into()
            }
            DataError::Tokenizer { .. } => "give a `tokenizer.json` as written by Hugging Face tokenizers".into(),
            DataError::IdBeyondVocabulary { .. } => {
                "set the model's `vocab` to the size of the vocabulary (257 for bytes)".into()
            }
            DataError::Image { fault, .. } => fault.hint().into(),
            DataError::NoCaption { .. } => {
                "put it into a folder named after its class, or write a .txt file of the same name beside it".into()
            }
            DataError::ImageConfig { .. } => "correct the file, or take it away to prepare images as CLIP does".into(),
            DataError::DoesNotFit { .. } => {
                "give more --memory, choose fewer columns with data.columns, or train on a part of the rows".into()
            }
            DataError::BadOption { .. } => "correct the value in the recipe".into(),
            DataError::Several { problems, .. } => problems.first().map_or(String::new(), DataError::hint),
            DataError::Worker { .. } => "this is a defect of plimsoll: please report it".into(),
        }
    }
}

/// One problem a line, without the name of the file that all share.
fn lines(problems: &[DataError], more: usize) -> String {
    let line = |problem: &DataError| {
        let text = problem.to_string();
        let place = text.split_once(": ").map_or(text.as_str(), |(_, place)| place);
        format!("  {place}")
    };
    let mut lines: Vec<String> = problems.iter().map(line).collect();
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines.join("\n")
}

/// Cells are quoted in messages: the first characters are enough to find them.
fn short(text: &str) -> String {
    const SHOWN: usize = 60;
    if text.chars().count() <= SHOWN { text.into() } else { text.chars().take(SHOWN).chain(['…']).collect() }
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = names.iter().take(SHOWN).map(|name| format!("`{}`", short(name))).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more", names.len() - SHOWN);
    }
    text
}

/// The closest name, if it is close enough to be a likely slip of the pen.
fn nearest<'a>(wanted: &str, names: &'a [String]) -> Option<&'a str> {
    let (distance, name) = names.iter().map(|name| (edit_distance(wanted, name), name)).min_by_key(|(d, _)| *d)?;
    (distance <= wanted.chars().count().max(3) / 3 + 1).then_some(name)
}

/// Levenshtein distance, case ignored, one row of the table at a time.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

impl Explain for DataError {
    fn fault(&self) -> Fault {
        match self {
            DataError::Worker { .. } => Fault::Failed,
            DataError::DoesNotFit { .. } => Fault::DoesNotFit,
            _ => Fault::BadInput,
        }
    }

    /// Of several problems, each different one once.
    fn hints(&self) -> Vec<String> {
        let DataError::Several { problems, .. } = self else { return vec![self.hint()] };
        let mut hints = Vec::new();
        for hint in problems.iter().map(DataError::hint) {
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
        hints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_single_changes() {
        assert_eq!(edit_distance("close", "close"), 0);
        assert_eq!(edit_distance("close", "Clsoe"), 2);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    /// A hint must help those who get it: one about lines of JSON says nothing about a label.
    #[test]
    fn hints_are_about_what_was_read() {
        let (file, place, column) = (|| "a.csv".into(), Place::Line(2), || "x".to_string());
        let infinite = DataError::NotFinite { file: file(), place, column: column(), value: f64::INFINITY };
        assert!(infinite.hint().starts_with("correct the cell"), "{}", infinite.hint());
        let gap = DataError::MissingValue { file: file(), place, column: column() };
        assert!(gap.hint().contains("data.gaps") && !gap.hint().contains("on_bad_row"));
        let text = DataError::MissingCell { file: file(), place, column: column() };
        assert!(text.hint().contains("on_bad_row") && !text.hint().contains("data.gaps"));
        let few = DataError::TooFewSamples { file: file(), rows: 2 };
        assert!(few.hint().contains("data.validation") && !few.hint().contains("window"));
        let other = DataError::Malformed { file: file(), place, cause: "odd".into(), hint: "make it even" };
        assert_eq!(other.hint(), "make it even");
    }

    #[test]
    fn missing_column_offers_the_nearest_name_only_when_near() {
        let columns = vec!["close".to_string(), "volume".to_string()];
        let error = |column: &str| DataError::MissingColumn {
            file: "a.csv".into(),
            column: column.into(),
            columns: columns.clone(),
            key: None,
        };
        assert_eq!(error("vlume").hint(), "did you mean `volume`?");
        assert_eq!(error("temperature").hint(), "name one of the columns listed");
        let named = |column: &str| error(column).named_by(&[("other", "time"), (column, "label")]).hint();
        assert_eq!(named("vlume"), "did you mean `volume`? The column is named by data.label");
        assert_eq!(named("temperature"), "name one of the columns listed with data.label");
        assert_eq!(error("vlume").to_string(), "a.csv: no column `vlume`; columns are `close`, `volume`");
    }
}
