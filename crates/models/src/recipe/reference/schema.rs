//! The recipe as JSON Schema, for completion and checks in editors. It accepts every recipe that the reader accepts;
//! what only several keys together tell is left to the reader.

use serde_json::{Map, Value, json};

use super::Key;
use crate::families::FamilyName;
use plimsoll_base::names::Named;

/// Draft 2020-12.
pub fn schema(keys: &[Key]) -> Value {
    let mut root = Map::new();
    for key in keys {
        insert(&mut root, &key.key.split('.').collect::<Vec<_>>(), property(key));
    }
    for table in ["model", "data", "train"] {
        require(&mut root, keys, table);
    }
    if let Some(model) = root.get_mut("model").and_then(Value::as_object_mut) {
        model.insert("allOf".into(), FamilyName::names().map(|family| only_keys_of(family, keys)).collect());
    }
    if let Some(search) = root.get_mut("search").and_then(Value::as_object_mut) {
        // Parameters stand under the keys that they set.
        search.insert("additionalProperties".into(), json!({"type": ["array", "object"]}));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "plimsoll recipe",
        "description": "What to train, on what, how, and inside how much memory.",
        "type": "object",
        "properties": root,
        "required": ["model", "data", "train"],
        "additionalProperties": false,
    })
}

/// What editors show and check for one key.
fn property(key: &Key) -> Value {
    let mut kinds: Vec<Value> = key.kinds().into_iter().map(|kind| kind.schema()).collect();
    let mut property = if kinds.len() == 1 { kinds.remove(0) } else { json!({"anyOf": kinds}) };
    if let Some(map) = property.as_object_mut() {
        map.insert("description".into(), description(key).into());
        if let Some(default) = single_default(key) {
            map.insert("default".into(), default);
        }
    }
    property
}

fn description(key: &Key) -> String {
    let scope = key.scope();
    let scope = if scope.is_empty() { String::new() } else { format!(" Of {scope}.") };
    format!("{}{scope} Default: {}.", key.about, key.default_words())
}

/// The default, where all uses share one.
fn single_default(key: &Key) -> Option<Value> {
    let first = key.uses.first()?.default.clone()?;
    key.uses.iter().all(|used| used.default.as_ref() == Some(&first)).then_some(first)
}

/// Puts a property at its path; tables on the way are made.
fn insert(properties: &mut Map<String, Value>, path: &[&str], property: Value) {
    let [first, rest @ ..] = path else { return };
    if rest.is_empty() {
        properties.insert((*first).into(), property);
        return;
    }
    let empty = || json!({"type": "object", "properties": {}, "additionalProperties": false});
    let table = properties.entry(*first).or_insert_with(empty);
    if let Some(inner) = table["properties"].as_object_mut() {
        insert(inner, rest, property);
    }
}

/// The keys of a table without which a recipe is refused.
fn require(root: &mut Map<String, Value>, keys: &[Key], table: &str) {
    let required: Vec<&str> =
        keys.iter().filter(|key| key.required).filter_map(|key| inside(&key.key, table)).collect();
    if let Some(map) = root.get_mut(table).and_then(Value::as_object_mut).filter(|_| !required.is_empty()) {
        map.insert("required".into(), json!(required));
    }
}

/// The name of a key that stands directly in a table.
fn inside<'a>(path: &'a str, table: &str) -> Option<&'a str> {
    path.strip_prefix(table)?.strip_prefix('.').filter(|rest| !rest.contains('.'))
}

/// Under a family's name only its own keys are allowed.
fn only_keys_of(family: &str, keys: &[Key]) -> Value {
    let knows = |key: &&Key| key.uses.iter().any(|used| used.families.contains(&family));
    let mut names: Vec<&str> =
        keys.iter().filter(knows).filter_map(|key| key.key.strip_prefix("model.")?.split('.').next()).collect();
    names.dedup();
    json!({
        "if": {"properties": {"family": {"const": family}}, "required": ["family"]},
        "then": {"propertyNames": {"enum": names}},
    })
}
