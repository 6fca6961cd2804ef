//! Where the sizes and the first weights of a Hugging Face model come from: a preset's name, a checkpoint's folder, or
//! the recipe alone.

#![deny(missing_docs)]

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::{FamilyName, Model, presets};
use crate::hf::{Checkpoint, Config, HfError};
use crate::reading::config::ConfigKeys;
use crate::reading::error::Problem;
use crate::reading::keys::Keys;
use crate::reading::kind::KeyKind;
use crate::reading::section::Section;
use plimsoll_base::names::{Named, nearest};

/// A preset gives sizes, a checkpoint sizes and weights; with neither, sizes are spelled out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Origin {
    /// The name of a known model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// A folder with config.json and model.safetensors, as written in the recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<PathBuf>,
}

/// Sizes in the keys of config.json.
pub(super) trait HubSizes: Clone + Serialize {
    /// What a recipe may say beside a checkpoint, in whichever table: nothing that its tensors depend on.
    const FREE: &'static [&'static str];

    fn family(&self) -> FamilyName;

    fn origin_mut(&mut self) -> &mut Origin;

    /// The sizes of a preset of this family.
    fn preset(&self, name: &str) -> Option<Self>;

    /// The sizes in a config.json; `checkpoint` is there where the folder has weights.
    fn config(&self, keys: &ConfigKeys<'_>, checkpoint: Option<&Checkpoint>) -> Result<Self, HfError>;

    /// These sizes with every key laid over them that is written.
    fn overlay(self, keys: &impl Keys) -> Self;
}

/// Reads the sizes of a family whose base is `default`; paths start at `folder`.
pub(super) fn read<S: HubSizes>(default: S, section: &Section<'_>, folder: &Path) -> S {
    section.declare("preset", || KeyKind::any([KeyKind::words(presets::of_family(default.family())), KeyKind::Name]));
    let origin = Origin { preset: section.name("preset"), checkpoint: section.file("checkpoint") };
    if origin.preset.is_some() && origin.checkpoint.is_some() {
        let hint = "remove `preset`: the checkpoint's config.json has the sizes";
        section.refuse("preset", "`preset` and `checkpoint` exclude each other", hint);
    }
    let from_preset = origin.preset.as_deref().and_then(|name| preset(&default, name, section));
    let from_config = origin.checkpoint.as_deref().and_then(|path| {
        let dir = crate::reading::resolve_in(folder, path);
        checkpoint(&default, &dir, section)
    });
    let mut base = from_config.clone().or(from_preset).unwrap_or(default);
    *base.origin_mut() = origin;
    let sizes = base.overlay(section);
    if let Some(stored) = from_config {
        refuse_contradictions(section, S::FREE, &as_json(&stored), &as_json(&sizes));
    }
    sizes
}

fn preset<S: HubSizes>(default: &S, name: &str, section: &Section<'_>) -> Option<S> {
    let found = default.preset(name);
    if found.is_none() {
        let family = default.family();
        let known = presets::of_family(family).collect::<Vec<_>>().join(", ");
        let problem = |cause: String| Problem::new(section.path("preset"), cause, section.place("preset"));
        section.report(match presets::family_of(name) {
            Some(other) => problem(format!("this preset is of family {other}, not {family}"))
                .hint(format!("set family = \"{other}\"")),
            None => problem("unknown preset".into()).allowed(known).maybe_hint(similar(name)),
        });
    }
    found
}

/// Names that people know and that no family here goes by.
fn is_decoder_only(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "gpt", "llama", "mistral", "mixtral", "qwen", "phi-", "gemma", "falcon", "opt-", "bloom", "pythia", "deepseek",
        "olmo", "smollm",
    ];
    let name = presets::short(name).to_ascii_lowercase();
    NAMES.iter().any(|known| name.starts_with(known) || name.starts_with(&format!("distil{known}")))
}

/// The nearest preset of any family.
fn similar(name: &str) -> Option<String> {
    if is_decoder_only(name) {
        return Some("decoder-only models are not supported: mu-sota is the family of language models here".into());
    }
    let all = FamilyName::ALL.iter().flat_map(|&family| presets::of_family(family));
    let near = nearest(presets::short(name), all)?;
    let family = presets::family_of(near)?;
    Some(format!("did you mean \"{near}\" (family {family})?"))
}

/// The sizes in a folder's config.json. `None` after a problem was reported, or where the folder is gone and the recipe
/// has every size itself, as a stored one does.
fn checkpoint<S: HubSizes>(default: &S, dir: &Path, section: &Section<'_>) -> Option<S> {
    match config_sizes(default, dir) {
        Ok(sizes) => Some(sizes),
        Err(HfError::NoConfig { .. }) if section.holds_all(&as_json(default)) => None,
        Err(error) => {
            refuse(section, &error);
            None
        }
    }
}

fn config_sizes<S: HubSizes>(default: &S, dir: &Path) -> Result<S, HfError> {
    let config = Config::open(dir)?;
    check_family(default.family(), &config)?;
    refuse_quantized(&config)?;
    let weights = match Checkpoint::open(dir) {
        Ok(checkpoint) => Some(checkpoint),
        // A plan needs only the sizes.
        Err(HfError::NoWeights { .. } | HfError::Torch { .. }) => None,
        Err(error) => return Err(error),
    };
    let problems = RefCell::default();
    let sizes = default.config(&ConfigKeys::new(config.keys(), &problems), weights.as_ref())?;
    match problems.into_inner() {
        causes if causes.is_empty() => Ok(sizes),
        causes => Err(config.refused(causes.join("; "))),
    }
}

/// `model_type` in config.json, by family.
fn model_types() -> impl Iterator<Item = (&'static str, FamilyName)> {
    let model_type = |name: FamilyName| Some((Model::usual(name).family().hugging_face()?.model_type, name));
    FamilyName::ALL.iter().filter_map(move |&name| model_type(name))
}

/// The family that a config.json is of.
pub fn family_in(config: &Config) -> Result<FamilyName, HfError> {
    let written = config.model_type()?;
    let found = model_types().find(|(name, _)| *name == written).map(|(_, family)| family);
    found.ok_or_else(|| {
        let supported: Vec<&str> = model_types().map(|(name, _)| name).collect();
        let written: String = written.chars().take(60).collect();
        config.refused(format!("model_type {written:?} is not supported, only {}", supported.join(", ")))
    })
}

/// Packed weights are other numbers than they look like.
fn refuse_quantized(config: &Config) -> Result<(), HfError> {
    match config.keys().get("quantization_config").filter(|value| !value.is_null()) {
        None => Ok(()),
        Some(_) => Err(config.refused(
            "quantization_config: quantized weights are not supported; use the checkpoint they were made from".into(),
        )),
    }
}

fn check_family(family: FamilyName, config: &Config) -> Result<(), HfError> {
    let found = family_in(config)?;
    if found == family {
        return Ok(());
    }
    let written = config.model_type()?;
    Err(config.refused(format!(
        "model_type is \"{written}\", which is family {found}, not {family}: set family = \"{found}\""
    )))
}

/// The family that follows from a preset or a checkpoint, where the recipe does not name one.
pub(super) fn implied_family(section: &Section<'_>, folder: &Path) -> Option<FamilyName> {
    if section.has("preset") {
        let name = section.name("preset")?;
        let family = presets::family_of(&name);
        if family.is_none() {
            let known = FamilyName::ALL.iter().flat_map(|&family| presets::of_family(family)).collect::<Vec<_>>();
            let problem = Problem::new(section.path("preset"), "unknown preset", section.place("preset"));
            section.report(problem.allowed(known.join(", ")).maybe_hint(similar(&name)));
        }
        return family;
    }
    let dir = crate::reading::resolve_in(folder, &section.file("checkpoint")?);
    Config::open(&dir).and_then(|config| family_in(&config)).map_err(|error| refuse(section, &error)).ok()
}

fn refuse(section: &Section<'_>, error: &HfError) {
    let (cause, hint) = error.cause_and_hint();
    section.refuse("checkpoint", cause, hint);
}

/// Refuses keys that say something else than the checkpoint, except free ones.
fn refuse_contradictions(section: &Section<'_>, free: &[&str], stored: &Value, wanted: &Value) {
    let (Some(stored), Some(wanted)) = (stored.as_object(), wanted.as_object()) else { return };
    for (key, value) in wanted {
        let Some(known) = stored.get(key).filter(|known| *known != value) else { continue };
        match known {
            Value::Object(_) => section.within(key, |inner| refuse_contradictions(inner, free, known, value)),
            _ if free.contains(&key.as_str()) => {}
            _ => {
                let cause = format!("{value} contradicts the checkpoint, whose files say {known}");
                section.refuse(key, cause, format!("remove `{key}`, or use a checkpoint of that kind"));
            }
        }
    }
}

fn as_json(sizes: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(sizes).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        map.remove("preset");
        map.remove("checkpoint");
    }
    value
}
