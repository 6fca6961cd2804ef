//! Windows over a table.

use std::collections::HashSet;

use serde::Serialize;

use super::{Source, refuse_keys};
use crate::reading::about::{About, about};
use crate::reading::section::{Range, Section};
use plimsoll_base::batching::Gaps;

/// Windows of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Feature columns in this order; none given: all numeric columns but label and time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// A column that must ascend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Present exactly when the source is a file.
    #[serde(flatten)]
    pub label: Option<Label>,
    /// Rows from one window to the next.
    pub stride: usize,
    /// What becomes of rows that lack a value.
    #[serde(skip_serializing_if = "is_error")]
    pub gaps: Gaps,
}

fn is_error(gaps: &Gaps) -> bool {
    *gaps == Gaps::Error
}

/// Where the class of a row comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Label {
    /// A column with the class at each row.
    #[serde(rename = "label")]
    Column(String),
    /// The movement of a column.
    #[serde(rename = "label_from")]
    Derived(DerivedLabel),
}

impl Label {
    /// Where it comes from.
    pub(super) fn column(&self) -> &str {
        match self {
            Label::Column(name) => name,
            Label::Derived(derived) => &derived.column,
        }
    }
}

/// Classes down, flat, up: the relative change of `column` over the next `horizon` rows against ±`threshold`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DerivedLabel {
    /// The column whose change counts.
    pub column: String,
    /// Rows that are looked ahead.
    pub horizon: usize,
    /// Changes below it are flat.
    pub threshold: f64,
}

/// What each key means.
pub(in crate::recipe) const ABOUT: &[About] = &[
    about("data.columns", "Feature columns, in this order.").unset("every numeric column but label and time"),
    about("data.time", "A column that must ascend.").unset("rows are taken as they come"),
    about("data.stride", "Rows from the start of one window to the next."),
    about(
        "data.gaps",
        "What becomes of rows that lack a value: an error, the value before it, the mean of the training rows, or the row is left out. Gaps at the start of a file have no value before them and are the mean; rows without a label end no window.",
    )
    .unset("a row that lacks a value is an error"),
    about(
        "data.label_from.column",
        "The column whose relative change over the next rows is the label: down, flat or up.",
    ),
    about("data.label_from.horizon", "How many rows ahead."),
    about("data.label_from.threshold", "Relative changes of at most this are flat."),
];

pub(super) const KEYS: [&str; 6] = ["columns", "time", "label", "label_from", "stride", "gaps"];

impl Series {
    pub(super) fn read(section: &Section<'_>, source: Option<&Source>) -> Self {
        refuse_keys(section, &KEYS, "a series");
        if let Some(Source::Synthetic { .. }) = source {
            for key in ["columns", "time", "label", "label_from", "gaps"] {
                section.not_with(key, "data made by code");
            }
        }
        Self {
            columns: section.names("columns", 1..=65_536),
            time: section.name("time"),
            label: if let Some(Source::File { .. }) = source { Label::read(section) } else { None },
            stride: section.size("stride", 1..=1_000_000).unwrap_or(1),
            gaps: section.choice("gaps").unwrap_or(Gaps::Error),
        }
    }

    pub(super) fn check(&self, section: &Section<'_>, features: usize, classes: usize) {
        if let Some(columns) = &self.columns {
            self.check_columns(section, columns, features);
        }
        if matches!(self.label, Some(Label::Derived(_))) && classes != 3 {
            let cause = format!("a derived label has 3 classes (down, flat, up), the model has {classes}");
            section.refuse("label_from", cause, "set model.classes = 3");
        }
    }

    fn check_columns(&self, section: &Section<'_>, columns: &[String], features: usize) {
        let mut seen = HashSet::new();
        if let Some(twice) = columns.iter().find(|c| !seen.insert(c.as_str())) {
            section.refuse("columns", format!("column `{twice}` is listed twice"), "list each column once");
        }
        let label = match &self.label {
            Some(Label::Column(label)) => Some(label),
            _ => None,
        };
        if let Some(label) = label.filter(|l| columns.contains(l)) {
            let cause = format!("the label `{label}` is among the features: the model would see the answer");
            section.refuse("columns", cause, "remove it from `columns`");
        }
        if columns.len() != features {
            let cause = format!("{} columns are listed, the model has {features} features", columns.len());
            section.refuse("columns", cause, format!("set model.features = {}", columns.len()));
        }
    }
}

impl Label {
    /// Exactly one of `label` and `label_from`.
    fn read(section: &Section<'_>) -> Option<Self> {
        let column = section.name("label").map(Self::Column);
        let derived = section.section("label_from").map(|s| Self::Derived(DerivedLabel::read(&s)));
        match (section.has("label"), section.has("label_from")) {
            (true, true) => {
                section.refuse("label_from", "`label` and `label_from` exclude each other", "keep one of them");
            }
            (false, false) => {
                let hint = "name the column with the classes, label = \"target\", or derive them, \
                            label_from = { column = \"close\", horizon = 1 }";
                section.require::<()>("label", None, hint);
            }
            _ => {}
        }
        column.or(derived)
    }
}

impl DerivedLabel {
    fn read(section: &Section<'_>) -> Self {
        let column = section.name("column");
        let label = Self {
            column: section.require("column", column, "for example column = \"close\"").unwrap_or_default(),
            horizon: section.size("horizon", 1..=1_000_000).unwrap_or(1),
            threshold: section.number("threshold", Range::closed(0.0, 1e6)).unwrap_or(0.0),
        };
        section.finish();
        label
    }
}
