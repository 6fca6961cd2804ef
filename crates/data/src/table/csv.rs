//! CSV with a header line.

use super::{Cell, Selection, Table};
use crate::{DataError, Place};
use ::csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use std::{fs::File, path::Path};

pub(super) fn read(file: &Path, selection: &Selection) -> Result<Table, DataError> {
    let opened = File::open(file).map_err(|source| DataError::Unreadable { file: file.into(), source })?;
    let mut reader = ReaderBuilder::new().has_headers(true).from_reader(opened);
    let mut table = Table::new(file, header(file, &mut reader)?, selection)?;
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(|error| explain(file, error))? {
        take_row(&mut table, &record)?;
    }
    table.finish()
}

fn header(file: &Path, reader: &mut Reader<File>) -> Result<Vec<String>, DataError> {
    let cells = reader.byte_headers().map_err(|error| explain(file, error))?;
    if cells.iter().all(<[u8]>::is_empty) {
        return Err(DataError::Empty { file: file.into(), what: "header line" });
    }
    cells.iter().map(|cell| Ok(text(file, cell)?.trim().to_string())).collect()
}

fn take_row(table: &mut Table, record: &ByteRecord) -> Result<(), DataError> {
    let line = record.position().map_or(0, |at| at.line());
    for (column, bytes) in record.iter().enumerate() {
        if table.wants(column) {
            let cell = text(&table.file, bytes)?.trim();
            table.push(column, Place::Line(line), parse(cell))?;
        }
    }
    table.end_row(Some(line));
    Ok(())
}

fn parse(cell: &str) -> Cell<'_> {
    match cell.parse() {
        _ if cell.is_empty() => Cell::Missing,
        Ok(number) => Cell::Number(number),
        Err(_) => Cell::Text(cell),
    }
}

/// The reader has unquoted the cell: where the file goes wrong is seen in the file itself.
fn text<'a>(file: &Path, bytes: &'a [u8]) -> Result<&'a str, DataError> {
    str::from_utf8(bytes).map_err(|_| match crate::text::read(file) {
        Err(error) => error,
        // The file was repaired meanwhile.
        Ok(_) => DataError::BadUtf8 { file: file.into(), byte: 0, line: 1 },
    })
}

fn explain(file: &Path, error: ::csv::Error) -> DataError {
    let line = error.position().map_or(0, |at| at.line());
    match error.into_kind() {
        ErrorKind::Io(source) => DataError::Unreadable { file: file.into(), source },
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            DataError::RaggedRow { file: file.into(), place: Place::Line(line), found: len, expected: expected_len }
        }
        other => DataError::Malformed { file: file.into(), place: Place::Line(line), cause: format!("{other:?}") },
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Values, tests::read};
    use super::*;

    #[test]
    fn numeric_columns_are_found_in_file_order() {
        let table =
            read("a.csv", "\u{feff}t,b,word,a,y\nx, 1.5 ,p,2,up\ny,-3e2,q,4,down\n", None, &["t", "y"]).unwrap();
        let selection = Selection { numbers: None, others: vec!["t".into(), "y".into()] };
        assert_eq!(table.number_names(&selection), ["b", "a"]);
        assert_eq!(table.numbers("b").unwrap(), [1.5, -300.0]);
        assert_eq!(*table.column("y").unwrap(), Values::Text(vec!["up".into(), "down".into()]));
        assert_eq!(*table.column("t").unwrap(), Values::Text(vec!["x".into(), "y".into()]));
        assert_eq!(table.rows, 2);
    }

    #[test]
    fn bad_cells_are_named_by_line_and_column() {
        let message = |content: &str, numbers: Option<&[&str]>| {
            let error = read("a.csv", content, numbers, &["y"]).unwrap_err();
            assert!(!error.hint().is_empty());
            let text = error.to_string();
            text[text.find("a.csv").unwrap()..].to_string()
        };
        assert_eq!(message("x,y\n1,0\noops,1\n", None), "a.csv: line 3, column `x`: `oops` is not a number");
        assert_eq!(message("x,y\nNA,0\n", Some(&["x"])), "a.csv: line 2, column `x`: `NA` is not a number");
        assert_eq!(message("x,y\n1,0\nnan,1\n", None), "a.csv: line 3, column `x`: NaN is not a finite number");
        assert_eq!(message("x,y\n-inf,0\n", None), "a.csv: line 2, column `x`: -inf is not a finite number");
        assert_eq!(message("x,y\n1,0\n,1\n", None), "a.csv: line 3, column `x`: the value is missing");
        assert_eq!(message("x,y\n,0\n2,1\n", None), "a.csv: line 2, column `x`: the value is missing");
        assert_eq!(message("x,y\n,0\n,1\n", Some(&["x"])), "a.csv: line 2, column `x`: the value is missing");
        assert_eq!(message("x,y\n1,0\n1,2,3\n", None), "a.csv: line 3: 3 cells where the header has 2");
        assert_eq!(message("x,z\n1,0\n", None), "a.csv: no column `y`; columns are `x`, `z`");
        assert_eq!(message("", None), "a.csv: holds no header line");
        assert_eq!(message("x,y\n", None), "a.csv: holds no rows");
    }

    #[test]
    fn bad_utf8_is_placed() {
        let error = read("a.csv", b"x,y\n1,a\n2,\xff\n", None, &["y"]).unwrap_err();
        assert!(matches!(error, DataError::BadUtf8 { byte: 10, line: 3, .. }), "{error}");
    }
}
