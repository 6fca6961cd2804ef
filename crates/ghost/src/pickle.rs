//! Reads pickles that hold data only: numbers, texts, bytes, lists, tuples, sets and dictionaries. Nothing is imported,
//! called or built; a pickle that asks for that is refused with the name of what it asked for. Every length is checked
//! against what is left of the input before anything is taken for it.

use std::collections::HashMap;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PickleError {
    #[error("byte {at}: the pickle ends in the middle of something")]
    Cut { at: usize },
    #[error("byte {at}: it asks for `{name}`; only plain data is read, and nothing is ever run")]
    Object { at: usize, name: String },
    #[error("byte {at}: operation {code:#04x} is none that pickles of plain data have")]
    Unknown { at: usize, code: u8 },
    #[error("byte {at}: {what}")]
    Malformed { at: usize, what: &'static str },
}

/// Where a value lies in its [`Pickle`]. Lists and dictionaries may be shared, and may even hold themselves.
pub type Place = usize;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// A whole number that no `i64` holds.
    Big(Vec<u8>),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// Also tuples and sets.
    List(Vec<Place>),
    Dict(Vec<(Place, Place)>),
}

/// The values of a pickle.
#[derive(Debug)]
pub struct Pickle {
    values: Vec<Value>,
    root: Place,
}

impl Pickle {
    pub fn read(bytes: &[u8]) -> Result<Pickle, PickleError> {
        let mut machine = Machine { bytes, ..Machine::default() };
        let root = machine.run()?;
        Ok(Pickle { values: machine.values, root })
    }

    pub(crate) fn root(&self) -> Item<'_> {
        Item { pickle: self, place: self.root }
    }
}

/// One value, with the pickle it is in.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    pickle: &'a Pickle,
    place: Place,
}

impl<'a> Item<'a> {
    pub(crate) fn place(self) -> Place {
        self.place
    }

    pub(crate) fn value(self) -> &'a Value {
        &self.pickle.values[self.place]
    }

    fn at(self, place: Place) -> Item<'a> {
        Item { pickle: self.pickle, place }
    }

    /// The value of this key, in a dictionary.
    pub fn get(self, key: &str) -> Option<Item<'a>> {
        let Value::Dict(entries) = self.value() else { return None };
        let found = entries.iter().rev().find(|(name, _)| self.at(*name).text() == Some(key))?;
        Some(self.at(found.1))
    }

    pub(crate) fn entries(self) -> impl Iterator<Item = (Item<'a>, Item<'a>)> {
        let entries: &[_] = if let Value::Dict(entries) = self.value() { entries } else { &[] };
        entries.iter().map(move |(key, value)| (self.at(*key), self.at(*value)))
    }

    pub fn list(self) -> Option<impl ExactSizeIterator<Item = Item<'a>>> {
        let Value::List(places) = self.value() else { return None };
        Some(places.iter().map(move |place| self.at(*place)))
    }

    pub fn text(self) -> Option<&'a str> {
        if let Value::Text(text) = self.value() { Some(text) } else { None }
    }

    pub fn int(self) -> Option<i64> {
        match self.value() {
            Value::Int(value) => Some(*value),
            Value::Bool(value) => Some(i64::from(*value)),
            _ => None,
        }
    }

    pub(crate) fn float(self) -> Option<f64> {
        if let Value::Float(value) = self.value() { Some(*value) } else { self.int().map(|value| value as f64) }
    }

    pub(crate) fn bool(self) -> Option<bool> {
        if let Value::Bool(value) = self.value() { Some(*value) } else { None }
    }
}

#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Place>,
    marks: Vec<usize>,
    memo: HashMap<u64, Place>,
}

type Done<T = ()> = Result<T, PickleError>;

impl Machine<'_> {
    fn run(&mut self) -> Done<Place> {
        loop {
            let start = self.at;
            match self.byte()? {
                b'.' => return self.pop(),
                code => self.step(code, start)?,
            }
        }
    }

    fn step(&mut self, code: u8, start: usize) -> Done {
        match code {
            0x80 => self.skip(1),
            0x95 => self.skip(8),
            b'(' => self.mark(),
            b'0' => self.discard(),
            b'1' => self.above_mark().map(drop),
            b'2' => self.duplicate(),
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'J' | b'K' | b'M' | b'I' | b'L' | 0x8a | 0x8b => self.whole(code),
            b'F' | b'G' => self.fraction(code),
            b'X' | 0x8c | 0x8d | b'V' => self.text(code),
            b'B' | b'C' | b'T' | b'U' | 0x8e | 0x96 => self.raw(code),
            b'S' => self.line().and_then(|line| self.push(Value::Text(unquoted(&line).into()))),
            b']' | b')' | 0x8f => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            b'l' | b't' | 0x91 => self.above_mark().and_then(|items| self.push(Value::List(items))),
            0x85..=0x87 => self.tuple(usize::from(code - 0x84)),
            b'a' | b'e' | 0x90 => self.append(code),
            b'd' => self.dict(),
            b's' | b'u' => self.set(code),
            0x94 | b'p' | b'q' | b'r' => self.remember(code),
            b'g' | b'h' | b'j' => self.recall(code),
            b'c' | b'i' => self.refuse_named(start),
            0x93 => self.refuse_stacked(start),
            b'R' | b'b' | b'o' | b'P' | b'Q' | 0x81 | 0x82..=0x84 | 0x92 | 0x97 | 0x98 => {
                Err(PickleError::Object { at: start, name: "an object".into() })
            }
            code => Err(PickleError::Unknown { at: start, code }),
        }
    }

    // Input

    fn cut(&self) -> PickleError {
        PickleError::Cut { at: self.at }
    }

    fn malformed(&self, what: &'static str) -> PickleError {
        PickleError::Malformed { at: self.at, what }
    }

    fn take(&mut self, count: u64) -> Done<&[u8]> {
        let count = usize::try_from(count).map_err(|_| self.cut())?;
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len()).ok_or_else(|| self.cut())?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn byte(&mut self) -> Done<u8> {
        Ok(self.take(1)?[0])
    }

    fn skip(&mut self, count: u64) -> Done {
        self.take(count).map(drop)
    }

    /// A whole number of so many bytes, little end first.
    fn number(&mut self, bytes: u64) -> Done<u64> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn line(&mut self) -> Done<String> {
        let length = self.bytes[self.at..].iter().position(|byte| *byte == b'\n').ok_or_else(|| self.cut())?;
        let line = String::from_utf8_lossy(self.take(length as u64)?).into_owned();
        self.skip(1)?;
        Ok(line)
    }

    // Stack

    fn push(&mut self, value: Value) -> Done {
        self.stack.push(self.values.len());
        self.values.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Done<Place> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.malformed("nothing is there to take"));
        }
        self.stack.pop().ok_or_else(|| self.cut())
    }

    fn top(&self) -> Done<Place> {
        self.stack.last().copied().ok_or_else(|| self.malformed("nothing is there to change"))
    }

    fn mark(&mut self) -> Done {
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Takes a value, or a mark that is on top.
    fn discard(&mut self) -> Done {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn duplicate(&mut self) -> Done {
        let top = self.top()?;
        self.stack.push(top);
        Ok(())
    }

    fn above_mark(&mut self) -> Done<Vec<Place>> {
        let mark = self.marks.pop().ok_or_else(|| self.malformed("a mark is missing"))?;
        Ok(self.stack.split_off(mark))
    }

    // Values

    fn whole(&mut self, code: u8) -> Done {
        let value = match code {
            b'J' => Value::Int(i64::from(self.number(4)? as u32 as i32)),
            b'K' => Value::Int(self.number(1)? as i64),
            b'M' => Value::Int(self.number(2)? as i64),
            0x8a | 0x8b => {
                let length = self.number(if code == 0x8a { 1 } else { 4 })?;
                long(self.take(length)?)
            }
            _ => return self.written_number(),
        };
        self.push(value)
    }

    /// A number in letters: `01` is true, `00` is false, `12L` is long.
    fn written_number(&mut self) -> Done {
        let line = self.line()?;
        let value = match line.as_str() {
            "01" => Value::Bool(true),
            "00" => Value::Bool(false),
            text => Value::Int(text.trim_end_matches('L').parse().map_err(|_| self.malformed("no number"))?),
        };
        self.push(value)
    }

    fn fraction(&mut self, code: u8) -> Done {
        let value = if code == b'G' {
            f64::from_bits(self.number(8)?.swap_bytes())
        } else {
            self.line()?.parse().map_err(|_| self.malformed("no number"))?
        };
        self.push(Value::Float(value))
    }

    fn text(&mut self, code: u8) -> Done {
        let text = match code {
            b'V' => self.line()?,
            _ => {
                let length = self.number(match code {
                    0x8c => 1,
                    b'X' => 4,
                    _ => 8,
                })?;
                String::from_utf8_lossy(self.take(length)?).into_owned()
            }
        };
        self.push(Value::Text(text))
    }

    fn raw(&mut self, code: u8) -> Done {
        let length = self.number(match code {
            b'C' | b'U' => 1,
            b'B' | b'T' => 4,
            _ => 8,
        })?;
        let bytes = self.take(length)?.to_vec();
        self.push(Value::Bytes(bytes))
    }

    fn tuple(&mut self, count: usize) -> Done {
        let mut items = (0..count).map(|_| self.pop()).collect::<Done<Vec<_>>>()?;
        items.reverse();
        self.push(Value::List(items))
    }

    fn append(&mut self, code: u8) -> Done {
        let items = if code == b'a' { vec![self.pop()?] } else { self.above_mark()? };
        let list = self.top()?;
        let Value::List(list) = &mut self.values[list] else { return Err(self.malformed("no list to add to")) };
        list.extend(items);
        Ok(())
    }

    fn dict(&mut self) -> Done {
        let items = self.above_mark()?;
        let entries = self.pairs(&items)?;
        self.push(Value::Dict(entries))
    }

    fn set(&mut self, code: u8) -> Done {
        let items = if code == b's' {
            let value = self.pop()?;
            vec![self.pop()?, value]
        } else {
            self.above_mark()?
        };
        let entries = self.pairs(&items)?;
        let dict = self.top()?;
        let Value::Dict(dict) = &mut self.values[dict] else { return Err(self.malformed("no dictionary to add to")) };
        dict.extend(entries);
        Ok(())
    }

    fn pairs(&self, items: &[Place]) -> Done<Vec<(Place, Place)>> {
        if items.len() % 2 == 1 {
            return Err(self.malformed("a key without a value"));
        }
        Ok(items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    // Memo

    fn remember(&mut self, code: u8) -> Done {
        let key = if code == 0x94 { self.memo.len() as u64 } else { self.memo_key(code)? };
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, code: u8) -> Done {
        let key = self.memo_key(code)?;
        let place = *self.memo.get(&key).ok_or_else(|| self.malformed("nothing was remembered under this number"))?;
        self.stack.push(place);
        Ok(())
    }

    fn memo_key(&mut self, code: u8) -> Done<u64> {
        match code {
            b'q' | b'h' => self.number(1),
            b'r' | b'j' => self.number(4),
            _ => self.line()?.parse().map_err(|_| self.malformed("no number")),
        }
    }

    // Refusals

    fn refuse_named(&mut self, at: usize) -> Done {
        let name = format!("{}.{}", self.line()?, self.line()?);
        Err(PickleError::Object { at, name })
    }

    fn refuse_stacked(&mut self, at: usize) -> Done {
        let (name, module) = (self.pop()?, self.pop()?);
        let part = |place: Place| if let Value::Text(text) = &self.values[place] { text.clone() } else { "?".into() };
        Err(PickleError::Object { at, name: format!("{}.{}", part(module), part(name)) })
    }
}

/// A text as the oldest protocol has it, in quotes.
fn unquoted(line: &str) -> &str {
    let inside = |quote| line.strip_prefix(quote).and_then(|line| line.strip_suffix(quote));
    inside('\'').or_else(|| inside('"')).unwrap_or(line)
}

/// Two's complement, little end first.
fn long(bytes: &[u8]) -> Value {
    if bytes.len() > 8 {
        return Value::Big(bytes.to_vec());
    }
    let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
    let mut filled = [if negative { 0xff } else { 0 }; 8];
    filled[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(filled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `pickle.dumps({"a": [1, -2, 300, 2**40], "b": (None, True, 1.5), "a2": same list}, protocol=4)`, by hand.
    fn sample() -> Vec<u8> {
        let mut bytes = b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(".to_vec();
        bytes.extend(b"K\x01J\xfe\xff\xff\xffM\x2c\x01\x8a\x06\x00\x00\x00\x00\x00\x01e");
        bytes.extend(b"\x8c\x01b\x94N\x88G\x3f\xf8\x00\x00\x00\x00\x00\x00\x87\x94\x8c\x02a2\x94h\x02u.");
        bytes
    }

    #[test]
    fn what_python_wrote_is_read_with_what_it_shares() {
        let pickle = Pickle::read(&sample()).unwrap();
        let list = pickle.root().get("a").unwrap();
        let numbers: Vec<_> = list.list().unwrap().map(|item| item.int()).collect();
        assert_eq!(numbers, [Some(1), Some(-2), Some(300), Some(1 << 40)]);
        assert_eq!(pickle.root().get("a2").unwrap().place(), list.place());
        let tuple: Vec<_> = pickle.root().get("b").unwrap().list().unwrap().map(|item| item.value().clone()).collect();
        assert_eq!(tuple, [Value::None, Value::Bool(true), Value::Float(1.5)]);
    }

    #[test]
    fn a_pickle_that_wants_something_run_is_refused_with_its_name() {
        let error = Pickle::read(b"cos\nsystem\n(S'echo'\ntR.").unwrap_err();
        assert_eq!(error, PickleError::Object { at: 0, name: "os.system".into() });
        let stacked = b"\x80\x04\x8c\x02os\x8c\x06system\x93)R.";
        assert!(Pickle::read(stacked).unwrap_err().to_string().contains("os.system"));
        assert!(matches!(Pickle::read(b"N)\x81."), Err(PickleError::Object { .. })));
    }

    #[test]
    fn lengths_that_the_input_does_not_have_take_no_memory() {
        for bytes in [&b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff"[..], b"\x8b\xff\xff\xff\x7f", b"B\xff\xff\xff\xff", b"X"]
        {
            assert!(matches!(Pickle::read(bytes), Err(PickleError::Cut { .. })));
        }
    }

    #[test]
    fn a_list_that_holds_itself_is_read() {
        let pickle = Pickle::read(b"]\x94h\x00a.").unwrap();
        let inside = pickle.root().list().unwrap().next().unwrap();
        assert_eq!(inside.place(), pickle.root().place());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50_000))]

        #[test]
        fn no_mutation_of_a_pickle_brings_the_reader_down(at in 0usize..80, byte: u8, cut in 0usize..100, insert: bool) {
            let mut bytes = sample();
            let at = at.min(bytes.len() - 1);
            if insert { bytes.insert(at, byte) } else { bytes[at] = byte };
            bytes.truncate(cut.max(1));
            let _ = Pickle::read(&bytes);
        }

        #[test]
        fn no_input_at_all_brings_the_reader_down(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Pickle::read(&bytes);
        }
    }
}
