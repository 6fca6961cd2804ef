//! `[train]`: what learning sees.

use serde::{Serialize, Serializer};

use super::memory::Choice;
use super::optimizer::{Optimizer, Schedule};
use crate::families::{Input, Model, Task};
use crate::reading::about::{About, about};
use crate::reading::kind::KeyKind;
use crate::reading::section::{Range, Section};
use crate::reading::tree::Value;
use plimsoll_base::names::{Named, nearest};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Train {
    pub task: Task,
    /// Samples per update; never changed for memory.
    pub effective_batch: usize,
    /// The run ends after these epochs or after `steps`, whichever comes first.
    pub epochs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    pub seed: u64,
    /// `None` where gradients are not clipped.
    #[serde(serialize_with = "norm_or_zero")]
    pub clip_norm: Option<f32>,
    pub optimizer: Optimizer,
    pub schedule: Schedule,
    pub evaluate: Evaluate,
    pub checkpoint: Checkpoint,
    /// Text written after each epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

/// As the recipe writes it: no limit is 0.
fn norm_or_zero<S: Serializer>(norm: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
    norm.unwrap_or(0.0).serialize(serializer)
}

/// 1 unless it is said: what most trainings use, and what keeps one bad batch from undoing many good ones.
const CLIP_NORM: f32 = 1.0;
const LEAST_NORM: f64 = 1e-6;

fn clip_norm(section: &Section<'_>) -> Option<f32> {
    match section.number("clip_norm", Range::closed(0.0, 1e6)) {
        None => Some(CLIP_NORM),
        Some(0.0) => None,
        Some(norm) => {
            if norm < LEAST_NORM {
                section.refuse("clip_norm", format!("{norm} leaves nothing of a gradient"), "0 does not clip");
            }
            Some(norm as f32)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    Epoch,
    Steps(usize),
    Never,
}

impl Serialize for Every {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Epoch => serializer.serialize_str("epoch"),
            Self::Never => serializer.serialize_str("never"),
            Self::Steps(steps) => steps.serialize(serializer),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evaluate {
    pub every: Every,
    /// Evaluations without improvement before the run stops early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
    /// Samples evaluated at a time; has no influence on the result, except with a contrastive loss, where it is the number
    /// of pairs that each is sought among.
    pub batch: Choice<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Checkpoint {
    pub every: Every,
    /// How many of the latest stay on disk, beside the best.
    pub keep: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Tokens to write; 0 writes none.
    pub length: usize,
    /// 0 always takes the likeliest token.
    pub temperature: f64,
    pub prompt: String,
    /// Continuations followed at once; encoder–decoders only.
    #[serde(skip_serializing_if = "is_one")]
    pub beams: usize,
}

fn is_one(beams: &usize) -> bool {
    *beams == 1
}

const MOST_EPOCHS: usize = 1_000_000;
const MOST_STEPS: usize = 1_000_000_000_000;
const MOST_SAMPLES: usize = 1 << 24;
const LONGEST_SAMPLE: usize = 1 << 20;

/// What each key means.
pub(super) const ABOUT: &[About] = &[
    about("train.task", "What is learned.").unset("what the family learns"),
    about("train.effective_batch", "Samples per update; never changed for memory."),
    about(
        "train.epochs",
        "Passes over the training data; the run ends after these or after `steps`, whichever comes first. With `steps` alone, as many as those take.",
    ),
    about("train.steps", "Updates after which the run ends.").unset("as many as the epochs have"),
    about("train.seed", "Decides the first weights, the order of samples and dropout."),
    about(
        "train.clip_norm",
        "The largest norm of all gradients together; larger ones are scaled down to it. 0 does not clip, and lets every gradient go as soon as it was used.",
    ),
    about(
        "train.evaluate.every",
        "When the validation data is scored: after each epoch, after so many steps, or never.",
    ),
    about("train.evaluate.patience", "Evaluations without improvement after which the run stops early.")
        .unset("the run never stops early"),
    about("train.evaluate.batch", "Samples evaluated at a time; has no influence on the result."),
    about("train.checkpoint.every", "When a checkpoint is written: after each epoch, after so many steps, or never."),
    about("train.checkpoint.keep", "How many of the latest checkpoints stay on disk, beside the best."),
    about(
        "train.sample.length",
        "Tokens of the text written after each epoch, at most as many as the model knows; 0 writes none.",
    ),
    about("train.sample.temperature", "How freely tokens are drawn; 0 always takes the likeliest."),
    about("train.sample.prompt", "What the sampled text starts from."),
    about("train.sample.beams", "Continuations followed at once (beam search).").unset("1"),
];

impl Task {
    /// The task named by the recipe, or the family's own.
    pub(super) fn read(section: &Section<'_>, model: Option<&Model>) -> Option<Self> {
        let named = section.choice::<Self>("task");
        let Some(model) = model else { return named };
        let tasks = model.family().tasks();
        match named {
            None => tasks.first().copied(),
            Some(task) if tasks.contains(&task) => Some(task),
            Some(task) => {
                let can = tasks.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ");
                section.refuse(
                    "task",
                    format!("family `{}` cannot learn task `{task}`", model.name()),
                    format!("what it can learn: {can}"),
                );
                None
            }
        }
    }
}

impl Train {
    pub(super) fn read(section: &Section<'_>, task: Task, model: Option<&Model>) -> Self {
        let batch = section.size("effective_batch", 1..=MOST_SAMPLES);
        let steps = section.size("steps", 1..=MOST_STEPS);
        let train = Self {
            task,
            effective_batch: section.require("effective_batch", batch, "for example effective_batch = 64").unwrap_or(1),
            // With steps alone given, the epochs are as many as these steps take.
            epochs: section.size("epochs", 1..=MOST_EPOCHS).unwrap_or(if steps.is_some() { MOST_EPOCHS } else { 1 }),
            steps,
            seed: section.seed("seed").unwrap_or(1),
            clip_norm: clip_norm(section),
            optimizer: Optimizer::read(&section.section_or_empty("optimizer")),
            schedule: Schedule::read(&section.section_or_empty("schedule")),
            evaluate: Evaluate::read(&section.section_or_empty("evaluate")),
            checkpoint: Checkpoint::read(&section.section_or_empty("checkpoint")),
            sample: Sample::read(section, task, model),
        };
        section.finish();
        train
    }
}

impl Every {
    fn read(section: &Section<'_>, default: Self) -> Self {
        section.declare("every", || {
            KeyKind::any([KeyKind::words(["epoch", "never"]), KeyKind::integer(&(1..=MOST_STEPS))])
        });
        let Some(node) = section.get("every") else { return default };
        let words = "\"epoch\", \"never\" or ";
        match &node.value {
            Value::Text(text) if text == "epoch" => Self::Epoch,
            Value::Text(text) if text == "never" => Self::Never,
            Value::Text(text) => {
                let hint = nearest(text, ["epoch", "never"]).map(|n| format!("did you mean \"{n}\"?"));
                section.unknown_value("every", node, &format!("{words}a number of steps"), hint);
                default
            }
            _ => section.size_of("every", node, 1..=MOST_STEPS, words).map_or(default, Self::Steps),
        }
    }
}

impl Evaluate {
    fn read(section: &Section<'_>) -> Self {
        let evaluate = Self {
            every: Every::read(section, Every::Epoch),
            patience: section.size("patience", 1..=1_000_000),
            batch: Choice::size(section, "batch", 1..=MOST_SAMPLES),
        };
        if evaluate.every == Every::Never {
            section.not_with("patience", "a run that never evaluates");
        }
        section.finish();
        evaluate
    }
}

impl Checkpoint {
    fn read(section: &Section<'_>) -> Self {
        let checkpoint =
            Self { every: Every::read(section, Every::Epoch), keep: section.size("keep", 1..=1_000_000).unwrap_or(2) };
        section.finish();
        checkpoint
    }
}

impl Sample {
    fn read(train: &Section<'_>, task: Task, model: Option<&Model>) -> Option<Self> {
        if !matches!(task, Task::LanguageModel | Task::Seq2seq) {
            train.not_with("sample", format!("task `{task}`"));
            return None;
        }
        let longest = match model.map(|m| m.family().input()) {
            Some(Input::Tokens { max_length, .. }) => max_length,
            _ => LONGEST_SAMPLE,
        };
        // A language model shows what it writes; an encoder–decoder only if asked, for its cache takes memory.
        let (usual, temperature) = if task == Task::LanguageModel { (longest.min(200), 1.0) } else { (0, 0.0) };
        let section = train.section_or_empty("sample");
        if task == Task::LanguageModel {
            section.not_with("beams", "a language model");
        }
        let sample = Self {
            length: section.size("length", 0..=LONGEST_SAMPLE).unwrap_or(usual),
            temperature: section.number("temperature", Range::closed(0.0, 100.0)).unwrap_or(temperature),
            prompt: section.text("prompt").unwrap_or_default(),
            beams: section.size("beams", 1..=64).unwrap_or(1),
        };
        if sample.length > longest {
            let cause = format!("{} tokens are more than the {longest} that the model knows", sample.length);
            section.refuse("length", cause, format!("at most {longest}"));
        }
        section.finish();
        Some(sample)
    }
}
