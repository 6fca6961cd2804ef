//! A JSON object as a row: keys are columns.

use super::row::{Cell, Columns};
use crate::{DataError, Place};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::{borrow::Cow, fmt, path::Path};

/// The cells of `columns` in an object; other keys are passed over without storing them.
pub(super) fn cells<'a>(object: &'a [u8], columns: &Columns) -> Result<Vec<Cell<'a>>, serde_json::Error> {
    let mut cells = vec![Cell::Missing; columns.len()];
    parse(object, Wanted { columns, cells: &mut cells })?;
    columns.repeat(&mut cells);
    Ok(cells)
}

/// The keys of an object, in its order.
pub(super) fn keys(object: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    parse(object, Keys)
}

fn parse<'a, V: Visitor<'a>>(object: &'a [u8], visitor: V) -> Result<V::Value, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_slice(object);
    let value = parser.deserialize_map(visitor)?;
    parser.end()?;
    Ok(value)
}

/// What is wrong with the object at `offset`: bytes that are no text, or no object.
pub(super) fn explain(file: &Path, place: Place, offset: u64, object: &[u8], error: &serde_json::Error) -> DataError {
    match (str::from_utf8(object), place) {
        (Err(error), Place::Line(line)) => {
            DataError::BadUtf8 { file: file.into(), byte: offset + error.valid_up_to() as u64, line }
        }
        // On a line of its own the parser's line number says nothing.
        _ => {
            let cause = error.to_string().replace(" at line 1 column ", " at column ");
            DataError::Malformed { file: file.into(), place, cause, hint: HINT }
        }
    }
}

/// What to do about what is no object.
pub(super) const HINT: &str =
    "every row is an object in braces, with numbers as in JSON (no NaN): one a line, or all in an array";

const EXPECTED: &str = "an object with one value per column";

struct Wanted<'c, 'a> {
    columns: &'c Columns,
    cells: &'c mut [Cell<'a>],
}

impl<'de> Visitor<'de> for Wanted<'_, 'de> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut position = 0;
        while let Some(Name(key)) = map.next_key()? {
            match self.columns.find(&key, position) {
                Some(at) if self.columns.is_exact(at) => self.cells[at] = exact(map.next_value()?),
                Some(at) => self.cells[at] = map.next_value()?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
            position += 1;
        }
        Ok(())
    }
}

fn exact(value: serde_json::Value) -> Cell<'static> {
    match value {
        serde_json::Value::Null => Cell::Missing,
        value => Cell::Exact(value),
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Vec<String>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, IgnoredAny)) = map.next_entry()? {
            keys.push(key);
        }
        Ok(keys)
    }
}

/// A string that stays where it is, if nothing in it is escaped.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(key)))
            }
            fn visit_str<E>(self, key: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(key.into())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

impl<'de> Deserialize<'de> for Cell<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyCell)
    }
}

struct AnyCell;

impl<'de> Visitor<'de> for AnyCell {
    type Value = Cell<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<Cell<'de>, E> {
        Ok(Cell::Missing)
    }
    fn visit_bool<E>(self, flag: bool) -> Result<Cell<'de>, E> {
        Ok(Cell::Number(f64::from(flag)))
    }
    fn visit_u64<E>(self, number: u64) -> Result<Cell<'de>, E> {
        Ok(Cell::Number(number as f64))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Cell<'de>, E> {
        Ok(Cell::Number(number as f64))
    }
    fn visit_f64<E>(self, number: f64) -> Result<Cell<'de>, E> {
        Ok(Cell::Number(number))
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cell<'de>, E> {
        Ok(Cell::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Cell<'de>, E> {
        Ok(Cell::Text(Cow::Owned(text.into())))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cell<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Cell::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Cell::Other("an object"))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Map, Value};

    pub(crate) fn write(names: &[&str], row: &[Cell<'_>]) -> String {
        let value = |cell: &Cell<'_>| match cell {
            Cell::Text(text) => Value::from(text.as_ref()),
            Cell::Number(number) => Value::from(*number),
            _ => Value::Null,
        };
        let cells = names.iter().zip(row).map(|(name, cell)| (name.to_string(), value(cell)));
        Value::Object(cells.collect::<Map<_, _>>()).to_string()
    }

    #[test]
    fn cells_stay_where_they_are_unless_escaped() {
        let columns = Columns::new(["b", "a", "b", "none"].map(String::from));
        let found = cells(b" {\"c\": {\"b\": 0}, \"a\": [1, \"x\", null], \"b\": \"y\\n\"} ", &columns).unwrap();
        let list = Cell::List(vec![Cell::Number(1.0), Cell::Text("x".into()), Cell::Missing]);
        assert_eq!(found, [Cell::Text("y\n".into()), list, Cell::Text("y\n".into()), Cell::Missing]);
        let plain = cells(b"{\"a\": \"plain\"}", &columns).unwrap();
        assert!(matches!(plain[1], Cell::Text(Cow::Borrowed("plain"))));
        assert_eq!(keys(b"{\"z\": 1, \"a\": {}}").unwrap(), ["z", "a"]);
        assert!(cells(&[b'['; 100_000], &columns).is_err(), "depth is limited");
        assert!(cells(format!("{{\"a\":{}", "[".repeat(100_000)).as_bytes(), &columns).is_err());
    }
}
