//! The search: which settings, and how much recompute, give the fastest step that fits.
//!
//! Settings without recompute are built once (`Base`) and remembered. What recompute they need in some room is found on
//! their ladder, without building anything. A base's own time bounds all of its rungs from below, so most bases are
//! dropped unclimbed; and a smaller micro-batch needs less memory, so the first that fits is found by halving.

use super::levers::{
    LEVERS, Situation, even_micro_batches, pinned_recompute, ragged_micro_batches, settings, with_micro_batch,
};
use super::memo::Memo;
use crate::choose::{Choice, ChooseError, Pins};
use crate::program::contrastive::REPLAY;
use crate::program::{
    MICRO_STEP, STEP, Settings, StepSpec, UPDATE, micro_step, other_phases, phase, program, training_phases,
    update_phase,
};
use plimsoll_core::graph::{Graph, Space};
use plimsoll_core::plan::{
    LANDING, Ladder, LayoutOptions, Offload, Phase, PlanError, Profile, Recompute, Rung, add_landing, aligned,
    input_bytes, lay_out, live_bytes, predicted_ms,
};
use plimsoll_models::families::Family;
use plimsoll_models::recipe::RecomputeLevel;
use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::rc::Rc;

/// Rounds over all levers; one that improves nothing ends them.
const ROUNDS: usize = 3;

/// Smaller budgets that a plan is also looked for in, and how many of them there are between a size and its double.
const SMALLER_BUDGETS: usize = 3;
const STEPS_PER_DOUBLING: f64 = 12.0;

/// Ragged micro-batches tried on either side of the best even one.
const RAGGED: usize = 4;

pub(super) struct PlanSearch<'a> {
    pub family: &'a dyn Family,
    pub spec: &'a StepSpec,
    pub pins: &'a Pins,
    pub options: LayoutOptions,
    pub profile: &'a Profile,
    pub offload: Offload,
    /// What is not faster than this is of no use.
    bound: Option<f64>,
    bases: HashMap<Settings, Base>,
    memo: &'a Memo,
}

/// What phases need, but for what is recomputed in one of them.
#[derive(Clone, Default)]
pub(super) struct Needs {
    /// Name → bytes.
    residents: HashMap<String, usize>,
    live_bytes: usize,
    step_seconds: f64,
}

/// The phases of a step that recompute nothing yet, however often the one is run that can.
pub(super) struct Training {
    /// Of the phases where nothing is recomputed.
    rest: Needs,
    /// Name → bytes of what lives over steps in the one that can.
    residents: HashMap<String, usize>,
    ladder: RefCell<Ladder>,
    /// Of running it once.
    seconds: f64,
    repeat: usize,
}

/// An update on its own.
pub(super) struct Update {
    needs: Needs,
    input_bytes: usize,
}

/// Settings that recompute nothing yet.
struct Base {
    resident_bytes: usize,
    /// Those of them that inputs land in.
    landing_bytes: usize,
    /// Most bytes of temporaries in the phases where nothing is recomputed.
    other_live_bytes: usize,
    step_seconds: f64,
    /// The phase that can recompute, and how often a step runs it.
    training: Rc<Training>,
    repeat: usize,
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
    fn ladder(&self) -> RefMut<'_, Ladder> {
        self.training.ladder.borrow_mut()
    }

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
    pub(super) fn new(
        family: &'a dyn Family,
        spec: &'a StepSpec,
        pins: &'a Pins,
        options: LayoutOptions,
        profile: &'a Profile,
        offload: Offload,
        memo: &'a Memo,
    ) -> PlanSearch<'a> {
        PlanSearch { family, spec, pins, options, profile, offload, bound: None, bases: HashMap::new(), memo }
    }

    /// The same for plans that take less than `bound` seconds only.
    pub(super) fn faster_than(self, bound: Option<f64>) -> PlanSearch<'a> {
        PlanSearch { bound, ..self }
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.bound.is_some()
    }

    /// Whether no plan is faster, however much memory there is.
    pub(super) fn is_unbounded(&mut self, choice: &Choice) -> Result<bool, PlanError> {
        let fastest = self.fastest(usize::MAX)?;
        Ok(fastest.is_none_or(|fastest| choice.predicted_step_ms / 1e3 <= fastest.step_seconds * (1.0 + 1e-6)))
    }

    /// The fastest candidate whose live peak is at most `budget` bytes.
    pub(super) fn fastest(&mut self, budget: usize) -> Result<Option<Candidate>, PlanError> {
        let start = self.start(self.spec.effective_batch);
        let mut best = None;
        self.scan(&start, budget, &mut best)?;
        if best.is_none() && !self.is_bounded() {
            // With the usual levers nothing fits: go on from the settings that need least.
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

    /// The same, looked for in a few smaller budgets too: levers are tried one after the other, and what that finds need not
    /// be faster where there is more room. These budgets are the same for all that lie near each other.
    pub(super) fn fastest_below(&mut self, budget: usize) -> Result<Option<Candidate>, PlanError> {
        let mut best = self.fastest(budget)?;
        let Some(step) = best.as_ref().map(|_| ((budget as f64).log2() * STEPS_PER_DOUBLING).floor()) else {
            return Ok(None);
        };
        for below in 0..SMALLER_BUDGETS {
            let smaller = 2f64.powf((step - below as f64) / STEPS_PER_DOUBLING) as usize;
            match self.fastest(smaller.min(budget))? {
                Some(found) if best.as_ref().is_none_or(|best| found.beats(best)) => best = Some(found),
                Some(_) => {}
                None => break,
            }
        }
        Ok(best)
    }

    /// Bytes of what lives over steps where there is least of it: without accumulation there are no accumulators, and
    /// less than a whole batch may land at a time.
    pub(super) fn least_resident_bytes(&mut self) -> Result<usize, PlanError> {
        let largest = even_micro_batches(&self.place())[0];
        let whole = self.start(largest);
        let (memo, is_shared) = (self.memo, self.is_shared());
        let mut count = || self.base(&whole).map(|base| base.resident_bytes - base.landing_bytes);
        if is_shared { memo.residents.get(sizeless(&whole), count).map(|bytes| *bytes) } else { count() }
    }

    /// The candidate that needs least memory.
    pub(super) fn smallest(&mut self) -> Result<Candidate, PlanError> {
        let sizes = even_micro_batches(&self.place());
        let (largest, least) = (sizes[0], sizes[sizes.len() - 1]);
        let mut best = self.lowest(&self.start(least))?;
        for _ in 0..ROUNDS {
            let before = best.live_peak_bytes;
            let like = best.settings.clone();
            // Without accumulation there are no accumulators: the whole batch may need less than a part of it.
            let mut others = vec![largest, least].into_iter().map(|m| self.with(&like, m)).collect::<Vec<_>>();
            for lever in LEVERS {
                others.extend(lever.candidates(&self.place(), &like));
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
        let start = settings(self.family, self.spec, self.pins, micro_batch);
        let recompute = match self.is_fixed() {
            true => pinned_recompute(self.pins).unwrap_or(Recompute::None),
            false => Recompute::None,
        };
        Settings { offload: self.offload, recompute, ..start }
    }

    /// Whether the recompute is part of the base.
    fn is_fixed(&self) -> bool {
        self.offload.activation_layers > 0
    }

    pub(super) fn place(&self) -> Situation<'a> {
        Situation { family: self.family, spec: self.spec, pins: self.pins }
    }

    fn with(&self, like: &Settings, micro_batch: usize) -> Settings {
        with_micro_batch(&self.place(), like, micro_batch)
    }

    /// Goes through the micro-batches with the levers of `like`.
    fn scan(&mut self, like: &Settings, budget: usize, best: &mut Option<Candidate>) -> Result<(), PlanError> {
        let sizes = even_micro_batches(&self.place());
        self.consider(&self.with(like, sizes[0]), budget, best)?;
        let mut range = 1..sizes.len();
        while range.start < range.end {
            let middle = range.start + (range.end - range.start) / 2;
            match self.can_fit(&self.with(like, sizes[middle]), budget)? {
                true => range.end = middle,
                false => range.start = middle + 1,
            }
        }
        // From here on time bounds the search: two sizes in a row that are slower even without recompute end it.
        let mut slower = 0;
        for &size in &sizes[range.start..] {
            let settings = self.with(like, size);
            self.consider(&settings, budget, best)?;
            let seconds = self.base(&settings)?.step_seconds;
            let is_slower = best.as_ref().is_some_and(|best| seconds > best.step_seconds);
            slower = if is_slower { slower + 1 } else { 0 };
            if slower == 2 {
                break;
            }
        }
        self.scan_ragged(like, &sizes, budget, best)
    }

    /// The ragged micro-batches next to the best even one.
    fn scan_ragged(
        &mut self,
        like: &Settings,
        sizes: &[usize],
        budget: usize,
        best: &mut Option<Candidate>,
    ) -> Result<(), PlanError> {
        let Some(found) = best.as_ref().map(|b| b.settings.micro_batch) else { return Ok(()) };
        let Some(at) = sizes.iter().position(|&size| size == found) else { return Ok(()) };
        let pairs = sizes.windows(2).enumerate().filter(|(i, _)| *i == at || i + 1 == at);
        let between: Vec<(usize, usize)> = pairs.map(|(_, pair)| (pair[1], pair[0])).collect();
        for (smaller, larger) in between {
            let ragged = ragged_micro_batches(self.spec.effective_batch, smaller, larger);
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
            let values = lever.candidates(&self.place(), &like);
            let at = values.iter().position(|value| *value == like).unwrap_or(values.len());
            self.climb(values.iter().skip(at + 1), budget, best)?;
            self.climb(values.iter().take(at).rev(), budget, best)?;
            if let Some(better) = best.as_ref().map(|b| b.settings.clone()).filter(|better| *better != like) {
                self.scan(&better, budget, best)?;
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
        let (first, bound) = (self.first_rung(), best.as_ref().map(|b| b.step_seconds).or(self.bound));
        let base = self.base(settings)?;
        let room = budget.saturating_sub(base.resident_bytes);
        let hopeless = budget < base.resident_bytes || base.other_live_bytes > room;
        if hopeless || bound.is_some_and(|bound| base.step_seconds > bound * (1.0 + 1e-9)) {
            return Ok(());
        }
        let rung = fitting_rung(&mut base.ladder(), first, room)?;
        if let Some(rung) = rung {
            let candidate = base.at(settings, rung);
            let is_of_use = bound.is_none_or(|bound| candidate.step_seconds <= bound * (1.0 + 1e-9));
            if is_of_use && best.as_ref().is_none_or(|best| candidate.beats(best)) {
                *best = Some(candidate);
            }
        }
        Ok(())
    }

    /// Whether these settings fit with all the recompute there is.
    fn can_fit(&mut self, settings: &Settings, budget: usize) -> Result<bool, PlanError> {
        let base = self.base(settings)?;
        match budget.checked_sub(base.resident_bytes) {
            Some(room) => Ok(base.other_live_bytes <= room && base.ladder().can_fit(room)?),
            None => Ok(false),
        }
    }

    fn lowest(&mut self, settings: &Settings) -> Result<Candidate, PlanError> {
        let first = self.first_rung();
        let base = self.base(settings)?;
        let lowest = lowest_rung(&mut base.ladder(), first)?;
        let none = || PlanError::Broken("there is nothing to choose from".into());
        Ok(base.at(settings, lowest.ok_or_else(none)?))
    }

    /// A recipe that asks for "some" recompute gets some.
    fn first_rung(&self) -> usize {
        (self.pins.recompute == Some(RecomputeLevel::Some)) as usize
    }

    /// Live peak and seconds of settings whose recompute is given, without building them.
    pub(super) fn measure(&mut self, settings: &Settings) -> Result<(usize, f64), PlanError> {
        let is_fixed = settings.offload.activation_layers > 0;
        let recompute = if is_fixed { settings.recompute.clone() } else { Recompute::None };
        let plain = Settings { recompute, ..settings.clone() };
        let base = self.base(&plain)?;
        let choice = if is_fixed { &Recompute::None } else { &settings.recompute };
        let rung = Rung { index: 0, measured: base.ladder().measure_choice(choice)? };
        let candidate = base.at(&plain, rung);
        Ok((candidate.live_peak_bytes, candidate.step_seconds))
    }

    /// The settings of a candidate with its recompute in them.
    pub(super) fn settings(&mut self, candidate: &Candidate) -> Result<Settings, PlanError> {
        if self.is_fixed() {
            return Ok(candidate.settings.clone());
        }
        let recompute = self.base(&candidate.settings)?.ladder().choice(candidate.rung);
        Ok(Settings { recompute, ..candidate.settings.clone() })
    }

    /// Builds, places and verifies a candidate.
    pub(super) fn realize(&mut self, candidate: &Candidate) -> Result<Choice, ChooseError> {
        let settings = self.settings(candidate)?;
        let place = || {
            let program = program(self.family, self.spec, &settings)?;
            let layout = lay_out(&program, self.options)?;
            Ok((program, layout))
        };
        let (shared, evaluated) = (self.shared(&settings), self.spec.evaluate_batch);
        let (program, layout) = self.memo.placed(shared, evaluated, settings.accumulation, place)?;
        let predicted_step_ms = predicted_ms(&program, self.profile);
        // What was compared is what is said: otherwise more memory could look slower.
        debug_assert!(
            (predicted_step_ms / 1e3 - candidate.step_seconds).abs() <= 1e-6 * candidate.step_seconds,
            "{predicted_step_ms} ms of a candidate of {} s: {settings:?}",
            candidate.step_seconds
        );
        let (options, decisions) = (self.options, Vec::new());
        Ok(Choice { settings, program, layout, options, decisions, predicted_step_ms })
    }

    fn base(&mut self, settings: &Settings) -> Result<&Base, PlanError> {
        if !self.bases.contains_key(settings) {
            let base = self.build(settings)?;
            self.bases.insert(settings.clone(), base);
        }
        self.bases.get(settings).ok_or_else(|| PlanError::Broken("a base went missing".into()))
    }

    fn build(&self, settings: &Settings) -> Result<Base, PlanError> {
        let training = self.memo.trainings.get(self.shared(settings), || self.training(settings))?;
        let mut needs = (*self.others(settings)?).clone();
        needs.join(&training.rest, &training.residents);
        // A contrastive step is built for its own number of micro-batches.
        let repeat = if self.is_shared() { settings.accumulation } else { training.repeat };
        let total = needs.residents.values().try_fold(0usize, |sum, &bytes| sum.checked_add(bytes));
        Ok(Base {
            resident_bytes: total.filter(|&bytes| bytes <= isize::MAX as usize).ok_or(PlanError::TooLarge)?,
            landing_bytes: needs.residents.get(LANDING).copied().unwrap_or(0),
            other_live_bytes: needs.live_bytes,
            step_seconds: repeat as f64 * training.seconds + needs.step_seconds,
            training,
            repeat,
        })
    }

    /// Whether micro-steps are the same however many there are.
    fn is_shared(&self) -> bool {
        self.family.contrast().is_none()
    }

    /// Settings that say no more of accumulation than whether there is one, as far as a step is built from.
    fn shared(&self, settings: &Settings) -> Settings {
        let most = if self.is_shared() { 2 } else { usize::MAX };
        Settings { accumulation: settings.accumulation.min(most), ..settings.clone() }
    }

    fn training(&self, settings: &Settings) -> Result<Training, PlanError> {
        if !self.is_shared() || settings.accumulation == 1 {
            return self.training_of(training_phases(self.family, self.spec, settings)?, Needs::default());
        }
        // The update behind micro-steps is the same for every size of them.
        let micro = micro_step(self.family, self.spec, settings)?;
        let update = self.memo.updates.get(sizeless(settings), || self.update(&micro, settings))?;
        if update.input_bytes > input_bytes(&micro) {
            return self.training_of(training_phases(self.family, self.spec, settings)?, Needs::default());
        }
        let mut phases = vec![phase(MICRO_STEP, micro, settings.accumulation)];
        if self.spec.lands_inputs {
            add_landing(&mut phases)?;
        }
        self.training_of(phases, update.needs.clone())
    }

    fn update(&self, micro: &Graph, settings: &Settings) -> Result<Update, PlanError> {
        let update = phase(UPDATE, update_phase(&[micro], self.spec, settings)?, 1);
        let mut needs = Needs::default();
        needs.add_residents(&update.graph);
        needs.add_phase(&update, self.profile, &self.options)?;
        Ok(Update { input_bytes: input_bytes(&update.graph), needs })
    }

    /// `rest`: what phases need that are not among these.
    fn training_of(&self, phases: Vec<Phase>, mut rest: Needs) -> Result<Training, PlanError> {
        let mut main = None;
        for phase in phases {
            match [STEP, MICRO_STEP, REPLAY].contains(&&*phase.name) {
                true => main = Some((self.ladder(&phase.graph)?, phase)),
                false => {
                    rest.add_residents(&phase.graph);
                    rest.add_phase(&phase, self.profile, &self.options)?;
                }
            }
        }
        let (ladder, phase) = main.ok_or_else(|| PlanError::Broken("the program has no backward pass".into()))?;
        let mut own = Needs::default();
        own.add_residents(&phase.graph);
        let nodes = ladder.seconds();
        let seconds = nodes + self.profile.start_seconds(&phase.graph, nodes);
        Ok(Training { rest, residents: own.residents, ladder: RefCell::new(ladder), seconds, repeat: phase.repeat })
    }

    fn ladder(&self, graph: &Graph) -> Result<Ladder, PlanError> {
        let LayoutOptions { target, sharing } = self.options;
        let fixed = self.is_fixed().then_some(Recompute::None);
        match fixed.or_else(|| pinned_recompute(self.pins)) {
            Some(choice) => Ladder::pinned(graph, &target, self.profile, sharing, &choice),
            None => Ladder::new(graph, &target, self.profile, sharing),
        }
    }

    /// The phases beside a step, the same for every micro-batch.
    fn others(&self, settings: &Settings) -> Result<Rc<Needs>, PlanError> {
        let Settings { attention, block_group, loss_chunk, feed_forward, .. } = *settings;
        let key = (attention, block_group, loss_chunk, feed_forward, self.spec.evaluate_batch);
        self.memo.others.get(key, || {
            let mut needs = Needs::default();
            for phase in other_phases(self.family, self.spec, settings)? {
                needs.add_residents(&phase.graph);
                needs.add_phase(&phase, self.profile, &self.options)?;
            }
            Ok(needs)
        })
    }
}

/// What is the same for micro-batches of every size.
fn sizeless(settings: &Settings) -> Settings {
    Settings { micro_batch: 0, loss_chunk: 0, accumulation: settings.accumulation.min(2), ..settings.clone() }
}

/// The first rung from `first` on that fits.
fn fitting_rung(ladder: &mut Ladder, first: usize, room: usize) -> Result<Option<Rung>, PlanError> {
    ladder.fit(first.min(ladder.len() - 1), room)
}

fn lowest_rung(ladder: &mut Ladder, first: usize) -> Result<Option<Rung>, PlanError> {
    ladder.lowest(first.min(ladder.len() - 1))
}

impl Needs {
    /// Other phases of the same run: what lives over steps is there once, what does not has the same room.
    fn join(&mut self, rest: &Needs, residents: &HashMap<String, usize>) {
        for (name, bytes) in rest.residents.iter().chain(residents) {
            self.residents.entry(name.clone()).or_insert(*bytes);
        }
        self.live_bytes = self.live_bytes.max(rest.live_bytes);
        self.step_seconds += rest.step_seconds;
    }

    fn add_residents(&mut self, graph: &Graph) {
        for value in graph.values().iter().filter(|value| value.is_resident() && value.space == Space::Device) {
            if !self.residents.contains_key(&value.name) {
                self.residents.insert(value.name.clone(), aligned(value.ty.span_bytes()));
            }
        }
    }

    fn add_phase(&mut self, phase: &Phase, profile: &Profile, options: &LayoutOptions) -> Result<(), PlanError> {
        self.live_bytes = self.live_bytes.max(live_bytes(&phase.graph, options)?);
        if phase.repeat > 0 {
            self.step_seconds += phase.repeat as f64 * profile.graph_seconds(&phase.graph);
        }
        Ok(())
    }
}

fn improved(before: &Option<Candidate>, after: &Option<Candidate>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => after.beats(before),
        (before, after) => before.is_none() && after.is_some(),
    }
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
