//! One JSON object per line; the first line names the columns.

use super::{Cell, Selection, Table};
use crate::text::JsonLines;
use crate::{DataError, Place};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::{fmt, path::Path};

/// An object whose keys stay in file order.
struct Record(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Record;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one value per column")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
                let mut cells = Vec::new();
                while let Some(cell) = map.next_entry()? {
                    cells.push(cell);
                }
                Ok(Record(cells))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

pub(super) fn read(file: &Path, selection: &Selection) -> Result<Table, DataError> {
    let mut lines = JsonLines::open(file)?;
    let Some((first_line, first)) = lines.next::<Record>()? else {
        return Err(DataError::Empty { file: file.into(), what: "rows" });
    };
    let names = first.0.iter().map(|(name, _)| name.clone()).collect();
    let mut table = Table::new(file, names, selection)?;
    take_row(&mut table, first_line, &first)?;
    while let Some((line, record)) = lines.next::<Record>()? {
        take_row(&mut table, line, &record)?;
    }
    table.finish()
}

fn take_row(table: &mut Table, line: u64, record: &Record) -> Result<(), DataError> {
    for column in 0..table.columns.len() {
        if !table.wants(column) {
            continue;
        }
        let name = &table.columns[column].name;
        // Keys usually come in the same order on every line.
        let expected = record.0.get(column).filter(|(key, _)| key == name);
        let value = expected.or_else(|| record.0.iter().find(|(key, _)| key == name)).map(|(_, value)| value);
        table.push(column, Place::Line(line), cell(value))?;
    }
    table.end_row(Some(line));
    Ok(())
}

fn cell(value: Option<&Value>) -> Cell<'_> {
    match value {
        None | Some(Value::Null) => Cell::Missing,
        Some(Value::Bool(flag)) => Cell::Number(f64::from(*flag)),
        Some(Value::Number(number)) => Cell::Number(number.as_f64().unwrap_or(f64::NAN)),
        Some(Value::String(text)) => Cell::Text(text),
        Some(Value::Array(_)) => Cell::Text("[…]"),
        Some(Value::Object(_)) => Cell::Text("{…}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    #[test]
    fn keys_give_columns_in_file_order() {
        let content = "{\"z\": 1, \"a\": 2.5, \"y\": \"up\"}\n\n{\"y\": \"down\", \"a\": 3, \"z\": true}\n";
        let table = read("a.jsonl", content, None, &["y"]).unwrap();
        assert_eq!(table.number_names(&Selection { numbers: None, others: vec!["y".into()] }), ["z", "a"]);
        assert_eq!(table.numbers("z").unwrap(), [1.0, 1.0]);
        assert_eq!(table.numbers("a").unwrap(), [2.5, 3.0]);
        assert_eq!(table.place(1), Place::Line(3), "blank lines count as lines, not as rows");
    }

    #[test]
    fn bad_lines_are_named() {
        let message = |content: &str| {
            let text = read("a.jsonl", content, None, &["y"]).unwrap_err().to_string();
            text[text.find("a.jsonl").unwrap()..].to_string()
        };
        assert!(message("{\"x\":1,\"y\":0}\n{\"x\":1,\"y\":\n").starts_with("a.jsonl: line 2: "));
        assert!(message("{\"x\":NaN,\"y\":0}\n").starts_with("a.jsonl: line 1: "));
        assert!(message("[1,2]\n").contains("line 1: invalid type: sequence, expected an object"));
        assert_eq!(message("{\"x\":1,\"y\":0}\n{\"y\":1}\n"), "a.jsonl: line 2, column `x`: the value is missing");
        assert_eq!(
            message("{\"x\":1,\"y\":0}\n{\"x\":\"far\",\"y\":1}\n"),
            "a.jsonl: line 2, column `x`: `far` is not a number"
        );
        assert_eq!(message("\n\n"), "a.jsonl: holds no rows");
    }
}
