//! What values a parameter may take: a range of floats or integers, linear, logarithmic or in steps, or a list of
//! choices. Every value also has an internal number (a choice has its index), which samplers and storages work on.

use std::fmt;

use super::decimal::Decimal;
use super::value::Value;
use crate::error::{Error, Result};
use crate::json::Json;

/// The domain of one parameter. Two distributions are equal when they describe the same domain.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    Float { low: f64, high: f64, log: bool, step: Option<f64> },
    Int { low: i64, high: i64, log: bool, step: i64 },
    Categorical { choices: Vec<Value> },
}

/// Integers are stored as `f64`: beyond this they would no longer be exact.
const LARGEST_EXACT_INT: i64 = 1 << 53;

impl Distribution {
    /// Floats from `low` to `high`, both included.
    pub fn float(low: f64, high: f64) -> Result<Self> {
        check_range(low, high)?;
        Ok(Self::Float { low, high, log: false, step: None })
    }

    /// Floats whose logarithm is spread evenly from `low` (above 0) to `high`.
    pub fn log_float(low: f64, high: f64) -> Result<Self> {
        check_range(low, high)?;
        if low <= 0.0 {
            return Err(bad(format!("a logarithmic range must start above 0, not at {low}")));
        }
        Ok(Self::Float { low, high, log: true, step: None })
    }

    /// `low`, `low + step`, … up to the last one that is not above `high`.
    pub fn float_steps(low: f64, high: f64, step: f64) -> Result<Self> {
        check_range(low, high)?;
        if !(step.is_finite() && step > 0.0) {
            return Err(bad(format!("a step must be above 0, not {step}")));
        }
        let high = Decimal::last_step(low, high, step);
        Ok(Self::Float { low, high, log: false, step: Some(step) })
    }

    /// Integers from `low` to `high`, both included.
    pub fn int(low: i64, high: i64) -> Result<Self> {
        Self::int_steps(low, high, 1)
    }

    /// `low`, `low + step`, … up to the last one that is not above `high`.
    pub fn int_steps(low: i64, high: i64, step: i64) -> Result<Self> {
        check_int_range(low, high)?;
        if step < 1 {
            return Err(bad(format!("a step must be at least 1, not {step}")));
        }
        let high = (high - low) / step * step + low;
        Ok(Self::Int { low, high, log: false, step })
    }

    /// Integers whose logarithm is spread evenly from `low` (at least 1) to `high`.
    pub(crate) fn log_int(low: i64, high: i64) -> Result<Self> {
        check_int_range(low, high)?;
        if low < 1 {
            return Err(bad(format!("a logarithmic range of integers must start at 1 or above, not at {low}")));
        }
        Ok(Self::Int { low, high, log: true, step: 1 })
    }

    /// One of the given values, which have no order among them.
    pub fn categorical(choices: Vec<Value>) -> Result<Self> {
        if choices.is_empty() {
            return Err(bad("a list of choices must hold at least one".into()));
        }
        Ok(Self::Categorical { choices })
    }

    /// Whether there is only one value to take.
    pub(crate) fn is_single(&self) -> bool {
        match self {
            Self::Float { low, high, step, .. } => {
                low == high || step.is_some_and(|step| Decimal::narrower_than(*low, *high, step))
            }
            Self::Int { low, high, step, .. } => high - low < *step,
            Self::Categorical { choices } => choices.len() == 1,
        }
    }

    /// How many values there are, if they can be counted.
    pub(crate) fn cardinality(&self) -> Option<u64> {
        match self {
            Self::Float { low, high, step: Some(step), .. } => Some(((high - low) / step).round() as u64 + 1),
            Self::Float { low, high, .. } => (low == high).then_some(1),
            Self::Int { low, high, step, .. } => Some(((high - low) / step) as u64 + 1),
            Self::Categorical { choices } => Some(choices.len() as u64),
        }
    }

    /// The internal number of the value at `index`, counting from the lowest.
    pub fn nth(&self, index: u64) -> f64 {
        match self {
            Self::Float { low, high, step, .. } => (low + index as f64 * step.unwrap_or(0.0)).min(*high),
            Self::Int { low, high, step, .. } => (low + (index as i64).saturating_mul(*step)).min(*high) as f64,
            Self::Categorical { .. } => index as f64,
        }
    }

    /// Whether the internal number stands for a value of this domain.
    pub fn contains(&self, internal: f64) -> bool {
        match self {
            Self::Float { low, high, step, .. } => {
                (*low..=*high).contains(&internal) && step.is_none_or(|step| is_on_step(internal - low, step))
            }
            Self::Int { low, high, step, .. } => {
                (*low as f64..=*high as f64).contains(&internal) && (internal - *low as f64) % *step as f64 == 0.0
            }
            Self::Categorical { choices } => internal >= 0.0 && (internal as usize) < choices.len(),
        }
    }

    /// The value an internal number stands for.
    pub(crate) fn external(&self, internal: f64) -> Value {
        match self {
            Self::Float { .. } => Value::Float(internal),
            Self::Int { .. } => Value::Int(internal as i64),
            Self::Categorical { choices } => choices.get(internal as usize).cloned().unwrap_or(Value::Null),
        }
    }

    /// The internal number of a value; an error says why the value is not of this kind.
    pub(crate) fn internal(&self, value: &Value) -> Result<f64> {
        match self {
            Self::Categorical { choices } => choices
                .iter()
                .position(|choice| choice.same_as(value))
                .map(|index| index as f64)
                .ok_or_else(|| bad(format!("{value} is not among the choices {self}"))),
            Self::Float { log, .. } | Self::Int { log, .. } => number_of(value, *log),
        }
    }

    /// Whether `other` may follow this one under the same name in one study, as Optuna sees it.
    pub(crate) fn is_compatible_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float { log: a, .. }, Self::Float { log: b, .. }) => a == b,
            (Self::Int { log: a, .. }, Self::Int { log: b, .. }) => a == b,
            (Self::Categorical { .. }, Self::Categorical { .. }) => self == other,
            _ => false,
        }
    }

    pub(crate) fn is_log(&self) -> bool {
        matches!(self, Self::Float { log: true, .. } | Self::Int { log: true, .. })
    }

    /// The step between values; none for what is continuous or has no order.
    pub fn step(&self) -> Option<f64> {
        match self {
            Self::Float { step, .. } => *step,
            Self::Int { step, .. } => Some(*step as f64),
            Self::Categorical { .. } => None,
        }
    }

    /// The lowest and highest internal number.
    pub fn bounds(&self) -> (f64, f64) {
        match self {
            Self::Float { low, high, .. } => (*low, *high),
            Self::Int { low, high, .. } => (*low as f64, *high as f64),
            Self::Categorical { choices } => (0.0, (choices.len() - 1) as f64),
        }
    }
}

/// How Optuna writes a distribution down.
impl Distribution {
    pub fn to_json(&self) -> Json {
        let (name, attributes) = match self {
            Self::Float { low, high, log, step } => (
                "FloatDistribution",
                vec![
                    ("step", step.map_or(Json::Null, Json::Float)),
                    ("low", Json::Float(*low)),
                    ("high", Json::Float(*high)),
                    ("log", Json::Bool(*log)),
                ],
            ),
            Self::Int { low, high, log, step } => (
                "IntDistribution",
                vec![
                    ("log", Json::Bool(*log)),
                    ("step", Json::Int(*step)),
                    ("low", Json::Int(*low)),
                    ("high", Json::Int(*high)),
                ],
            ),
            Self::Categorical { choices } => (
                "CategoricalDistribution",
                vec![("choices", Json::Array(choices.iter().map(Value::to_json).collect()))],
            ),
        };
        Json::object([("name", Json::from(name)), ("attributes", Json::object(attributes))])
    }

    /// Reads what [`Self::to_json`] or any version of Optuna wrote.
    pub fn from_json(json: &Json) -> Result<Self> {
        let name = json.get("name").and_then(Json::as_str).ok_or_else(|| bad("a distribution without name".into()))?;
        let attributes = json.get("attributes").ok_or_else(|| bad(format!("{name} without attributes")))?;
        match name {
            "FloatDistribution" | "UniformDistribution" => float_from(attributes, false),
            "LogUniformDistribution" => float_from(attributes, true),
            "DiscreteUniformDistribution" => float_from(attributes, false),
            "IntDistribution" | "IntUniformDistribution" => int_from(attributes, false),
            "IntLogUniformDistribution" => int_from(attributes, true),
            "CategoricalDistribution" => categorical_from(attributes),
            other => Err(bad(format!("unknown distribution {other}"))),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float { low, high, log, step } => {
                write!(f, "{low} … {high}")?;
                step.map_or(Ok(()), |step| write!(f, " in steps of {step}"))?;
                if *log { write!(f, ", logarithmic") } else { Ok(()) }
            }
            Self::Int { low, high, log, step } => {
                write!(f, "integers {low} … {high}")?;
                if *step > 1 { write!(f, " in steps of {step}") } else { Ok(()) }?;
                if *log { write!(f, ", logarithmic") } else { Ok(()) }
            }
            Self::Categorical { choices } => {
                let names: Vec<String> = choices.iter().map(Value::to_string).collect();
                write!(f, "[{}]", names.join(", "))
            }
        }
    }
}

fn bad(cause: String) -> Error {
    Error::Input(cause)
}

fn check_range(low: f64, high: f64) -> Result<()> {
    if !(low.is_finite() && high.is_finite()) {
        return Err(bad(format!("a range must be finite, not {low} … {high}")));
    }
    if low > high {
        return Err(bad(format!("a range must not end below its start: {low} … {high}")));
    }
    Ok(())
}

fn check_int_range(low: i64, high: i64) -> Result<()> {
    if low > high {
        return Err(bad(format!("a range must not end below its start: {low} … {high}")));
    }
    if low < -LARGEST_EXACT_INT || high > LARGEST_EXACT_INT {
        return Err(bad(format!("integers must lie within ±2^53, not {low} … {high}")));
    }
    Ok(())
}

fn is_on_step(distance: f64, step: f64) -> bool {
    let steps = distance / step;
    (steps - steps.round_ties_even()).abs() < 1e-8
}

fn number_of(value: &Value, log: bool) -> Result<f64> {
    let number = value.as_f64().ok_or_else(|| bad(format!("{value} is not a number")))?;
    if number.is_nan() || (log && number <= 0.0) {
        return Err(bad(format!("{value} cannot be a value of this range")));
    }
    Ok(number)
}

fn float_from(attributes: &Json, log: bool) -> Result<Distribution> {
    let (low, high) = (required(attributes, "low")?, required(attributes, "high")?);
    let step = attributes.get("step").or_else(|| attributes.get("q")).and_then(Json::as_f64);
    let log = log || attributes.get("log").and_then(Json::as_bool).unwrap_or(false);
    match step {
        // Written down after it was cut to whole steps: cutting again could lose the last one to rounding.
        Some(step) if step > 0.0 && low <= high && is_on_step(high - low, step) => {
            Ok(Distribution::Float { low, high, log: false, step: Some(step) })
        }
        Some(step) => Distribution::float_steps(low, high, step),
        None if log => Distribution::log_float(low, high),
        None => Distribution::float(low, high),
    }
}

fn int_from(attributes: &Json, log: bool) -> Result<Distribution> {
    let (low, high) = (required(attributes, "low")? as i64, required(attributes, "high")? as i64);
    let step = attributes.get("step").and_then(Json::as_f64).unwrap_or(1.0) as i64;
    if log || attributes.get("log").and_then(Json::as_bool).unwrap_or(false) {
        return Distribution::log_int(low, high);
    }
    Distribution::int_steps(low, high, step)
}

fn categorical_from(attributes: &Json) -> Result<Distribution> {
    let choices = attributes.get("choices").and_then(Json::as_array).ok_or_else(|| bad("choices missing".into()))?;
    Distribution::categorical(choices.iter().map(Value::from_json).collect())
}

fn required(attributes: &Json, key: &str) -> Result<f64> {
    attributes.get(key).and_then(Json::as_f64).ok_or_else(|| bad(format!("a range without {key}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_that_no_step_ends_exactly_stops_at_the_last_step_inside() {
        let floats = Distribution::float_steps(0.0, 1.0, 0.3).unwrap();
        assert_eq!(floats.bounds(), (0.0, 0.9));
        let ints = Distribution::int_steps(1, 10, 4).unwrap();
        assert_eq!(ints.bounds(), (1.0, 9.0));
    }

    #[test]
    fn steps_that_binary_fractions_miss_still_reach_the_end() {
        assert_eq!(Distribution::float_steps(0.0, 0.3, 0.1).unwrap().bounds(), (0.0, 0.3));
        assert_eq!(Distribution::float_steps(0.1, 0.7, 0.1).unwrap().bounds(), (0.1, 0.7));
    }

    #[test]
    fn a_range_upside_down_or_infinite_is_refused() {
        assert!(Distribution::float(1.0, 0.0).is_err());
        assert!(Distribution::float(0.0, f64::INFINITY).is_err());
        assert!(Distribution::float(f64::NAN, 1.0).is_err());
        assert!(Distribution::log_float(0.0, 1.0).is_err());
        assert!(Distribution::log_int(0, 3).is_err());
        assert!(Distribution::int_steps(0, 3, 0).is_err());
        assert!(Distribution::int(0, i64::MAX).is_err());
        assert!(Distribution::categorical(vec![]).is_err());
    }

    #[test]
    fn distributions_of_older_versions_are_read() {
        let text = r#"{"name": "DiscreteUniformDistribution", "attributes": {"low": 0, "high": 1, "q": 0.5}}"#;
        let read = Distribution::from_json(&Json::parse(text).unwrap()).unwrap();
        assert_eq!(read, Distribution::float_steps(0.0, 1.0, 0.5).unwrap());
    }

    fn any_distribution() -> impl Strategy<Value = Distribution> {
        prop_oneof![
            (-1e6..1e6f64, 0.0..1e6f64).prop_map(|(low, width)| Distribution::float(low, low + width).unwrap()),
            (1e-9..1.0f64, 1.0..1e6f64).prop_map(|(low, high)| Distribution::log_float(low, high).unwrap()),
            (-100.0..100.0f64, 0.0..50.0f64, 0.01..5.0f64).prop_map(|(low, width, step)| Distribution::float_steps(
                low,
                low + width,
                step
            )
            .unwrap()),
            (-1000i64..1000, 0i64..1000, 1i64..50).prop_map(|(low, width, step)| Distribution::int_steps(
                low,
                low + width,
                step
            )
            .unwrap()),
            (1i64..1000, 0i64..1000).prop_map(|(low, width)| Distribution::log_int(low, low + width).unwrap()),
            proptest::collection::vec(any::<i64>(), 1..6)
                .prop_map(|ints| Distribution::categorical(ints.into_iter().map(Value::Int).collect()).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_as_the_same_domain(distribution in any_distribution()) {
            let text = distribution.to_json().to_string();
            prop_assert_eq!(Distribution::from_json(&Json::parse(&text).unwrap()).unwrap(), distribution);
        }

        #[test]
        fn every_counted_value_is_contained(distribution in any_distribution(), at in 0.0..1.0f64) {
            if let Some(count) = distribution.cardinality() {
                let index = ((count as f64 * at) as u64).min(count - 1);
                prop_assert!(distribution.contains(distribution.nth(index)), "{} at {}", distribution, index);
            }
        }
    }
}
