//! Writing a config.json: the keys of a model over those of the checkpoint it came from.

use serde::Serialize;
use serde_json::{Map, Value};

/// The sizes as written in recipes; f32 in its shortest form.
pub(crate) fn keys_of(sizes: &impl Serialize) -> Value {
    let text = serde_json::to_string(sizes).unwrap_or_default();
    let mut keys: Value = serde_json::from_str(&text).unwrap_or_default();
    if let Some(map) = keys.as_object_mut() {
        for ours in ["preset", "checkpoint", "family"] {
            map.remove(ours);
        }
    }
    keys
}

/// Tables are merged, everything else is replaced.
pub fn lay_over(config: &mut Map<String, Value>, keys: Value) {
    let Value::Object(keys) = keys else { return };
    for (key, value) in keys {
        match (config.get_mut(&key), value) {
            (Some(Value::Object(known)), value @ Value::Object(_)) => lay_over(known, value),
            (_, value) => drop(config.insert(key, value)),
        }
    }
}

/// Keys that are written only where the source does not have them.
pub(crate) fn fill_in(config: &mut Map<String, Value>, keys: Value) {
    let Value::Object(keys) = keys else { return };
    for (key, value) in keys {
        config.entry(key).or_insert(value);
    }
}

pub(crate) fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

/// Names of labels: given ones, else those of the source if they are as many, else numbers.
pub(crate) fn write_labels(config: &mut Map<String, Value>, count: usize, labels: &[String]) {
    let known = config.get("id2label").and_then(Value::as_object).is_some_and(|map| map.len() == count);
    if known && labels.is_empty() {
        return;
    }
    let name = |i: usize| labels.get(i).cloned().unwrap_or_else(|| format!("LABEL_{i}"));
    let names: Map<String, Value> = (0..count).map(|i| (i.to_string(), name(i).into())).collect();
    let numbers: Map<String, Value> = (0..count).map(|i| (name(i), i.into())).collect();
    config.insert("id2label".into(), names.into());
    config.insert("label2id".into(), numbers.into());
}
