//! The keys of a config.json, read with the ranges of the recipe.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::keys::Keys;
use crate::reading::section::Range;
use plimsoll_base::names::Named;

/// One table of config.json, and what was wrong with it so far.
pub struct ConfigKeys<'a> {
    path: String,
    map: Map<String, Value>,
    problems: &'a RefCell<Vec<String>>,
}

/// Spellings of one activation. The approximations differ by less than rounding.
const SAME_ACTIVATION: [(&str, &str); 4] =
    [("gelu_pytorch_tanh", "gelu_new"), ("gelu_fast", "gelu_new"), ("gelu_python", "gelu"), ("swish", "silu")];

/// Keys for which a negative number means "not set".
const NEGATIVE_IS_UNSET: [&str; 2] = ["max_relative_positions", "position_buckets"];

impl<'a> ConfigKeys<'a> {
    pub fn new(map: &Map<String, Value>, problems: &'a RefCell<Vec<String>>) -> Self {
        Self { path: String::new(), map: map.clone(), problems }
    }

    /// What is there under `key` and is not null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    pub fn report(&self, key: &str, cause: impl std::fmt::Display) {
        self.problems.borrow_mut().push(format!("{}{key}: {cause}", self.path));
    }

    fn wrong<T>(&self, key: &str, value: &Value, allowed: impl std::fmt::Display) -> Option<T> {
        let text: String = value.to_string().chars().take(60).collect();
        self.report(key, format!("{text} is not {allowed}"));
        None
    }

    /// Refuses a key that is not one of the values which the family computes; absent stands for `default`.
    pub fn only(&self, key: &str, default: Value, supported: &[Value]) {
        let value = self.get(key).unwrap_or(&default);
        if !supported.contains(value) {
            let list: Vec<String> = supported.iter().map(Value::to_string).collect();
            self.report(key, format!("{value} is not supported, only {}", list.join(" or ")));
        }
    }
}

impl Keys for ConfigKeys<'_> {
    fn size(&self, key: &'static str, range: RangeInclusive<usize>) -> Option<usize> {
        let value = match self.get(key)? {
            // Several end tokens: the first is the one that is written.
            Value::Array(ids) if key.ends_with("_token_id") => ids.first()?,
            value => value,
        };
        if NEGATIVE_IS_UNSET.contains(&key) && value.as_i64().is_some_and(|i| i < 0) {
            return None;
        }
        let size = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| range.contains(n));
        size.or_else(|| self.wrong(key, value, format_args!("an integer from {} to {}", range.start(), range.end())))
    }

    fn number(&self, key: &'static str, range: Range) -> Option<f64> {
        let value = self.get(key)?;
        value.as_f64().filter(|&n| range.contains(n)).or_else(|| self.wrong(key, value, range))
    }

    fn flag(&self, key: &'static str) -> Option<bool> {
        let value = self.get(key)?;
        value.as_bool().or_else(|| self.wrong(key, value, "true or false"))
    }

    fn choice<T: Named>(&self, key: &'static str) -> Option<T> {
        let value = self.get(key)?;
        let text = value.as_str().unwrap_or_default();
        let name = SAME_ACTIVATION.iter().find(|(other, _)| *other == text).map_or(text, |(_, name)| name);
        let allowed = || T::names().collect::<Vec<_>>().join(", ");
        T::from_name(name).or_else(|| self.wrong(key, value, format_args!("one of {}", allowed())))
    }

    /// Older CLIP configs repeat a table as `…_dict`; what that one says counts.
    fn nested<R>(&self, key: &'static str, read: impl FnOnce(&Self) -> R) -> R {
        let mut map = Map::new();
        for name in [key.to_string(), format!("{key}_dict")] {
            match self.get(&name) {
                None => {}
                Some(Value::Object(table)) => map.extend(table.clone()),
                Some(other) => drop(self.wrong::<()>(&name, other, "a table")),
            }
        }
        read(&Self { path: format!("{}{key}.", self.path), map, problems: self.problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::HiddenAct;
    use serde_json::json;

    fn read<R>(json: Value, read: impl FnOnce(&ConfigKeys<'_>) -> R) -> (R, Vec<String>) {
        let problems = RefCell::default();
        let result = read(&ConfigKeys::new(json.as_object().unwrap(), &problems));
        (result, problems.into_inner())
    }

    #[test]
    fn null_is_absent_and_strangers_are_named_with_their_table() {
        let (size, problems) = read(json!({"text_config": {"a": -1, "b": null}}), |k| {
            k.nested("text_config", |k| (k.size("a", 1..=5), k.size("b", 1..=5)))
        });
        assert_eq!(size, (None, None));
        assert_eq!(problems, ["text_config.a: -1 is not an integer from 1 to 5"]);
    }

    #[test]
    fn other_spellings_are_understood() {
        let json = json!({"act": "gelu_pytorch_tanh", "eos_token_id": [7, 8], "position_buckets": -1,
            "t": {"x": 1, "y": 1}, "t_dict": {"x": 2}});
        let (read, problems) = read(json, |k| {
            let nested = k.nested("t", |k| (k.size("x", 0..=9), k.size("y", 0..=9)));
            (k.choice::<HiddenAct>("act"), k.size("eos_token_id", 0..=9), k.size("position_buckets", 1..=9), nested)
        });
        assert_eq!(read, (Some(HiddenAct::GeluNew), Some(7), None, (Some(2), Some(1))));
        assert!(problems.is_empty());
    }
}
