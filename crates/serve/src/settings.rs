//! Settings of recipes as rows: a dotted key and a value.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The leaves of a tree by their dotted keys.
pub(crate) fn flat(tree: Value) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    flatten("", tree, &mut leaves);
    leaves
}

fn flatten(prefix: &str, value: Value, leaves: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
                flatten(&key, value, leaves);
            }
        }
        leaf => _ = leaves.insert(prefix.into(), leaf),
    }
}

/// Keys in which some differ, with the value of each; null where one has none.
pub(crate) fn differing(settings: &[BTreeMap<String, Value>]) -> BTreeMap<String, Vec<Value>> {
    let keys: BTreeSet<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
    let values = |key: &String| settings.iter().map(|of| of.get(key).cloned().unwrap_or_default()).collect::<Vec<_>>();
    let rows = keys.into_iter().map(|key| (key.clone(), values(key)));
    rows.filter(|(_, values)| values.iter().any(|value| *value != values[0])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_settings_that_differ_are_shown_and_missing_ones_are_null() {
        let one = flat(json!({"train": {"lr": 0.1, "epochs": 2}, "name": "a"}));
        let two = flat(json!({"train": {"lr": 0.2, "epochs": 2}, "model": {"heads": 4}, "name": "a"}));
        let expected = BTreeMap::from([
            ("model.heads".to_string(), vec![json!(null), json!(4)]),
            ("train.lr".to_string(), vec![json!(0.1), json!(0.2)]),
        ]);
        assert_eq!(differing(&[one, two]), expected);
    }
}
