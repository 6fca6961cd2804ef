//! The raw stage: values with the place they were written at, whether in the file or in a `--set`.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// Bytes `start..end` of source number `source` (0 is the file, the rest are the `--set`s in order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub source: usize,
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Debug)]
pub struct Node {
    /// Where the key is written.
    pub key: Place,
    /// Where the value is written.
    pub place: Place,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub enum Value {
    Text(String),
    /// Saturates: what is beyond `i128` is beyond every allowed range too.
    Integer(i128),
    Float(f64),
    Flag(bool),
    Date,
    List(Vec<Node>),
    Table(Table),
}

#[derive(Clone, Debug)]
pub struct Table {
    pub place: Place,
    pub entries: BTreeMap<String, Node>,
}

impl Value {
    /// What a message calls it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Flag(_) => "true or false",
            Self::Date => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// What stands between a text and its tree: the cause in the parser's words, and where.
#[derive(Debug)]
pub struct SyntaxError {
    pub cause: String,
    pub place: Place,
}

impl SyntaxError {
    fn new(error: &toml::de::Error, source: usize, offset: usize) -> Self {
        let span = error.span().unwrap_or(0..0);
        Self { cause: error.message().replace('\n', ", "), place: place(source, offset, &span) }
    }
}

pub fn parse_document(text: &str) -> Result<Table, SyntaxError> {
    let document = DeTable::parse(text).map_err(|e| SyntaxError::new(&e, 0, 0))?;
    Ok(table(document.get_ref(), place(0, 0, &document.span()), &Reading { source: 0, offset: 0 }))
}

/// Reads one value which starts at byte `offset` of source `source`.
pub fn parse_value(text: &str, source: usize, offset: usize) -> Result<Node, SyntaxError> {
    let value = DeValue::parse(text).map_err(|e| SyntaxError::new(&e, source, offset))?;
    Ok(node(&value, None, &Reading { source, offset }))
}

struct Reading {
    source: usize,
    offset: usize,
}

fn place(source: usize, offset: usize, span: &Range<usize>) -> Place {
    Place { source, start: offset + span.start, end: offset + span.end }
}

fn table(entries: &DeTable<'_>, at: Place, reading: &Reading) -> Table {
    let entries = entries
        .iter()
        .map(|(key, value)| {
            let key_place = place(reading.source, reading.offset, &key.span());
            (key.get_ref().to_string(), node(value, Some(key_place), reading))
        })
        .collect();
    Table { place: at, entries }
}

// The parser limits nesting, so recursion is bounded.
fn node(spanned: &Spanned<DeValue<'_>>, key: Option<Place>, reading: &Reading) -> Node {
    let at = place(reading.source, reading.offset, &spanned.span());
    let value = match spanned.get_ref() {
        DeValue::String(s) => Value::Text(s.to_string()),
        DeValue::Integer(i) => Value::Integer(integer(i)),
        DeValue::Float(f) => Value::Float(f.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(b) => Value::Flag(*b),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(items) => Value::List(items.iter().map(|item| node(item, None, reading)).collect()),
        DeValue::Table(entries) => Value::Table(table(entries, at, reading)),
    };
    Node { key: key.unwrap_or(at), place: at, value }
}

fn integer(i: &DeInteger<'_>) -> i128 {
    let limit = if i.as_str().starts_with('-') { i128::MIN } else { i128::MAX };
    i128::from_str_radix(i.as_str(), i.radix()).unwrap_or(limit)
}
