//! Files that a model is asked about: answers go out in the order of the rows, each under its own number and name, with a
//! line for every row that has none.

#![deny(missing_docs)]

use super::Each;
use super::shared::refused;
use crate::RunError;
use crate::scoring::{Answer, Prediction};
use plimsoll_data::{Asked, column_names};
use plimsoll_models::recipe::Recipe;
use std::path::Path;

/// A file to answer.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// With the columns of the training file (the label may be missing), or a folder of images.
    pub file: &'a Path,
    /// The column with what rows are called; none given: `id`, where the file has one.
    pub id: Option<&'a str>,
}

/// Where what rows are called stands by itself.
const USUAL_ID: &str = "id";

impl Question<'_> {
    /// The column with what rows are called; `used` are columns that mean something else.
    pub(super) fn id_column(&self, recipe: &Recipe, used: &[&str]) -> Result<Option<String>, RunError> {
        match self.id {
            Some(column) if self.file.is_dir() => {
                refused(format!("a folder has no column `{column}`"), "images in a folder are told by their file names")
            }
            Some(column) => Ok(Some(column.into())),
            None if self.file.is_dir() || used.contains(&USUAL_ID) => Ok(None),
            None => {
                let names = column_names(self.file, recipe.data.source.format_of(self.file))?;
                Ok(names.iter().any(|name| name == USUAL_ID).then(|| USUAL_ID.into()))
            }
        }
    }
}

/// Passes answers on, and what there is to say about rows between them.
pub(super) struct Answering<'a> {
    asked: &'a Asked,
    /// Rows without an answer that were told.
    told: usize,
    each: Each<'a>,
}

impl<'a> Answering<'a> {
    pub(super) fn new(asked: &'a Asked, each: Each<'a>) -> Answering<'a> {
        Answering { asked, told: 0, each }
    }

    /// The answer to a sample, after the rows before it that have none. Whether to go on.
    pub(super) fn answer(&mut self, sample: usize, image: Option<String>, answer: Answer) -> bool {
        let row = self.asked.row(sample);
        let id = self.asked.id(sample).cloned();
        self.tell_rows_before(row) && (self.each)(&Prediction { window: None, row, id, image, answer })
    }

    /// The rows behind the last answer.
    pub(super) fn finish(mut self) {
        self.tell_rows_before(usize::MAX);
    }

    fn tell_rows_before(&mut self, row: usize) -> bool {
        while let Some(next) = self.asked.unanswered().get(self.told).filter(|next| next.row < row) {
            self.told += 1;
            let answer = Answer::none(&next.cause);
            if !(self.each)(&Prediction { window: None, row: next.row, id: next.id.clone(), image: None, answer }) {
                return false;
            }
        }
        true
    }
}
