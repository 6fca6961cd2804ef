//! Settings that recompute nothing yet, and what they need: each is built once, and tells something of those that were not.

use super::levers::{Situation, chunk_in, pinned_recompute};
use super::memo::{Memo, locked};
use crate::choose::Pins;
use crate::program::contrastive::REPLAY;
use crate::program::{
    MICRO_STEP, STEP, Settings, StepSpec, UPDATE, evaluation_phase, micro_step, phase, program, program_around,
    recomputed, training_phases, update_phase, writing_phases,
};
use plimsoll_core::graph::{Graph, Name, Space};
use plimsoll_core::plan::{
    LANDING, Ladder, LayoutOptions, Offload, Phase, PlanError, Profile, Program, Recompute, aligned, input_bytes,
    landing_bytes, live_bytes,
};
use plimsoll_models::families::Family;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// How much faster, at most, a step may be with another loss chunk, and with a smaller micro-batch. Of 913 settings that
/// ten recipes were built with on seven cards, the one that gained most took 0.968 of the time.
const OTHER_CHUNK: f64 = 0.95;
const LARGER: f64 = 0.95;

/// What is planned, for which device, with what in host memory.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub family: &'a dyn Family,
    pub spec: &'a StepSpec,
    pub pins: &'a Pins,
    pub options: LayoutOptions,
    pub profile: &'a Profile,
    pub offload: Offload,
}

impl<'a> Task<'a> {
    pub(super) fn place(&self) -> Situation<'a> {
        Situation { family: self.family, spec: self.spec, pins: self.pins }
    }

    /// Whether the recompute is part of the base: what saved values go to the host depends on it.
    pub(super) fn is_fixed(&self) -> bool {
        self.offload.activation_layers > 0
    }

    /// Whether micro-steps are the same however many there are.
    fn is_shared(&self) -> bool {
        self.family.contrast().is_none()
    }

    /// Settings that say no more of accumulation than whether there is one, as far as a step is built from.
    pub(super) fn shared(&self, settings: &Settings) -> Settings {
        let most = if self.is_shared() { 2 } else { usize::MAX };
        Settings { accumulation: settings.accumulation.min(most), ..settings.clone() }
    }

    /// Samples that may be evaluated at a time, the most first: it has no influence on the scores.
    pub(super) fn evaluated(&self) -> Vec<usize> {
        let fewer = |batch: &usize| (*batch > 1 && !self.pins.keeps_evaluate_batch).then(|| batch.div_ceil(4));
        std::iter::successors(self.spec.evaluate_batch, fewer).collect()
    }
}

/// What phases need, but for what is recomputed in one of them.
#[derive(Clone, Default)]
pub(super) struct Needs {
    /// Name → bytes.
    residents: FxHashMap<Name, usize>,
    pub live_bytes: usize,
    step_seconds: f64,
}

/// The phases of a step that recompute nothing yet, however often the one is run that can.
pub(super) struct Training {
    /// Of the phases where nothing is recomputed.
    rest: Arc<Needs>,
    main: Arc<Main>,
}

/// The phase that can recompute.
pub(super) struct Main {
    /// Name → bytes of what lives over steps.
    residents: FxHashMap<Name, usize>,
    ladder: Mutex<Ladder>,
    /// Of running it once.
    seconds: f64,
    repeat: usize,
    input_bytes: usize,
    nodes: usize,
}

impl Training {
    /// Nodes that its ladder remembers.
    pub(super) fn nodes(&self) -> usize {
        self.main.nodes
    }
}

/// An update on its own.
pub(super) struct Update {
    needs: Arc<Needs>,
    input_bytes: usize,
}

/// It and the micro-steps before it; with the graph of these, if it was built.
type UpdateAndMain = (Arc<Update>, Arc<Main>, Option<Graph>);

/// Settings that recompute nothing yet.
pub(super) struct Base {
    pub resident_bytes: usize,
    /// Those of them that inputs land in.
    landing_bytes: usize,
    /// Most bytes of temporaries in the phases where nothing is recomputed.
    pub other_live_bytes: usize,
    pub step_seconds: f64,
    /// The phase that can recompute, and how often a step runs it.
    main: Arc<Main>,
    pub repeat: usize,
}

/// How fast settings are without recompute.
#[derive(Clone)]
struct Built {
    micro_batch: usize,
    loss_chunk: usize,
    /// Whether no rows fill up the last micro-batch.
    is_even: bool,
    step_seconds: f64,
}

impl Built {
    fn new(settings: &Settings, step_seconds: f64, spec: &StepSpec) -> Built {
        let &Settings { micro_batch, accumulation, loss_chunk, .. } = settings;
        let is_even = micro_batch * accumulation == spec.effective_batch;
        Built { micro_batch, loss_chunk, is_even, step_seconds }
    }
}

/// What settings need with the recompute that needs least.
struct Least {
    micro_batch: usize,
    loss_chunk: usize,
    bytes: usize,
}

impl Base {
    pub(super) fn ladder(&self) -> MutexGuard<'_, Ladder> {
        locked(&self.main.ladder)
    }

    /// What lives over steps, but for where inputs land.
    fn lasting_bytes(&self) -> usize {
        self.resident_bytes - self.landing_bytes
    }
}

/// What was built for one task.
pub(super) struct Bases<'a> {
    task: Task<'a>,
    memo: &'a Memo,
    kept: FxHashMap<Settings, Base>,
    /// By settings without sizes, what was built here or with less in host memory, which can only be faster.
    built: FxHashMap<Settings, Vec<Built>>,
    /// Seconds of what was built for them alone.
    timed: FxHashMap<Settings, f64>,
    /// By settings without sizes, what those need at least that did not fit somewhere.
    least: FxHashMap<Settings, Vec<Least>>,
    drafts: Drafts,
}

/// Graphs that learn, as they were built to be measured: what is chosen need not be built again. Each takes megabytes, so
/// only a few are kept.
#[derive(Default)]
struct Drafts {
    newest: Option<(Settings, Graph)>,
    /// The last ones that were the best so far when they were built.
    best: VecDeque<(Settings, Graph)>,
}

impl Drafts {
    const FEW: usize = 4;

    fn add(&mut self, settings: &Settings, graph: Graph) {
        self.newest = Some((settings.clone(), graph));
    }

    fn note_best(&mut self, settings: &Settings) {
        self.best.extend(self.newest.take_if(|(newest, _)| newest == settings));
        if self.best.len() > Drafts::FEW {
            self.best.pop_front();
        }
    }

    /// The graph of these settings as one that recomputes what `choice` says, if it was kept. It is handed out if nothing is
    /// to be changed about it, and else stays: the next to be placed mostly differ in their recompute only.
    fn recomputing(&mut self, settings: &Settings, choice: &Recompute) -> Result<Option<Graph>, PlanError> {
        self.best.extend(self.newest.take());
        let Some(at) = self.best.iter().position(|(of, _)| of == settings) else { return Ok(None) };
        match settings.recompute == *choice {
            true => Ok(self.best.remove(at).map(|(_, graph)| graph)),
            false => recomputed(&self.best[at].1, choice).map(Some),
        }
    }
}

impl<'a> Bases<'a> {
    pub(super) fn new(task: Task<'a>, memo: &'a Memo) -> Bases<'a> {
        let (kept, built, timed, least, drafts) = Default::default();
        Bases { task, memo, kept, built, timed, least, drafts }
    }

    /// The same after those with less in host memory.
    pub(super) fn after(self, before: &Bases<'a>) -> Bases<'a> {
        Bases { built: before.built.clone(), ..self }
    }

    pub(super) fn memo(&self) -> &'a Memo {
        self.memo
    }

    /// Builds it, unless it was.
    pub(super) fn get(&mut self, settings: &Settings) -> Result<&Base, PlanError> {
        if !self.kept.contains_key(settings) {
            let base = self.build(settings)?;
            self.memo.residents.get(sizeless(settings), || Ok(base.lasting_bytes()))?;
            self.note_seconds(settings, base.step_seconds);
            self.kept.insert(settings.clone(), base);
        }
        self.kept.get(settings).ok_or_else(|| PlanError::Broken("a base went missing".into()))
    }

    /// What was built and kept.
    pub(super) fn known(&self, settings: &Settings) -> Option<&Base> {
        self.kept.get(settings)
    }

    /// Seconds of the fastest that was built here, without recompute.
    pub(super) fn fastest_seconds(&self) -> f64 {
        self.kept.values().map(|base| base.step_seconds).fold(f64::INFINITY, f64::min)
    }

    /// What lives over steps but for where inputs land: settings that differ in sizes only need as much at least. `None`
    /// where none of them was built yet.
    pub(super) fn floor(&self, settings: &Settings) -> Option<usize> {
        self.memo.residents.known(&sizeless(settings)).map(|bytes| *bytes).filter(|_| self.task.is_shared())
    }

    /// The same, whether or not something was built.
    pub(super) fn lasting_bytes(&mut self, settings: &Settings) -> Result<usize, PlanError> {
        match self.floor(settings) {
            Some(bytes) => Ok(bytes),
            None => self.get(settings).map(Base::lasting_bytes),
        }
    }

    /// As fast as these settings can be without recompute, told by others that were built: another loss chunk takes a
    /// little off, and smaller micro-batches are hardly ever faster than larger ones, rows that fill up the last included.
    pub(super) fn seconds_at_least(&self, settings: &Settings) -> f64 {
        let effective = self.task.spec.effective_batch;
        let filled = (settings.micro_batch * settings.accumulation) as f64 / effective as f64;
        let told = |built: &Built| match built.micro_batch {
            size if size == settings.micro_batch && built.loss_chunk == settings.loss_chunk => built.step_seconds,
            size if size == settings.micro_batch => built.step_seconds * OTHER_CHUNK,
            size if size > settings.micro_batch && built.is_even => built.step_seconds * LARGER * filled,
            _ => 0.0,
        };
        self.built.get(&alike(settings)).into_iter().flatten().map(told).fold(0.0, f64::max)
    }

    /// Seconds without recompute. What is built for nothing else is not kept.
    pub(super) fn seconds(&mut self, settings: &Settings) -> Result<f64, PlanError> {
        let known = self.kept.get(settings).map(|base| base.step_seconds);
        if let Some(seconds) = known.or_else(|| self.timed.get(settings).copied()) {
            return Ok(seconds);
        }
        let seconds = match self.memo.trainings.known(&self.task.shared(settings)) {
            Some(training) => self.base_of(settings, training)?.step_seconds,
            None => self.time(settings)?,
        };
        self.note_seconds(settings, seconds);
        self.timed.insert(settings.clone(), seconds);
        Ok(seconds)
    }

    fn time(&self, settings: &Settings) -> Result<f64, PlanError> {
        let others = self.others(settings, self.task.evaluated().last().copied())?;
        let phases = training_phases(self.task.family, self.task.spec, settings)?;
        let seconds = |phase: &Phase| phase.repeat as f64 * self.task.profile.graph_seconds(&phase.graph);
        Ok(phases.iter().map(seconds).sum::<f64>() + others.step_seconds)
    }

    fn note_seconds(&mut self, settings: &Settings, seconds: f64) {
        self.built.entry(alike(settings)).or_default().push(Built::new(settings, seconds, self.task.spec));
    }

    /// Whether these settings fit with all the recompute there is.
    pub(super) fn can_fit(&mut self, settings: &Settings, budget: usize) -> Result<bool, PlanError> {
        if self.is_too_large(settings, budget) {
            return Ok(false);
        }
        let base = self.get(settings)?;
        let room = budget.checked_sub(base.resident_bytes).filter(|&room| base.other_live_bytes <= room);
        let Some(room) = room else { return Ok(false) };
        let mut ladder = base.ladder();
        if ladder.can_fit(room)? {
            return Ok(true);
        }
        let lowest = ladder.lowest(0)?.map_or(0, |lowest| lowest.measured.live_bytes);
        drop(ladder);
        let bytes = base.resident_bytes.saturating_add(lowest);
        let &Settings { micro_batch, loss_chunk, .. } = settings;
        self.least.entry(sizeless(settings)).or_default().push(Least { micro_batch, loss_chunk, bytes });
        Ok(false)
    }

    /// Whether these settings need more than `budget`, told by others that were built: what lives over steps alone is too
    /// much, or fewer samples and logits at a time are.
    pub(super) fn is_too_large(&self, settings: &Settings, budget: usize) -> bool {
        let is_smaller =
            |other: &Least| other.micro_batch <= settings.micro_batch && other.loss_chunk <= settings.loss_chunk;
        let mut smaller = self.least.get(&sizeless(settings)).into_iter().flatten().filter(|least| is_smaller(least));
        self.floor(settings).is_some_and(|floor| floor > budget)
            || self.task.is_shared() && smaller.any(|least| least.bytes > budget)
    }

    fn build(&mut self, settings: &Settings) -> Result<Base, PlanError> {
        let mut draft = None;
        let training = self.memo.trainings.get(self.task.shared(settings), || {
            let (training, graph) = self.training(settings)?;
            draft = graph;
            Ok(training)
        })?;
        if let Some(graph) = draft {
            self.drafts.add(settings, graph);
        }
        self.base_of(settings, training)
    }

    /// None are better so far: they may be chosen.
    pub(super) fn note_best(&mut self, settings: &Settings) {
        self.drafts.note_best(settings);
    }

    /// The program of `settings`, which differ from those of a base, `plain`, in what is recomputed only.
    pub(super) fn program(
        &mut self,
        plain: &Settings,
        settings: &Settings,
        spec: &StepSpec,
    ) -> Result<Program, PlanError> {
        let family = self.task.family;
        match self.drafts.recomputing(plain, &settings.recompute)? {
            Some(graph) => program_around(graph, family, spec, settings),
            None => program(family, spec, settings),
        }
    }

    fn base_of(&self, settings: &Settings, training: Arc<Training>) -> Result<Base, PlanError> {
        let others = self.others(settings, self.task.evaluated().last().copied())?;
        let Training { rest, main } = &*training;
        let residents = [&others.residents, &rest.residents, &main.residents];
        // A contrastive step is built for its own number of micro-batches.
        let repeat = if self.task.is_shared() { settings.accumulation } else { main.repeat };
        Ok(Base {
            resident_bytes: bytes_together(&residents).ok_or(PlanError::TooLarge)?,
            landing_bytes: residents.iter().find_map(|residents| residents.get(LANDING)).copied().unwrap_or(0),
            other_live_bytes: others.live_bytes.max(rest.live_bytes),
            step_seconds: repeat as f64 * main.seconds + others.step_seconds + rest.step_seconds,
            main: main.clone(),
            repeat,
        })
    }

    /// With the graph that learns, if it is a single one.
    fn training(&self, settings: &Settings) -> Result<(Training, Option<Graph>), PlanError> {
        let whole = || self.training_of(training_phases(self.task.family, self.task.spec, settings)?);
        if !self.task.is_shared() || settings.accumulation == 1 {
            return whole();
        }
        let (update, main, micro) = self.update_and_main(settings)?;
        if update.input_bytes > main.input_bytes {
            return whole();
        }
        Ok((Training { rest: update.needs.clone(), main }, micro))
    }

    /// The update behind micro-steps is the same for every size of them, and they are whether or not it comes from the
    /// host.
    fn update_and_main(&self, settings: &Settings) -> Result<UpdateAndMain, PlanError> {
        let offload = Offload { optimizer: false, ..settings.offload };
        let keys = (sizeless(settings), Settings { offload, ..self.task.shared(settings) });
        if let (Some(update), Some(main)) = (self.memo.updates.known(&keys.0), self.memo.mains.known(&keys.1)) {
            return Ok((update, main, None));
        }
        let micro = micro_step(self.task.family, self.task.spec, settings)?;
        let update = self.memo.updates.get(keys.0, || self.update(&micro, settings))?;
        let phase = [phase(MICRO_STEP, micro, settings.accumulation)];
        let main = self.memo.mains.get(keys.1, || self.main(&phase[0], landing_bytes(&phase)))?;
        let [Phase { graph, .. }] = phase;
        Ok((update, main, Some(graph)))
    }

    fn update(&self, micro: &Graph, settings: &Settings) -> Result<Update, PlanError> {
        let update = [phase(UPDATE, update_phase(&[micro], self.task.spec, settings)?, 1)];
        Ok(Update { input_bytes: input_bytes(&update[0].graph), needs: Arc::new(self.needs(&update)?) })
    }

    fn training_of(&self, phases: Vec<Phase>) -> Result<(Training, Option<Graph>), PlanError> {
        let landing_bytes = landing_bytes(&phases);
        let is_main = |phase: &Phase| [STEP, MICRO_STEP, REPLAY].contains(&&*phase.name);
        let (mut main, rest): (Vec<Phase>, Vec<Phase>) = phases.into_iter().partition(is_main);
        let main = main.pop().ok_or_else(|| PlanError::Broken("the program has no backward pass".into()))?;
        let rest = Arc::new(self.needs(&rest)?);
        let training = Training { rest, main: Arc::new(self.main(&main, landing_bytes)?) };
        Ok((training, (main.name != REPLAY).then_some(main.graph)))
    }

    fn main(&self, phase: &Phase, landing_bytes: usize) -> Result<Main, PlanError> {
        let ladder = self.ladder(&phase.graph)?;
        let mut own = Needs::default();
        own.add_residents(&phase.graph);
        if self.task.spec.lands_inputs && landing_bytes > 0 {
            own.residents.insert(LANDING.into(), landing_bytes);
        }
        let nodes = ladder.seconds();
        let seconds = nodes + self.task.profile.start_seconds(&phase.graph, nodes);
        let (nodes, ladder, input_bytes) = (ladder.nodes(), Mutex::new(ladder), input_bytes(&phase.graph));
        Ok(Main { residents: own.residents, ladder, seconds, repeat: phase.repeat, input_bytes, nodes })
    }

    fn ladder(&self, graph: &Graph) -> Result<Ladder, PlanError> {
        let LayoutOptions { target, sharing } = self.task.options;
        let fixed = self.task.is_fixed().then_some(Recompute::None);
        match fixed.or_else(|| pinned_recompute(self.task.pins)) {
            Some(choice) => Ladder::pinned(graph, &target, self.task.profile, sharing, &choice),
            None => Ladder::new(graph, &target, self.task.profile, sharing),
        }
    }

    /// The phases beside a step, the same for every micro-batch, with so many samples to an evaluation.
    pub(super) fn others(&self, settings: &Settings, evaluate_batch: Option<usize>) -> Result<Arc<Needs>, PlanError> {
        let Settings { attention, block_group, loss_chunk, feed_forward, .. } = *settings;
        let forms = (attention, block_group, feed_forward);
        let (family, spec) = (self.task.family, StepSpec { evaluate_batch, ..self.task.spec.clone() });
        let writing = self.memo.writings.get(forms, || self.needs(&writing_phases(family, &spec, settings)?))?;
        // Of few samples, most chunks are all there is.
        let chunk = evaluate_batch.map_or(0, |batch| chunk_in(&self.task.place(), loss_chunk, batch));
        self.memo.others.get((forms, chunk, evaluate_batch), || {
            let mut needs = Needs::clone(&writing);
            needs.add_phases(&Vec::from_iter(evaluation_phase(family, &spec, settings)?), &self.task)?;
            Ok(needs)
        })
    }

    fn needs(&self, phases: &[Phase]) -> Result<Needs, PlanError> {
        let mut needs = Needs::default();
        needs.add_phases(phases, &self.task)?;
        Ok(needs)
    }
}

/// Of what lives over steps in several phases of a run: each is there once. `None` beyond what can be addressed.
fn bytes_together(residents: &[&FxHashMap<Name, usize>]) -> Option<usize> {
    let mut total = 0usize;
    for (at, phase) in residents.iter().enumerate() {
        let is_new = |name: &Name| residents[..at].iter().all(|before| !before.contains_key(name));
        for (_, &bytes) in phase.iter().filter(|(name, _)| is_new(name)) {
            total = total.checked_add(bytes)?;
        }
    }
    Some(total).filter(|&bytes| bytes <= isize::MAX as usize)
}

/// What is the same for micro-batches of every size.
fn sizeless(settings: &Settings) -> Settings {
    Settings { micro_batch: 0, loss_chunk: 0, accumulation: settings.accumulation.min(2), ..settings.clone() }
}

/// What settings have in common that differ in sizes and in what lies in host memory.
fn alike(settings: &Settings) -> Settings {
    sizeless(&Settings { accumulation: 1, offload: Offload::NONE, ..settings.clone() })
}

impl Needs {
    fn add_residents(&mut self, graph: &Graph) {
        for value in graph.values().iter().filter(|value| value.is_resident() && value.space == Space::Device) {
            if !self.residents.contains_key(&value.name) {
                self.residents.insert(value.name.clone(), aligned(value.ty.span_bytes()));
            }
        }
    }

    fn add_phases(&mut self, phases: &[Phase], task: &Task<'_>) -> Result<(), PlanError> {
        for phase in phases {
            self.add_residents(&phase.graph);
            self.add_phase(phase, task)?;
        }
        Ok(())
    }

    fn add_phase(&mut self, phase: &Phase, task: &Task<'_>) -> Result<(), PlanError> {
        self.live_bytes = self.live_bytes.max(live_bytes(&phase.graph, &task.options)?);
        if phase.repeat > 0 {
            self.step_seconds += phase.repeat as f64 * task.profile.graph_seconds(&phase.graph);
        }
        Ok(())
    }
}
