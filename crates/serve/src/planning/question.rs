//! A recipe with edits, as a client sends it, and the checked draft that becomes of it.

use super::ahead::Hint;
use super::{Allowed, Field, fields};
use crate::folders::RunId;
use crate::problem::{Problem, argument};
use crate::settings::flat;
use plimsoll::{Draft, Recipe, Size, parse_size};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};

/// A recipe as TOML text, or the same as a JSON object.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum Written {
    Toml(String),
    Json(serde_json::Map<String, Value>),
}

impl TryFrom<Value> for Written {
    type Error = &'static str;

    fn try_from(sent: Value) -> Result<Written, &'static str> {
        match sent {
            Value::String(text) => Ok(Written::Toml(text)),
            Value::Object(object) => Ok(Written::Json(object)),
            _ => Err("a recipe is TOML text, or an object with the same keys"),
        }
    }
}

fn written_schema() -> Schema {
    let of = |kind: Type| ObjectBuilder::new().schema_type(kind);
    Schema::OneOf(OneOfBuilder::new().item(of(Type::String)).item(of(Type::Object)).build())
}

/// Every field there is; null for what is left empty.
fn fields_schema() -> Schema {
    let object = ObjectBuilder::new().schema_type(SchemaType::Array(vec![Type::Object, Type::Null]));
    let all = fields::fields();
    let object = all.iter().fold(object, |object, field| object.property(field.name, field_schema(field)));
    object.additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false))).into()
}

/// What is refused and what it means, as `GET /fields` has it. What holds by itself is added where the document is made.
fn field_schema(field: &Field) -> Schema {
    let kind = match field.kind {
        "boolean" => Type::Boolean,
        "integer" => Type::Integer,
        _ => Type::Number,
    };
    let schema = ObjectBuilder::new().schema_type(SchemaType::Array(vec![kind, Type::Null]));
    let schema = schema.description(Some(field.description));
    schema.minimum(field.minimum).maximum(field.maximum).into()
}

/// What is asked about: a recipe, edits on it, and a device.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// The recipe: TOML text, or an object with the same keys.
    #[schema(schema_with = written_schema)]
    pub recipe: Written,
    /// What a run of it is called; its number follows.
    #[serde(default)]
    pub name: Option<RunId>,
    /// Settings laid over the recipe, `key=value` as on the command line; later ones win.
    #[serde(default)]
    #[schema(max_items = 200)]
    pub set: Vec<String>,
    /// Settings by the names of the form (`GET /fields`).
    #[serde(default)]
    #[schema(schema_with = fields_schema)]
    pub fields: Option<BTreeMap<String, Value>>,
    /// auto, cpu, cuda, cuda:N or a card of the catalog.
    #[serde(default)]
    #[schema(max_length = 64)]
    pub device: Option<String>,
    /// The budget: 12GiB, 8000MB, 90%.
    #[serde(default)]
    #[schema(max_length = 64)]
    pub memory: Option<String>,
    /// Leaves out what takes many plans: the ladder of ways out.
    #[serde(default)]
    pub quick: bool,
    /// Settings that may be asked for next, each by itself over this recipe, the likeliest first: planned
    /// while nobody waits. With `quick` only.
    #[serde(default)]
    #[schema(max_items = 16)]
    pub ahead: Vec<String>,
}

const MOST_SETTINGS: usize = 200;
const MOST_AHEAD: usize = 16;
const LONGEST_RECIPE: usize = 64 << 10;
/// Of a device, a budget.
const LONGEST_WORD: usize = 64;
/// The system takes no argument of a child that is twice as long.
const LONGEST_SETTING: usize = 64 << 10;

/// A question that can be asked: everything in it was checked.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub draft: Draft,
    pub recipe: Recipe,
    /// Every setting of it, defaults filled in, by its dotted key.
    pub settings: BTreeMap<String, Value>,
    /// As given, for the child that trains it.
    pub text: String,
    pub set: Vec<String>,
    pub device: String,
    pub quick: bool,
    ahead: Vec<String>,
}

impl Checked {
    /// What may be asked next, the likeliest last: the latest hint is followed first.
    pub(super) fn hints(&self) -> impl Iterator<Item = Hint> {
        let about = (self.quick && !self.ahead.is_empty()).then(|| Arc::new(self.clone()));
        about.into_iter().flat_map(|about| {
            about.ahead.clone().into_iter().rev().map(move |setting| Hint { about: about.clone(), setting })
        })
    }

    /// The same question with one more setting.
    pub(super) fn under(&self, setting: String, allowed: &Allowed) -> Result<Checked, Problem> {
        let draft = self.draft.clone().and([setting]);
        allowed.check(&draft)?;
        let recipe = draft.with(&[])?;
        Ok(Checked { settings: settings(&recipe)?, recipe, draft, ahead: Vec::new(), ..self.clone() })
    }

    /// Whether the recipe leaves it to the machine how much to take.
    pub(crate) fn leaves_budget_open(&self) -> bool {
        let written = self.draft.strings().unwrap_or_default();
        !written.iter().any(|(key, value)| key == "memory.budget" && value != "auto")
    }
}

impl Question {
    /// What is wrong with it is told without the places where this server keeps files.
    pub(crate) fn check(&self, allowed: &Allowed) -> Result<Checked, Problem> {
        self.checked(allowed).map_err(|problem| problem.reworded(|words| allowed.without_folders(words)))
    }

    fn checked(&self, allowed: &Allowed) -> Result<Checked, Problem> {
        self.check_words()?;
        let text = self.recipe.text()?;
        let name = self.stem().replace('"', "'");
        let set = self.settings(&text, allowed)?;
        let draft = Draft::of_text(&text, &file_name(allowed, &name)).and(set.clone());
        allowed.check(&draft)?;
        let recipe = draft.with(&[])?;
        let device = self.device.clone().unwrap_or_else(|| "auto".into());
        let (quick, ahead) = (self.quick, self.ahead.clone());
        Ok(Checked { draft, settings: settings(&recipe)?, recipe, text, set, device, quick, ahead })
    }

    /// What becomes an argument of a child can be one.
    fn check_words(&self) -> Result<(), Problem> {
        for (field, word) in [("device", &self.device), ("memory", &self.memory)] {
            word.iter().try_for_each(|word| argument(field, word, LONGEST_WORD))?;
        }
        for (field, settings, most) in [("set", &self.set, MOST_SETTINGS), ("ahead", &self.ahead, MOST_AHEAD)] {
            if settings.len() > most {
                return Err(Problem::bad(field, format!("{field}: at most {most} settings")));
            }
            settings.iter().try_for_each(|setting| argument(field, setting, LONGEST_SETTING))?;
        }
        Ok(())
    }

    /// What a file with it is called.
    pub(crate) fn stem(&self) -> &str {
        self.name.as_ref().map_or("recipe", RunId::as_str)
    }

    /// Settings, then fields, then the budget: as the command line has them.
    fn settings(&self, text: &str, allowed: &Allowed) -> Result<Vec<String>, Problem> {
        let mut set = self.set.clone();
        if let Some(given) = &self.fields {
            if is_unsaid("train.effective_batch", text, &set) {
                set.extend(fields::usual_batch(given));
            }
            // What the fields say is held against what the rest comes to; a batch that only they say is not there yet.
            let batch = is_unsaid("train.effective_batch", text, &set).then(|| "train.effective_batch=8".to_string());
            let draft = Draft::of_text(text, &file_name(allowed, "recipe")).and(set.clone());
            allowed.check(&draft)?;
            set.extend(fields::settings(given, &draft.with(batch.as_slice())?)?);
        }
        if let Some(memory) = &self.memory {
            set.push(format!("memory.budget={}", budget(memory)?));
        }
        Ok(set)
    }
}

fn settings(recipe: &Recipe) -> Result<BTreeMap<String, Value>, Problem> {
    let table: toml::Table = toml::from_str(&recipe.to_toml()?).map_err(|error| Problem::failed(error.to_string()))?;
    Ok(flat(serde_json::to_value(table).unwrap_or_default()))
}

/// Whether neither the recipe nor a setting has this key.
fn is_unsaid(key: &str, text: &str, set: &[String]) -> bool {
    let written =
        toml::from_str::<toml::Table>(text).map(|table| flat(serde_json::to_value(table).unwrap_or_default()));
    let is_set = |set: &String| set.split_once('=').is_some_and(|(name, _)| name.trim() == key);
    written.is_ok_and(|written| !written.contains_key(key)) && !set.iter().any(is_set)
}

/// Relative paths of the recipe start at the data folder.
fn file_name(allowed: &Allowed, name: &str) -> String {
    allowed.data().join(format!("{name}.toml")).display().to_string()
}

fn budget(text: &str) -> Result<&str, Problem> {
    match parse_size(text) {
        _ if text == "auto" => Ok(text),
        Ok(Size::Bytes(_) | Size::Percent(_)) => Ok(text),
        Err(error) => Err(Problem::bad("memory", format!("memory: {error}")).hint("for example 12GiB, 8000MB or 90%")),
    }
}

/// The dotted key of a value that TOML has no word for.
fn first_null(value: &Value) -> Option<String> {
    flat(value.clone()).into_iter().find(|(_, leaf)| leaf.is_null()).map(|(key, _)| key)
}

impl Written {
    fn text(&self) -> Result<String, Problem> {
        let text = match self {
            Written::Toml(text) => text.clone(),
            Written::Json(object) => toml::to_string(object).map_err(|error| {
                let cause = first_null(&Value::Object(object.clone()))
                    .map_or_else(|| error.to_string(), |key| format!("`{key}` is null"));
                Problem::bad("recipe", format!("recipe: {cause}"))
                    .hint("a recipe has strings, numbers, lists and tables; leave out what it does not say")
            })?,
        };
        match text.len() <= LONGEST_RECIPE {
            true => Ok(text),
            false => Err(Problem::bad("recipe", "recipe: this is too long for a recipe").hint("is it another file?")),
        }
    }
}
