//! The space that is searched: named parameters in order, each with its domain and, where it only matters under some
//! choice of another, the condition. A condition may only name parameters before its own.

pub(crate) mod decimal;
mod distribution;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use distribution::Distribution;
pub use value::Value;

use crate::error::{Error, Result};
use crate::order;

/// Internal numbers by parameter name: what a sampler suggests.
pub type Point = BTreeMap<String, f64>;

/// Distributions by parameter name, in the order samplers walk them.
pub type Domain = BTreeMap<String, Arc<Distribution>>;

/// A parameter matters only while another one has one of these values.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub parameter: String,
    pub any_of: Vec<Value>,
}

/// One dimension of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub distribution: Arc<Distribution>,
    /// All of these must hold; none means always.
    pub when: Vec<Condition>,
}

/// All that is searched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Space {
    parameters: Vec<Parameter>,
}

impl Space {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter that always matters.
    pub fn add(&mut self, name: &str, distribution: Distribution) -> Result<&mut Self> {
        self.add_when(name, distribution, Vec::new())
    }

    /// Adds a parameter that matters only while all conditions hold.
    pub fn add_when(&mut self, name: &str, distribution: Distribution, when: Vec<Condition>) -> Result<&mut Self> {
        if self.get(name).is_some() {
            return Err(Error::Input(format!("parameter {name} is searched twice")));
        }
        for condition in &when {
            self.check_condition(name, condition)?;
        }
        self.parameters.push(Parameter { name: name.into(), distribution: Arc::new(distribution), when });
        Ok(self)
    }

    fn check_condition(&self, name: &str, condition: &Condition) -> Result<()> {
        let Some(other) = self.get(&condition.parameter) else {
            let cause = format!("{name} depends on {}, which is not a parameter before it", condition.parameter);
            return Err(Error::Input(cause));
        };
        for value in &condition.any_of {
            let known = other.distribution.internal(value).is_ok_and(|internal| other.distribution.contains(internal));
            if !known {
                let cause = format!("{name} is searched when {} is {value}, which it can never be", other.name);
                return Err(Error::Input(cause));
            }
        }
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Whether some parameter matters only sometimes.
    pub(crate) fn is_conditional(&self) -> bool {
        self.parameters.iter().any(|parameter| !parameter.when.is_empty())
    }

    /// The parameters that always matter, by name.
    pub fn domain(&self) -> Domain {
        let always = self.parameters.iter().filter(|parameter| parameter.when.is_empty());
        order::map(always.map(|parameter| (parameter.name.clone(), parameter.distribution.clone())))
    }

    /// Goes through the parameters in order, asking `choose` for each that matters given the values before it.
    pub fn walk(&self, mut choose: impl FnMut(&Parameter) -> f64) -> Point {
        let mut point = Point::new();
        for parameter in &self.parameters {
            if self.matters(parameter, &point) {
                let internal = choose(parameter);
                point.insert(parameter.name.clone(), internal);
            }
        }
        point
    }

    /// Whether all conditions of a parameter hold at a point; a condition on what does not matter does not hold.
    pub fn matters(&self, parameter: &Parameter, point: &Point) -> bool {
        parameter.when.iter().all(|condition| {
            let other = self.get(&condition.parameter).zip(point.get(&condition.parameter));
            other.is_some_and(|(other, internal)| {
                let value = other.distribution.external(*internal);
                condition.any_of.iter().any(|allowed| allowed.same_as(&value))
            })
        })
    }

    /// One line per parameter: what a study remembers of its space, and compares.
    pub fn describe(&self) -> String {
        let line = |parameter: &Parameter| {
            let conditions = parameter.when.iter().map(|condition| {
                let values: Vec<String> = condition.any_of.iter().map(Value::to_string).collect();
                format!(" when {} is {}", condition.parameter, values.join(" or "))
            });
            format!("{}: {}{}", parameter.name, parameter.distribution, conditions.collect::<String>())
        };
        self.parameters.iter().map(line).collect::<Vec<String>>().join("\n")
    }

    /// How many different points there are; none if it is a continuum or more than `u64` can count.
    pub(crate) fn cardinality(&self) -> Option<u64> {
        if !self.is_conditional() {
            let mut counts = self.parameters.iter().map(|parameter| parameter.distribution.cardinality());
            return counts.try_fold(1u64, |product, count| product.checked_mul(count?));
        }
        self.count_from(0, &mut Point::new())
    }

    fn count_from(&self, index: usize, point: &mut Point) -> Option<u64> {
        let Some(parameter) = self.parameters.get(index) else { return Some(1) };
        if !self.matters(parameter, point) {
            return self.count_from(index + 1, point);
        }
        let count = parameter.distribution.cardinality()?;
        if !self.decides_another(&parameter.name) {
            return count.checked_mul(self.count_from(index + 1, point)?);
        }
        let mut sum = 0u64;
        for nth in 0..count {
            point.insert(parameter.name.clone(), parameter.distribution.nth(nth));
            sum = sum.checked_add(self.count_from(index + 1, point)?)?;
        }
        point.remove(&parameter.name);
        Some(sum)
    }

    fn decides_another(&self, name: &str) -> bool {
        self.parameters.iter().any(|parameter| parameter.when.iter().any(|condition| condition.parameter == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn optimizers() -> Space {
        let mut space = Space::new();
        let names = ["sgd", "adamw"].map(Value::from).to_vec();
        space.add("optimizer", Distribution::categorical(names).unwrap()).unwrap();
        space.add("lr", Distribution::int(1, 4).unwrap()).unwrap();
        let only_sgd = Condition { parameter: "optimizer".into(), any_of: vec!["sgd".into()] };
        space.add_when("momentum", Distribution::int(0, 9).unwrap(), vec![only_sgd]).unwrap();
        space
    }

    #[test]
    fn a_parameter_whose_condition_fails_is_not_asked_for() {
        let space = optimizers();
        let point = space.walk(|parameter| if parameter.name == "optimizer" { 1.0 } else { 2.0 });
        assert_eq!(point.keys().collect::<Vec<_>>(), ["lr", "optimizer"]);
    }

    #[test]
    fn a_conditional_space_is_counted_branch_by_branch() {
        assert_eq!(optimizers().cardinality(), Some(4 * 10 + 4));
    }

    #[test]
    fn a_condition_on_an_unknown_parameter_or_an_impossible_value_is_refused() {
        let mut space = optimizers();
        let unknown = Condition { parameter: "optimiser".into(), any_of: vec!["sgd".into()] };
        assert!(space.add_when("x", Distribution::int(0, 1).unwrap(), vec![unknown]).is_err());
        let impossible = Condition { parameter: "optimizer".into(), any_of: vec!["lion".into()] };
        assert!(space.add_when("x", Distribution::int(0, 1).unwrap(), vec![impossible]).is_err());
        assert!(space.add("lr", Distribution::int(0, 1).unwrap()).is_err());
    }

    #[test]
    fn a_continuum_cannot_be_counted() {
        let mut space = Space::new();
        space.add("x", Distribution::float(0.0, 1.0).unwrap()).unwrap();
        assert_eq!(space.cardinality(), None);
    }
}
