//! JSON as Python writes it. Optuna's files hold bare `NaN`, `Infinity` and `-Infinity`, which strict parsers refuse
//! and strict writers turn into `null`; here they are numbers like any other.

use std::fmt;

use crate::error::{Error, Result};

/// A JSON value; objects keep the order of their keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Deeper nesting is refused, so that no file can exhaust the stack.
const DEEPEST: usize = 128;

impl Json {
    pub fn object<K: Into<String>>(entries: impl IntoIterator<Item = (K, Json)>) -> Self {
        Self::Object(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    pub fn floats(numbers: &[f64]) -> Self {
        Self::Array(numbers.iter().copied().map(Self::Float).collect())
    }

    /// The value of a key; the last one where a key stands twice.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.as_object()?.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub fn as_object(&self) -> Option<&[(String, Json)]> {
        match self {
            Self::Object(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Json]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(int) => Some(*int as f64),
            Self::Float(float) => Some(*float),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// Reads one value that takes up the whole text.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        parser.skip_space();
        if parser.at < text.len() {
            return Err(parser.unexpected("the end"));
        }
        Ok(value)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<f64> for Json {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<i64> for Json {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Json {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

/// Compact, on one line, in ASCII.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::Int(int) => write!(f, "{int}"),
            Self::Float(float) => write_float(*float, f),
            Self::Text(text) => write_text(text, f),
            Self::Array(items) => write_array(items, f),
            Self::Object(entries) => write_object(entries, f),
        }
    }
}

/// The shortest digits that read back as the same number; a point or an exponent says that it is no integer.
fn write_float(float: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if float.is_nan() {
        f.write_str("NaN")
    } else if float.is_infinite() {
        f.write_str(if float > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        write!(f, "{float:?}")
    }
}

fn write_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            ' '..='~' => write!(f, "{character}")?,
            other => write_escaped(other, f)?,
        }
    }
    f.write_str("\"")
}

fn write_escaped(character: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    character.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(f, "\\u{unit:04x}"))
}

fn write_array(items: &[Json], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("[")?;
    for (index, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if index > 0 { "," } else { "" })?;
    }
    f.write_str("]")
}

fn write_object(entries: &[(String, Json)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("{")?;
    for (index, (key, value)) in entries.iter().enumerate() {
        f.write_str(if index > 0 { "," } else { "" })?;
        write_text(key, f)?;
        write!(f, ":{value}")?;
    }
    f.write_str("}")
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > DEEPEST {
            return Err(self.unexpected(&format!("at most {DEEPEST} levels")));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Json::Text(self.text()?)),
            Some(b'-' | b'0'..=b'9') if !self.rest().starts_with("-I") => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Json> {
        let words = [
            ("null", Json::Null),
            ("true", Json::Bool(true)),
            ("false", Json::Bool(false)),
            ("NaN", Json::Float(f64::NAN)),
            ("Infinity", Json::Float(f64::INFINITY)),
            ("-Infinity", Json::Float(f64::NEG_INFINITY)),
        ];
        let found = words.into_iter().find(|(word, _)| self.rest().starts_with(word));
        let (word, value) = found.ok_or_else(|| self.unexpected("a value"))?;
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Json> {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = self.rest().bytes().take_while(|byte| is_part(byte)).count();
        let digits = &self.rest()[..length];
        let int = digits.parse().map(Json::Int);
        let number = int.or_else(|_| digits.parse().map(Json::Float)).map_err(|_| self.unexpected("a number"))?;
        self.at += length;
        Ok(number)
    }

    fn array(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Ok(Json::Array(items));
            }
            self.expect(b',')?;
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut entries = Vec::new();
        if self.take(b'}') {
            return Ok(Json::Object(entries));
        }
        loop {
            self.skip_space();
            let key = self.text()?;
            self.expect(b':')?;
            entries.push((key, self.value(depth + 1)?));
            if self.take(b'}') {
                return Ok(Json::Object(entries));
            }
            self.expect(b',')?;
        }
    }

    fn text(&mut self) -> Result<String> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a text"));
        }
        self.at += 1;
        let mut text = String::new();
        loop {
            let plain = self.rest().find(['"', '\\']).ok_or_else(|| self.unexpected("a closing quote"))?;
            text.push_str(&self.rest()[..plain]);
            self.at += plain + 1;
            if self.text.as_bytes()[self.at - 1] == b'"' {
                return Ok(text);
            }
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char> {
        let character = match self.peek() {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(kind @ (b'u' | b'"' | b'\\' | b'/')) => char::from(kind),
            _ => return Err(self.unexpected("an escape")),
        };
        self.at += 1;
        if character == 'u' { self.unicode() } else { Ok(character) }
    }

    /// Half of a surrogate pair alone is not a character; it is read as the replacement character.
    fn unicode(&mut self) -> Result<char> {
        let first = self.hex()?;
        if (0xd800..0xdc00).contains(&first) && self.rest().starts_with("\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.hex()?;
            if let Some(Ok(pair)) = char::decode_utf16([first, second]).next() {
                return Ok(pair);
            }
            self.at = before;
        }
        Ok(char::from_u32(u32::from(first)).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self) -> Result<u16> {
        let digits = self.rest().get(..4).ok_or_else(|| self.unexpected("four digits"))?;
        let unit = u16::from_str_radix(digits, 16).map_err(|_| self.unexpected("four digits"))?;
        self.at += 4;
        Ok(unit)
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected(&format!("{:?}", char::from(byte)))) }
    }

    fn skip_space(&mut self) {
        let spaces = self.rest().bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.at += spaces;
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let found: String = self.rest().chars().take(12).collect();
        Error::Json { byte: self.at, wanted: wanted.into(), found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_that_are_none_are_read_and_written_as_python_does() {
        let text = "[NaN,Infinity,-Infinity,-1.5,1e-5,3]";
        let read = Json::parse(text).unwrap();
        assert_eq!(read.to_string(), text);
    }

    #[test]
    fn integers_stay_integers_and_floats_stay_floats() {
        assert_eq!(Json::parse("1").unwrap(), Json::Int(1));
        assert_eq!(Json::parse("1.0").unwrap(), Json::Float(1.0));
        assert_eq!(Json::Float(1.0).to_string(), "1.0");
        assert_eq!(Json::parse("123456789012345678901234567890").unwrap(), Json::Float(1.2345678901234568e29));
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place() {
        for text in ["", "{", "[1,]", "{\"a\" 1}", "\"x", "nul", "1 2", "{1:2}", "\"\\x\"", "\"\\u12\"", "+1", "--1"] {
            assert!(Json::parse(text).is_err(), "{text:?} was read");
        }
        let error = Json::parse("[1, ?]").unwrap_err().to_string();
        assert!(error.contains("byte 4"), "{error}");
    }

    #[test]
    fn nesting_without_end_is_refused_instead_of_exhausting_the_stack() {
        assert!(Json::parse(&"[".repeat(1_000_000)).is_err());
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            any::<i64>().prop_map(Json::Int),
            any::<f64>().prop_filter("NaN is not equal to itself", |x| !x.is_nan()).prop_map(Json::Float),
            any::<String>().prop_map(Json::Text),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Json::Array),
                proptest::collection::vec((any::<String>(), inner), 0..5).prop_map(Json::Object),
            ]
        })
    }

    #[test]
    fn an_escape_that_is_none_is_refused_where_it_stands() {
        for text in ["\"\\\u{dca}", "\"\\x\"", "\"\\"] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_the_same(json in any_json()) {
            prop_assert_eq!(Json::parse(&json.to_string()).unwrap(), json);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = Json::parse(&text);
        }

        #[test]
        fn no_prefix_of_a_value_makes_the_parser_panic(json in any_json(), cut in 0.0..1.0f64) {
            let text = json.to_string();
            let _ = Json::parse(&text[..(text.len() as f64 * cut) as usize]);
        }
    }
}
