//! One value that a parameter can take.

use std::fmt;

use crate::reading::tree::{Node, Value};

/// A value as a study keeps it.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Number(f64),
    /// Anything else, as it is written.
    Text(String),
}

impl Scalar {
    /// Lists and tables are known by how they are written.
    pub(super) fn of(node: &Node) -> Option<Scalar> {
        Some(match &node.value {
            Value::Flag(flag) => Scalar::Flag(*flag),
            Value::Integer(integer) => Scalar::Integer(i64::try_from(*integer).ok()?),
            Value::Float(number) if number.is_finite() => Scalar::Number(*number),
            Value::Text(text) => Scalar::Text(text.clone()),
            Value::List(_) | Value::Table(_) => Scalar::Text(written(node)?),
            Value::Float(_) | Value::Date => return None,
        })
    }

    /// A label of a table of choices: `true`, `16` and `1e-4` mean what they say.
    pub(super) fn label(text: &str) -> Scalar {
        match text {
            "true" => Scalar::Flag(true),
            "false" => Scalar::Flag(false),
            _ => text.parse().map(Scalar::Integer).unwrap_or_else(|_| match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Scalar::Number(number),
                _ => Scalar::Text(text.into()),
            }),
        }
    }

    /// The whole number, if it is one.
    pub fn as_integer(&self) -> Option<i64> {
        if let Scalar::Integer(integer) = self { Some(*integer) } else { None }
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Scalar::Integer(integer) => Some(*integer as f64),
            Scalar::Number(number) => Some(*number),
            Scalar::Flag(_) | Scalar::Text(_) => None,
        }
    }

    /// As a TOML value.
    pub fn to_toml(&self) -> String {
        match self {
            Scalar::Flag(flag) => flag.to_string(),
            Scalar::Integer(integer) => integer.to_string(),
            Scalar::Number(number) => format!("{number:?}"),
            Scalar::Text(text) => toml::Value::String(text.clone()).to_string(),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Text(text) => f.write_str(text),
            other => f.write_str(&other.to_toml()),
        }
    }
}

/// A value as TOML, on one line.
pub(super) fn written(node: &Node) -> Option<String> {
    Some(match &node.value {
        Value::List(items) => format!("[{}]", items.iter().map(written).collect::<Option<Vec<_>>>()?.join(", ")),
        Value::Table(table) => {
            let pair = |(key, inner): (&String, &Node)| Some(format!("{} = {}", quoted(key), written(inner)?));
            format!("{{ {} }}", table.entries.iter().map(pair).collect::<Option<Vec<_>>>()?.join(", "))
        }
        _ => Scalar::of(node)?.to_toml(),
    })
}

fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.into() } else { toml::Value::String(key.into()).to_string() }
}
