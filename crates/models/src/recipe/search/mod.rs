//! `[search]`: what a hyper-parameter search varies, and how it goes about it.
//!
//! Beside the few words below, every entry is a parameter: under the key of the recipe that it sets, a list of values, a
//! range, or a table that says more. `check` holds every end and every choice against what the key itself allows.

mod check;
mod entry;
mod scalar;
mod settings;

pub(super) use check::Searching;
pub use entry::{Effect, Parameter, Range};
pub use scalar::Scalar;
pub use settings::{Objective, PrunerName, SamplerName};

use std::collections::BTreeMap;

use crate::reading::about::{About, about};
use crate::reading::error::Problem;
use crate::reading::kind::KeyKind;
use crate::reading::section::Section;
use crate::reading::tree::{Node, Value};
use crate::recipe::Recipe;
use plimsoll_base::names::{Named, nearest};

/// Values of parameters, by their public names.
pub type Values = BTreeMap<String, Scalar>;

/// A whole `[search]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// What is to be as good as can be; several are a Pareto front.
    pub objectives: Vec<Objective>,
    /// Who suggests the next trial, unless the command says.
    pub sampler: Option<SamplerName>,
    /// Who lays trials aside that are behind, unless the command says.
    pub pruner: Option<PrunerName>,
    /// Evaluations before a trial is first judged.
    pub rung: usize,
    /// One in so many goes on to the next rung.
    pub factor: usize,
    /// Evaluations without a better one.
    pub patience: usize,
    /// What suggestions are drawn from.
    pub seed: u64,
    /// Trials in all, unless the command says.
    pub trials: Option<usize>,
    /// Trials drawn at random before an estimator is asked.
    pub startup: usize,
    /// Models of so many of the best trials stay on disk; `None` keeps all.
    pub keep: Option<usize>,
    /// In the order of the file, what a condition names before what it is a condition of.
    pub parameters: Vec<Parameter>,
    /// What is not searched although it could be.
    pub fixed: Values,
    /// What is tried first.
    pub enqueue: Vec<Values>,
}

/// What each key means.
pub(super) const ABOUT: &[About] = &[
    about(
        "search.objective",
        "What is sought: a score of the best evaluation (loss is to be small, the others large), seconds or bytes; a list for several at once.",
    )
    .unset("\"loss\""),
    about("search.sampler", "How settings are drawn.").unset("tpe for one objective, nsga2 for several"),
    about("search.pruner", "When a trial is laid aside; it goes on later if it has earned it.")
        .unset("asha for one objective, none for several"),
    about("search.rung", "Evaluations before a trial is first judged.").unset("1"),
    about("search.factor", "At each rung one in so many goes on, to so many times the evaluations (asha, hyperband).")
        .unset("3"),
    about("search.patience", "Evaluations without a better one after which a trial is laid aside (patience).").unset("3"),
    about("search.seed", "Draws follow from it.").unset("0"),
    about("search.trials", "Trials in all, unless `--trials` says.").unset("what the command says"),
    about("search.startup", "Trials drawn at random before an estimator is asked.").unset("10"),
    about("search.keep", "Models and checkpoints of so many of the best trials stay on disk, or \"all\".").unset("3"),
    about("search.fixed", "Parameters that are held at one value, by name.").unset("none"),
    about("search.enqueue", "Settings that are tried first, by name; what is not named is drawn.").unset("none"),
];

/// Keys that decide what evaluations say.
const DECIDE_WHAT_IS_SAID: [&str; 6] =
    ["train.task", "model.family", "model.preset", "model.checkpoint", "model.num_labels", "model.problem_type"];

/// Words of the table that are no parameters.
const WORDS: [&str; 12] = [
    "objective",
    "sampler",
    "pruner",
    "rung",
    "factor",
    "patience",
    "seed",
    "trials",
    "startup",
    "keep",
    "fixed",
    "enqueue",
];
const KEPT: usize = 3;

impl Search {
    /// Reads the table as it is written. Whether keys and ranges are right is another question: see `check`.
    pub(super) fn read(section: &Section<'_>) -> Search {
        section.know(&WORDS);
        let parameters = entry::read_all(section, &WORDS);
        let search = Search {
            objectives: settings::objectives(section),
            sampler: section.choice("sampler"),
            pruner: section.choice("pruner"),
            rung: section.size("rung", 1..=1_000_000).unwrap_or(1),
            factor: section.size("factor", 2..=1_000).unwrap_or(3),
            patience: section.size("patience", 1..=1_000_000).unwrap_or(3),
            seed: section.seed("seed").unwrap_or(0),
            trials: section.size("trials", 1..=1_000_000),
            startup: section.size("startup", 0..=1_000_000).unwrap_or(10),
            keep: settings::kept(section, KEPT),
            fixed: named_values(section, "fixed", &parameters),
            enqueue: enqueued(section, &parameters),
            parameters,
        };
        search.check_objectives(section);
        search
    }

    fn check_objectives(&self, section: &Section<'_>) {
        let prunes = self.pruner.is_some_and(|pruner| pruner != PrunerName::None);
        if self.objectives.len() > 1 && prunes {
            let hint = "leave `pruner` out, or seek one objective";
            section.refuse("pruner", "trials of several objectives cannot be judged half-way", hint);
        }
    }

    /// The parameter that the study calls so.
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// What these values set in the recipe, as `key=value`.
    pub fn settings(&self, values: &Values) -> Vec<String> {
        let mut products: BTreeMap<&str, i64> = BTreeMap::new();
        let mut settings = Vec::new();
        for parameter in &self.parameters {
            let Some(value) = values.get(&parameter.name) else { continue };
            match &parameter.effect {
                Effect::Factor(key) => {
                    let product = products.entry(key).or_insert(1);
                    *product = product.saturating_mul(value.as_integer().unwrap_or(1));
                }
                effect => settings.extend(effect.settings(value)),
            }
        }
        settings.extend(products.into_iter().map(|(key, product)| format!("{key}={product}")));
        settings
    }

    /// Leaves only these choices of a parameter, which is known by its name or by a key that it sets.
    ///
    /// # Errors
    /// Says which of them is none, and which there are.
    pub fn restrict(&mut self, keys: &[&str], wanted: &[&str]) -> Result<(), String> {
        let known =
            |parameter: &&mut Parameter| keys.iter().any(|key| parameter.name == *key || parameter.effect.moves(key));
        let Some(parameter) = self.parameters.iter_mut().find(known) else {
            return Err(format!("none of {} is searched", keys.join(", ")));
        };
        let Range::Choices(choices) = &mut parameter.range else {
            return Err(format!("{} has a range, not a list of choices", parameter.name));
        };
        let all = choices.iter().map(Scalar::to_string).collect::<Vec<_>>().join(", ");
        if let Some(unknown) = wanted.iter().find(|name| !choices.iter().any(|choice| choice.to_string() == **name)) {
            return Err(format!("{unknown} is not among {all}"));
        }
        choices.retain(|choice| wanted.contains(&choice.to_string().as_str()));
        if choices.is_empty() { Err(format!("no choice is left of {all}")) } else { Ok(()) }
    }

    /// Which objective evaluations of this recipe never say, in words, and which they do.
    pub fn unsaid(&self, recipe: &Recipe) -> Option<String> {
        let says = |objective: &Objective| recipe.metrics().iter().any(|metric| metric.name() == objective.name());
        let unsaid = self.objectives.iter().find(|objective| objective.is_score() && !says(objective))?;
        let said: Vec<&str> = Objective::ALL.iter().filter(|objective| says(objective)).map(|o| o.name()).collect();
        let task = recipe.train.task;
        Some(format!("evaluations of task `{task}` have no {unsaid}, only {}", said.join(", ")))
    }

    /// Whether evaluations of its trainings may say something else than those of the recipe that it is of.
    pub fn moves_what_is_said(&self) -> bool {
        DECIDE_WHAT_IS_SAID.iter().any(|key| self.moves(key))
    }

    /// Whether a key of the recipe is moved by the search.
    pub fn moves(&self, key: &str) -> bool {
        self.parameters.iter().any(|parameter| parameter.effect.moves(key))
    }
}

/// A table of values by public name, nested or quoted.
fn named_values(section: &Section<'_>, key: &'static str, parameters: &[Parameter]) -> Values {
    section.declare(key, || KeyKind::any([KeyKind::Table]));
    section.get(key).map(|node| values_of(section, key, node, parameters)).unwrap_or_default()
}

fn enqueued(section: &Section<'_>, parameters: &[Parameter]) -> Vec<Values> {
    let key = "enqueue";
    let read = |node: &Node| Some(values_of(section, key, node, parameters));
    section.list(key, 0..=10_000, KeyKind::Table, read).unwrap_or_default()
}

fn values_of(section: &Section<'_>, key: &'static str, node: &Node, parameters: &[Parameter]) -> Values {
    let Value::Table(_) = &node.value else {
        section.wrong_type::<()>(key, node, "a table of values by parameter");
        return Values::new();
    };
    let mut values = Values::new();
    for (name, inner) in flattened("", node) {
        let Some(parameter) = parameters.iter().find(|parameter| parameter.name == name) else {
            let names = parameters.iter().map(|parameter| parameter.name.as_str());
            let hint = nearest(&name, names.clone()).map(|near| format!("did you mean `{near}`?"));
            let allowed = names.collect::<Vec<_>>().join(", ");
            let problem = Problem::new(section.path(key), format!("`{name}` is not searched"), inner.key);
            section.report(problem.allowed(allowed).maybe_hint(hint));
            continue;
        };
        match Scalar::of(inner).filter(|value| parameter.contains(value)) {
            Some(value) => drop(values.insert(name, value)),
            None => {
                let cause = format!("{} is no value of {name}", section.excerpt(inner));
                let allowed = parameter.range.to_string();
                section.report(Problem::new(section.path(key), cause, inner.place).allowed(allowed));
            }
        }
    }
    values
}

/// The leaves of nested tables, by dotted path.
fn flattened<'n>(prefix: &str, node: &'n Node) -> Vec<(String, &'n Node)> {
    let Value::Table(table) = &node.value else { return vec![(prefix.into(), node)] };
    let path = |key: &str| if prefix.is_empty() { key.to_string() } else { format!("{prefix}.{key}") };
    table.entries.iter().flat_map(|(key, inner)| flattened(&path(key), inner)).collect()
}

/// The names of an enumeration, for a message.
fn names_of<T: Named>() -> String {
    T::names().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
