//! Reading one table: each typed getter reports what is wrong and lets the reading go on, so that one run shows
//! all problems. `None` means absent, or reported; the caller then goes on with the default.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::error::{Problem, Problems, RecipeError, Sources};
use super::kind::KeyKind;
use super::tree::{Node, Place, Table, Value};
use plimsoll_base::names::{Named, nearest};

/// What a reading asked of one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Asked {
    /// What it may be; `None` where the key is known and was not read.
    pub kind: Option<KeyKind>,
    /// The recipe has it.
    pub present: bool,
    pub required: bool,
    /// It means nothing beside the other choices of the recipe.
    pub refused: bool,
}

/// Every key that a reading asked for, by its dotted path.
pub(crate) type Record = BTreeMap<String, Asked>;

/// The problems found so far and, for a reading that documents the reader, the keys it asked for.
pub struct Issues<'a> {
    sources: &'a Sources,
    found: RefCell<Vec<Problem>>,
    record: Option<RefCell<Record>>,
}

impl<'a> Issues<'a> {
    pub fn new(sources: &'a Sources) -> Self {
        Self { sources, found: RefCell::default(), record: None }
    }

    pub(crate) fn recording(sources: &'a Sources) -> Self {
        Self { record: Some(RefCell::default()), ..Self::new(sources) }
    }

    /// What was asked for; empty unless recording.
    pub(crate) fn record(&self) -> Record {
        self.record.as_ref().map(|record| record.borrow().clone()).unwrap_or_default()
    }

    fn note(&self, path: impl FnOnce() -> String, change: impl FnOnce(&mut Asked)) {
        if let Some(record) = &self.record {
            change(record.borrow_mut().entry(path()).or_default());
        }
    }

    pub fn report(&self, problem: Problem) {
        self.found.borrow_mut().push(problem);
    }

    pub fn count(&self) -> usize {
        self.found.borrow().len()
    }

    /// The problems, before they are put into words.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.found.into_inner()
    }

    pub(crate) fn into_error(self) -> RecipeError {
        RecipeError::Invalid(Problems::locate(self.found.into_inner(), self.sources))
    }
}

/// An interval of numbers; NaN is in none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    low: f64,
    high: f64,
    low_open: bool,
    high_open: bool,
}

impl Range {
    pub const fn closed(low: f64, high: f64) -> Self {
        Self { low, high, low_open: false, high_open: false }
    }

    /// `low < x ≤ high`
    pub const fn above(low: f64, high: f64) -> Self {
        Self { low, high, low_open: true, high_open: false }
    }

    /// `low ≤ x < high`
    pub const fn below(low: f64, high: f64) -> Self {
        Self { low, high, low_open: false, high_open: true }
    }

    /// The ends, and whether each is left out.
    pub fn ends(self) -> [(f64, bool); 2] {
        [(self.low, self.low_open), (self.high, self.high_open)]
    }

    pub fn contains(self, x: f64) -> bool {
        let low = if self.low_open { x > self.low } else { x >= self.low };
        let high = if self.high_open { x < self.high } else { x <= self.high };
        low && high
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = if self.low_open { '<' } else { '≤' };
        let high = if self.high_open { '<' } else { '≤' };
        write!(f, "{} {low} number {high} {}", self.low, self.high)
    }
}

/// Stands in for a table that is not written.
static EMPTY: Table = Table { place: Place { source: 0, start: 0, end: 0 }, entries: BTreeMap::new() };

/// One table being read, and the keys that were asked for.
pub struct Section<'a> {
    issues: &'a Issues<'a>,
    path: String,
    table: &'a Table,
    known: RefCell<Vec<&'static str>>,
    /// Of the known, those that mean nothing here: no hint leads to them.
    foreign: RefCell<Vec<&'static str>>,
    issues_before: usize,
}

/// File systems take 255 bytes, and a number is put behind it.
pub(crate) const LONGEST_NAME: usize = 200;

impl<'a> Section<'a> {
    pub fn new(table: &'a Table, path: String, issues: &'a Issues<'a>) -> Self {
        Self {
            issues,
            path,
            table,
            known: RefCell::default(),
            foreign: RefCell::default(),
            issues_before: issues.count(),
        }
    }

    /// Whether nothing was reported since the section was opened. Relations between values are checked only then:
    /// a default that stands in for a refused value would only cause misleading messages.
    pub(crate) fn is_clean(&self) -> bool {
        self.issues.count() == self.issues_before
    }

    /// Everything that is written in the table, for one whose keys are not all known beforehand.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Node)> + use<'a> {
        self.table.entries.iter()
    }

    /// The dotted path of a key in this table.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    /// Where the value of `key` is written, or the table where it is not.
    pub fn place(&self, key: &str) -> Place {
        self.table.entries.get(key).map_or(self.table.place, |node| node.place)
    }

    /// A value as it was written.
    pub(crate) fn excerpt(&self, node: &Node) -> String {
        self.issues.sources.excerpt(node.place)
    }

    pub fn report(&self, problem: Problem) {
        self.issues.report(problem);
    }

    /// Reports `cause` at the value of `key`.
    pub(crate) fn refuse(&self, key: &str, cause: impl Into<String>, hint: impl Into<String>) {
        self.report(Problem::new(self.path(key), cause, self.place(key)).hint(hint));
    }

    pub fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// Declares keys that are not read in every case.
    pub(crate) fn know(&self, keys: &[&'static str]) {
        let mut known = self.known.borrow_mut();
        for key in keys {
            let present = self.table.entries.contains_key(*key);
            self.issues.note(|| self.path(key), |asked| asked.present = present);
            if !known.contains(key) {
                known.push(key);
            }
        }
    }

    pub fn get(&self, key: &'static str) -> Option<&'a Node> {
        self.know(&[key]);
        self.table.entries.get(key)
    }

    /// Says what a key may be, for a reading that documents the reader. Typed getters say it themselves; a reader of
    /// its own says it first, and then that counts.
    pub(crate) fn declare(&self, key: &'static str, kind: impl FnOnce() -> KeyKind) {
        self.issues.note(|| self.path(key), |asked| asked.kind = asked.kind.take().or_else(|| Some(kind())));
    }

    /// A key of this kind.
    fn get_a(&self, key: &'static str, kind: impl FnOnce() -> KeyKind) -> Option<&'a Node> {
        self.declare(key, kind);
        self.get(key)
    }

    /// A value that must be there.
    pub(crate) fn require<T>(&self, key: &'static str, value: Option<T>, hint: &str) -> Option<T> {
        self.issues.note(|| self.path(key), |asked| asked.required = true);
        if value.is_none() && !self.has(key) {
            self.report(Problem::new(self.path(key), "this key is required", self.table.place).hint(hint));
        }
        value
    }

    /// Refuses a key that means nothing beside the other choices of the recipe.
    pub(crate) fn not_with(&self, key: &'static str, other: impl fmt::Display) {
        self.issues.note(|| self.path(key), |asked| asked.refused = true);
        self.foreign.borrow_mut().push(key);
        if self.has(key) {
            self.refuse(key, format!("does not apply to {other}"), format!("remove `{key}`"));
        }
    }

    pub fn size(&self, key: &'static str, range: RangeInclusive<usize>) -> Option<usize> {
        self.size_of(key, self.get_a(key, || KeyKind::integer(&range))?, range, "")
    }

    /// `also`: what the caller accepts beside integers, for the message.
    pub(crate) fn size_of(&self, key: &str, node: &Node, range: RangeInclusive<usize>, also: &str) -> Option<usize> {
        let allowed = format!("{also}an integer from {} to {}", range.start(), range.end());
        let Value::Integer(i) = node.value else {
            return self.wrong_type(key, node, &allowed);
        };
        match usize::try_from(i) {
            Ok(n) if range.contains(&n) => Some(n),
            _ => self.out_of_range(key, node, &allowed),
        }
    }

    /// Seeds: any number TOML can hold that is not negative.
    pub(crate) fn seed(&self, key: &'static str) -> Option<u64> {
        self.size(key, 0..=i64::MAX as usize).map(|n| n as u64)
    }

    pub fn number(&self, key: &'static str, range: Range) -> Option<f64> {
        self.number_of(key, self.get_a(key, || KeyKind::Number(range))?, range)
    }

    pub(crate) fn number_of(&self, key: &str, node: &Node, range: Range) -> Option<f64> {
        let allowed = range.to_string();
        let number = match node.value {
            Value::Integer(i) => i as f64,
            Value::Float(x) => x,
            _ => return self.wrong_type(key, node, &allowed),
        };
        if range.contains(number) { Some(number) } else { self.out_of_range(key, node, &allowed) }
    }

    pub(crate) fn flag(&self, key: &'static str) -> Option<bool> {
        let node = self.get_a(key, || KeyKind::Flag)?;
        match node.value {
            Value::Flag(b) => Some(b),
            _ => self.wrong_type(key, node, "true or false"),
        }
    }

    pub fn text(&self, key: &'static str) -> Option<String> {
        self.text_of(key, self.get_a(key, || KeyKind::Text)?, "a string").map(str::to_string)
    }

    pub(crate) fn text_of<'n>(&self, key: &str, node: &'n Node, allowed: &str) -> Option<&'n str> {
        match &node.value {
            Value::Text(text) => Some(text),
            _ => self.wrong_type(key, node, allowed),
        }
    }

    /// A string with something in it: a column, a field, a path.
    pub fn name(&self, key: &'static str) -> Option<String> {
        self.name_of(key, self.get_a(key, || KeyKind::Name)?)
    }

    fn name_of(&self, key: &str, node: &Node) -> Option<String> {
        let text = self.text_of(key, node, "a string")?;
        if text.is_empty() || text.contains('\0') {
            return self.out_of_range(key, node, "a string that is not empty");
        }
        Some(text.to_string())
    }

    /// A string that can be a part of the name of one folder, and of a line on a terminal.
    pub(crate) fn folder_name(&self, key: &'static str) -> Option<String> {
        let name = self.name(key)?;
        if name.len() > LONGEST_NAME || name.contains(|c: char| c == '/' || c.is_control()) {
            let node = self.get(key)?;
            let cause = format!("{} cannot be part of a folder's name", self.excerpt(node));
            let allowed = "at most 200 bytes, without slashes and control characters";
            self.report(Problem::new(self.path(key), cause, node.place).allowed(allowed));
            return None;
        }
        Some(name)
    }

    pub fn file(&self, key: &'static str) -> Option<PathBuf> {
        self.declare(key, || KeyKind::Path);
        self.name(key).map(PathBuf::from)
    }

    pub fn choice<T: Named>(&self, key: &'static str) -> Option<T> {
        self.choice_of(key, self.get_a(key, KeyKind::choice::<T>)?, &[])
    }

    /// `others`: what the caller accepts beside the names of `T`, for the message.
    pub(crate) fn choice_of<T: Named>(&self, key: &str, node: &Node, others: &[&'static str]) -> Option<T> {
        let names = || others.iter().copied().chain(T::names());
        let allowed = names().collect::<Vec<_>>().join(", ");
        let text = self.text_of(key, node, &allowed)?;
        let found = T::from_name(text);
        if found.is_none() {
            let hint = nearest(text, names()).map(|n| format!("did you mean \"{n}\"?"));
            self.unknown_value(key, node, &allowed, hint);
        }
        found
    }

    pub(crate) fn unknown_value(&self, key: &str, node: &Node, allowed: &str, hint: Option<String>) {
        let cause = format!("unknown value {}", self.excerpt(node));
        self.report(Problem::new(self.path(key), cause, node.place).allowed(allowed).maybe_hint(hint));
    }

    /// A list of `length` items; `None` too where any item was refused.
    pub(crate) fn list<T>(
        &self,
        key: &'static str,
        length: RangeInclusive<usize>,
        of: KeyKind,
        mut item: impl FnMut(&Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let plural = of.plural();
        let node = self.get_a(key, || KeyKind::list(of, &length))?;
        let allowed = if length.start() == length.end() {
            format!("a list of {} {plural}", length.start())
        } else {
            format!("a list of {} to {} {plural}", length.start(), length.end())
        };
        let Value::List(items) = &node.value else {
            return self.wrong_type(key, node, &allowed);
        };
        if !length.contains(&items.len()) {
            return self.wrong_length(key, node, items.len(), &allowed);
        }
        let read: Vec<T> = items.iter().filter_map(&mut item).collect();
        (read.len() == items.len()).then_some(read)
    }

    pub fn names(&self, key: &'static str, length: RangeInclusive<usize>) -> Option<Vec<String>> {
        self.list(key, length, KeyKind::Name, |node| self.name_of(key, node))
    }

    pub fn section(&self, key: &'static str) -> Option<Section<'a>> {
        let node = self.get_a(key, || KeyKind::Table)?;
        match &node.value {
            Value::Table(table) => Some(Section::new(table, self.path(key), self.issues)),
            _ => self.wrong_type(key, node, "a table"),
        }
    }

    /// A table whose keys are all optional.
    pub(crate) fn section_or_empty(&self, key: &'static str) -> Section<'a> {
        self.section(key).unwrap_or_else(|| Section::new(&EMPTY, self.path(key), self.issues))
    }

    /// Lets `read` look at the table under `key` again, if there is one.
    pub fn within(&self, key: &str, read: impl FnOnce(&Section<'a>)) {
        if let Some(Node { value: Value::Table(table), .. }) = self.table.entries.get(key) {
            read(&Section::new(table, self.path(key), self.issues));
        }
    }

    /// Whether every key of `sizes` is written here, in nested tables too.
    pub(crate) fn holds_all(&self, sizes: &serde_json::Value) -> bool {
        holds_all(self.table, sizes)
    }

    /// Reports every key that nobody asked for; call it last.
    pub fn finish(&self) {
        let (known, foreign) = (self.known.borrow(), self.foreign.borrow());
        let own: Vec<&'static str> = known.iter().copied().filter(|key| !foreign.contains(key)).collect();
        for (key, node) in &self.table.entries {
            if !known.contains(&key.as_str()) {
                self.report(self.unknown(key, node, &own));
            }
        }
    }

    fn unknown(&self, key: &str, node: &Node, known: &[&'static str]) -> Problem {
        let what = if matches!(node.value, Value::Table(_)) { "table" } else { "key" };
        let hint = nearest(key, known.iter().copied()).map(|n| format!("did you mean `{n}`?"));
        Problem::new(self.path(key), format!("unknown {what}"), node.key).allowed(known.join(", ")).maybe_hint(hint)
    }

    pub(crate) fn wrong_type<T>(&self, key: &str, node: &Node, allowed: &str) -> Option<T> {
        let cause = format!("wrong type: this is {}", node.value.kind());
        self.report(Problem::new(self.path(key), cause, node.place).allowed(allowed));
        None
    }

    pub(crate) fn out_of_range<T>(&self, key: &str, node: &Node, allowed: &str) -> Option<T> {
        let cause = format!("{} is out of range", self.excerpt(node));
        self.report(Problem::new(self.path(key), cause, node.place).allowed(allowed));
        None
    }

    fn wrong_length<T>(&self, key: &str, node: &Node, length: usize, allowed: &str) -> Option<T> {
        let cause = format!("a list of {length} is too short or too long");
        self.report(Problem::new(self.path(key), cause, node.place).allowed(allowed));
        None
    }
}

fn holds_all(table: &Table, sizes: &serde_json::Value) -> bool {
    sizes.as_object().into_iter().flatten().all(|(key, value)| {
        table.entries.get(key).is_some_and(|node| match &node.value {
            Value::Table(inner) => holds_all(inner, value),
            _ => !value.is_object(),
        })
    })
}
