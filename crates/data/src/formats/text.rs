//! A plain text: one row, whose only cell is the text, whatever the column is called.

use super::{Cell, Columns, Content, FileFormat, Row, RowReader};
use crate::{DataError, Place};
use std::{borrow::Cow, fs::File, path::Path};

pub(super) struct Text;
pub(super) const FORMAT: Text = Text;

impl FileFormat for Text {
    fn open(&self, file: &Path, _opened: File) -> Result<Box<dyn RowReader>, DataError> {
        Ok(Box::new(Document { text: Some(crate::text::read(file)?) }))
    }

    #[cfg(test)]
    fn write(&self, _names: &[&str], rows: &[Vec<Cell<'_>>]) -> Vec<u8> {
        let text = |cell: &Cell<'_>| if let Cell::Text(text) = cell { text.to_string() } else { String::new() };
        rows.iter().flatten().map(text).collect::<String>().into_bytes()
    }
}

struct Document {
    text: Option<String>,
}

impl RowReader for Document {
    fn names(&self) -> &[String] {
        &[]
    }

    fn select(&mut self, _columns: &Columns) -> Result<(), DataError> {
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Row<'_>>, DataError> {
        Ok(self.text.take().map(|text| Row {
            place: Place::Line(1),
            offset: 0,
            bytes: u32::try_from(text.len()).unwrap_or(u32::MAX),
            content: Content::Cells(vec![Cell::Text(Cow::Owned(text))]),
        }))
    }
}
