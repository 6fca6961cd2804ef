//! What the user's data is.

use crate::failure::Failure;
use plimsoll_data::{Survey, SurveyedColumn, survey};
use std::path::{Path, PathBuf};

/// A data file, or a folder of images.
pub(super) struct Seen {
    pub path: PathBuf,
    pub holds: Holds,
}

pub(super) enum Holds {
    Rows(Survey),
    /// A text of so many bytes.
    Text(u64),
    Folder,
}

pub(super) fn at(path: &Path) -> Result<Seen, Failure> {
    let unreadable = |cause| Failure::bad_input(format!("{}: {cause}", path.display()), "is the path right?");
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    let holds = match extension(path).as_str() {
        _ if metadata.is_dir() => Holds::Folder,
        "txt" | "text" | "md" => Holds::Text(metadata.len()),
        _ => Holds::Rows(survey(path)?),
    };
    Ok(Seen { path: path.into(), holds })
}

fn extension(path: &Path) -> String {
    path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase()
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

    /// A text column by one of these names, or else the one with the longest texts.
    pub(crate) fn text_column(&self, names: &[&str], but: &[&str]) -> Option<&SurveyedColumn> {
        let texts = || self.columns().iter().filter(|column| column.is_text() && !but.contains(&column.name.as_str()));
        by_name(texts(), names).or_else(|| texts().max_by_key(|column| column.mean_length()))
    }

    /// A column of classes by one of these names, or else the one with the fewest.
    pub(crate) fn class_column(&self, names: &[&str], but: &[&str]) -> Option<&SurveyedColumn> {
        let classes = || {
            let labels = self.columns().iter().filter(|column| column.classes().is_some());
            labels.filter(|column| !but.contains(&column.name.as_str()))
        };
        by_name(classes(), names).or_else(|| classes().min_by_key(|column| column.classes().map(|c| c.len())))
    }

    pub(crate) fn named<'a>(&'a self, names: &[&str]) -> Option<&'a SurveyedColumn> {
        by_name(self.columns().iter(), names)
    }
}

/// The column with the first of these names that any has, whatever its case.
fn by_name<'a>(
    columns: impl Iterator<Item = &'a SurveyedColumn> + Clone,
    names: &[&str],
) -> Option<&'a SurveyedColumn> {
    names.iter().find_map(|name| columns.clone().find(|column| column.name.eq_ignore_ascii_case(name)))
}

/// A column and what it holds.
fn word(column: &SurveyedColumn) -> String {
    let kind = match column {
        column if column.is_numeric() => "numbers",
        column if column.is_text() => "texts",
        column if column.lists > 0 => "lists",
        column if column.texts + column.numbers == 0 => "nothing",
        _ => "mixed",
    };
    // A name may hold what ends a comment.
    let name: String = column.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("{name} ({kind})")
}
