//! How a search goes about it: what is sought, how settings are drawn, when a trial is laid aside.

use super::{KeyKind, Node, Problem, Section, Value, names_of};
use plimsoll_base::named;
use plimsoll_base::names::Named;
use plimsoll_base::units::format_bytes;

named! {
    /// What a trial is judged by.
    pub enum Objective {
        /// The validation loss.
        Loss = "loss",
        /// Right answers, as a part of all.
        Accuracy = "accuracy",
        /// The mean of the F1 of the classes.
        F1 = "f1",
        /// The correlation of answers and labels.
        Pearson = "pearson",
        /// The same of their ranks.
        Spearman = "spearman",
        /// Of training, as measured.
        Seconds = "seconds",
        /// Of the device at the peak, as planned.
        Bytes = "bytes",
    }
}

impl Objective {
    /// Whether more is better.
    pub fn is_maximized(self) -> bool {
        matches!(self, Objective::Accuracy | Objective::F1 | Objective::Pearson | Objective::Spearman)
    }

    /// A value of it, for people.
    pub fn shown(self, value: f64) -> String {
        if self == Objective::Bytes { format_bytes(value as u64) } else { format!("{value:.5}") }
    }

    /// Whether evaluations on the way say it.
    pub fn is_score(self) -> bool {
        !matches!(self, Objective::Seconds | Objective::Bytes)
    }
}

named! {
    /// Who suggests the next trial.
    pub enum SamplerName {
        /// Tree-structured Parzen estimators, as Optuna has them.
        Tpe = "tpe",
        /// Drawn evenly.
        Random = "random",
        /// A Sobol sequence: drawn evenly, and evenly spread.
        Sobol = "sobol",
        /// A genetic algorithm for several objectives.
        Nsga2 = "nsga2",
        /// Covariance matrix adaptation.
        CmaEs = "cma-es",
        /// Every point of a grid, shuffled.
        Grid = "grid",
        /// Every combination there is.
        BruteForce = "brute-force",
    }
}

named! {
    /// Who lays trials aside that are behind.
    pub enum PrunerName {
        /// Asynchronous successive halving.
        Asha = "asha",
        /// Successive halving with several beginnings.
        Hyperband = "hyperband",
        /// What is behind the median of the others.
        Median = "median",
        /// What has not become better for some evaluations.
        Patience = "patience",
        /// Nobody.
        None = "none",
    }
}

/// One name, or several.
pub(super) fn objectives(section: &Section<'_>) -> Vec<Objective> {
    let key = "objective";
    section.declare(key, || {
        KeyKind::any([
            KeyKind::choice::<Objective>(),
            KeyKind::list(KeyKind::choice::<Objective>(), &(1..=MOST_OBJECTIVES)),
        ])
    });
    let Some(node) = section.get(key) else { return vec![Objective::Loss] };
    let read = |node: &Node| section.choice_of::<Objective>(key, node, &[]);
    let found: Vec<Objective> = match &node.value {
        Value::List(items) if (1..=MOST_OBJECTIVES).contains(&items.len()) => items.iter().filter_map(read).collect(),
        Value::List(_) => return refused(section, key, node, "one objective, or a list of up to 4"),
        _ => read(node).into_iter().collect(),
    };
    if (1..found.len()).any(|at| found[..at].contains(&found[at])) {
        return refused(section, key, node, "each objective once");
    }
    if found.is_empty() { vec![Objective::Loss] } else { found }
}

const MOST_OBJECTIVES: usize = 4;

fn refused(section: &Section<'_>, key: &'static str, node: &Node, allowed: &str) -> Vec<Objective> {
    section.out_of_range::<()>(key, node, allowed);
    vec![Objective::Loss]
}

/// A number, or `"all"`.
pub(super) fn kept(section: &Section<'_>, default: usize) -> Option<usize> {
    let key = "keep";
    section.declare(key, || KeyKind::any([KeyKind::words(["all"]), KeyKind::integer(&(0..=1_000_000))]));
    match section.get(key) {
        None => Some(default),
        Some(Node { value: Value::Text(text), .. }) if text == "all" => None,
        Some(node) => section.size_of(key, node, 0..=1_000_000, "\"all\" or ").or(Some(default)),
    }
}

impl Objective {
    /// Reads `accuracy` or `accuracy,seconds`.
    pub fn parse_list(text: &str) -> Result<Vec<Objective>, String> {
        let read = |name: &str| {
            Objective::from_name(name.trim()).ok_or_else(|| format!("`{name}` is none of {}", names_of::<Objective>()))
        };
        text.split(',').map(read).collect()
    }
}

/// Reports at a node that stands inside the table.
pub(super) fn report_at(section: &Section<'_>, path: &str, node: &Node, cause: String, hint: &str) {
    section.report(Problem::new(section.path(path), cause, node.place).hint(hint));
}
