//! Holds a search against the recipe: every end and every choice is tried, alone, as a setting of its key. What the
//! reader then says about it is said of the search. So a range is right exactly where its ends are.

use std::path::Path;

use super::entry::{Effect, Parameter, Range};
use super::{Scalar, Search, Values};
use crate::reading::error::{Problem, Sources};
use crate::reading::kind::KeyKind;
use crate::reading::section::{Issues, Record, Section};
use crate::reading::tree::{Place, Table};
use crate::recipe::{Recipe, RecipeError, raw_tree};

/// A recipe's text and settings, being read for what it searches.
pub(in crate::recipe) struct Searching<'a> {
    pub file: &'a str,
    pub text: &'a str,
    pub sets: &'a [String],
}

impl Searching<'_> {
    pub(in crate::recipe) fn read(&self) -> Result<Search, RecipeError> {
        Recipe::parse(self.text, self.file, self.sets)?;
        let sources = Sources::new(self.file, self.text, self.sets);
        let issues = Issues::new(&sources);
        let root = raw_tree(&sources, self.sets.len(), &issues);
        let search = root.as_ref().map(|root| self.checked(root, &issues));
        match search {
            Some(search) if issues.count() == 0 => Ok(search),
            _ => Err(issues.into_error()),
        }
    }

    fn checked(&self, root: &Table, issues: &Issues<'_>) -> Search {
        let root = Section::new(root, String::new(), issues);
        let section = root.section_or_empty("search");
        let mut search = Search::read(&section);
        if search.parameters.is_empty() && section.is_clean() {
            let hint = "add a table [search] with, for example, \"train.optimizer.lr\" = { low = 1e-5, high = 1e-3, log = true }";
            issues.report(Problem::new("search", "nothing is searched", section.place("")).hint(hint));
        }
        for index in 0..search.parameters.len() {
            let tried = self.problems_of(&search, &search.parameters[index]);
            match tried {
                Ok(record) => search.parameters[index].settle(&record),
                Err(problem) => issues.report(*problem),
            }
        }
        for (key, largest, place) in search.largest_products() {
            if let Err(problem) = self.reading(&[format!("{key}={largest}")]) {
                issues.report(problem.moved(&format!("search.{key}"), &format!("{largest}: "), place));
            }
        }
        search
    }

    /// Tries the edges of one parameter; what the reader asked of its keys, or the first problem there is.
    fn problems_of(&self, search: &Search, parameter: &Parameter) -> Result<Record, Box<Problem>> {
        let mut record = Record::new();
        for edge in parameter.edges() {
            record = self.attempt(search, parameter, &edge)?;
        }
        Ok(record)
    }

    fn attempt(&self, search: &Search, parameter: &Parameter, edge: &Scalar) -> Result<Record, Box<Problem>> {
        if parameter.effect.settings(edge).iter().any(|set| set.starts_with("search.")) {
            let cause = "a search cannot search its own settings";
            return Err(Box::new(Problem::new(format!("search.{}", parameter.name), cause, parameter.place)));
        }
        let mut values = Values::new();
        search.satisfy(parameter, &mut values);
        values.insert(parameter.name.clone(), edge.clone());
        let mut more = search.settings(&values);
        let own = parameter.effect.settings(edge);
        more.retain(|set| !own.contains(set));
        more.extend(own);
        self.reading(&more).map_err(|problem| Box::new(parameter.blamed(edge, *problem)))
    }

    /// Reads the recipe with these settings besides; what was asked of its keys, or the first problem.
    fn reading(&self, more: &[String]) -> Result<Record, Box<Problem>> {
        let sets: Vec<String> = self.sets.iter().chain(more).cloned().collect();
        let sources = Sources::new(self.file, self.text, &sets);
        let issues = Issues::recording(&sources);
        if let Some(root) = raw_tree(&sources, sets.len(), &issues) {
            let _ = Recipe::read(&root, Path::new(self.file), &issues);
        }
        let record = issues.record();
        // What the value itself is to blame for says more than what follows from it.
        let mut problems = issues.into_problems();
        problems.sort_by_key(|problem| problem.place().source != sets.len());
        match problems.into_iter().next() {
            None => Ok(record),
            Some(problem) => Err(Box::new(problem)),
        }
    }
}

impl Search {
    /// The keys that are products, and the most that each can become.
    fn largest_products(&self) -> Vec<(&str, i64, Place)> {
        let mut products: Vec<(&str, i64, Place)> = Vec::new();
        for parameter in &self.parameters {
            let Effect::Factor(key) = &parameter.effect else { continue };
            let largest = parameter.edges().iter().filter_map(Scalar::as_integer).max().unwrap_or(1);
            match products.iter_mut().find(|(other, ..)| other == key) {
                Some((_, product, _)) => *product = product.saturating_mul(largest),
                None => products.push((key, largest, parameter.place)),
            }
        }
        products
    }

    /// The values under which a parameter matters: the first of every condition, and of theirs.
    fn satisfy(&self, parameter: &Parameter, values: &mut Values) {
        for (name, allowed) in &parameter.when {
            if let (Some(other), Some(value)) = (self.parameter(name), allowed.first()) {
                self.satisfy(other, values);
                values.insert(name.clone(), value.clone());
            }
        }
    }
}

impl Parameter {
    fn blamed(&self, edge: &Scalar, problem: Problem) -> Problem {
        let prefix = match &self.effect {
            Effect::Key(key) if *key == self.name => format!("{edge}: "),
            Effect::Key(key) | Effect::Factor(key) => format!("{key} = {edge}: "),
            Effect::Choices(_) => format!("choice {edge}: "),
        };
        problem.moved(&format!("search.{}", self.name), &prefix, self.place)
    }

    /// A range of whole numbers for a key that takes any number means all of them, unless it has a step.
    fn settle(&mut self, record: &Record) {
        let (Effect::Key(key), Range::Integers { low, high, step: 1, log }) = (&self.effect, &self.range) else {
            return;
        };
        let kind = record.get(key).and_then(|asked| asked.kind.as_ref());
        if matches!(kind, Some(KeyKind::Number(_))) {
            self.range = Range::Numbers { low: *low as f64, high: *high as f64, step: None, log: *log };
        }
    }
}
