//! The training loop. Everything it has to tell goes out as events.

#![deny(missing_docs)]

use crate::RunError;
use crate::checkpoints::{self, State};
use crate::run::Run;
use crate::steps::Shapes;
use crate::steps::evaluate;
use crate::steps::learning_rate;
use crate::steps::shapes;
use crate::steps::{Stepped, Stepper, Underway};
use crate::tasks::{Midway, Written, loader_options, task};
use crate::weights::{load_folder, source_checkpoint, unfollowed};
use plimsoll_base::explain::Explain;
use plimsoll_base::heap;
use plimsoll_base::metric::Metric;
use plimsoll_base::names::Named;
use plimsoll_data::{Loader, Position, Vocabulary};
use plimsoll_exec::Executor;
use plimsoll_exec::{initialize, initialize_some};
use plimsoll_models::families::Input;
use plimsoll_models::recipe::{DataKind, Every, Recipe, Task};
use plimsoll_planner::choose::{family, precision, writes_to_evaluate};
use plimsoll_planner::program::EVALUATE;
use plimsoll_runs::{Best, Scores};
use plimsoll_runs::{DeviceEvent, End, Evaluation, Event, EventLog, Failed, Finished, Started, StepEvent};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

impl Run {
    /// Trains to the end, until evaluations stop getting better, or until `stop` is set. `sink` sees every event after
    /// it was written to events.jsonl.
    pub fn train(&mut self, stop: &AtomicBool, sink: &mut dyn FnMut(&Event)) -> Result<Finished, RunError> {
        let (executor, note) = self.executor()?;
        self.write_start()?;
        let path = self.out.join("events.jsonl");
        let log = EventLog::open(&path).map_err(RunError::io(path))?;
        let mut trainer = Trainer::new(self, executor, log, sink)?;
        note.map_or(Ok(()), |text| trainer.tell(Event::Note { text }))?;
        trainer.train(stop).inspect_err(|error| trainer.tell_failure(error))
    }
}

/// Initial values, or those of the checkpoint that the recipe names; what there is to say about them.
fn start_weights(run: &Run, executor: &mut dyn Executor) -> Result<Option<String>, RunError> {
    let (program, seed) = (run.program(), run.recipe.train.seed);
    let names = family(&run.recipe.model).hugging_face();
    let (Some(folder), Some(names), None) = (source_checkpoint(&run.recipe), names, &run.from) else {
        initialize(program, executor, seed)?;
        return Ok(remarks(&run.recipe).filter(|_| run.from.is_none()));
    };
    let report = load_folder(&folder, &names, program, executor)?;
    initialize_some(program, executor, seed, |r| !r.is_parameter || report.fresh.contains(&r.name))?;
    let mut text = format!("{} tensors from {}", report.loaded, folder.display());
    if !report.converted_from.is_empty() {
        text += &format!(", converted from {}", report.converted_from.join(" and "));
    }
    if !report.fresh.is_empty() {
        text += &format!("; fresh, as expected of a new head: {}", report.fresh.join(", "));
    }
    if !report.ignored.is_empty() {
        text += &format!("; {} not used", report.ignored.len());
    }
    let unfollowed = if run.recipe.train.task == Task::Seq2seq { unfollowed(&folder) } else { Vec::new() };
    if !unfollowed.is_empty() {
        text +=
            &format!("; generation_config.json says {}, which texts written here do not follow", unfollowed.join(", "));
    }
    Ok(Some(text))
}

/// What whoever wrote the recipe may not have thought of.
pub fn remarks(recipe: &Recipe) -> Option<String> {
    let remarks: Vec<String> = random_weights(recipe).into_iter().chain(unused_ids(recipe)).collect();
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

/// Texts without a tokenizer are bytes: rows of a larger table are never learned.
fn unused_ids(recipe: &Recipe) -> Option<String> {
    let (Input::Tokens { vocab, .. }, DataKind::Text(text)) = (recipe.model.family().input(), &recipe.data.kind) else {
        return None;
    };
    let used = Vocabulary::Bytes.size();
    (text.tokenizer.is_none() && vocab > used).then(|| {
        format!(
            "without data.tokenizer a text is its bytes, {used} ids: {} of the {vocab} that the model has are never used; \
             name a tokenizer, or set model.vocab = {used}",
            vocab - used
        )
    })
}

/// A preset gives sizes, not weights: whoever names one may think otherwise.
fn random_weights(recipe: &Recipe) -> Option<String> {
    let origin = recipe.model.origin().filter(|origin| origin.checkpoint.is_none())?;
    let preset = origin.preset.as_deref()?;
    Some(format!(
        "the weights are random: preset {preset} gives sizes only; name model.checkpoint = \"FOLDER\" to fine-tune"
    ))
}

/// Time between two looks at device and machine.
const LOOK_EVERY: Duration = Duration::from_secs(10);

struct Trainer<'r> {
    run: &'r Run,
    executor: Box<dyn Executor>,
    log: EventLog,
    sink: &'r mut dyn FnMut(&Event),
    state: State,
    steps: usize,
    stepper: Stepper,
    shapes: Shapes,
    began: Instant,
    first_step: usize,
    /// Samples seen before this session.
    seen_before: u64,
    measured_peak: u64,
    /// The step that a device is at while the next one is made ready.
    open: Option<OpenStep>,
    /// When the last step was seen to end.
    ended: Instant,
    /// The epoch that was last said to begin.
    epoch: Option<usize>,
    /// When device and machine were last asked how they do.
    looked: Instant,
    /// The step of the checkpoint that was last written.
    saved: Option<usize>,
}

/// A step whose loss is not known yet, and what else there is to tell about it.
struct OpenStep {
    underway: Underway,
    /// Counted from 1.
    step: usize,
    lr: f64,
    samples: usize,
    tokens: Option<usize>,
    began: Instant,
    stall_ms: f64,
    data_samples_per_s: Option<f64>,
}

impl<'r> Trainer<'r> {
    fn new(
        run: &'r Run,
        mut executor: Box<dyn Executor>,
        log: EventLog,
        sink: &'r mut dyn FnMut(&Event),
    ) -> Result<Self, RunError> {
        let loaded = start_weights(run, &mut executor)?;
        let state = match &run.from {
            None => State {
                step: 0,
                position: Position::default(),
                recipe_hash: run.recipe.identity()?,
                samples_seen: 0,
                best: None,
                without_improvement: 0,
                last: None,
                data: Some(run.fingerprint.clone()),
            },
            Some(path) => {
                let state = checkpoints::read_state(path)?;
                if ![run.recipe.hash()?, run.recipe.identity()?].contains(&state.recipe_hash) {
                    let (path, cause) = (path.clone(), "it was written by another recipe".into());
                    return Err(checkpoints::CheckpointError::Another { path, cause }.into());
                }
                checkpoints::restore(path, run.program(), &mut executor)?;
                State { data: Some(run.fingerprint.clone()), ..state }
            }
        };
        let stepper = Stepper::new(&run.recipe, &run.planned.choice)?;
        let shapes = shapes(&run.recipe, &run.planned);
        let (first_step, seen_before) = (state.step, state.samples_seen);
        let mut trainer = Trainer {
            steps: run.steps(),
            run,
            executor,
            log,
            sink,
            state,
            stepper,
            shapes,
            began: Instant::now(),
            first_step,
            seen_before,
            measured_peak: 0,
            open: None,
            ended: Instant::now(),
            epoch: None,
            looked: Instant::now(),
            saved: None,
        };
        loaded.map_or(Ok(()), |text| trainer.tell(Event::Note { text }))?;
        Ok(trainer)
    }

    fn tell(&mut self, event: Event) -> Result<(), RunError> {
        let event = self.log.write(event).map_err(RunError::io(self.run.out.join("events.jsonl")))?;
        (self.sink)(&event);
        Ok(())
    }

    /// The error itself goes to whoever called; that it cannot be written down changes nothing about it.
    fn tell_failure(&mut self, error: &RunError) {
        let (step, reason, oom) = (self.state.step, error.message(), error.lacks_memory());
        let _ = self.tell(Event::Failed(Failed { step, reason, oom }));
    }

    fn train(&mut self, stop: &AtomicBool) -> Result<Finished, RunError> {
        self.tell_start()?;
        heap::reset();
        let mut loader =
            Loader::new(self.run.data.train.clone(), &loader_options(&self.run.recipe), self.state.position)?;
        let mut end = End::Completed;
        while self.state.step < self.stop() {
            if self.is_exhausted() {
                end = End::Stopped;
                break;
            }
            if stop.load(Ordering::Relaxed) {
                self.settle()?;
                if self.saved != Some(self.state.step) {
                    self.save()?;
                }
                end = End::Interrupted;
                break;
            }
            self.begin_epoch()?;
            self.step(&mut loader)?;
            if self.looked.elapsed() >= LOOK_EVERY {
                self.look_at_device()?;
            }
            self.after_step()?;
        }
        self.finish(end)
    }

    /// Where to stop: the end of the run, or as soon as was asked for.
    fn stop(&self) -> usize {
        self.run.stop_at.map_or(self.steps, |stop| stop.min(self.steps))
    }

    /// Evaluations have not got better for as long as the recipe waits. A function of the state, so that a run resumed
    /// at its end stays there.
    fn is_exhausted(&self) -> bool {
        let patience = self.run.recipe.train.evaluate.patience;
        patience.is_some_and(|patience| self.state.without_improvement >= patience.max(1))
    }

    fn tell_start(&mut self) -> Result<(), RunError> {
        let run = self.run;
        let settings = &run.planned.choice.settings;
        if run.resumed {
            self.tell(Event::Resumed { step: self.state.step, replanned: run.replanned })?;
        }
        self.tell(Event::Started(Started {
            version: env!("CARGO_PKG_VERSION").into(),
            recipe: run.recipe.name.clone(),
            recipe_hash: self.state.recipe_hash.clone(),
            device: run.planned.device.name.clone(),
            budget_bytes: run.planned.budget_bytes,
            planned_peak_bytes: run.planned.planned_peak_bytes(),
            parameters: run.program().parameters(),
            effective_batch: run.recipe.train.effective_batch,
            micro_batch: settings.micro_batch,
            accumulation: settings.accumulation,
            precision: Some(precision(&run.recipe, &run.planned.device).name().into()),
            recompute: Some(settings.recompute.name().into()),
            attention: Some(settings.attention.name().into()),
            family: Some(run.recipe.model.name().into()),
            epochs: Some(self.epochs()),
            steps: self.steps,
            steps_per_epoch: run.steps_per_epoch(),
            train_samples: run.data.train.len(),
            validation_samples: run.data.validation.as_ref().map_or(0, |v| v.len()),
            best_accuracy: run.data.best_accuracy,
            best_loss: run.data.best_loss,
        }))
    }

    fn epochs(&self) -> usize {
        self.steps.div_ceil(self.run.steps_per_epoch())
    }

    /// Says that the next pass over the data begins, where it does, and how device and machine are.
    fn begin_epoch(&mut self) -> Result<(), RunError> {
        let epoch = self.state.step / self.run.steps_per_epoch();
        if self.epoch.replace(epoch) == Some(epoch) {
            return Ok(());
        }
        self.tell(Event::Epoch { epoch, epochs: self.epochs(), step: self.state.step })?;
        self.look_at_device()
    }

    /// One update: the effective batch in micro-steps, then the optimizer.
    fn step(&mut self, loader: &mut Loader) -> Result<(), RunError> {
        let began = Instant::now();
        let stalled = loader.stats().stall;
        let batch = match loader.next() {
            Some(batch) => batch?,
            None => return Err(plimsoll_data::DataError::option("data", "the stream of batches ended").into()),
        };
        let lr = learning_rate(
            &self.run.recipe.train.schedule,
            self.run.recipe.train.optimizer.lr,
            self.state.step,
            self.steps,
        );
        let underway = {
            let (choice, step) = (&self.run.planned.choice, self.state.step);
            self.stepper.start(&mut self.executor, choice, &mut self.shapes, batch, step, lr, Executor::run)?
        };
        let (samples, tokens, position) = (batch.len(), batch.tokens(), batch.end());
        let stats = loader.stats();
        let (stall_ms, data_samples_per_s) = ((stats.stall - stalled).as_secs_f64() * 1e3, stats.filled_per_s());
        self.state.step += 1;
        self.state.position = position;
        self.state.samples_seen += samples as u64;
        self.keep_products()?;
        // A device goes on with this step while the one before it is told and the next is made ready.
        let is_known = underway.is_known();
        let step = self.state.step;
        let step = OpenStep { underway, step, lr, samples, tokens, began, stall_ms, data_samples_per_s };
        let before = self.open.replace(step);
        before.map_or(Ok(()), |before| self.end_step(before))?;
        if is_known { self.settle() } else { Ok(()) }
    }

    /// The algorithms that a new length brought go into the plan before anything is built on their bits.
    fn keep_products(&mut self) -> Result<(), RunError> {
        self.executor.take_algorithms().map_or(Ok(()), |products| self.run.write_plan(&products))
    }

    /// Waits for the step that is still open: only then is it known whether the weights are worth anything.
    fn settle(&mut self) -> Result<(), RunError> {
        self.open.take().map_or(Ok(()), |step| self.end_step(step))
    }

    fn end_step(&mut self, open: OpenStep) -> Result<(), RunError> {
        let OpenStep { underway, step, lr, samples, tokens, began, stall_ms, data_samples_per_s } = open;
        let stepped = self.stepper.finish(&self.executor, underway)?;
        let Stepped { loss, norm, scale } = stepped;
        // From the end of the step before, if this one was given to the device earlier.
        let (before, now) = (began.max(self.ended), Instant::now());
        self.ended = now;
        if stepped.has_diverged() {
            let last_good = checkpoints::list(&self.run.checkpoints()).pop().map(|(_, path)| path);
            return Err(RunError::Diverged { step, loss, norm, last_good });
        }
        let seconds = (now - before).as_secs_f64();
        let per_step = self.began.elapsed().as_secs_f64() / (step - self.first_step).max(1) as f64;
        self.measured_peak = self.measured_peak.max(self.run.measured_bytes(&self.executor));
        self.tell(Event::Step(StepEvent {
            step,
            epoch: (step - 1) / self.run.steps_per_epoch(),
            loss,
            norm,
            scale,
            skipped: stepped.is_skipped(),
            lr,
            ms: seconds * 1e3,
            samples_per_s: samples as f64 / seconds.max(1e-9),
            tokens_per_s: tokens.map(|tokens| tokens as f64 / seconds.max(1e-9)),
            data_samples_per_s,
            stall_ms,
            remaining_s: per_step * self.stop().saturating_sub(step) as f64,
            planned_peak_bytes: self.run.planned.planned_peak_bytes(),
            measured_peak_bytes: self.measured_peak,
        }))
    }

    /// Memory of device and machine, load, power and temperature.
    fn look_at_device(&mut self) -> Result<(), RunError> {
        self.looked = Instant::now();
        let epoch = self.state.step.saturating_sub(1) / self.run.steps_per_epoch();
        let pulse = super::pulse::take(&self.run.planned.device, &self.run.out);
        self.tell(Event::Device(DeviceEvent { step: self.state.step, epoch, ..pulse }))
    }

    /// Evaluation, text and checkpoint where they are due.
    fn after_step(&mut self) -> Result<(), RunError> {
        let train = &self.run.recipe.train;
        let (step, last) = (self.state.step, self.state.step == self.stop());
        let epoch_end = step % self.run.steps_per_epoch() == 0;
        let due = |every: Every| match every {
            Every::Never => false,
            Every::Epoch => epoch_end || last,
            Every::Steps(n) => step % n.max(1) == 0 || last,
        };
        if last && step < self.steps {
            return self.pause(epoch_end);
        }
        let saves = due(train.checkpoint.every);
        if saves || due(train.evaluate.every) || epoch_end || last {
            self.settle()?;
        }
        let improved = if due(train.evaluate.every) { self.evaluate()? } else { false };
        if epoch_end || last {
            self.write_sample()?;
        }
        // What is best at the very end is written as the model.
        let is_model = last && train.checkpoint.every == Every::Never;
        if saves || (improved && !is_model) || self.is_exhausted() {
            self.save()?;
        }
        Ok(())
    }

    /// Stops before the end of the run. What is evaluated only because it stops is told, and not remembered: the run
    /// goes on later as if it had never stopped.
    fn pause(&mut self, epoch_end: bool) -> Result<(), RunError> {
        self.settle()?;
        let (train, step) = (&self.run.recipe.train, self.state.step);
        let due = match train.evaluate.every {
            Every::Never => false,
            Every::Epoch => epoch_end,
            Every::Steps(n) => step % n.max(1) == 0,
        };
        if due {
            self.evaluate()?;
        }
        self.save()?;
        if !due && train.evaluate.every != Every::Never {
            self.evaluate()?;
        }
        self.write_sample()
    }

    /// One pass over the validation data inside the same arena. True if it is the best so far.
    fn evaluate(&mut self) -> Result<bool, RunError> {
        let (Some(dataset), Some(_)) = (self.run.data.validation.clone(), self.run.program().phase(EVALUATE)) else {
            return Ok(false);
        };
        let began = Instant::now();
        let samples = dataset.len();
        let scores = {
            let (recipe, choice) = (&self.run.recipe, &self.run.planned.choice);
            evaluate(&mut self.executor, recipe, choice, &mut self.shapes, dataset)?.scores
        };
        let scores = self.judge_texts(scores)?;
        let metric = self.run.recipe.train.evaluate.metric.unwrap_or(Metric::Loss);
        let best = self.state.best.is_none_or(|best| scores.is_better(&best.scores, metric));
        match best {
            true => {
                self.state.best = Some(Best { step: self.state.step, scores });
                self.state.without_improvement = 0;
            }
            false => self.state.without_improvement += 1,
        }
        self.state.last = Some(scores);
        let epoch = (self.state.step - 1) / self.run.steps_per_epoch();
        let ms = began.elapsed().as_secs_f64() * 1e3;
        self.tell(Event::Evaluation(Evaluation { step: self.state.step, epoch, scores, samples, ms, best }))?;
        Ok(best)
    }

    /// With what written texts are worth, where the best model is chosen by that.
    fn judge_texts(&mut self, scores: Scores) -> Result<Scores, RunError> {
        let (run, step) = (self.run, self.state.step);
        if !writes_to_evaluate(&run.recipe) {
            return Ok(scores);
        }
        let midway = Midway { data: &run.data, program: run.program(), executor: &mut self.executor, step };
        let written = task(&run.recipe).judge(midway, usize::MAX)?;
        Ok(written.map_or(scores, |written| written.lay_over(scores)))
    }

    /// Lets the model write a little, if it writes text.
    fn write_sample(&mut self) -> Result<(), RunError> {
        let (run, step) = (self.run, self.state.step);
        let midway = Midway { data: &run.data, program: run.program(), executor: &mut self.executor, step };
        let Some(Written { prompt, text }) = task(&run.recipe).sample(midway)? else { return Ok(()) };
        let epoch = (step - 1) / run.steps_per_epoch();
        self.tell(Event::Sample { step, epoch, prompt, text })
    }

    fn save(&mut self) -> Result<(), RunError> {
        let dir = self.run.checkpoints();
        let (path, bytes) = checkpoints::write(&dir, &self.state, self.run.program(), &self.executor)?;
        let best = self.state.best.map(|best| best.step);
        checkpoints::prune(&dir, self.run.recipe.train.checkpoint.keep, best);
        self.saved = Some(self.state.step);
        let path = path.display().to_string();
        self.tell(Event::Checkpoint { step: self.state.step, path, bytes, best: best == Some(self.state.step) })
    }

    /// The model of the best evaluation (or the last step) is written, and the run summed up.
    fn finish(&mut self, end: End) -> Result<Finished, RunError> {
        let seconds = self.began.elapsed().as_secs_f64();
        if end != End::Interrupted {
            self.load_best()?;
            self.run.write_model(&self.executor)?;
        }
        // The last batch of an epoch may be a part of one.
        let seen = self.state.samples_seen.saturating_sub(self.seen_before);
        let finished = Finished {
            end,
            steps: self.state.step,
            epochs: self.state.step / self.run.steps_per_epoch(),
            last: self.state.last,
            best: self.state.best,
            planned_peak_bytes: self.run.planned.planned_peak_bytes(),
            measured_peak_bytes: self.measured_peak.max(self.run.measured_bytes(&self.executor)),
            host_peak_bytes: self.run.host_peak_bytes(),
            samples_per_s: seen as f64 / seconds.max(1e-9),
            seconds,
        };
        self.tell(Event::Finished(finished.clone()))?;
        Ok(finished)
    }

    fn load_best(&mut self) -> Result<(), RunError> {
        let Some(best) = self.state.best.filter(|best| best.step != self.state.step) else { return Ok(()) };
        let path = self.run.checkpoints().join(format!("step-{}", best.step));
        Ok(checkpoints::restore(&path, self.run.program(), &mut self.executor)?)
    }
}

#[cfg(test)]
#[path = "trainer_tests.rs"]
mod tests;
