//! `[train]`: what learning sees.

use serde::{Serialize, Serializer};

use super::memory::Choice;
use super::optimizer::{Optimizer, Schedule};
use crate::families::{Input, Model, ProblemType, Task};
use crate::reading::about::{About, about};
use crate::reading::kind::KeyKind;
use crate::reading::section::{Range, Section};
use crate::reading::tree::Value;
use plimsoll_base::metric::Metric;
use plimsoll_base::names::{Named, nearest};

/// `[train]`: how a model learns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Train {
    /// What it learns.
    pub task: Task,
    /// Samples per update; never changed for memory.
    pub effective_batch: usize,
    /// The run ends after these epochs or after `steps`, whichever comes first.
    pub epochs: usize,
    /// Updates of the whole run, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// What first weights, the order of samples and dropout are drawn from.
    pub seed: u64,
    /// `None` where gradients are not clipped.
    #[serde(serialize_with = "norm_or_zero")]
    pub clip_norm: Option<f32>,
    /// How much a sample counts by its class; `None`: all alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
    /// How a gradient becomes an update.
    pub optimizer: Optimizer,
    /// How the learning rate moves.
    pub schedule: Schedule,
    /// When it is evaluated, and by what.
    pub evaluate: Evaluate,
    /// When checkpoints are written, and how many stay.
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

/// How much a sample counts in the loss, by its class.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// All classes together alike: samples ÷ (classes × samples of the class).
    Balanced,
    /// In the order of the classes.
    List(Vec<f64>),
}

impl Serialize for ClassWeights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Balanced => serializer.serialize_str(BALANCED),
            Self::List(weights) => weights.serialize(serializer),
        }
    }
}

const BALANCED: &str = "balanced";

/// How often something is done in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After each epoch.
    Epoch,
    /// After so many updates.
    Steps(usize),
    /// Not at all.
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

/// When a run is evaluated, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evaluate {
    /// How often.
    pub every: Every,
    /// Evaluations without improvement before the run stops early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<usize>,
    /// Which number says that a model is the best so far; none given: the loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Samples evaluated at a time; has no influence on the result.
    pub batch: Choice<usize>,
}

/// When checkpoints are written, and how many stay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Checkpoint {
    /// How often.
    pub every: Every,
    /// How many of the latest stay on disk, beside the best.
    pub keep: usize,
}

/// Text that a language model writes while it learns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Tokens to write; 0 writes none.
    pub length: usize,
    /// 0 always takes the likeliest token.
    pub temperature: f64,
    /// What it goes on from.
    pub prompt: String,
    /// Continuations followed at once; encoder–decoders only.
    #[serde(skip_serializing_if = "is_one")]
    pub beams: usize,
}

fn is_one(beams: &usize) -> bool {
    *beams == 1
}

/// Of a class in the loss.
const WEIGHT: Range = Range::above(0.0, 1e6);
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
        "train.class_weights",
        "How much samples count in the loss, by class: \"balanced\" makes all classes count alike however frequent they are, or a list in the order of the classes. As weight of PyTorch's CrossEntropyLoss.",
    )
    .unset("every sample counts alike"),
    about(
        "train.evaluate.every",
        "When the validation data is scored: after each epoch, after so many steps, or never.",
    ),
    about("train.evaluate.patience", "Evaluations without improvement after which the run stops early.")
        .unset("the run never stops early"),
    about("train.evaluate.metric", "Which number of an evaluation chooses the best checkpoint and counts for `patience`.")
        .unset("the loss"),
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
            class_weights: ClassWeights::read(section, task, model),
            optimizer: Optimizer::read(&section.section_or_empty("optimizer")),
            schedule: Schedule::read(&section.section_or_empty("schedule")),
            evaluate: Evaluate::read(&section.section_or_empty("evaluate"), task, model),
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

impl ClassWeights {
    fn read(section: &Section<'_>, task: Task, model: Option<&Model>) -> Option<Self> {
        let length = 2..=1_000_000;
        section.declare("class_weights", || {
            KeyKind::any([KeyKind::words([BALANCED]), KeyKind::list(KeyKind::Number(WEIGHT), &length)])
        });
        let classes = match model.map(Model::family) {
            _ if !matches!(task, Task::Series | Task::Classify) => {
                section.not_with("class_weights", format!("task `{task}`"));
                return None;
            }
            Some(family) if family.classifier().is_some_and(|c| c.problem != ProblemType::Single) => {
                section.not_with("class_weights", "anything but one class per text");
                return None;
            }
            Some(family) => match (family.classifier(), family.input()) {
                (Some(classifier), _) => Some(classifier.labels),
                (None, Input::Series { classes, .. }) => Some(classes),
                _ => None,
            },
            None => None,
        };
        let node = section.get("class_weights")?;
        let Value::Text(word) = &node.value else {
            let weight = |node: &_| section.number_of("class_weights", node, WEIGHT);
            let weights = section.list("class_weights", length, KeyKind::Number(WEIGHT), weight)?;
            if let Some(classes) = classes.filter(|&classes| classes != weights.len()) {
                let cause = format!("{} weights are listed, the model has {classes} classes", weights.len());
                section.refuse("class_weights", cause, "one weight for each class, in their order");
            }
            return Some(Self::List(weights));
        };
        if word != BALANCED {
            let hint = nearest(word, [BALANCED]).map(|n| format!("did you mean \"{n}\"?"));
            section.unknown_value("class_weights", node, "\"balanced\" or a list of numbers", hint);
            return None;
        }
        Some(Self::Balanced)
    }
}

/// The measures that evaluations of a task have.
pub(super) fn metrics(task: Task, model: Option<&Model>) -> &'static [Metric] {
    use Metric as M;
    let problem = model.and_then(|model| model.family().classifier()).map(|classifier| classifier.problem);
    match task {
        Task::Classify if problem == Some(ProblemType::Regression) => &[M::Loss, M::Pearson, M::Spearman],
        Task::Series | Task::Classify => &[M::Loss, M::Accuracy, M::F1],
        Task::LanguageModel => &[M::Loss, M::Perplexity, M::Accuracy],
        Task::Seq2seq => &[M::Loss, M::Accuracy, M::ExactMatch, M::Rouge1, M::Rouge2, M::RougeL],
        Task::Contrastive => &[M::Loss, M::Accuracy, M::RecallAt1, M::RecallAt5, M::RecallAt10, M::ZeroShot],
    }
}

impl Evaluate {
    fn read(section: &Section<'_>, task: Task, model: Option<&Model>) -> Self {
        let evaluate = Self {
            every: Every::read(section, Every::Epoch),
            patience: section.size("patience", 1..=1_000_000),
            metric: section.choice("metric"),
            batch: Choice::size(section, "batch", 1..=MOST_SAMPLES),
        };
        if evaluate.every == Every::Never {
            section.not_with("patience", "a run that never evaluates");
            section.not_with("metric", "a run that never evaluates");
        }
        let known = metrics(task, model);
        if let Some(metric) = evaluate.metric.filter(|metric| !known.contains(metric)) {
            let names: Vec<&str> = known.iter().map(|m| m.name()).collect();
            let cause = format!("evaluations of task `{task}` have no {metric}");
            section.refuse("metric", cause, format!("one of {}", names.join(", ")));
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
