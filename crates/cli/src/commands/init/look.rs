//! What the user's data is.

use super::header;
use crate::failure::Failure;
use plimsoll_base::formats::{self, Format};
use plimsoll_data::{DataError, Survey, SurveyedColumn, check_columns, survey};
use std::path::{Path, PathBuf};

/// A data file, or a folder of images.
pub(super) struct Seen {
    pub path: PathBuf,
    /// What the recipe has to say of its format; `None` where the file tells it itself.
    pub format: Option<Format>,
    pub holds: Holds,
}

pub(super) enum Holds {
    Rows(Survey),
    /// A text of so many bytes.
    Text(u64),
    Folder,
}

pub(super) fn at(path: &Path, said: Option<Format>) -> Result<Seen, Failure> {
    let unreadable = |cause| Failure::bad_input(format!("{}: {cause}", path.display()), "is the path right?");
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if said.is_none_or(|format| format == Format::Folder) && metadata.is_dir() {
        // A dot in the folder's name begins no extension.
        let format = path.extension().map(|_| Format::Folder);
        return Ok(Seen { path: path.into(), format, holds: Holds::Folder });
    }
    let holds = match said.or_else(|| Format::of(path)).map(Format::holds) {
        Some(formats::Holds::Document) => {
            check_columns(path, said, &[])?;
            Holds::Text(metadata.len())
        }
        _ => Holds::Rows(survey(path, said).map_err(by_flag)?),
    };
    if let Holds::Rows(survey) = &holds {
        header::must_be_there(path, survey)?;
    }
    Ok(Seen { path: path.into(), format: said, holds })
}

/// Here a format is said by a flag: there is no recipe yet.
fn by_flag(error: DataError) -> Failure {
    match error {
        DataError::UnknownFormat { .. } => {
            Failure::bad_input(error.to_string(), error.hint().replace("data.format", "--format"))
        }
        other => other.into(),
    }
}

impl Seen {
    pub(crate) fn columns(&self) -> &[SurveyedColumn] {
        match &self.holds {
            Holds::Rows(survey) => &survey.columns,
            _ => &[],
        }
    }

    /// In words, for the head of the recipe.
    pub(crate) fn describe(&self) -> String {
        let path = self.path.display();
        match &self.holds {
            Holds::Folder => format!("{path}, a folder of images"),
            Holds::Text(bytes) => format!("{path}, a text of {}", plimsoll_base::units::format_bytes(*bytes)),
            Holds::Rows(survey) => {
                let more = if survey.whole { "" } else { "more than " };
                let columns: Vec<String> = survey.columns.iter().take(12).map(word).collect();
                let rest = if survey.columns.len() > 12 { ", …" } else { "" };
                format!("{path}, {more}{} rows: {}{rest}", survey.rows, columns.join(", "))
            }
        }
    }

    /// A column of texts by one of these names, or else the one with the longest; rather one that is there to be read than
    /// one of few words.
    pub(crate) fn text_column(&self, names: &[&str], but: &[&str]) -> Option<&SurveyedColumn> {
        let is_other = |column: &&SurveyedColumn| !among(but, &column.name);
        let texts = || self.columns().iter().filter(|column| column.is_text()).filter(is_other);
        let prose = || texts().filter(|column| column.is_prose());
        let to_read = || prose().filter(|column| !names_rows(column));
        let longest = || to_read().max_by_key(|column| column.mean_length());
        by_name(prose(), names)
            .or_else(|| by_name(texts(), names))
            .or_else(longest)
            .or_else(|| prose().max_by_key(|column| column.mean_length()))
            .or_else(|| texts().max_by_key(|column| column.mean_length()))
    }

    pub(crate) fn named<'a>(&'a self, names: &[&str]) -> Option<&'a SurveyedColumn> {
        by_name(self.columns().iter(), names)
    }

    /// Whether there are texts to read: by how a column is called, or because they do not only name rows.
    pub(crate) fn has_prose(&self, names: &[&str]) -> bool {
        let is_read = |column: &SurveyedColumn| among(names, &column.name) || !names_rows(column);
        self.columns().iter().any(|column| column.is_prose() && is_read(column))
    }
}

/// Whether a column of texts says what rows or things are called, and nothing about them.
pub(super) fn names_rows(column: &SurveyedColumn) -> bool {
    const IDS: [&str; 3] = ["id", "uuid", "guid"];
    let name = column.name.to_ascii_lowercase();
    column.is_of_single_words() || among(&IDS, &name) || name.ends_with("_id")
}

/// Whether a name is one of these, whatever its case.
pub(super) fn among(names: &[&str], name: &str) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// The column with the first of these names that any has, whatever its case.
pub(super) fn by_name<'a>(
    columns: impl Iterator<Item = &'a SurveyedColumn> + Clone,
    names: &[&str],
) -> Option<&'a SurveyedColumn> {
    names.iter().find_map(|name| columns.clone().find(|column| column.name.eq_ignore_ascii_case(name)))
}

/// A column and what it holds.
fn word(column: &SurveyedColumn) -> String {
    let kind = match column {
        column if column.is_numeric() => "numbers",
        column if column.is_time() => "times",
        column if column.is_text() => "texts",
        column if column.lists.count > 0 => "lists",
        column if column.texts + column.numbers + column.infinite + column.others == 0 => "nothing",
        _ => "mixed",
    };
    format!("{} ({kind})", column.name)
}
