//! The search: which settings, and how much recompute, give the fastest step that fits.
//!
//! Settings without recompute are built once (`Base`) and remembered. What recompute they need in some room is found on
//! their ladder, without building anything. A base's own time bounds all of its rungs from below, so most bases are
//! dropped unclimbed; and a smaller micro-batch needs less memory, so the first that fits is found by halving.

use super::bases::{Base, Bases, Task};
use super::levers::{LEVERS, even_micro_batches, pinned_recompute, ragged_micro_batches, settings, with_micro_batch};
use super::memo::Memo;
use crate::choose::{Choice, ChooseError};
use crate::program::{Settings, StepSpec};
use plimsoll_core::plan::{PlanError, Recompute, Rung, lay_out_in, predicted_ms};
use plimsoll_models::recipe::RecomputeLevel;
use rustc_hash::FxHashMap;

/// Rounds over all levers; one that improves nothing ends them.
const ROUNDS: usize = 3;

/// The budgets that settings are looked for in: how many there are between a size and its double, and how many of those
/// below a budget count for it, besides the one above it. Where little is left, each is divided.
const STEPS_PER_DOUBLING: i32 = 12;
const STEPS_BELOW: i32 = 2;
const FINER: i32 = 4;

/// The bytes of one of them, counted in the finer ones.
fn fixed_budget(step: i32) -> usize {
    2f64.powf(f64::from(step) / f64::from(STEPS_PER_DOUBLING * FINER)) as usize
}

/// How many times fewer tokens have their logits at a time where the whole batch is tried in little memory.
const FEWER_LOGITS: usize = 4;

/// Ragged micro-batches tried on either side of the best even one.
const RAGGED: usize = 4;

/// Where a search starts, besides the usual settings.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Starts {
    /// Where nothing fits with the usual levers: at the settings that need least.
    smallest: bool,
    /// Where the levers of another search stand.
    like: bool,
}

impl Starts {
    const ALL: Starts = Starts { smallest: true, like: true };
}

pub(super) struct PlanSearch<'a> {
    pub task: Task<'a>,
    bases: Bases<'a>,
    /// What is not faster than this is of no use.
    bound: Option<f64>,
    /// What was found in the fixed budgets, by their number and where it was looked for.
    found: FxHashMap<(i32, Starts), Option<Settings>>,
    /// The bytes that there are; 0 where that is not known.
    room: usize,
    /// What another search found: where its levers stand is a good place to start from.
    like: Option<Settings>,
    /// What `least_seconds` found.
    least_seconds: Option<Option<f64>>,
}

/// Settings with a rung of their ladder.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// With `Recompute::None`; the rung says what is recomputed.
    pub settings: Settings,
    rung: usize,
    pub live_peak_bytes: usize,
    pub step_seconds: f64,
}

impl Base {
    fn at(&self, settings: &Settings, rung: Rung) -> Candidate {
        let live = self.other_live_bytes.max(rung.measured.live_bytes);
        Candidate {
            settings: settings.clone(),
            rung: rung.index,
            live_peak_bytes: self.resident_bytes.saturating_add(live),
            step_seconds: self.step_seconds + self.repeat as f64 * rung.measured.extra_seconds,
        }
    }
}

impl Candidate {
    /// Faster, or as fast in less memory.
    fn beats(&self, other: &Candidate) -> bool {
        let (a, b) = (self.step_seconds, other.step_seconds);
        a < b * (1.0 - 1e-9) || (a <= b * (1.0 + 1e-9) && self.live_peak_bytes < other.live_peak_bytes)
    }
}

impl<'a> PlanSearch<'a> {
    pub(super) fn new(task: Task<'a>, memo: &'a Memo) -> PlanSearch<'a> {
        let (bases, found) = (Bases::new(task, memo), FxHashMap::default());
        PlanSearch { task, bases, bound: None, found, room: 0, like: None, least_seconds: None }
    }

    /// The same where there are so many bytes.
    pub(super) fn within(self, room: usize) -> PlanSearch<'a> {
        PlanSearch { room, ..self }
    }

    /// The same for plans that are faster than what another search found, which puts less into host memory.
    pub(super) fn after(self, before: &PlanSearch<'a>, found: &Choice) -> PlanSearch<'a> {
        let (bound, like) = (Some(found.predicted_step_ms / 1e3), Some(found.settings.clone()));
        PlanSearch { bound, like, bases: self.bases.after(&before.bases), ..self }
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.bound.is_some()
    }

    /// Whether the smallest plan need not be the smallest with its gaps.
    pub(super) fn allows_gaps(&self) -> bool {
        self.bases.memo().allows_gaps
    }

    /// Whether no plan is faster, however much memory there is.
    pub(super) fn is_unbounded(&mut self, choice: &Choice) -> Result<bool, PlanError> {
        let seconds = choice.predicted_step_ms / 1e3;
        if self.is_beaten_by_built(seconds) {
            return Ok(false);
        }
        Ok(self.least_seconds()?.is_none_or(|least| seconds <= least * (1.0 + 1e-6)))
    }

    /// Whether something that was built on the way is faster without recompute: it needs no more than memory.
    fn is_beaten_by_built(&self, seconds: f64) -> bool {
        self.first_rung() == 0 && seconds > self.bases.fastest_seconds() * (1.0 + 1e-6)
    }

    /// Whether this search, with more in host memory than `before`, can find nothing faster than what that one chose: what
    /// the copies take away is about the same for every micro-batch, for a step copies all of its samples. Only if half of
    /// it is too much already for the fastest there was without any.
    pub(super) fn is_outdone_by(&mut self, before: &mut PlanSearch<'a>, choice: &Choice) -> Result<bool, PlanError> {
        if !self.task.is_fixed() || before.task.is_fixed() {
            return Ok(false);
        }
        // The whole batch at once starts the fewest of them.
        let whole = even_micro_batches(&self.task.place())[0];
        let (here, there) = (self.start(whole), before.start(whole));
        let copies = self.bases.get(&here)?.step_seconds - before.bases.get(&there)?.step_seconds;
        Ok(before.bases.fastest_seconds() + copies / 2.0 > choice.predicted_step_ms / 1e3)
    }

    /// The fastest candidate whose live peak is at most `budget` bytes.
    pub(super) fn fastest(&mut self, budget: usize) -> Result<Option<Candidate>, PlanError> {
        self.fastest_from(budget, Starts::ALL)
    }

    fn fastest_from(&mut self, budget: usize, starts: Starts) -> Result<Option<Candidate>, PlanError> {
        let start = self.start(self.task.spec.effective_batch);
        let mut best = None;
        self.scan(&start, budget, &mut best)?;
        let is_tight = best.as_ref().is_none_or(|best| best.rung > 0 || best.settings.micro_batch == 1);
        if is_tight {
            self.consider_whole(&start, budget, &mut best)?;
        }
        let like = self.like.iter().filter(|_| starts.like).map(|like| like_of(like, &start)).collect::<Vec<_>>();
        let others = self.other_starts(&start, best.as_ref().filter(|_| !is_tight))?;
        for other in others.iter().chain(&like) {
            self.scan(other, budget, &mut best)?;
        }
        if best.is_none() && !self.is_bounded() {
            if !starts.smallest || self.is_hopeless(budget)? {
                return Ok(None);
            }
            let smallest = self.smallest()?;
            if smallest.live_peak_bytes > budget {
                return Ok(None);
            }
            let like = smallest.settings.clone();
            best = Some(smallest);
            self.scan(&like, budget, &mut best)?;
        }
        for _ in 0..ROUNDS {
            let before = best.clone();
            self.try_levers(budget, &mut best)?;
            if !improved(&before, &best) {
                break;
            }
        }
        Ok(best)
    }

    /// The whole batch has no accumulators: with fewer logits at a time it may fit where only small parts do otherwise.
    fn consider_whole(
        &mut self,
        start: &Settings,
        budget: usize,
        best: &mut Option<Candidate>,
    ) -> Result<(), PlanError> {
        let place = self.task.place();
        let whole = self.with(start, even_micro_batches(&place)[0]);
        let is_fewer = |other: &Settings| other.loss_chunk == whole.loss_chunk / FEWER_LOGITS;
        for other in LEVERS.iter().flat_map(|lever| lever.candidates(&place, &whole)).filter(is_fewer) {
            self.consider(&other, budget, best)?;
        }
        Ok(())
    }

    /// Where else to start: with levers at a value that is faster for a large, a middling or a small micro-batch than both
    /// `start` and what was found, or at any where memory is tight.
    fn other_starts(&mut self, start: &Settings, found: Option<&Candidate>) -> Result<Vec<Settings>, PlanError> {
        let (place, mut starts) = (self.task.place(), Vec::new());
        for other in LEVERS.iter().flat_map(|lever| lever.other_starts(&place, start)) {
            let is_of_use = match found {
                Some(found) => self.is_faster_somewhere(&other, start, found.step_seconds)?,
                None => true,
            };
            if is_of_use {
                starts.push(other);
            }
        }
        Ok(starts)
    }

    fn is_faster_somewhere(&mut self, one: &Settings, other: &Settings, most: f64) -> Result<bool, PlanError> {
        let sizes = even_micro_batches(&self.task.place());
        for size in [sizes[0], sizes[sizes.len() / 2], sizes[sizes.len() - 1]] {
            let [one, other] = [one, other].map(|settings| self.with(settings, size));
            if self.bases.seconds_at_least(&one) < most && self.bases.seconds(&one)? < self.bases.seconds(&other)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same among settings that were found in a few fixed budgets around this one. What levers are tried, one after the
    /// other, depends on the budget, and what that leads to need not be faster where there is more room; but settings are
    /// never slower with more, and between two of those budgets they are the same for all.
    pub(super) fn fastest_near(&mut self, budget: usize) -> Result<Option<Candidate>, PlanError> {
        let step = ((budget.max(1) as f64).log2() * f64::from(STEPS_PER_DOUBLING)).floor() as i32;
        let mut best = None;
        for at in (step - STEPS_BELOW..=step + 1).rev() {
            let found = self.found_in(at * FINER, best.is_none())?;
            if found.is_empty() && at <= step {
                break;
            }
            self.consider_all(&found, budget, &mut best)?;
            if self.is_fastest_of_all(best.as_ref())? {
                return Ok(best);
            }
        }
        if best.is_none() { self.fastest_in_little(budget, step * FINER) } else { Ok(best) }
    }

    /// Whether this is what is found however much memory there is: then less need not be looked at. What recomputes more
    /// than it must is not.
    fn is_fastest_of_all(&mut self, found: Option<&Candidate>) -> Result<bool, PlanError> {
        let Some(found) = found.filter(|found| found.rung == self.first_rung()) else { return Ok(false) };
        if self.is_beaten_by_built(found.step_seconds) {
            return Ok(false);
        }
        Ok(self.least_seconds()?.is_some_and(|least| (found.step_seconds - least).abs() <= 1e-9 * least))
    }

    /// Seconds of the fastest candidate, however much memory there is.
    fn least_seconds(&mut self) -> Result<Option<f64>, PlanError> {
        if let Some(known) = self.least_seconds {
            return Ok(known);
        }
        let seconds = self.fastest(usize::MAX)?.map(|fastest| fastest.step_seconds);
        self.least_seconds = Some(seconds);
        Ok(seconds)
    }

    /// The same where the budgets from `step` on hold no plan yet, or none that fits in this one: among settings that were
    /// found in the finer ones up to it, and the one above. What counts for a budget counts for a larger one.
    fn fastest_in_little(&mut self, budget: usize, step: i32) -> Result<Option<Candidate>, PlanError> {
        let mut best = None;
        for at in step..=step + FINER {
            let found = self.found_in(at, true)?;
            self.consider_all(&found, budget, &mut best)?;
            if fixed_budget(at) > budget {
                break;
            }
        }
        if best.is_none() { self.fastest(budget) } else { Ok(best) }
    }

    fn consider_all(
        &mut self,
        found: &[Settings],
        budget: usize,
        best: &mut Option<Candidate>,
    ) -> Result<(), PlanError> {
        for settings in found {
            self.consider(settings, budget, best)?;
            self.scan_ragged_at(settings, settings.micro_batch, budget, best)?;
        }
        Ok(())
    }

    /// The settings of the fastest candidates in a fixed budget, found with and without those of another search, which depend
    /// on what there is. `smallest`: what needs least is looked for only where nothing fits so far, for it is not fast.
    fn found_in(&mut self, step: i32, smallest: bool) -> Result<Vec<Settings>, PlanError> {
        let budget = fixed_budget(step);
        let ways = [false, true].into_iter().take(1 + self.like.is_some() as usize);
        let mut all = Vec::new();
        for starts in ways.map(|like| Starts { smallest, like }) {
            if !self.found.contains_key(&(step, starts)) {
                let found = self.fastest_from(budget, starts)?.map(|candidate| candidate.settings);
                self.found.insert((step, starts), found);
            }
            all.extend(self.found[&(step, starts)].clone());
        }
        all.dedup();
        Ok(all)
    }

    /// Bytes of what lives over steps where there is least of it: without accumulation there are no accumulators, and
    /// less than a whole batch may land at a time.
    pub(super) fn least_resident_bytes(&mut self) -> Result<usize, PlanError> {
        let whole = self.start(even_micro_batches(&self.task.place())[0]);
        self.bases.lasting_bytes(&whole)
    }

    /// Whether even the smallest candidate needs more than `budget`, as far as that can be told without looking for it:
    /// accumulators leave no room, and without them the whole batch at once needs more than they do.
    pub(super) fn is_hopeless(&mut self, budget: usize) -> Result<bool, PlanError> {
        let sizes = even_micro_batches(&self.task.place());
        let least = self.start(sizes[sizes.len() - 1]);
        let whole = self.with(&least, sizes[0]);
        let Some(floor) = self.bases.floor(&least).filter(|&floor| floor > budget) else { return Ok(false) };
        // Other levers may take a little off the whole batch.
        Ok(self.lowest(&whole)?.live_peak_bytes >= floor.max(budget + budget / 16))
    }

    /// The candidate that needs least memory.
    pub(super) fn smallest(&mut self) -> Result<Candidate, PlanError> {
        let sizes = even_micro_batches(&self.task.place());
        let (largest, least) = (sizes[0], sizes[sizes.len() - 1]);
        let mut best = self.lowest(&self.start(least))?;
        for _ in 0..ROUNDS {
            let before = best.live_peak_bytes;
            let like = best.settings.clone();
            // Without accumulation there are no accumulators: the whole batch may need less than a part of it.
            let mut others = vec![largest, least].into_iter().map(|m| self.with(&like, m)).collect::<Vec<_>>();
            for lever in LEVERS {
                others.extend(lever.candidates(&self.task.place(), &like));
            }
            for other in others {
                let candidate = self.lowest(&other)?;
                if candidate.live_peak_bytes < best.live_peak_bytes {
                    // One lever after the other: what is combined here was the best of its own.
                    best = self.lowest(&merged(&best.settings, &like, &candidate.settings))?;
                    if candidate.live_peak_bytes < best.live_peak_bytes {
                        best = candidate;
                    }
                }
            }
            if best.live_peak_bytes == before {
                break;
            }
        }
        Ok(best)
    }

    /// The settings to start from. What saved values go to the host depends on what is recomputed, so with them the
    /// recompute is part of the base: the pinned one, or none.
    fn start(&self, micro_batch: usize) -> Settings {
        let start = settings(self.task.family, self.task.spec, self.task.pins, micro_batch);
        let recompute = match self.task.is_fixed() {
            true => pinned_recompute(self.task.pins).unwrap_or(Recompute::None),
            false => Recompute::None,
        };
        Settings { offload: self.task.offload, recompute, ..start }
    }

    fn with(&self, like: &Settings, micro_batch: usize) -> Settings {
        with_micro_batch(&self.task.place(), like, micro_batch)
    }

    /// Goes through the micro-batches with the levers of `like`.
    fn scan(&mut self, like: &Settings, budget: usize, best: &mut Option<Candidate>) -> Result<(), PlanError> {
        let sizes = even_micro_batches(&self.task.place());
        let whole = self.with(like, sizes[0]);
        if best.is_none()
            && let Some(likely) = self.likely(&whole, &sizes, budget)?
        {
            self.consider(&likely, budget, best)?;
        }
        self.consider(&whole, budget, best)?;
        let mut range = 1..if self.bases.can_fit(&whole, budget)? { 1 } else { sizes.len() };
        while range.start < range.end {
            let middle = range.start + (range.end - range.start) / 2;
            match self.bases.can_fit(&self.with(like, sizes[middle]), budget)? {
                true => range.end = middle,
                false => range.start = middle + 1,
            }
        }
        // From here on time bounds the search: two sizes in a row that are slower even without recompute end it.
        let mut slower = 0;
        for &size in &sizes[range.start..] {
            let settings = self.with(like, size);
            if self.bases.floor(&settings).is_some_and(|floor| floor > budget) {
                continue;
            }
            self.consider(&settings, budget, best)?;
            let seconds = self.bases.known(&settings).map(|base| base.step_seconds);
            let is_slower = best.as_ref().is_some_and(|best| seconds.is_none_or(|seconds| seconds > best.step_seconds));
            slower = if is_slower { slower + 1 } else { 0 };
            if slower == 2 {
                break;
            }
        }
        self.scan_ragged(like, budget, best)
    }

    /// The micro-batch that about fits without recompute, if the whole batch does not: mostly it is near the best, and the
    /// sooner a fast one is known, the fewer others have their recompute fitted.
    fn likely(&mut self, whole: &Settings, sizes: &[usize], budget: usize) -> Result<Option<Settings>, PlanError> {
        if self.is_bounded() || self.first_rung() > 0 || self.bases.is_too_large(whole, budget) {
            return Ok(None);
        }
        let base = self.bases.get(whole)?;
        let (room, needed) = (budget.saturating_sub(base.resident_bytes), base.ladder().first()?.live_bytes);
        let least = self.with(whole, sizes[sizes.len() - 1]);
        let room_of_parts = budget.saturating_sub(self.bases.floor(&least).unwrap_or(0)).min(room);
        let fits = |size: &&usize| **size as f64 * needed as f64 <= sizes[0] as f64 * room_of_parts as f64;
        let likely = sizes.iter().find(fits).filter(|_| needed > room).map(|&size| self.with(whole, size));
        Ok(likely.filter(|likely| !self.bases.is_too_large(likely, budget)))
    }

    /// From the micro-batch of `like` to larger and to smaller ones, until two in a row are no better.
    fn scan_around(&mut self, like: &Settings, budget: usize, best: &mut Option<Candidate>) -> Result<(), PlanError> {
        let sizes = even_micro_batches(&self.task.place());
        let (larger, others) = sizes.split_at(sizes.partition_point(|&size| size > like.micro_batch));
        let smaller = others.iter().filter(|&&size| size < like.micro_batch).copied().collect::<Vec<_>>();
        for sizes in [larger.iter().rev().copied().collect(), smaller] {
            let mut missed = 0;
            for size in sizes {
                self.consider(&self.with(like, size), budget, best)?;
                let is_better = best.as_ref().is_some_and(|best| best.settings.micro_batch == size);
                missed = if is_better { 0 } else { missed + 1 };
                if missed == 2 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The ragged micro-batches next to the best, if that is even.
    fn scan_ragged(&mut self, like: &Settings, budget: usize, best: &mut Option<Candidate>) -> Result<(), PlanError> {
        let Some(even) = best.as_ref().map(|best| best.settings.micro_batch) else { return Ok(()) };
        self.scan_ragged_at(like, even, budget, best)
    }

    fn scan_ragged_at(
        &mut self,
        like: &Settings,
        even: usize,
        budget: usize,
        best: &mut Option<Candidate>,
    ) -> Result<(), PlanError> {
        let sizes = even_micro_batches(&self.task.place());
        let Some(at) = sizes.iter().position(|&size| size == even) else { return Ok(()) };
        let pairs = sizes.windows(2).enumerate().filter(|(i, _)| *i == at || i + 1 == at);
        let between: Vec<(usize, usize)> = pairs.map(|(_, pair)| (pair[1], pair[0])).collect();
        for (smaller, larger) in between {
            let ragged = ragged_micro_batches(self.task.spec.effective_batch, smaller, larger);
            for size in spread(&ragged, RAGGED) {
                self.consider(&self.with(like, size), budget, best)?;
            }
        }
        Ok(())
    }

    /// Every lever besides the micro-batch; where one helps, the micro-batches once more.
    fn try_levers(&mut self, budget: usize, best: &mut Option<Candidate>) -> Result<(), PlanError> {
        for lever in LEVERS {
            let Some(like) = best.as_ref().map(|b| b.settings.clone()) else { return Ok(()) };
            let values = lever.candidates(&self.task.place(), &like);
            let at = values.iter().position(|value| *value == like).unwrap_or(values.len());
            self.climb(values.iter().skip(at + 1), budget, best)?;
            self.climb(values.iter().take(at).rev(), budget, best)?;
            if let Some(better) = best.as_ref().map(|b| b.settings.clone()).filter(|better| *better != like) {
                self.scan_around(&better, budget, best)?;
            }
        }
        Ok(())
    }

    /// Goes on as long as each value is better than the one before.
    fn climb<'v>(
        &mut self,
        values: impl Iterator<Item = &'v Settings>,
        budget: usize,
        best: &mut Option<Candidate>,
    ) -> Result<(), PlanError> {
        for value in values {
            self.consider(value, budget, best)?;
            if best.as_ref().is_none_or(|best| best.settings != *value) {
                break;
            }
        }
        Ok(())
    }

    /// Takes the fastest rung of these settings that fits, if it beats the best so far.
    fn consider(&mut self, settings: &Settings, budget: usize, best: &mut Option<Candidate>) -> Result<(), PlanError> {
        if self.bases.is_too_large(settings, budget) {
            return Ok(());
        }
        let (first, bound) = (self.first_rung(), best.as_ref().map(|b| b.step_seconds).or(self.bound));
        if bound.is_some_and(|bound| self.bases.seconds_at_least(settings) > bound * (1.0 + 1e-9)) {
            return Ok(());
        }
        let base = self.bases.get(settings)?;
        let room = budget.saturating_sub(base.resident_bytes);
        let hopeless = budget < base.resident_bytes || base.other_live_bytes > room;
        if hopeless || bound.is_some_and(|bound| base.step_seconds > bound * (1.0 + 1e-9)) {
            return Ok(());
        }
        let spare = |bound: f64| (bound * (1.0 + 1e-9) - base.step_seconds) / base.repeat.max(1) as f64;
        let rung = base.ladder().fit(first, room, bound.map_or(f64::INFINITY, spare))?;
        if let Some(rung) = rung {
            let candidate = base.at(settings, rung);
            let is_of_use = bound.is_none_or(|bound| candidate.step_seconds <= bound * (1.0 + 1e-9));
            if is_of_use && best.as_ref().is_none_or(|best| candidate.beats(best)) {
                *best = Some(candidate);
                self.bases.note_best(settings);
            }
        }
        Ok(())
    }

    fn lowest(&mut self, settings: &Settings) -> Result<Candidate, PlanError> {
        let first = self.first_rung();
        let base = self.bases.get(settings)?;
        let lowest = base.ladder().lowest(first)?;
        let none = || PlanError::Broken("there is nothing to choose from".into());
        Ok(base.at(settings, lowest.ok_or_else(none)?))
    }

    /// A recipe that asks for "some" recompute gets some.
    fn first_rung(&self) -> usize {
        (self.task.pins.recompute == Some(RecomputeLevel::Some)) as usize
    }

    /// Live peak and seconds of settings whose recompute is given, without building them.
    pub(super) fn measure(&mut self, settings: &Settings) -> Result<(usize, f64), PlanError> {
        let is_fixed = settings.offload.activation_layers > 0;
        let recompute = if is_fixed { settings.recompute.clone() } else { Recompute::None };
        let plain = Settings { recompute, ..settings.clone() };
        let base = self.bases.get(&plain)?;
        let choice = if is_fixed { &Recompute::None } else { &settings.recompute };
        let rung = Rung { index: 0, measured: base.ladder().measure_choice(choice)? };
        let candidate = base.at(&plain, rung);
        Ok((candidate.live_peak_bytes, candidate.step_seconds))
    }

    /// The settings of a candidate with its recompute in them.
    pub(super) fn settings(&mut self, candidate: &Candidate) -> Result<Settings, PlanError> {
        if self.task.is_fixed() {
            return Ok(candidate.settings.clone());
        }
        let recompute = self.bases.get(&candidate.settings)?.ladder().choice(candidate.rung);
        Ok(Settings { recompute, ..candidate.settings.clone() })
    }

    /// Builds, places and verifies a candidate.
    pub(super) fn realize(&mut self, candidate: &Candidate) -> Result<Choice, ChooseError> {
        let placed = self.realize_in(candidate, usize::MAX)?;
        Ok(placed.ok_or(PlanError::TooLarge)?)
    }

    /// The same; `None` if it is known to need more than `most` bytes with its gaps.
    pub(super) fn realize_in(&mut self, candidate: &Candidate, most: usize) -> Result<Option<Choice>, ChooseError> {
        let (settings, evaluate_batch) = (self.settings(candidate)?, self.evaluated_beside(candidate)?);
        let spec = StepSpec { evaluate_batch, ..self.task.spec.clone() };
        let (memo, shared) = (self.bases.memo(), self.task.shared(&settings));
        let place = |most: usize| {
            let program = self.bases.program(&candidate.settings, &settings, &spec)?;
            let layout = lay_out_in(&program, self.task.options, most)?;
            Ok(layout.map(|layout| (program, layout)))
        };
        let placed = memo.placed(shared, evaluate_batch, settings.accumulation, most, place)?;
        let Some((program, layout)) = placed else { return Ok(None) };
        let predicted_step_ms = predicted_ms(&program, self.task.profile);
        // What was compared is what is said: otherwise more memory could look slower.
        debug_assert!(
            (predicted_step_ms / 1e3 - candidate.step_seconds).abs() <= 1e-6 * candidate.step_seconds,
            "{predicted_step_ms} ms of a candidate of {} s: {settings:?}",
            candidate.step_seconds
        );
        let (options, decisions) = (self.task.options, Vec::new());
        Ok(Some(Choice { settings, program, layout, options, decisions, predicted_step_ms, evaluate_batch }))
    }

    /// As many samples to an evaluation as need no more than the steps of a candidate do, or than there surely is.
    fn evaluated_beside(&mut self, candidate: &Candidate) -> Result<Option<usize>, PlanError> {
        let surely = self.room - self.room / 32;
        let resident_bytes = self.bases.get(&candidate.settings)?.resident_bytes;
        let room = candidate.live_peak_bytes.max(surely).saturating_sub(resident_bytes);
        let batches = self.task.evaluated();
        for &batch in &batches {
            if self.bases.others(&candidate.settings, Some(batch))?.live_bytes <= room {
                return Ok(Some(batch));
            }
        }
        Ok(batches.last().copied())
    }
}

fn improved(before: &Option<Candidate>, after: &Option<Candidate>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => after.beats(before),
        (before, after) => before.is_none() && after.is_some(),
    }
}

/// The levers of `like`, but for what goes to host memory.
fn like_of(like: &Settings, start: &Settings) -> Settings {
    Settings { recompute: start.recompute.clone(), offload: start.offload, ..like.clone() }
}

/// `base` with what `other` changed against `like`.
fn merged(base: &Settings, like: &Settings, other: &Settings) -> Settings {
    let pick = |base: usize, like: usize, other: usize| if other == like { base } else { other };
    Settings {
        micro_batch: pick(base.micro_batch, like.micro_batch, other.micro_batch),
        accumulation: pick(base.accumulation, like.accumulation, other.accumulation),
        attention: if other.attention == like.attention { base.attention } else { other.attention },
        block_group: pick(base.block_group, like.block_group, other.block_group),
        loss_chunk: pick(base.loss_chunk, like.loss_chunk, other.loss_chunk),
        ..base.clone()
    }
}

/// At most `most` of the items, evenly spread.
fn spread(items: &[usize], most: usize) -> Vec<usize> {
    let n = items.len().min(most);
    (0..n).map(|i| items[i * items.len() / n]).collect()
}
