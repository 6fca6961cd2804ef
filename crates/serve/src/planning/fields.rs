//! The form in its own words: names, defaults and bounds of a training form, each mapped to keys of the recipe. What a
//! client sends under these names is held against the bounds here, so page and API cannot disagree.

use crate::problem::Problem;
use plimsoll::Recipe;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A number, a flag or a word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum FieldValue {
    Flag(bool),
    Number(f64),
    Word(String),
}

/// One field of the form.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Field {
    /// Its name in requests.
    pub name: &'static str,
    /// The recipe's key that it sets; which one depends on the model's family.
    pub keys: Vec<&'static str>,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What holds where nothing is said; null leaves it to the recipe or the planner.
    pub default: Value,
    /// The least that is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<f64>,
    /// The most that is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<f64>,
    pub description: &'static str,
}

/// Name, keys, type, default, bounds and what it means.
type Row = (&'static str, &'static [&'static str], &'static str, Option<u32>, Option<[f64; 2]>, &'static str);

const ROWS: [Row; 7] = [
    (
        "batch_size",
        &["train.effective_batch"],
        "integer",
        Some(128),
        Some([8.0, 512.0]),
        "Samples to an update: what learning sees. How many are in memory at a time is the planner's choice.",
    ),
    (
        "gradient_accumulation_steps",
        &["memory.micro_batch"],
        "integer",
        None,
        Some([1.0, 64.0]),
        "Micro-batches to an update; left out, the planner takes the fastest number that fits.",
    ),
    (
        "use_mixed_precision",
        &["memory.precision"],
        "boolean",
        None,
        None,
        "Half-precision arithmetic where the card has it (true: as the card does best, false: f32).",
    ),
    (
        "sequence_length",
        &["model.window", "data.max_length"],
        "integer",
        None,
        Some([2.0, 8192.0]),
        "Rows of a window, or tokens of a text, that the model sees at once.",
    ),
    (
        "attention_heads",
        &["model.heads", "model.num_attention_heads", "model.num_heads", "model.n_heads"],
        "integer",
        None,
        Some([1.0, 128.0]),
        "Heads of the attention; they divide the width.",
    ),
    ("epochs", &["train.epochs"], "integer", None, Some([1.0, 10000.0]), "Passes over the data."),
    (
        "learning_rate",
        &["train.optimizer.lr"],
        "number",
        None,
        Some([1e-8, 10.0]),
        "The size of an update; the schedule scales it.",
    ),
];

/// Every field there is.
pub(crate) fn fields() -> Vec<Field> {
    let field = |&(name, keys, kind, default, bounds, description): &Row| Field {
        name,
        keys: keys.to_vec(),
        kind,
        default: default.map_or(Value::Null, Value::from),
        minimum: bounds.map(|[least, _]| least),
        maximum: bounds.map(|[_, most]| most),
        description,
    };
    ROWS.iter().map(field).collect()
}

/// The settings that fields stand for.
pub(crate) fn settings(given: &BTreeMap<String, FieldValue>, recipe: &Recipe) -> Result<Vec<String>, Problem> {
    let known = fields();
    let mut set = Vec::new();
    for (name, value) in given {
        let field = known.iter().find(|field| field.name == name).ok_or_else(|| unknown(name, &known))?;
        field.check(value)?;
        set.push(setting(field, value, given, recipe)?);
    }
    Ok(set)
}

fn unknown(name: &str, known: &[Field]) -> Problem {
    let names: Vec<&str> = known.iter().map(|field| field.name).collect();
    let shown: String = name.chars().take(64).collect();
    Problem::bad(&shown, format!("{shown}: there is no such field")).hint(format!("fields: {}", names.join(", ")))
}

impl Field {
    fn check(&self, value: &FieldValue) -> Result<(), Problem> {
        let bad = |wanted: String| Err(Problem::bad(self.name, format!("{} must be {wanted}", self.name)));
        match (self.kind, value) {
            ("boolean", FieldValue::Flag(_)) => Ok(()),
            ("boolean", _) => bad("true or false".into()),
            (kind, FieldValue::Number(number)) => {
                let whole = kind == "number" || number.fract() == 0.0;
                let inside = self.minimum.is_none_or(|least| *number >= least)
                    && self.maximum.is_none_or(|most| *number <= most);
                if whole && inside { Ok(()) } else { bad(self.bounds()) }
            }
            _ => bad(self.bounds()),
        }
    }

    /// `an integer from 8 to 512`
    fn bounds(&self) -> String {
        let kind = if self.kind == "integer" { "an integer" } else { "a number" };
        match (self.minimum, self.maximum) {
            (Some(least), Some(most)) => format!("{kind} from {least} to {most}"),
            _ => kind.into(),
        }
    }
}

fn setting(
    field: &Field,
    value: &FieldValue,
    given: &BTreeMap<String, FieldValue>,
    recipe: &Recipe,
) -> Result<String, Problem> {
    match (field.name, value) {
        ("use_mixed_precision", FieldValue::Flag(mixed)) => {
            Ok(format!("memory.precision={}", if *mixed { "auto" } else { "f32" }))
        }
        ("gradient_accumulation_steps", FieldValue::Number(parts)) => {
            let batch = match given.get("batch_size") {
                Some(FieldValue::Number(batch)) => *batch,
                _ => recipe.train.effective_batch as f64,
            };
            Ok(format!("memory.micro_batch={}", (batch / parts).ceil()))
        }
        (_, FieldValue::Number(number)) => {
            let key = key_of(field, recipe)?;
            let shown = if field.kind == "integer" { format!("{number:.0}") } else { format!("{number:?}") };
            Ok(format!("{key}={shown}"))
        }
        _ => Err(Problem::bad(field.name, format!("{} must be {}", field.name, field.bounds()))),
    }
}

/// The first of a field's keys that this recipe has.
fn key_of(field: &Field, recipe: &Recipe) -> Result<&'static str, Problem> {
    let [.., last] = field.keys[..] else { return Err(Problem::bad(field.name, "it has no key")) };
    if field.keys.len() == 1 {
        return Ok(last);
    }
    let resolved = recipe.to_toml()?;
    let tree: toml::Table = toml::from_str(&resolved).map_err(|error| Problem::failed(error.to_string()))?;
    let has = |key: &&'static str| {
        let (table, name) = key.split_once('.').unwrap_or(("", key));
        tree.get(table).and_then(|table| table.get(name)).is_some()
    };
    field.keys.iter().copied().find(|key| has(key)).ok_or_else(|| {
        Problem::bad(field.name, format!("{}: this model has no such size", field.name))
            .hint("set the model's own key instead")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll::Draft;

    const QUICKSTART: &str = include_str!("../../../../recipes/quickstart.toml");

    fn set(name: &str, value: FieldValue) -> Result<Vec<String>, Problem> {
        let recipe = Draft::of_text(QUICKSTART, "quickstart.toml").with(&[]).unwrap();
        settings(&BTreeMap::from([(name.to_string(), value)]), &recipe)
    }

    #[test]
    fn what_is_out_of_bounds_names_the_field_and_the_bound() {
        for wrong in [7.0, 513.0, 64.5, -1.0, f64::INFINITY] {
            let problem = set("batch_size", FieldValue::Number(wrong)).unwrap_err();
            assert_eq!((problem.status, problem.field.as_deref()), (422, Some("batch_size")), "{wrong}");
            assert!(problem.error.contains("from 8 to 512"), "{}", problem.error);
        }
        assert!(set("batch_size", FieldValue::Word("many".into())).is_err());
        assert_eq!(set("bach_size", FieldValue::Number(8.0)).unwrap_err().field.as_deref(), Some("bach_size"));
    }

    #[test]
    fn every_field_sets_a_key_that_the_recipe_accepts() {
        for field in fields() {
            let value = match field.kind {
                "boolean" => FieldValue::Flag(true),
                _ if field.name == "attention_heads" => FieldValue::Number(2.0),
                _ => FieldValue::Number(field.minimum.unwrap().max(8.0).min(field.maximum.unwrap())),
            };
            let mut set = set(field.name, value).unwrap();
            // The quickstart's statistics are those of the whole batch: it is not split unless they may be.
            if set.iter().any(|set| set.starts_with("memory.micro_batch")) {
                set.push("model.batch_norm=micro".into());
            }
            Draft::of_text(QUICKSTART, "q.toml").and(set.clone()).with(&[]).unwrap_or_else(|e| panic!("{set:?}: {e}"));
        }
        assert_eq!(set("sequence_length", FieldValue::Number(40.0)).unwrap(), ["model.window=40"]);
        assert_eq!(set("gradient_accumulation_steps", FieldValue::Number(4.0)).unwrap(), ["memory.micro_batch=16"]);
    }

    #[test]
    fn batch_size_is_as_the_form_has_it() {
        let batch = fields().into_iter().find(|field| field.name == "batch_size").unwrap();
        assert_eq!((batch.default, batch.minimum, batch.maximum), (128.into(), Some(8.0), Some(512.0)));
    }
}
