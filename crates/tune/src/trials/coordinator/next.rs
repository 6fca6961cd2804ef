//! What to start next: what others left behind, what was enqueued, what has earned to go on, what is drawn anew.

use std::sync::Arc;
use std::time::Instant;

use plimsoll::search::Values;
use plimsoll::{Recipe, format_bytes, format_seconds};
use plimsoll_runs::holder;

use super::follow::Seen;
use super::{Coordinator, Running, Watcher, waits};
use crate::attributes as name;
use crate::error::{Error, Result};
use crate::json::Json;
use crate::order;
use crate::space::Point;
use crate::study::{Asked, Outcome, Study};
use crate::trial::{Attributes, State, Trial};
use crate::trials::child::{Task, Training};
use crate::trials::pace::Length;
use crate::trials::plans::{self, Outlook};
use crate::trials::space::values_of;
use crate::trials::trainings::{Lesson, carry_over, lengthen};

/// A trial that can be started as soon as there is room.
pub(super) struct Ready {
    pub asked: Asked,
    pub bytes: u64,
    pub length: Option<Length>,
    pub task: Task,
}

/// What a suggestion would be as a trial.
pub(super) struct Prospect {
    recipe: Recipe,
    outlook: Arc<Outlook>,
    lesson: Lesson,
    share: u64,
    adapted: Option<String>,
    pub length: Option<Length>,
}

impl Prospect {
    pub(super) fn seconds(&self) -> Option<f64> {
        self.length.map(|length| length.seconds)
    }
}

/// Why a suggestion cannot be one.
pub(super) enum Unfit {
    Refused(String),
    TooLarge(Box<Prospect>),
}

impl Coordinator {
    /// Starts one trial if there is one and room for it; true if anything was done.
    pub(super) fn start_next(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        if let Some(ready) = self.pending.take() {
            return self.start_or_wait(ready, watcher);
        }
        if !self.room.has_slot() {
            return Ok(false);
        }
        if let Some(asked) = self.left_behind()? {
            watcher.line(&format!("trial {}: taken over from a worker that is silent", asked.number));
            return self.go_on(asked, watcher);
        }
        self.draw_ahead()?;
        if let Some(asked) = self.claim_next()? {
            return self.begin_claimed(asked, watcher);
        }
        if let Some(asked) = self.study.promote()? {
            watcher.line(&format!("trial {}: goes on, it is among the best of its rung", asked.number));
            return self.go_on(asked, watcher);
        }
        if self.trials()?.len() >= self.options.trials {
            return self.last_chance(watcher);
        }
        let folder = self.options.folder.clone();
        if let Some((asked, before)) = self.study.revive(|number| folder.trial(number).join("checkpoints").is_dir())? {
            watcher.line(&format!("trial {}: goes on where trial {before} was laid aside", asked.number));
            carry_over(&folder, before, asked.number)?;
            return self.go_on(asked, watcher);
        }
        self.begin_new(watcher)
    }

    /// What a worker left behind that is silent, and whose training is not alive after all.
    fn left_behind(&mut self) -> Result<Option<Asked>> {
        if !self.options.shared {
            return Ok(None);
        }
        let folder = self.options.folder.clone();
        self.study.take_over_stale(self.options.grace, |number| holder(&folder.trial(number)).is_some())
    }

    /// Few trials may all be laid aside: of a study without any complete one, the best goes on to its end.
    fn last_chance(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        let trials = self.trials()?;
        let complete = trials.iter().any(|trial| trial.state == State::Complete);
        let open = trials.iter().any(|t| t.state == State::Running && !Study::is_paused(t) && !waits(t, &trials));
        if !self.running.is_empty() || complete || open {
            return Ok(false);
        }
        let Some(asked) = self.study.promote_best()? else { return Ok(false) };
        watcher.line(&format!("trial {}: goes on to its end, as the best of few", asked.number));
        self.to_the_end = Some(asked.id);
        self.go_on(asked, watcher)
    }

    /// Draws settings, plans them, and only then makes them a trial.
    fn begin_new(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        let suggestion = self.study.suggest()?;
        if suggestion.exhausted {
            self.options.trials = self.trials()?.len();
            watcher.line("nothing is left to try");
            return Ok(true);
        }
        let values = self.values_at(&suggestion.point);
        let prospect = self.prospect(&values)?;
        let attributes = prospect.as_ref().map_or_else(|_| Attributes::new(), attributes_of);
        let asked = match self.study.begin(&suggestion, attributes) {
            // Another worker made the last one meanwhile.
            Err(Error::StudyFull) => return Ok(false),
            begun => begun?,
        };
        match prospect {
            Ok(prospect) => self.ready(asked, prospect, watcher),
            Err(unfit) => self.tell_unfit(&asked, &values, unfit, watcher),
        }
    }

    /// A trial that somebody put in line.
    fn begin_claimed(&mut self, asked: Asked, watcher: &mut dyn Watcher) -> Result<bool> {
        let values = values_of(&asked.params);
        match self.prospect(&values)? {
            Ok(prospect) => {
                for (key, value) in attributes_of(&prospect) {
                    self.study.set_user_attr(asked.id, &key, value)?;
                }
                self.ready(asked, prospect, watcher)
            }
            Err(unfit) => self.tell_unfit(&asked, &values, unfit, watcher),
        }
    }

    pub(super) fn values_at(&self, point: &Point) -> Values {
        let value = |(name, internal): (&String, &f64)| {
            let parameter = self.study.space().get(name)?;
            Some((name.clone(), parameter.distribution.external(*internal)))
        };
        values_of(&order::map(point.iter().filter_map(value)))
    }

    /// Plans: in a trial's share of the memory if that is enough, else in more of it.
    pub(super) fn prospect(&mut self, values: &Values) -> Result<std::result::Result<Prospect, Unfit>> {
        let settings = self.settings(values);
        let mut last = None;
        for share in self.room.shares() {
            let within = [&settings[..], &[format!("memory.budget={share}")]].concat();
            let recipe = match self.plans.recipe(&within) {
                Ok(recipe) => recipe,
                Err(error) => return Ok(Err(Unfit::Refused(error.to_string()))),
            };
            if let Some(cause) = self.options.search.unsaid(&recipe) {
                return Ok(Err(Unfit::Refused(cause)));
            }
            let outlook = self.plans.outlook(&recipe, &self.device)?;
            if let Some(cause) = &outlook.refused {
                return Ok(Err(Unfit::Refused(cause.clone())));
            }
            let length = self.pace().length(&recipe, self.plans.steps(&recipe), &outlook);
            let lesson = Lesson::of(&recipe)?;
            let prospect = Prospect { recipe, outlook, lesson, share, adapted: None, length };
            if prospect.outlook.fits {
                let adapted = self.adaptation(values, &settings, &prospect)?;
                return Ok(Ok(Prospect { adapted, ..prospect }));
            }
            last = Some(prospect);
        }
        let nothing = || Error::Input("there is no memory to plan for".into());
        Ok(Err(Unfit::TooLarge(Box::new(last.ok_or_else(nothing)?))))
    }

    /// What values set, and what every trial has.
    fn settings(&self, values: &Values) -> Vec<String> {
        let mut settings = self.options.search.settings(values);
        // Older checkpoints of a trial are of no use to anybody.
        settings.push("train.checkpoint.keep=1".into());
        settings.extend(self.options.settings.iter().cloned());
        settings
    }

    /// In words, how a training is run that does not fit as it was asked for; learning is the same.
    fn adaptation(&mut self, values: &Values, settings: &[String], prospect: &Prospect) -> Result<Option<String>> {
        let asked = plans::Asked::of(&self.options.search, values, &prospect.recipe);
        if !asked.may_differ(&prospect.outlook) {
            return Ok(None);
        }
        let whole = [settings, &[format!("memory.budget={}", self.room.budget_bytes)]].concat();
        let fits = self.plans.fits_as_asked(&whole, &asked, &self.device)?;
        Ok((!fits).then(|| asked.adaptation(&prospect.outlook)))
    }

    /// Looks for a trial that trains the same; otherwise makes ready to train.
    fn ready(&mut self, asked: Asked, prospect: Prospect, watcher: &mut dyn Watcher) -> Result<bool> {
        self.planned = true;
        let others: Vec<Arc<Trial>> = self.trials()?.into_iter().filter(|trial| trial.number < asked.number).collect();
        if let Some(twin) = prospect.lesson.twin(&others) {
            self.study.set_user_attr(asked.id, name::SAME_AS, Json::Int(twin.number as i64))?;
            watcher.line(&format!("trial {}: the same training as trial {}", asked.number, twin.number));
            self.followers.push((asked, twin.number));
            return Ok(true);
        }
        let out = self.options.folder.trial(asked.number);
        if let Some(shorter) = prospect.lesson.shorter(&others) {
            let from = self.options.folder.trial(shorter.number);
            if from.join("checkpoints").is_dir() && lengthen(&from, &out, prospect.lesson.epochs).is_ok() {
                self.study.set_user_attr(asked.id, name::CONTINUES, Json::Int(shorter.number as i64))?;
                watcher.line(&format!("trial {}: goes on where trial {} ended", asked.number, shorter.number));
            }
        }
        self.forecast.predict(prospect.seconds());
        let task = self.task(asked.number, Some(&prospect.recipe))?;
        watcher.line(&start_line(&asked, &prospect));
        let ready = Ready { bytes: prospect.outlook.peak_bytes, length: prospect.length, task, asked };
        self.start_or_wait(ready, watcher)
    }

    /// The recipe of a trial is written down once: what becomes of the study's recipe later is of no account.
    fn task(&self, number: u64, recipe: Option<&Recipe>) -> Result<Task> {
        let options = &self.options;
        let written = options.folder.log(number).with_extension("toml");
        if let Some(recipe) = recipe {
            let text = recipe.to_toml().map_err(|error| Error::Input(error.to_string()))?;
            let folder = written.parent().unwrap_or(options.folder.path());
            std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
            std::fs::write(&written, text).map_err(Error::file(&written))?;
        }
        Ok(Task {
            program: options.program.clone(),
            recipe: written,
            settings: Vec::new(),
            device: options.device.clone(),
            threads: self.room.threads,
            out: options.folder.trial(number),
            log: options.folder.log(number),
            products: options.products.clone(),
            secret: options.secret.clone(),
        })
    }

    pub(super) fn start_or_wait(&mut self, ready: Ready, _: &mut dyn Watcher) -> Result<bool> {
        // Whoever trains there may be of a worker that has lost the trial and does not know yet.
        if !self.room.has_room(ready.bytes) || holder(&ready.task.out).is_some() {
            self.pending = Some(ready);
            return Ok(false);
        }
        let training = Training::start(&ready.task)?;
        self.room.take(ready.asked.id, ready.bytes);
        let trial = self.trial(ready.asked.id)?;
        let seen = Seen::of(&trial);
        self.running.push(Running {
            training,
            began: Instant::now(),
            step: 0,
            steps: 0,
            remaining: None,
            pausing: false,
            restarts: 0,
            resumed_from: 0,
            seen,
            ready,
        });
        Ok(true)
    }

    /// A trial that was begun before: laid aside, left behind by a dead worker, or by this coordinator's last life.
    pub(super) fn go_on(&mut self, asked: Asked, watcher: &mut dyn Watcher) -> Result<bool> {
        let trial = self.trial(asked.id)?;
        if let Some(leader) = trial.user_attrs.get(name::SAME_AS).and_then(Json::as_i64) {
            self.followers.push((asked, leader as u64));
            return Ok(true);
        }
        if !self.options.folder.log(asked.number).with_extension("toml").is_file() {
            // It died before it could be started: as if it were enqueued.
            return self.begin_claimed(asked, watcher);
        }
        let number = |key: &str| trial.user_attrs.get(key).and_then(Json::as_f64);
        let bytes = number(name::PEAK_MEMORY_GB).map_or(0, |gb| (gb * 1e9) as u64);
        let task = self.task(asked.number, None)?;
        let length = number(name::PREDICTED_SECONDS).map(|seconds| Length { seconds, closing: 0.0 });
        let ready = Ready { bytes, length, task, asked };
        self.start_or_wait(ready, watcher)
    }

    /// What a coordinator before this one had begun. On a storage that others work on, theirs are taken over only when
    /// they are silent.
    pub(super) fn adopt(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        let left: Vec<Arc<Trial>> = self.trials()?;
        let left = left.iter().filter(|t| t.state == State::Running && Study::is_ours(t) && !Study::is_paused(t));
        let (shared, before) = (self.options.shared, self.before.take());
        let left = left.filter(|t| !shared || before.as_deref().is_some_and(|before| Study::is_of(t, before)));
        for trial in left.cloned().collect::<Vec<_>>() {
            watcher.line(&format!("trial {}: goes on", trial.number));
            let asked = self.study.adopt(trial.id)?;
            // One at a time waits for room; the others wait here.
            while self.pending.is_some() {
                self.follow_all(watcher)?;
                if let Some(ready) = self.pending.take() {
                    self.start_or_wait(ready, watcher)?;
                }
                std::thread::sleep(super::LOOK);
            }
            self.go_on(asked, watcher)?;
        }
        Ok(())
    }

    /// A suggestion that cannot be trained: the sampler learns where the border is.
    fn tell_unfit(&mut self, asked: &Asked, values: &Values, unfit: Unfit, watcher: &mut dyn Watcher) -> Result<bool> {
        let refusal = match unfit {
            Unfit::Refused(cause) => {
                self.study.set_user_attr(asked.id, name::REFUSED, Json::from(cause.as_str()))?;
                self.study.set_constraint(asked.id, "recipe", 1.0)?;
                watcher.line(&format!("trial {}: refused: {}", asked.number, first_line(&cause)));
                Some(cause)
            }
            Unfit::TooLarge(prospect) => {
                let Prospect { outlook, recipe, .. } = *prospect;
                self.note_oom(asked, values, &recipe, &outlook, watcher)?;
                self.planned = true;
                None
            }
        };
        self.ended += 1;
        self.study.tell(asked.id, &Outcome::Pruned)?;
        refusal.map_or(Ok(()), |cause| self.stop_if_unplannable(&cause))?;
        Ok(true)
    }

    /// With the names and words that users of such searches know.
    fn note_oom(
        &mut self,
        asked: &Asked,
        values: &Values,
        recipe: &Recipe,
        outlook: &Outlook,
        watcher: &mut dyn Watcher,
    ) -> Result<()> {
        let wanted = plans::Asked::of(&self.options.search, values, recipe);
        let effective = recipe.train.effective_batch;
        let config = OomConfig {
            model: self.model_name(values, recipe),
            batch_size: wanted.micro_batch,
            grad_accum: effective.div_ceil(wanted.micro_batch.max(1)),
            max_length: self.set_by("data.max_length", values),
            effective,
        };
        let (peak, budget) = (format_bytes(outlook.peak_bytes), format_bytes(self.room.budget_bytes));
        let error = format!("the smallest plan needs {peak}, the budget is {budget}");
        watcher.line(&config.message(asked.number, &error));
        let params: Vec<(String, String)> = asked.params.iter().map(|(k, v)| (k.clone(), v.to_string())).collect();
        watcher.infeasible(asked.number, &params);
        let excess = (outlook.peak_bytes as f64 - self.room.budget_bytes as f64) / self.room.budget_bytes.max(1) as f64;
        let attributes = [
            (name::OOM, Json::Bool(true)),
            (name::OOM_CONFIG, config.json()),
            (name::PEAK_MEMORY_GB, Json::Float(outlook.peak_bytes as f64 / 1e9)),
            (name::PRUNED_BECAUSE, Json::Text(config.short())),
        ];
        for (key, value) in attributes {
            self.study.set_user_attr(asked.id, key, value)?;
        }
        self.study.set_constraint(asked.id, "memory", excess.max(f64::MIN_POSITIVE))
    }

    fn set_by(&self, key: &str, values: &Values) -> Option<String> {
        let moves = |parameter: &&plimsoll::search::Parameter| match &parameter.effect {
            plimsoll::search::Effect::Key(own) => own == key,
            _ => false,
        };
        let parameter = self.options.search.parameters.iter().find(moves)?;
        values.get(&parameter.name).map(ToString::to_string)
    }

    fn model_name(&self, values: &Values, recipe: &Recipe) -> String {
        let searched = values.get("model.name").map(ToString::to_string);
        searched.or_else(|| self.set_by("model.preset", values)).unwrap_or_else(|| recipe.model.name().into())
    }
}

/// What an out-of-memory error elsewhere would be about.
struct OomConfig {
    model: String,
    batch_size: usize,
    grad_accum: usize,
    max_length: Option<String>,
    effective: usize,
}

impl OomConfig {
    fn json(&self) -> Json {
        let length = self.max_length.as_deref().and_then(|text| text.parse().ok()).map_or(Json::Null, Json::Int);
        Json::object([
            ("model", Json::from(self.model.as_str())),
            ("batch_size", Json::Int(self.batch_size as i64)),
            ("grad_accum", Json::Int(self.grad_accum as i64)),
            ("max_length", length),
            ("effective_batch_size", Json::Int(self.effective as i64)),
        ])
    }

    fn length(&self) -> &str {
        self.max_length.as_deref().unwrap_or("as in the recipe")
    }

    fn short(&self) -> String {
        format!("OOM: {} bs={} len={}", self.model, self.batch_size, self.length())
    }

    fn message(&self, number: u64, error: &str) -> String {
        let error: String = error.chars().take(200).collect();
        format!(
            "[OOM] Trial {number} exceeded GPU memory:\n  Model: {}\n  Batch size: {} (effective: {} with grad_accum={})\n  \
             Max length: {}\n  Error: {error}\n  Pruning trial to allow Optuna to learn memory constraints.",
            self.model,
            self.batch_size,
            self.effective,
            self.grad_accum,
            self.length(),
        )
    }
}

fn attributes_of(prospect: &Prospect) -> Attributes {
    let outlook = &prospect.outlook;
    let mut attributes: Attributes = order::map(prospect.lesson.attributes());
    let adapted = prospect.adapted.as_deref().map_or(Json::Bool(false), Json::from);
    attributes.extend([
        (name::PEAK_MEMORY_GB.to_string(), Json::Float(outlook.peak_bytes as f64 / 1e9)),
        (name::ADAPTED.to_string(), adapted),
        (name::MICRO_BATCH.to_string(), Json::Int(outlook.micro_batch as i64)),
        (name::RECOMPUTE.to_string(), Json::from(outlook.recompute)),
        (name::SHARE_BYTES.to_string(), Json::Int(prospect.share as i64)),
    ]);
    let seconds = prospect.seconds().map(|seconds| (name::PREDICTED_SECONDS.to_string(), Json::Float(seconds)));
    attributes.extend(seconds);
    attributes
}

fn start_line(asked: &Asked, prospect: &Prospect) -> String {
    let params: Vec<String> = asked.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let seconds = prospect.seconds().map_or(String::new(), |seconds| format!(", about {}", format_seconds(seconds)));
    let adapted = prospect.adapted.as_deref().map_or(String::new(), |words| format!("; adapted: {words}"));
    let bytes = format_bytes(prospect.outlook.peak_bytes);
    format!("trial {}: {}  [{bytes}{seconds}{adapted}]", asked.number, params.join(" "))
}

pub(super) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}
