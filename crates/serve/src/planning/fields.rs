//! The form in its own words: names, defaults and bounds of a training form, each mapped to keys of the recipe. What a
//! client sends under these names is held against the bounds here, so page and API cannot disagree.

use crate::problem::Problem;
use plimsoll::{Reach, Recipe};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

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
type FieldRow = (&'static str, &'static [&'static str], &'static str, Option<u32>, Option<[f64; 2]>, &'static str);

const ROWS: [FieldRow; 7] = [
    (
        "batch_size",
        &["train.effective_batch"],
        "integer",
        Some(128),
        Some([8.0, 512.0]),
        "Samples to an update: what learning sees. How many are in memory at a time is the planner's choice. The default \
         holds where the recipe says none.",
    ),
    (
        "gradient_accumulation_steps",
        &["train.effective_batch", "memory.micro_batch"],
        "integer",
        None,
        Some([1.0, 64.0]),
        "Beside batch_size their product is what an update learns from, as in other tools, and the planner cuts it as \
         memory allows. By itself: into how many micro-batches the recipe's batch is cut.",
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
        &["model.heads", "model.num_attention_heads", "model.num_heads", "model.n_heads", "model.cross_heads"],
        "integer",
        None,
        Some([1.0, 128.0]),
        "Heads of the attention; they divide the width. Of mu-sota: those across all slices.",
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
    let field = |&(name, keys, kind, default, bounds, description): &FieldRow| Field {
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

/// How far a field can go with one model, where that is less than it takes at all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Bounds {
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum: Option<usize>,
    /// The only values there are, in rising order.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<usize>>,
}

/// The fields that the recipe's model bounds: heads divide its width, and texts are no longer than it reads.
pub(super) fn bounds(recipe: &Recipe) -> BTreeMap<&'static str, Bounds> {
    let Reach { heads, longest } = Reach::of(recipe);
    let heads = heads.map(|heads| ("attention_heads", Bounds { maximum: heads.last().copied(), values: Some(heads) }));
    let length = longest.map(|tokens| ("sequence_length", Bounds { maximum: Some(tokens), values: None }));
    heads.into_iter().chain(length).collect()
}

/// A batch to begin with, where a form is filled in for a recipe that says none.
pub(crate) fn usual_batch(given: &BTreeMap<String, Value>) -> Option<String> {
    let field = fields().into_iter().find(|field| field.name == BATCH && !field.default.is_null())?;
    is_silent(given.get(BATCH)).then(|| format!("{}={}", field.keys[0], field.default))
}

const BATCH: &str = "batch_size";
const ACCUMULATION: &str = "gradient_accumulation_steps";

/// A form sends null for what is left empty.
fn is_silent(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

/// The settings that fields stand for.
pub(crate) fn settings(given: &BTreeMap<String, Value>, recipe: &Recipe) -> Result<Vec<String>, Problem> {
    let known = fields();
    let mut set = Vec::new();
    for (name, value) in given {
        let field = known.iter().find(|field| field.name == name).ok_or_else(|| unknown(name, &known))?;
        if !value.is_null() {
            field.check(value)?;
            set.extend(setting(field, value, given, recipe)?);
        }
    }
    Ok(set)
}

fn unknown(name: &str, known: &[Field]) -> Problem {
    let names: Vec<&str> = known.iter().map(|field| field.name).collect();
    let shown: String = name.chars().take(64).collect();
    Problem::bad(&shown, format!("{shown}: there is no such field")).hint(format!("fields: {}", names.join(", ")))
}

impl Field {
    fn check(&self, value: &Value) -> Result<(), Problem> {
        let is_sound = match self.kind {
            "boolean" => value.is_boolean(),
            kind => {
                value.as_f64().is_some_and(|number| self.takes(number) && (kind == "number" || number.fract() == 0.0))
            }
        };
        let wanted = || format!("{} must be {}, not {}", self.name, self.bounds(), shortened(value));
        if is_sound { Ok(()) } else { Err(Problem::bad(self.name, wanted())) }
    }

    fn takes(&self, number: f64) -> bool {
        self.minimum.is_none_or(|least| number >= least) && self.maximum.is_none_or(|most| number <= most)
    }

    /// `an integer from 8 to 512`
    fn bounds(&self) -> String {
        let kind = match self.kind {
            "boolean" => return "true or false".into(),
            "integer" => "an integer",
            _ => "a number",
        };
        match (self.minimum, self.maximum) {
            (Some(least), Some(most)) => format!("{kind} from {least} to {most}"),
            _ => kind.into(),
        }
    }
}

/// What was sent, as far as a sentence has room for it.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    let cut: String = text.chars().take(40).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}

/// None where another field says it, too.
fn setting(
    field: &Field,
    value: &Value,
    given: &BTreeMap<String, Value>,
    recipe: &Recipe,
) -> Result<Option<String>, Problem> {
    let number = value.as_f64().unwrap_or(0.0);
    let parts = given.get(ACCUMULATION).and_then(Value::as_f64).unwrap_or(1.0);
    Ok(match field.name {
        "use_mixed_precision" => {
            let precision = if value.as_bool() == Some(true) { "auto" } else { "f32" };
            Some(format!("memory.precision={precision}"))
        }
        BATCH => Some(format!("{}={:.0}", field.keys[0], number * parts)),
        ACCUMULATION if !is_silent(given.get(BATCH)) => None,
        ACCUMULATION => {
            let whole = recipe.train.effective_batch as f64;
            Some(format!("memory.micro_batch={:.0}", (whole / number).ceil()))
        }
        _ if field.kind == "integer" => Some(format!("{}={number:.0}", key_of(field, recipe)?)),
        _ => Some(format!("{}={number:?}", key_of(field, recipe)?)),
    })
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
    use serde_json::json;

    const QUICKSTART: &str = include_str!("../../../../recipes/quickstart.toml");

    const SLICES: &str = include_str!("../../../../recipes/mu-sota-small.toml");

    fn set(given: Value) -> Result<Vec<String>, Problem> {
        set_of(QUICKSTART, given)
    }

    fn set_of(text: &str, given: Value) -> Result<Vec<String>, Problem> {
        let recipe = Draft::of_text(text, "quickstart.toml").with(&[]).unwrap();
        settings(&serde_json::from_value(given).unwrap(), &recipe)
    }

    #[test]
    fn what_is_out_of_bounds_names_the_field_and_the_bound() {
        for wrong in [json!(7), json!(513), json!(64.5), json!(-1), json!("many"), json!(true), json!([]), json!({})] {
            let problem = set(json!({"batch_size": wrong})).unwrap_err();
            assert_eq!((problem.status, problem.field.as_deref()), (422, Some("batch_size")), "{wrong}");
            assert!(problem.error.contains("from 8 to 512"), "{}", problem.error);
        }
        let problem = set(json!({"use_mixed_precision": 1})).unwrap_err();
        assert_eq!(problem.error, "use_mixed_precision must be true or false, not 1");
        assert_eq!(set(json!({"bach_size": 8})).unwrap_err().field.as_deref(), Some("bach_size"));
    }

    #[test]
    fn heads_divide_the_width_and_texts_end_where_the_model_does() {
        let of = |text: &str, set: &[&str]| {
            let set = set.iter().map(|set| set.to_string());
            bounds(&Draft::of_text(text, "r.toml").and(set).with(&[]).unwrap())
        };
        let heads = |bounds: &BTreeMap<_, Bounds>| bounds["attention_heads"].values.clone().unwrap();
        let series = of(QUICKSTART, &["model.hidden=18", "model.heads=4"]);
        assert_eq!(heads(&series), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert!(!series.contains_key("sequence_length"));
        let slices = of(SLICES, &["model.blocks=3", "model.block_width=4", "model.cross_heads=2"]);
        assert_eq!(heads(&slices), [1, 2, 3, 4, 6, 12]);
        // CLIP's text tower reads 77 tokens, and its two towers have a width each.
        let clip = of(include_str!("../../../../recipes/clip.toml"), &[]);
        assert_eq!(clip["sequence_length"].maximum, Some(77));
        assert!(!clip.contains_key("attention_heads"));
        for number in 1..=36 {
            let set = ["model.hidden=18".into(), format!("model.heads={number}")];
            let is_read = Draft::of_text(QUICKSTART, "r.toml").and(set).with(&[]).is_ok();
            assert_eq!(is_read, heads(&series).contains(&number), "{number}");
        }
    }

    #[test]
    fn a_field_that_is_left_empty_says_nothing() {
        let empty: serde_json::Map<String, Value> = fields().iter().map(|f| (f.name.into(), Value::Null)).collect();
        assert_eq!(set(empty.into()).unwrap(), [""; 0]);
        assert_eq!(set(json!({"bach_size": null})).unwrap_err().field.as_deref(), Some("bach_size"));
    }

    #[test]
    fn every_field_sets_a_key_that_the_recipe_accepts() {
        for field in fields() {
            let value = match field.kind {
                "boolean" => json!(true),
                _ if field.name == "attention_heads" => json!(2),
                _ => json!(field.minimum.unwrap().max(8.0).min(field.maximum.unwrap())),
            };
            let mut set = set(json!({field.name: value})).unwrap();
            // The quickstart's statistics are those of the whole batch: it is not split unless they may be.
            if set.iter().any(|set| set.starts_with("memory.micro_batch")) {
                set.push("model.batch_norm=micro".into());
            }
            Draft::of_text(QUICKSTART, "q.toml").and(set.clone()).with(&[]).unwrap_or_else(|e| panic!("{set:?}: {e}"));
        }
        assert_eq!(set(json!({"sequence_length": 40})).unwrap(), ["model.window=40"]);
        assert_eq!(set_of(SLICES, json!({"attention_heads": 2})).unwrap(), ["model.cross_heads=2"]);
    }

    #[test]
    fn accumulation_beside_a_batch_is_their_product_and_alone_cuts_the_recipes() {
        assert_eq!(set(json!({"gradient_accumulation_steps": 4})).unwrap(), ["memory.micro_batch=16"]);
        let both = json!({"batch_size": 128, "gradient_accumulation_steps": 2});
        assert_eq!(set(both).unwrap(), ["train.effective_batch=256"]);
        let empty = json!({"batch_size": null, "gradient_accumulation_steps": 2});
        assert_eq!(set(empty).unwrap(), ["memory.micro_batch=32"]);
    }

    #[test]
    fn batch_size_is_as_the_form_has_it() {
        let batch = fields().into_iter().find(|field| field.name == BATCH).unwrap();
        assert_eq!((batch.default, batch.minimum, batch.maximum), (128.into(), Some(8.0), Some(512.0)));
        assert_eq!(usual_batch(&BTreeMap::new()).unwrap(), "train.effective_batch=128");
        assert_eq!(usual_batch(&BTreeMap::from([("batch_size".into(), json!(8))])), None);
    }
}
