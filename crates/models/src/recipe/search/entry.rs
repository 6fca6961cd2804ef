//! One parameter of a search: the values it may take, and what they set.

use std::fmt;

use super::scalar::{Scalar, written};
use super::settings::report_at;
use super::{Node, Problem, Section, Value, flattened};
use crate::reading::tree::{Place, Table};
use plimsoll_base::names::nearest;

/// A dimension of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// What the study calls it.
    pub name: String,
    /// The values that it may take.
    pub range: Range,
    /// What a value sets in the recipe.
    pub effect: Effect,
    /// It matters only while all of these parameters have one of these values.
    pub when: Vec<(String, Vec<Scalar>)>,
    /// Where it is written.
    pub(super) place: Place,
}

/// The values of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Range {
    /// Whole numbers.
    Integers {
        /// The least.
        low: i64,
        /// The most.
        high: i64,
        /// From one to the next.
        step: i64,
        /// Evenly in the logarithm.
        log: bool,
    },
    /// Any numbers.
    Numbers {
        /// The least.
        low: f64,
        /// The most.
        high: f64,
        /// From one to the next, where they are not continuous.
        step: Option<f64>,
        /// Evenly in the logarithm.
        log: bool,
    },
    /// One of these.
    Choices(Vec<Scalar>),
}

/// What a value of a parameter sets.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// This key.
    Key(String),
    /// This key, to the product of all its factors.
    Factor(String),
    /// For each choice, the keys and values that it stands for.
    Choices(Vec<(Scalar, Vec<(String, String)>)>),
}

impl Effect {
    /// As `key=value`. Factors are joined elsewhere.
    pub(super) fn settings(&self, value: &Scalar) -> Vec<String> {
        match self {
            Effect::Key(key) | Effect::Factor(key) => vec![format!("{key}={}", value.to_toml())],
            Effect::Choices(choices) => {
                let found = choices.iter().find(|(label, _)| label == value).into_iter();
                found.flat_map(|(_, sets)| sets).map(|(key, text)| format!("{key}={text}")).collect()
            }
        }
    }

    pub(super) fn moves(&self, key: &str) -> bool {
        match self {
            Effect::Key(own) | Effect::Factor(own) => own == key,
            Effect::Choices(choices) => choices.iter().flat_map(|(_, sets)| sets).any(|(own, _)| own == key),
        }
    }
}

impl Parameter {
    /// Whether the value is one of them.
    pub fn contains(&self, value: &Scalar) -> bool {
        match (&self.range, value) {
            (Range::Choices(choices), value) => choices.contains(value),
            (Range::Integers { low, high, step, .. }, Scalar::Integer(n)) => {
                (low..=high).contains(&n) && (n - low) % step == 0
            }
            (Range::Numbers { low, high, .. }, value) => value.as_f64().is_some_and(|x| (*low..=*high).contains(&x)),
            (Range::Integers { .. }, _) => false,
        }
    }

    /// Both ends, or every choice.
    pub(super) fn edges(&self) -> Vec<Scalar> {
        match &self.range {
            Range::Integers { low, high, .. } => vec![Scalar::Integer(*low), Scalar::Integer(*high)],
            Range::Numbers { low, high, .. } => vec![Scalar::Number(*low), Scalar::Number(*high)],
            Range::Choices(choices) => choices.clone(),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Range::Integers { low, high, step, .. } => write!(f, "{low} to {high} in steps of {step}"),
            Range::Numbers { low, high, .. } => write!(f, "{low} to {high}"),
            Range::Choices(choices) => {
                f.write_str(&choices.iter().map(Scalar::to_string).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// What a table with more than values may say.
const MORE: [&str; 7] = ["low", "high", "step", "log", "choices", "name", "when"];
const PRODUCT: &str = "product";
/// Integers are kept as floats in storages: beyond this they would not be exact.
const LARGEST: i64 = 1 << 53;

/// Every parameter of the table, in the order of the file; conditions behind what they name.
pub(super) fn read_all(section: &Section<'_>, words: &[&str]) -> Vec<Parameter> {
    let mut entries: Vec<(String, &Node)> = section
        .entries()
        .filter(|(key, _)| !words.contains(&key.as_str()))
        .flat_map(|(key, node)| parameters_under(key, node))
        .collect();
    entries.sort_by_key(|(_, node)| (node.key.source, node.key.start));
    let mut found: Vec<Parameter> = Vec::new();
    for (key, node) in entries {
        for parameter in read(section, &key, node) {
            if found.iter().any(|other| other.name == parameter.name) {
                let cause = format!("`{}` is searched twice", parameter.name);
                section.report(Problem::new(section.path(&key), cause, node.key).hint("give one a `name` of its own"));
            } else {
                found.push(parameter);
            }
        }
    }
    in_order(section, found)
}

/// `train.optimizer.lr = { … }` is a tree of tables; `"train.optimizer.lr" = { … }` one key.
fn parameters_under<'n>(key: &str, node: &'n Node) -> Vec<(String, &'n Node)> {
    match &node.value {
        Value::Table(table) if !is_parameter(table) => {
            let inner = table.entries.iter();
            inner.flat_map(|(part, node)| parameters_under(&format!("{key}.{part}"), node)).collect()
        }
        _ => vec![(key.into(), node)],
    }
}

fn is_parameter(table: &Table) -> bool {
    table.entries.is_empty() || ["low", "high", "choices", PRODUCT].iter().any(|word| table.entries.contains_key(*word))
}

/// One parameter, or the factors of a product; none after a problem was reported.
fn read(section: &Section<'_>, key: &str, node: &Node) -> Vec<Parameter> {
    match &node.value {
        Value::List(items) => {
            let range = choices(section, key, node, items);
            let effect = |range: &Range| effect_of_list(key, range, items);
            range.map(|range| parameter(key, effect(&range), range, node)).into_iter().collect()
        }
        Value::Table(table) if table.entries.contains_key(PRODUCT) => product(section, key, table),
        Value::Table(table) => of_table(section, key, node, table).into_iter().collect(),
        _ => {
            let hint = "write a list of values, or { low = …, high = … }";
            report_at(section, key, node, "one value is no search".into(), hint);
            Vec::new()
        }
    }
}

fn parameter(name: &str, effect: Effect, range: Range, node: &Node) -> Parameter {
    Parameter { name: name.into(), range, effect, when: Vec::new(), place: node.place }
}

/// `{ product = { "train.batch_size" = [8, 16], "train.grad_accum" = [1, 2] } }`: the key is what they multiply to.
fn product(section: &Section<'_>, key: &str, table: &Table) -> Vec<Parameter> {
    refuse_others(section, key, table, &[PRODUCT]);
    let Some(node) = table.entries.get(PRODUCT) else { return Vec::new() };
    let Value::Table(factors) = &node.value else {
        section.wrong_type::<()>(&format!("{key}.{PRODUCT}"), node, "a table of factors by name");
        return Vec::new();
    };
    if factors.entries.is_empty() {
        let hint = "name them: { product = { \"train.batch_size\" = [8, 16], \"train.grad_accum\" = [1, 2] } }";
        report_at(section, key, node, "a product without factors".into(), hint);
    }
    let factors = factors.entries.iter().flat_map(|(name, inner)| parameters_under(name, inner));
    let mut found: Vec<Parameter> = factors.flat_map(|(name, inner)| read(section, &name, inner)).collect();
    for factor in &mut found {
        if factor.edges().iter().any(|edge| edge.as_integer().is_none()) {
            let cause = format!("`{}` is a factor, and has values that are no integers", factor.name);
            report_at(section, key, node, cause, "factors are integers");
        }
        factor.effect = Effect::Factor(key.into());
    }
    found.sort_by_key(|factor| (factor.place.source, factor.place.start));
    found
}

fn of_table(section: &Section<'_>, key: &str, node: &Node, table: &Table) -> Option<Parameter> {
    refuse_others(section, key, table, &MORE);
    let name = match table.entries.get("name").map(|node| &node.value) {
        None => key.to_string(),
        Some(Value::Text(name)) if !name.is_empty() => name.clone(),
        Some(_) => return section.wrong_type(&format!("{key}.name"), &table.entries["name"], "a string"),
    };
    let (range, effect) = match table.entries.get("choices") {
        Some(inner) => {
            refuse_range(section, key, table);
            with_choices(section, key, inner)?
        }
        None => (numbers(section, key, node, table)?, Effect::Key(key.into())),
    };
    let when = table.entries.get("when").map(|node| conditions(section, key, node)).unwrap_or_default();
    Some(Parameter { name, range, effect, when, place: node.place })
}

fn refuse_others(section: &Section<'_>, key: &str, table: &Table, known: &[&'static str]) {
    for (word, node) in table.entries.iter().filter(|(word, _)| !known.contains(&word.as_str())) {
        let hint = nearest(word, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        let problem = Problem::new(section.path(&format!("{key}.{word}")), "unknown key", node.key);
        section.report(problem.allowed(known.join(", ")).maybe_hint(hint));
    }
}

/// Words of a range say nothing about choices.
fn refuse_range(section: &Section<'_>, key: &str, table: &Table) {
    if let Some(word) = ["low", "high", "step", "log"].iter().find(|word| table.entries.contains_key(**word)) {
        let (path, node) = (format!("{key}.{word}"), &table.entries[*word]);
        report_at(section, &path, node, "`choices` and a range exclude each other".into(), "leave one of them out");
    }
}

/// A list of values, or a table from label to value or to several settings.
fn with_choices(section: &Section<'_>, key: &str, node: &Node) -> Option<(Range, Effect)> {
    match &node.value {
        Value::List(items) => {
            let range = choices(section, key, node, items)?;
            let effect = effect_of_list(key, &range, items);
            Some((range, effect))
        }
        Value::Table(table) if !table.entries.is_empty() => {
            let mut entries: Vec<(&String, &Node)> = table.entries.iter().collect();
            entries.sort_by_key(|(_, node)| (node.key.source, node.key.start));
            let sets = |(label, node): &(&String, &Node)| Some((Scalar::label(label), settings_of(key, node)?));
            let choices = entries.iter().map(sets).collect::<Option<Vec<_>>>();
            let Some(choices) = choices else {
                return section.wrong_type(key, node, "finite numbers, strings, true, false, lists or settings");
            };
            let labels = choices.iter().map(|(label, _)| label.clone()).collect();
            Some((Range::Choices(labels), Effect::Choices(choices)))
        }
        Value::Table(_) => section.out_of_range(key, node, "at least one choice"),
        _ => section.wrong_type(&format!("{key}.choices"), node, "a list of values, or a table from label to value"),
    }
}

/// A table under a label sets several keys, in full; anything else is a value of the parameter's own key.
fn settings_of(key: &str, node: &Node) -> Option<Vec<(String, String)>> {
    match &node.value {
        Value::Table(_) => flattened("", node).into_iter().map(|(path, inner)| Some((path, written(inner)?))).collect(),
        _ => Some(vec![(key.into(), written(node)?)]),
    }
}

/// What is no scalar is written back as it was.
fn effect_of_list(key: &str, range: &Range, items: &[Node]) -> Effect {
    let is_plain = |node: &Node| !matches!(node.value, Value::List(_) | Value::Table(_));
    let Range::Choices(labels) = range else { return Effect::Key(key.into()) };
    match items.iter().all(is_plain) {
        true => Effect::Key(key.into()),
        false => {
            let texts = items.iter().map(|item| written(item).unwrap_or_default());
            Effect::Choices(labels.iter().cloned().zip(texts.map(|text| vec![(key.to_string(), text)])).collect())
        }
    }
}

fn choices(section: &Section<'_>, key: &str, node: &Node, items: &[Node]) -> Option<Range> {
    if items.is_empty() {
        return section.out_of_range(key, node, "at least one value: a list without any leaves nothing to try");
    }
    let mut values: Vec<Scalar> = Vec::new();
    for item in items {
        match Scalar::of(item) {
            Some(value) if values.contains(&value) => {
                report_at(section, key, item, format!("{value} is listed twice"), "write each value once");
                return None;
            }
            Some(value) => values.push(value),
            None => return section.wrong_type(key, item, "finite numbers, strings, true, false or lists of them"),
        }
    }
    Some(Range::Choices(values))
}

/// `low`, `high` and the rest. Integers while all of them are.
fn numbers(section: &Section<'_>, key: &str, node: &Node, table: &Table) -> Option<Range> {
    let number = |word: &str| -> Option<Scalar> {
        let node = table.entries.get(word)?;
        let value = Scalar::of(node).filter(|value| value.as_f64().is_some());
        value.or_else(|| section.wrong_type(&format!("{key}.{word}"), node, "a finite number"))
    };
    let (Some(low), Some(high)) = (number("low"), number("high")) else {
        let whole = table.entries.contains_key("low") && table.entries.contains_key("high");
        if !whole {
            report_at(section, key, node, "nothing says which values".into(), "write `low` and `high`, or `choices`");
        }
        return None;
    };
    let step = number("step");
    let log = match table.entries.get("log").map(|node| (&node.value, node)) {
        None => false,
        Some((Value::Flag(log), _)) => *log,
        Some((_, node)) => return section.wrong_type(&format!("{key}.log"), node, "true or false"),
    };
    range_of(low, high, step, log).map_err(|cause| report_at(section, key, node, cause, "mend the range")).ok()
}

fn range_of(low: Scalar, high: Scalar, step: Option<Scalar>, log: bool) -> Result<Range, String> {
    let ends = [low.as_f64().unwrap_or(f64::NAN), high.as_f64().unwrap_or(f64::NAN)];
    if ends[0] > ends[1] {
        return Err(format!("the range is empty: low {low} is above high {high}"));
    }
    if log && ends[0] <= 0.0 {
        return Err(format!("a logarithmic range starts above 0, not at {low}"));
    }
    if step.as_ref().is_some_and(|step| step.as_f64().is_none_or(|step| step <= 0.0)) {
        return Err("a step must be above 0".into());
    }
    if let Some(step) = step.as_ref().filter(|step| step.as_f64().is_some_and(|step| step > ends[1] - ends[0])) {
        return Err(format!("a step of {step} leaves nothing but {low} between {low} and {high}"));
    }
    if log && step.is_some() {
        return Err("a logarithmic range has no steps".into());
    }
    let integers = (low.as_integer(), high.as_integer(), step.as_ref().map_or(Some(1), Scalar::as_integer));
    if let (Some(low), Some(high), Some(step)) = integers {
        if low < -LARGEST || high > LARGEST {
            return Err("integers of a search lie within ±2^53".into());
        }
        return Ok(Range::Integers { low, high, step, log });
    }
    Ok(Range::Numbers { low: ends[0], high: ends[1], step: step.and_then(|step| step.as_f64()), log })
}

/// `when = { "model.name" = "sgd" }`, or a list of values.
fn conditions(section: &Section<'_>, key: &str, node: &Node) -> Vec<(String, Vec<Scalar>)> {
    let Value::Table(_) = &node.value else {
        section.wrong_type::<()>(&format!("{key}.when"), node, "a table: parameter = value, or parameter = [values]");
        return Vec::new();
    };
    let condition = |(name, node): (String, &Node)| {
        let values: Option<Vec<Scalar>> = match &node.value {
            Value::List(items) if !items.is_empty() => items.iter().map(Scalar::of).collect(),
            _ => Scalar::of(node).map(|value| vec![value]),
        };
        if values.is_none() {
            section.wrong_type::<()>(&format!("{key}.when"), node, "a value or a list of values");
        }
        Some((name, values?))
    };
    flattened("", node).into_iter().filter_map(condition).collect()
}

/// Parameters behind all those that they depend on; what names no parameter, or itself in the end, is reported.
fn in_order(section: &Section<'_>, mut left: Vec<Parameter>) -> Vec<Parameter> {
    refuse_unknown_conditions(section, &left);
    let mut ordered: Vec<Parameter> = Vec::new();
    while !left.is_empty() {
        let known = |name: &str| ordered.iter().any(|other| other.name == name);
        match left.iter().position(|parameter| parameter.when.iter().all(|(name, _)| known(name))) {
            Some(next) => ordered.push(left.remove(next)),
            None => {
                if section.is_clean() {
                    let cause = format!("the conditions of `{}` lead back to itself", left[0].name);
                    section.report(Problem::new(section.path(&left[0].name), cause, left[0].place));
                }
                return ordered;
            }
        }
    }
    ordered
}

fn refuse_unknown_conditions(section: &Section<'_>, parameters: &[Parameter]) {
    for parameter in parameters {
        for (name, values) in &parameter.when {
            let path = section.path(&format!("{}.when", parameter.name));
            match parameters.iter().find(|other| other.name == *name) {
                None => {
                    let hint = nearest(name, parameters.iter().map(|other| other.name.as_str()));
                    let problem = Problem::new(path, format!("`{name}` is not searched"), parameter.place);
                    section.report(problem.maybe_hint(hint.map(|near| format!("did you mean `{near}`?"))));
                }
                Some(other) => {
                    for value in values.iter().filter(|value| !other.contains(value)) {
                        let cause = format!("`{name}` is never {value}");
                        section.report(Problem::new(&path, cause, parameter.place).allowed(other.range.to_string()));
                    }
                }
            }
        }
    }
}
