//! `plimsoll presets`: the models that a recipe can name.

use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll_base::names::{Named, nearest};
use plimsoll_models::families::{Preset, presets};
use plimsoll_models::recipe::FamilyName;
use serde_json::Value;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Only presets of this family
    #[arg(long, value_name = "NAME", value_parser = family)]
    family: Option<FamilyName>,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let wanted = |preset: &Preset| arguments.family.is_none_or(|family| preset.family == family);
    let presets: Vec<Preset> = presets().into_iter().filter(wanted).collect();
    if arguments.json {
        printer::json(&presets)?;
    } else {
        printer::out(&text(&presets))?;
    }
    Ok(())
}

/// A family by its name in recipes.
pub(crate) fn family(text: &str) -> Result<FamilyName, String> {
    FamilyName::from_name(text).ok_or_else(|| {
        let known = FamilyName::names().collect::<Vec<_>>().join(", ");
        let near = nearest(text, FamilyName::names()).map_or(String::new(), |n| format!("did you mean `{n}`? "));
        format!("{near}families: {known}")
    })
}

fn text(presets: &[Preset]) -> String {
    let width = presets.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    presets.iter().map(|preset| line(preset, width)).collect()
}

fn line(preset: &Preset, width: usize) -> String {
    let parameters = preset.parameters.map_or("?".into(), count);
    let sizes = serde_json::to_value(&preset.sizes).map(|sizes| summary(&sizes)).unwrap_or_default();
    let others: Vec<&str> = preset.names.iter().skip(1).map(|name| short(name)).collect();
    let others = if others.is_empty() { String::new() } else { format!("  (also {})", others.join(", ")) };
    format!("{:<width$}  {:<12} {parameters:>8}  {sizes}{others}\n", preset.name, preset.family)
}

fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Sizes that a reader looks for first, under the names that families have for them.
const SIZES: [(&str, &str); 10] = [
    ("num_hidden_layers", "layers"),
    ("num_layers", "layers"),
    ("n_layers", "layers"),
    ("hidden_size", "wide"),
    ("d_model", "wide"),
    ("dim", "wide"),
    ("num_attention_heads", "heads"),
    ("num_heads", "heads"),
    ("n_heads", "heads"),
    ("vocab_size", "tokens"),
];

fn summary(sizes: &Value) -> String {
    let parts = SIZES.iter().filter_map(|(key, word)| Some(format!("{} {word}", sizes.get(key)?.as_u64()?)));
    let towers = ["text_config", "vision_config"].iter().filter_map(|key| {
        let tower = key.trim_end_matches("_config");
        Some(format!("{tower}: {}", summary(sizes.get(key)?)))
    });
    parts.chain(towers).collect::<Vec<_>>().join(", ")
}

/// 109483778 → 109 M
fn count(parameters: u64) -> String {
    match parameters as f64 {
        n if n < 1e7 => format!("{:.1} M", n / 1e6),
        n if n < 1e9 => format!("{:.0} M", n / 1e6),
        n => format!("{:.1} B", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_shows_its_sizes_and_parameters() {
        for preset in presets() {
            let line = line(&preset, 20);
            assert!(line.contains("layers") && line.contains("wide") && line.contains("heads"), "{line}");
            assert!(!line.contains('?'), "{line}");
        }
        assert_eq!(count(4_386_178), "4.4 M");
        assert_eq!(count(109_483_778), "109 M");
        assert_eq!(count(2_849_757_184), "2.8 B");
    }

    #[test]
    fn an_unknown_family_is_told_the_nearest() {
        assert_eq!(family("bert"), Ok(FamilyName::Bert));
        assert!(family("robert").unwrap_err().contains("did you mean `roberta`?"));
    }
}
