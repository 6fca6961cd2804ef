//! A recipe over every combination of some values: what fits, and how fast.

use super::attempt::{Attempt, attempts};
use super::parallel::Progress;
use crate::Device;
use crate::PlanFailure;
use crate::choose::planning_key;
use plimsoll_base::explain::{Explain, Fault};
use plimsoll_models::recipe::{Draft, Recipe};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

/// More than this is a typing error, or a search to be sampled, not tabled.
pub(crate) const MOST_COMBINATIONS: usize = 10_000;

/// Values of a range or product that are read: one too many is enough for the table to be refused.
const MOST_READ: usize = MOST_COMBINATIONS + 1;

/// A key of the recipe and the values to try for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub key: String,
    pub values: Vec<AxisValue>,
}

/// A value as it is set, and as it was written: `8x2` sets 16.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisValue {
    pub set: String,
    pub written: String,
}

#[derive(Debug, Error)]
pub enum GridError {
    #[error("`--grid {text}`: {cause}")]
    Malformed { text: String, cause: &'static str },
    #[error("`--grid` names {key} twice")]
    Twice { key: String },
    #[error("--grid asks for more than {MOST_COMBINATIONS} combinations")]
    TooMany,
    #[error("--grid {value}: every combination with it is refused\n{error}")]
    Value { value: String, error: String },
    #[error(transparent)]
    Train(#[from] PlanFailure),
}

impl Explain for GridError {
    fn fault(&self) -> Fault {
        if let GridError::Train(failure) = self { failure.fault() } else { Fault::BadInput }
    }

    fn hints(&self) -> Vec<String> {
        if let GridError::Train(failure) = self { failure.hints() } else { vec![self.hint().into()] }
    }

    fn message(&self) -> String {
        if let GridError::Train(failure) = self { failure.message() } else { self.to_string() }
    }
}

impl GridError {
    fn hint(&self) -> &'static str {
        match self {
            GridError::Malformed { .. } => {
                "for example `--grid train.effective_batch=32,64`, `--grid data.max_length=128..512:32` (from..to:step) \
                 or `--grid train.effective_batch=8,16x1,2,4` (every product)"
            }
            GridError::Twice { .. } => "give all of its values in one --grid, separated by commas",
            GridError::TooMany => "try fewer values at a time",
            GridError::Value { .. } => "correct the key or the value",
            GridError::Train(_) => "this is a defect of plimsoll: please report it with the recipe",
        }
    }
}

impl Axis {
    /// `key=v1,v2`, `key=128..512:32` (both ends included) or `key=8,16x1,2` (every product of two numbers).
    pub fn parse(text: &str) -> Result<Axis, GridError> {
        let malformed = |cause| GridError::Malformed { text: text.into(), cause };
        let (key, list) = text.split_once('=').ok_or_else(|| malformed("there is no `=` with values behind it"))?;
        let values = match (range(list), products(list)) {
            (Some(values), _) | (None, Some(values)) => values,
            (None, None) => split_list(list).into_iter().map(AxisValue::plain).collect(),
        };
        match () {
            () if key.trim().is_empty() => Err(malformed("the key is missing")),
            () if values.is_empty() => Err(malformed("the range is empty")),
            () if values.iter().any(|value| value.set.is_empty()) => Err(malformed("a value is missing")),
            () => Ok(Axis { key: key.trim().into(), values }),
        }
    }
}

impl AxisValue {
    fn plain(text: &str) -> AxisValue {
        AxisValue { set: text.trim().into(), written: text.trim().into() }
    }
}

/// `128..512:32`; `None` if it is no such thing. A step of 0 gives nothing.
fn range(text: &str) -> Option<Vec<AxisValue>> {
    let (ends, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = ends.split_once("..")?;
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let (first, last, step) = (number(first)?, number(last)?, number(step)?);
    let steps = (step > 0 && first <= last).then(|| (first..=last).step_by(step));
    let values = steps.into_iter().flatten().take(MOST_READ);
    Some(values.map(|n| AxisValue::plain(&n.to_string())).collect())
}

/// `8,16x1,2`; `None` where the parts are not whole numbers.
fn products(text: &str) -> Option<Vec<AxisValue>> {
    let (left, right) = text.split_once('x')?;
    let numbers = |text: &str| text.split(',').map(|n| n.trim().parse::<usize>().ok()).collect::<Option<Vec<usize>>>();
    let (left, right) = (numbers(left)?, numbers(right)?);
    let product =
        |(a, b): (&usize, &usize)| Some(AxisValue { set: a.checked_mul(*b)?.to_string(), written: format!("{a}x{b}") });
    let pairs = left.iter().flat_map(|a| right.iter().map(move |b| (a, b)));
    pairs.take(MOST_READ).map(product).collect()
}

/// Parts between commas; those inside of brackets and quotes do not count.
fn split_list(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0usize, None);
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// One combination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GridRow {
    /// What was set, by key.
    pub settings: BTreeMap<String, String>,
    /// The values as they were written, in the order of the axes.
    #[serde(skip)]
    pub written: Vec<String>,
    #[serde(flatten)]
    pub attempt: Attempt,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    pub keys: Vec<String>,
    pub rows: Vec<GridRow>,
    /// Plans that were made: combinations that planning cannot tell apart share one.
    pub plans: usize,
}

impl Grid {
    pub fn fitting(&self) -> usize {
        self.rows.iter().filter(|row| row.attempt.fits).count()
    }
}

/// Plans every combination. A value that no combination accepts is an error; a combination that is refused although
/// each of its values is accepted elsewhere is a row that says so.
pub fn grid(draft: &Draft, axes: &[Axis], device: &Device, done: Progress<'_>) -> Result<Grid, GridError> {
    let combinations = combinations(axes)?;
    let recipe = |combination| draft.with(&settings(axes, combination)).map_err(|error| error.to_string());
    let recipes: Vec<Result<Recipe, String>> = combinations.iter().map(recipe).collect();
    if recipes.iter().all(Result::is_err) {
        // What is wrong with the recipe itself is not a value's fault.
        draft.with(&[]).map_err(PlanFailure::from)?;
    }
    refuse_useless_values(axes, &combinations, &recipes)?;
    let (attempts, plans) = answers(&recipes, device, done)?;
    let row = |(combination, attempt): (&Combination, Attempt)| GridRow {
        settings: named(axes, combination).map(|(key, value)| (key.into(), value.set.clone())).collect(),
        written: named(axes, combination).map(|(_, value)| value.written.clone()).collect(),
        attempt,
    };
    let rows = combinations.iter().zip(attempts).map(row).collect();
    Ok(Grid { keys: axes.iter().map(|axis| axis.key.clone()).collect(), rows, plans })
}

/// One answer for each recipe, and how many plans that took.
fn answers(
    recipes: &[Result<Recipe, String>],
    device: &Device,
    done: Progress<'_>,
) -> Result<(Vec<Attempt>, usize), PlanFailure> {
    let (mut known, mut different) = (HashMap::new(), Vec::new());
    let mut plan_of = |recipe| {
        *known.entry(planning_key(recipe, device)).or_insert_with(|| {
            different.push(recipe);
            different.len() - 1
        })
    };
    let plans: Vec<Result<usize, &String>> = recipes.iter().map(|recipe| recipe.as_ref().map(&mut plan_of)).collect();
    let made = attempts(&different, device, done)?;
    let answer = |plan: Result<usize, &String>| match plan {
        Ok(index) => made[index].clone(),
        Err(cause) => Attempt::refused(cause.clone()),
    };
    Ok((plans.into_iter().map(answer).collect(), made.len()))
}

/// For each axis, which of its values.
type Combination = Vec<usize>;

/// All combinations; the last axis changes fastest.
fn combinations(axes: &[Axis]) -> Result<Vec<Combination>, GridError> {
    for (i, axis) in axes.iter().enumerate() {
        if axes[..i].iter().any(|other| other.key == axis.key) {
            return Err(GridError::Twice { key: axis.key.clone() });
        }
    }
    let count = axes.iter().fold(1usize, |product, axis| product.saturating_mul(axis.values.len()));
    if count > MOST_COMBINATIONS {
        return Err(GridError::TooMany);
    }
    let grow = |rows: Vec<Combination>, axis: &Axis| {
        let longer = |row: &Combination| -> Vec<Combination> {
            (0..axis.values.len()).map(|value| [&row[..], &[value]].concat()).collect()
        };
        rows.iter().flat_map(longer).collect()
    };
    Ok(axes.iter().fold(vec![Vec::new()], grow))
}

fn named<'a>(axes: &'a [Axis], combination: &'a Combination) -> impl Iterator<Item = (&'a str, &'a AxisValue)> {
    axes.iter().zip(combination).map(|(axis, &value)| (axis.key.as_str(), &axis.values[value]))
}

fn settings(axes: &[Axis], combination: &Combination) -> Vec<String> {
    named(axes, combination).map(|(key, value)| format!("{key}={}", value.set)).collect()
}

/// A value is useless if every combination with it is refused.
fn refuse_useless_values(
    axes: &[Axis],
    combinations: &[Combination],
    recipes: &[Result<Recipe, String>],
) -> Result<(), GridError> {
    for (axis, Axis { key, values }) in axes.iter().enumerate() {
        for (index, value) in values.iter().enumerate() {
            let mut with_it = combinations.iter().zip(recipes).filter(|(c, _)| c[axis] == index).map(|(_, r)| r);
            let Some(Err(error)) = with_it.next() else { continue };
            if with_it.all(Result::is_err) {
                return Err(GridError::Value { value: format!("{key}={}", value.written), error: error.clone() });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::recipes::SERIES;

    fn values(text: &str) -> Vec<String> {
        Axis::parse(text).unwrap().values.into_iter().map(|value| value.set).collect()
    }

    #[test]
    fn lists_ranges_and_products() {
        assert_eq!(values("a.b=1, 2,3"), ["1", "2", "3"]);
        assert_eq!(values("a=[4,8],[8]"), ["[4,8]", "[8]"]);
        assert_eq!(values("a={x=1,y=2},\"p,q\""), ["{x=1,y=2}", "\"p,q\""]);
        assert_eq!(values("a=128..224:32"), ["128", "160", "192", "224"]);
        assert_eq!(values("a=1..3"), ["1", "2", "3"]);
        assert_eq!(values("a=8,12x1,2"), ["8", "16", "12", "24"]);
        assert_eq!(values("model.preset=xlm-roberta-base,../x"), ["xlm-roberta-base", "../x"]);
        assert_eq!(Axis::parse("a=8x2").unwrap().values[0].written, "8x2");
        for bad in ["a", "=1", "a=", "a=1,,2", "a=4..2", "a=1..9:0"] {
            assert!(matches!(Axis::parse(bad), Err(GridError::Malformed { .. })), "{bad}");
        }
    }

    #[test]
    fn the_search_space_of_a_study_is_two_axes() {
        let batch = Axis::parse("train.effective_batch=8,12,16,24,32,48,64x1,2,3,4,6,8").unwrap();
        let length = Axis::parse("data.max_length=128..512:32").unwrap();
        let all = combinations(&[batch.clone(), length]).unwrap();
        assert_eq!(all.len(), 546);
        let different: std::collections::BTreeSet<&str> = batch.values.iter().map(|v| v.set.as_str()).collect();
        assert_eq!(different.len() * 13, 221);
        assert!(matches!(combinations(&[batch.clone(), batch]), Err(GridError::Twice { .. })));
        let many = Axis::parse("a=1..20000").unwrap();
        assert!(matches!(combinations(&[many]), Err(GridError::TooMany)));
        let ones = vec!["1"; 300].join(",");
        let square = Axis::parse(&format!("a={ones}x{ones}")).unwrap();
        assert!(matches!(combinations(&[square]), Err(GridError::TooMany)));
    }

    fn grid_of(axes: &[&str]) -> Result<Grid, GridError> {
        let axes: Vec<Axis> = axes.iter().map(|text| Axis::parse(text).unwrap()).collect();
        grid(&Draft::of_text(SERIES, "series.toml"), &axes, &Device::cpu(1, 1 << 34), &|_, _| ())
    }

    #[test]
    fn combinations_that_planning_cannot_tell_apart_are_planned_once() {
        let axes =
            ["train.optimizer.lr=1e-3,1e-4,1e-5", "train.optimizer.weight_decay=0.0,0.1", "train.effective_batch=8,16"];
        let grid = grid_of(&axes).unwrap();
        assert_eq!((grid.rows.len(), grid.plans, grid.fitting()), (12, 2, 12));
        assert_eq!(grid.rows[0].attempt, grid.rows[2].attempt);
        assert_ne!(grid.rows[0].attempt, grid.rows[1].attempt);
    }

    #[test]
    fn a_value_that_never_works_is_an_error_and_a_bad_combination_a_row() {
        let error = grid_of(&["train.effective_batch=8,many"]).unwrap_err().to_string();
        assert!(error.contains("train.effective_batch=many"), "{error}");
        // Two heads divide a width of 2 × 3, four do not; both divide 2 × 4.
        let grid = grid_of(&["model.hidden=3,4", "model.heads=2,4"]).unwrap();
        let refused: Vec<bool> = grid.rows.iter().map(|row| row.attempt.refused.is_some()).collect();
        assert_eq!(refused, [false, true, false, false]);
        assert_eq!(grid.fitting(), 3);
    }
}
