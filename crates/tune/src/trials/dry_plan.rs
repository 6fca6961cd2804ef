//! A study without trials: every combination of a search planned, or a fair sample of them where there are too many.

use std::collections::{BTreeMap, HashMap, HashSet};

use plimsoll::search::{Range, Search, Values};
use plimsoll::{Device, Progress, Recipe};
use serde::Serialize;

use super::pace::Pace;
use super::plans::{Asked, Outlook, Plans, key_of};
use super::space::{space_of, values_of};
use super::trainings::Lesson;
use crate::error::Result;
use crate::order;
use crate::rng::Rng;
use crate::samplers::random;
use crate::space::{Point, Space};

/// More are sampled, not enumerated.
const MOST_COMBINATIONS: u64 = 50_000;
const SAMPLE: usize = 1_000;
/// So little that nothing fits: the answer is the smallest plan there is.
const NOTHING_BYTES: u64 = 1;

/// What the whole space is like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DryRun {
    pub device: String,
    pub budget_bytes: u64,
    /// Combinations that were planned.
    pub combinations: usize,
    /// There are more than that, and these are drawn evenly.
    pub sampled: bool,
    /// Different trainings among them.
    pub distinct: usize,
    pub feasible: usize,
    pub infeasible: usize,
    /// Of the feasible ones, those that fit as they are asked for.
    pub as_asked: usize,
    /// Of the feasible ones, those that run in another micro-batch, with recompute or host memory.
    pub adapted: usize,
    /// Combinations that the recipe itself refuses.
    pub refused: usize,
    /// Why, where any is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The smallest budget inside which every combination fits.
    pub smallest_budget_bytes: u64,
    /// Of all different trainings one after the other; none where the data cannot be counted.
    pub predicted_hours: Option<f64>,
    /// Different plans that were made.
    pub plans: usize,
    pub rows: Vec<ModelRow>,
}

/// Combinations with one value of the first list of choices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelRow {
    pub name: String,
    pub combinations: usize,
    pub feasible: usize,
    pub adapted: usize,
    pub smallest_bytes: u64,
    pub largest_bytes: u64,
    pub predicted_hours: Option<f64>,
    /// How many are run with which recompute.
    pub recompute: BTreeMap<String, usize>,
}

/// One combination.
struct Combination {
    row: String,
    settings: Vec<String>,
    asked: Option<Asked>,
    recipe: std::result::Result<Recipe, String>,
}

/// Plans the space of a search on a device, which need not be here.
pub fn dry_plan(plans: &mut Plans, search: &Search, device: &Device, done: Progress<'_>) -> Result<DryRun> {
    let space = space_of(search)?;
    let held = indifferent(plans, search, &space, device);
    let (points, sampled) = points(&space, &held);
    let combinations: Vec<Combination> = points.iter().map(|point| combination(plans, search, &space, point)).collect();
    let recipes: Vec<&Recipe> = combinations.iter().filter_map(|c| c.recipe.as_ref().ok()).collect();
    plans.plan_all(&recipes, device, done)?;
    let outlooks = outlooks(plans, &combinations, device)?;
    let adapted = adapted(plans, &combinations, &outlooks, device, done)?;
    let smallest_budget_bytes = smallest_budget(plans, &combinations, &outlooks, device, done)?;
    let mut dry = tally(plans, Pace::of(device, 1), &combinations, &outlooks, &adapted)?;
    dry.device = device.name.clone();
    dry.budget_bytes = plans.budget(device)?;
    (dry.sampled, dry.smallest_budget_bytes, dry.plans) = (sampled, smallest_budget_bytes, plans.made());
    Ok(dry)
}

fn combination(plans: &Plans, search: &Search, space: &Space, point: &Point) -> Combination {
    let value = |(name, internal): (&String, &f64)| {
        let parameter = space.get(name)?;
        Some((name.clone(), parameter.distribution.external(*internal)))
    };
    let values = values_of(&order::map(point.iter().filter_map(value)));
    let settings = search.settings(&values);
    let recipe = plans.recipe(&settings).map_err(|error| error.to_string());
    let asked = recipe.as_ref().ok().map(|recipe| Asked::of(search, &values, recipe));
    Combination { row: row_name(search, &values), settings, asked, recipe }
}

/// The value of the first list of choices that are words, as models are.
fn row_name(search: &Search, values: &Values) -> String {
    let is_words = |range: &Range| matches!(range, Range::Choices(choices) if choices.iter().all(is_text));
    let first = search.parameters.iter().find(|parameter| is_words(&parameter.range));
    first.and_then(|parameter| values.get(&parameter.name)).map_or("all".into(), ToString::to_string)
}

fn is_text(scalar: &plimsoll::search::Scalar) -> bool {
    matches!(scalar, plimsoll::search::Scalar::Text(_))
}

/// Parameters with many values that no plan depends on, such as seeds and learning rates: one value stands for all.
fn indifferent(plans: &Plans, search: &Search, space: &Space, device: &Device) -> Point {
    let many = |count: Option<u64>| count.is_none_or(|count| count > FEW);
    let candidates = space.parameters().iter().filter(|parameter| many(parameter.distribution.cardinality()));
    let lowest = space.walk(|parameter| parameter.distribution.bounds().0);
    let key_at = |name: &str, internal: f64| {
        let point = Point::from_iter(lowest.clone().into_iter().chain([(name.to_string(), internal)]));
        let combination = combination(plans, search, space, &point);
        combination.recipe.ok().map(|recipe| key_of(&recipe, device))
    };
    let stays = |parameter: &&crate::space::Parameter| {
        let (low, high) = parameter.distribution.bounds();
        let keys = (key_at(&parameter.name, low), key_at(&parameter.name, high));
        keys.0.is_some() && keys.0 == keys.1
    };
    order::map(candidates.filter(stays).map(|parameter| (parameter.name.clone(), parameter.distribution.bounds().0)))
}

/// Values that are looked at one by one in any case.
const FEW: u64 = 32;

/// Every point, or a sample, with what is held at one value.
fn points(space: &Space, held: &Point) -> (Vec<Point>, bool) {
    let free = space.parameters().iter().filter(|parameter| !held.contains_key(&parameter.name));
    let count = free.map(|p| p.distribution.cardinality()).try_fold(1u64, |all, count| all.checked_mul(count?));
    if count.is_some_and(|count| count <= MOST_COMBINATIONS) {
        let mut found = Vec::new();
        enumerate(space, held, 0, &mut Point::new(), &mut found);
        return (found, false);
    }
    let mut rng = Rng::new(0);
    let mut draw = || {
        space.walk(|parameter| {
            let anew = random::at(&parameter.distribution, rng.uniform());
            held.get(&parameter.name).copied().unwrap_or(anew)
        })
    };
    ((0..SAMPLE).map(|_| draw()).collect(), true)
}

fn enumerate(space: &Space, held: &Point, index: usize, point: &mut Point, found: &mut Vec<Point>) {
    let Some(parameter) = space.parameters().get(index) else {
        found.push(point.clone());
        return;
    };
    if !space.matters(parameter, point) {
        return enumerate(space, held, index + 1, point, found);
    }
    let one = held.get(&parameter.name);
    let count = if one.is_some() { 1 } else { parameter.distribution.cardinality().unwrap_or(1) };
    for nth in 0..count {
        point.insert(parameter.name.clone(), one.copied().unwrap_or_else(|| parameter.distribution.nth(nth)));
        enumerate(space, held, index + 1, point, found);
    }
    point.remove(&parameter.name);
}

fn outlooks(plans: &mut Plans, all: &[Combination], device: &Device) -> Result<Vec<Option<Outlook>>> {
    let of = |combination: &Combination| match &combination.recipe {
        Ok(recipe) => plans.outlook(recipe, device).map(|outlook| Some((*outlook).clone())),
        Err(_) => Ok(None),
    };
    all.iter().map(of).collect()
}

/// Which of those that fit do not fit as they are asked for.
fn adapted(
    plans: &mut Plans,
    all: &[Combination],
    outlooks: &[Option<Outlook>],
    device: &Device,
    done: Progress<'_>,
) -> Result<Vec<bool>> {
    let differs = |combination: &Combination, outlook: &Option<Outlook>| {
        let (Some(asked), Some(outlook)) = (combination.asked, outlook) else { return false };
        outlook.fits && asked.may_differ(outlook)
    };
    let doubtful: Vec<bool> = all.iter().zip(outlooks).map(|(c, o)| differs(c, o)).collect();
    let pinned = |combination: &Combination| plans.recipe(&combination.asked?.pinned(&combination.settings)).ok();
    let recipes: Vec<Option<Recipe>> =
        all.iter().zip(&doubtful).map(|(c, doubtful)| doubtful.then(|| pinned(c)).flatten()).collect();
    let wanted: Vec<&Recipe> = recipes.iter().flatten().collect();
    plans.plan_all(&wanted, device, done)?;
    let answer = |recipe: &Option<Recipe>| match recipe {
        Some(recipe) => plans.outlook(recipe, device).map(|outlook| !outlook.fits),
        None => Ok(false),
    };
    recipes.iter().map(answer).collect()
}

/// What the most demanding combinations of each row need at least. A smaller batch or length never needs more, so the
/// slowest steps of a row are enough to look at.
fn smallest_budget(
    plans: &mut Plans,
    all: &[Combination],
    outlooks: &[Option<Outlook>],
    device: &Device,
    done: Progress<'_>,
) -> Result<u64> {
    let mut heaviest: HashMap<&str, (f64, &Combination)> = HashMap::new();
    for (combination, outlook) in all.iter().zip(outlooks) {
        let Some(outlook) = outlook.as_ref().filter(|outlook| outlook.refused.is_none()) else { continue };
        let entry = heaviest.entry(&combination.row).or_insert((outlook.step_ms, combination));
        if outlook.step_ms > entry.0 {
            *entry = (outlook.step_ms, combination);
        }
    }
    let within =
        |c: &Combination| plans.recipe(&[&c.settings[..], &[format!("memory.budget={NOTHING_BYTES}")]].concat());
    let recipes: Vec<Recipe> = heaviest.values().filter_map(|(_, combination)| within(combination).ok()).collect();
    plans.plan_all(&recipes.iter().collect::<Vec<_>>(), device, done)?;
    let mut needed = outlooks.iter().flatten().filter(|outlook| !outlook.fits).map(|o| o.peak_bytes).max().unwrap_or(0);
    for recipe in &recipes {
        needed = needed.max(plans.outlook(recipe, device)?.peak_bytes);
    }
    Ok(needed)
}

fn tally(
    plans: &mut Plans,
    alone: Pace,
    all: &[Combination],
    outlooks: &[Option<Outlook>],
    adapted: &[bool],
) -> Result<DryRun> {
    let mut rows: BTreeMap<&str, ModelRow> = BTreeMap::new();
    let (mut trainings, mut hours, mut known) = (HashSet::new(), 0.0, true);
    for ((combination, outlook), adapted) in all.iter().zip(outlooks).zip(adapted) {
        let row = rows.entry(&combination.row).or_default();
        row.name = combination.row.clone();
        row.combinations += 1;
        let (Ok(recipe), Some(outlook)) = (&combination.recipe, outlook) else { continue };
        let is_new = trainings.insert(Lesson::of(recipe)?.learning);
        if !outlook.fits {
            continue;
        }
        row.add(outlook, *adapted);
        if is_new {
            let seconds = alone.length(recipe, plans.steps(recipe), outlook).map(|length| length.seconds);
            known &= seconds.is_some();
            hours += seconds.unwrap_or(0.0) / 3600.0;
            row.predicted_hours = seconds.map(|seconds| row.predicted_hours.unwrap_or(0.0) + seconds / 3600.0);
        }
    }
    let sum = |of: fn(&ModelRow) -> usize| rows.values().map(of).sum::<usize>();
    let (feasible, changed) = (sum(|row| row.feasible), sum(|row| row.adapted));
    let refusals = all.iter().filter_map(|combination| combination.recipe.as_ref().err());
    let unplannable = outlooks.iter().flatten().filter_map(|outlook| outlook.refused.as_ref());
    let refused: Vec<&String> = refusals.chain(unplannable).collect();
    Ok(DryRun {
        device: String::new(),
        budget_bytes: 0,
        combinations: all.len(),
        sampled: false,
        distinct: trainings.len(),
        feasible,
        infeasible: all.len() - feasible,
        as_asked: feasible - changed,
        adapted: changed,
        refused: refused.len(),
        refusal: refused.first().map(ToString::to_string),
        smallest_budget_bytes: 0,
        predicted_hours: known.then_some(hours),
        plans: 0,
        rows: rows.into_values().collect(),
    })
}

impl ModelRow {
    fn add(&mut self, outlook: &Outlook, adapted: bool) {
        self.feasible += 1;
        self.adapted += usize::from(adapted);
        let least = if self.smallest_bytes == 0 { u64::MAX } else { self.smallest_bytes };
        self.smallest_bytes = least.min(outlook.peak_bytes);
        self.largest_bytes = self.largest_bytes.max(outlook.peak_bytes);
        *self.recompute.entry(outlook.recompute.into()).or_default() += 1;
    }
}
