//! What a run tells MLflow, within MLflow's limits.

use super::Params;
use crate::metrics::Metric;
use plimsoll_runs::{Finished, Started};
use std::path::Path;

/// MLflow's own limits: metrics in a request, parameters in a request, bytes of a value and of a name.
pub(super) const MOST_METRICS: usize = 1000;
pub(super) const MOST_PARAMS: usize = 100;
const LONGEST_VALUE: usize = 6000;
const LONGEST_KEY: usize = 250;

/// Tables that say where a run is told about, not what it is; and a path of this machine.
const NOT_OF_THE_RUN: [&str; 3] = ["track", "notify", "dir"];

/// Every key of the resolved recipe, by its dotted path.
pub(super) fn of_recipe(path: &Path) -> Params {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let table: toml::Table = toml::from_str(&text).unwrap_or_default();
    let mut params = Params::new();
    for (key, value) in table.iter().filter(|(key, _)| !NOT_OF_THE_RUN.contains(&key.as_str())) {
        flatten(key, value, &mut params);
    }
    params
}

fn flatten(key: &str, value: &toml::Value, params: &mut Params) {
    match value {
        toml::Value::Table(table) => {
            table.iter().for_each(|(name, value)| flatten(&format!("{key}.{name}"), value, params))
        }
        toml::Value::String(text) => params.push((key.into(), text.clone())),
        other => params.push((key.into(), other.to_string())),
    }
}

/// What was decided, under names of their own: a key of the recipe that says `auto` stays what it is.
pub(super) fn of_plan(started: &Started) -> Params {
    let words = |text: &Option<String>| text.clone().unwrap_or_default();
    let params = [
        ("device", started.device.clone()),
        ("version", started.version.clone()),
        ("parameters", started.parameters.to_string()),
        ("micro_batch", started.micro_batch.to_string()),
        ("accumulation", started.accumulation.to_string()),
        ("precision", words(&started.precision)),
        ("recompute", words(&started.recompute)),
        ("attention", words(&started.attention)),
        ("budget_bytes", started.budget_bytes.to_string()),
        ("planned_peak_bytes", started.planned_peak_bytes.to_string()),
        ("steps", started.steps.to_string()),
        ("train_samples", started.train_samples.to_string()),
        ("validation_samples", started.validation_samples.to_string()),
    ];
    let named = params.into_iter().filter(|(_, value)| !value.is_empty());
    named.map(|(name, value)| (format!("plan.{name}"), value)).collect()
}

/// The last words of a run as numbers.
pub(super) fn of_end(finished: &Finished, time: f64) -> Vec<Metric> {
    let step = finished.steps;
    let metric = |group, name, value| Metric { group, name, value, step, time };
    let best = finished.best.map(|best| Metric { step: best.step, ..metric("best", "eval_loss", best.scores.loss) });
    let all = [
        metric("run", "seconds", finished.seconds),
        metric("run", "samples_per_s", finished.samples_per_s),
        metric("run", "measured_peak_bytes", finished.measured_peak_bytes as f64),
        metric("run", "planned_peak_bytes", finished.planned_peak_bytes as f64),
    ];
    all.into_iter().chain(best).collect()
}

/// A name that MLflow takes: letters, digits and a few signs.
pub(super) fn key(name: &str) -> String {
    let allowed = |c: char| if c.is_alphanumeric() || "_-. :/".contains(c) { c } else { '_' };
    cut(&name.chars().map(allowed).collect::<String>(), LONGEST_KEY)
}

pub(super) fn value(text: &str) -> String {
    cut(text, LONGEST_VALUE)
}

/// At most so many bytes, at a character's end.
fn cut(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_becomes_dotted_names_without_where_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recipe.toml");
        let text = "name = \"r\"\ndir = \"/home/me\"\n[train]\nepochs = 3\n[train.optimizer]\nlr = 0.001\nbetas = [0.9, 0.99]\n\
                    [notify]\nurls = [\"env:SECRET\"]\n[track]\nmlflow = \"http://x\"\n";
        std::fs::write(&path, text).unwrap();
        let mut params = of_recipe(&path);
        params.sort();
        let wanted = [
            ("name", "r"),
            ("train.epochs", "3"),
            ("train.optimizer.betas", "[0.9, 0.99]"),
            ("train.optimizer.lr", "0.001"),
        ];
        assert_eq!(params, wanted.map(|(key, value)| (key.to_string(), value.to_string())));
        assert!(of_recipe(&dir.path().join("nowhere")).is_empty());
    }

    #[test]
    fn names_and_values_are_cut_at_characters() {
        assert_eq!(value(&"ü".repeat(6000)).len(), 6000);
        assert_eq!(value(&format!("x{}", "ü".repeat(6000))).len(), 5999);
        assert_eq!(key("a=b\n"), "a_b_");
    }
}
