//! `--set key=value`: lays values from the command line over the tree of the file.

use std::collections::BTreeMap;

use super::error::{Problem, Sources};
use super::tree::{Node, Place, SyntaxError, Table, Value, parse_value};

/// No key of a recipe has half as many parts. Every part is a table inside the one before, and whoever walks such a tree,
/// were it only to drop it, goes as deep: the parser limits what is written in the file, this what is not.
const MOST_PARTS: usize = 16;

/// Applies source number `source`, whose text is `key=value`; the last of several for one key wins.
pub(crate) fn apply(root: &mut Table, sources: &Sources, source: usize) -> Result<(), Problem> {
    let text = sources.text(source);
    let whole = Place { source, start: 0, end: text.len() };
    let Some(equals) = text.find('=') else {
        return Err(Problem::new("", "a setting needs a key, `=` and a value", whole)
            .hint("for example `--set train.effective_batch=32`"));
    };
    let keys = split_keys(&text[..equals], source)?;
    let value = value_of(&text[equals + 1..], source, equals + 1)?;
    insert(root, &keys, value)
}

/// The parts of a dotted key, with their places.
fn split_keys(text: &str, source: usize) -> Result<Vec<(&str, Place)>, Problem> {
    let count = text.split('.').count();
    if count > MOST_PARTS {
        let place = Place { source, start: 0, end: text.len() };
        return Err(Problem::new("", format!("the key has {count} parts; at most {MOST_PARTS} are allowed"), place)
            .hint("keys are joined by dots, as in `--set train.optimizer.lr=1e-4`"));
    }
    let mut start = 0;
    let mut keys = Vec::new();
    for part in text.split('.') {
        let place = Place { source, start, end: start + part.len() };
        start = place.end + 1;
        let key = part.trim();
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if key.is_empty() || !key.chars().all(bare) {
            let cause =
                if key.is_empty() { "a part of the key is empty".into() } else { format!("`{key}` is not a key") };
            return Err(
                Problem::new("", cause, place).hint("keys are joined by dots, as in `--set train.optimizer.lr=1e-4`")
            );
        }
        keys.push((key, place));
    }
    Ok(keys)
}

/// A TOML value, or else the text itself, so that `--set memory.budget=12GiB` needs no quotes.
fn value_of(text: &str, source: usize, offset: usize) -> Result<Node, Problem> {
    let leading = text.len() - text.trim_start().len();
    let (text, offset) = (text.trim(), offset + leading);
    let place = Place { source, start: offset, end: offset + text.len() };
    if text.is_empty() {
        return Err(
            Problem::new("", "the value is missing", place).hint("write `key=value`; an empty string is `\"\"`")
        );
    }
    match parse_value(text, source, offset) {
        Ok(node) => Ok(node),
        // What opens a string, list or table was meant as TOML: its error says more than a strange string would.
        Err(SyntaxError { cause, place }) if text.starts_with(['"', '\'', '[', '{']) => {
            Err(Problem::new("", format!("not a TOML value: {cause}"), place))
        }
        Err(_) => Ok(Node { key: place, place, value: Value::Text(text.into()) }),
    }
}

fn insert(root: &mut Table, keys: &[(&str, Place)], mut value: Node) -> Result<(), Problem> {
    let Some(((last, last_place), parents)) = keys.split_last() else { return Ok(()) };
    let mut table = root;
    for (i, (key, place)) in parents.iter().enumerate() {
        let node = table.entries.entry((*key).to_string()).or_insert_with(|| Node {
            key: *place,
            place: *place,
            value: Value::Table(Table { place: *place, entries: BTreeMap::new() }),
        });
        let kind = node.value.kind();
        let Value::Table(inner) = &mut node.value else {
            let path = keys[..=i].iter().map(|(k, _)| *k).collect::<Vec<_>>().join(".");
            let cause = format!("this is {kind}, not a table: nothing can be set inside it");
            return Err(Problem::new(path, cause, *place));
        };
        table = inner;
    }
    value.key = *last_place;
    table.entries.insert((*last).to_string(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(set: &str) -> Result<Table, String> {
        let sources = Sources::new("recipe.toml", "", &[set.to_string()]);
        let mut root = Table { place: Place { source: 0, start: 0, end: 0 }, entries: BTreeMap::new() };
        let said = apply(&mut root, &sources, 1).map_err(|problem| format!("{problem:?}"));
        said.map(|()| root)
    }

    #[test]
    fn a_key_of_any_number_of_parts_is_no_deeper_than_a_stack() {
        for parts in [MOST_PARTS + 1, 8_001, 200_000] {
            let refusal = applied(&format!("{}b=1", "a.".repeat(parts - 1))).unwrap_err();
            assert!(refusal.contains(&format!("the key has {parts} parts; at most {MOST_PARTS}")), "{refusal}");
        }
        assert!(applied(&format!("{}b=1", "a.".repeat(MOST_PARTS - 1))).is_ok());
        // What stands behind `=` the parser limits.
        assert!(applied(&format!("a={{{}b=1}}", "a.".repeat(200_000))).unwrap_err().contains("recursion"));
        assert!(applied(&format!("a={}", "[".repeat(200_000))).is_err());
    }
}
