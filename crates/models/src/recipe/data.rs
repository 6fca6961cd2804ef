//! `[data]`: where samples come from and how they are cut.

mod batches;
mod captions;
mod labelled;
mod pairs;
mod series;
mod text;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::families::Task;
use crate::families::{Input, Model};
use crate::reading::about::{About, about};
use crate::reading::kind::KeyKind;
use crate::reading::section::{Range, Section};
use crate::reading::tree::Value;
pub(super) use batches::ABOUT as BATCHES_ABOUT;
pub(super) use captions::ABOUT as CAPTIONS_ABOUT;
pub use captions::Captions;
pub(super) use labelled::ABOUT as LABELLED_ABOUT;
pub use labelled::{Columns, Labelled, LabelledColumns};
pub(super) use pairs::ABOUT as PAIRS_ABOUT;
pub use pairs::{PairColumns, Pairs};
use plimsoll_base::batching::Batching;
pub use plimsoll_base::formats::Format;
use plimsoll_base::formats::Holds;
use plimsoll_base::named;
use plimsoll_base::names::Named;
pub(super) use series::ABOUT as SERIES_ABOUT;
pub use series::{DerivedLabel, Label, Series};
pub(super) use text::ABOUT as TEXT_ABOUT;
pub use text::{BYTE_VOCABULARY, Text};

/// `[data]`: samples, and how they are brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Data {
    /// Where training samples come from.
    #[serde(flatten)]
    pub source: Source,
    /// What is held out to evaluate on.
    pub validation: Validation,
    /// What a sample is.
    #[serde(flatten)]
    pub kind: DataKind,
    /// Threads that prepare batches; with 0 the training thread does.
    pub workers: usize,
    /// Effective batches prepared ahead, at most.
    pub prefetch: usize,
}

/// Where training samples come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Source {
    /// As written in the recipe; `Recipe::resolve_path` finds it.
    File {
        /// The file, or a folder of images.
        train: PathBuf,
        /// What the recipe says is in it; `None`: the file tells it, by its extension and how it begins.
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<Format>,
    },
    /// Made by code.
    Synthetic {
        /// By which process.
        #[serde(rename = "source")]
        name: Synthetic,
        /// Rows of the series, bytes of the corpus, or labelled texts, pairs and images.
        samples: usize,
        /// What it is drawn from.
        seed: u64,
    },
}

named! {
    /// Data made by code: a known process, so that what any model can reach is known too.
    pub enum Synthetic {
        /// A series that moves between regimes.
        Regimes = "synthetic:regimes",
        /// Texts of a small grammar.
        Grammar = "synthetic:grammar",
        /// Texts with a label.
        Sentiment = "synthetic:sentiment",
        /// Texts and what they are to become.
        Recipes = "synthetic:recipes",
        /// Images with captions.
        Shapes = "synthetic:shapes",
    }
}

impl Synthetic {
    /// The data made by code that a task learns from.
    pub fn made_for(task: Task) -> Self {
        match task {
            Task::Series => Self::Regimes,
            Task::LanguageModel => Self::Grammar,
            Task::Classify => Self::Sentiment,
            Task::Seq2seq => Self::Recipes,
            Task::Contrastive => Self::Shapes,
        }
    }
}

/// What is held out to evaluate on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Validation {
    /// A part of the training data; 0 is none. Of a series or a corpus the last part; of labelled texts, pairs and
    /// images a shuffled one, always the same.
    Fraction(f64),
    /// A file of its own.
    File(PathBuf),
}

impl Validation {
    /// Whether nothing is held out.
    pub fn is_none(&self) -> bool {
        *self == Self::Fraction(0.0)
    }
}

/// What a sample is, with what only that kind of data has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum DataKind {
    /// Windows of a series.
    Series(Series),
    /// Windows of a corpus.
    Text(Text),
    /// Texts with labels.
    Labelled(Labelled),
    /// Texts and what they are to become.
    Pairs(Pairs),
    /// Images with captions.
    Captions(Captions),
}

/// The part of the training data that may be held out.
const HELD_OUT: Range = Range::closed(0.0, 0.9);

/// What each key means that several kinds of data know.
pub(super) const ABOUT: &[About] = &[
    about("data.train", "The file to learn from (for images also a folder), relative to the recipe or to the working directory.").unset("required unless `source` is written"),
    about("data.source", "Data made by code, whose best possible result is known; each task has its own.").unset("required unless `train` is written"),
    about("data.format", "What the file is.").derived("by its extension"),
    about("data.samples", "How much is made: rows of a series, bytes of a corpus, or labelled texts, pairs and images."),
    about("data.seed", "Decides the data made by code."),
    about("data.validation", "What is held out to evaluate on: a part of the training data (0 is none), or a second file."),
    about("data.workers", "Threads that prepare batches; with 0 the training thread does."),
    about("data.prefetch", "Effective batches prepared ahead, at most."),
    about("data.max_length", "Tokens per sample, special ones included; what is longer is cut.").derived("what the model knows; for labelled texts and pairs at most 512"),
    about("data.tokenizer", "A tokenizer.json.").unset("that of the checkpoint; for a corpus bytes"),
    about("data.text", "The column with the text, or with the source of a pair."),
    about("data.label", "The column with the class of each row; for texts a label, a number or a list of them, or one column per output.").unset("for a series required unless `label_from` is written"),
    about("data.on_bad_row", "Whether a row that cannot be used ends the run or is left out and counted."),
];

const SYNTHETIC_KEYS: [&str; 2] = ["samples", "seed"];

/// Every key that only some kinds of data know.
const KIND_KEYS: [&[&str]; 6] =
    [&series::KEYS, &text::KEYS, &labelled::KEYS, &pairs::KEYS, &captions::KEYS, &batches::BATCHING_KEYS];

/// Refuses keys of other kinds than the one that knows `own`.
fn refuse_keys(section: &Section<'_>, own: &[&'static str], kind: &str) {
    section.know(own);
    let others = KIND_KEYS.into_iter().flatten().filter(|key| !own.contains(key));
    for key in others.copied().collect::<std::collections::BTreeSet<_>>() {
        section.not_with(key, kind);
    }
}

impl Data {
    /// `None` where there is no source; where other values were refused, defaults stand in for them.
    pub(super) fn read(section: &Section<'_>, task: Task, model: Option<&Model>) -> Option<Self> {
        let input = model.map(|m| m.family().input());
        let source = Source::read(section, task);
        let kind = match task {
            Task::Series => DataKind::Series(Series::read(section, source.as_ref())),
            Task::LanguageModel => DataKind::Text(Text::read(section, input)),
            Task::Classify => DataKind::Labelled(Labelled::read(section, source.as_ref(), input)),
            Task::Seq2seq => DataKind::Pairs(Pairs::read(section, source.as_ref(), input)),
            Task::Contrastive => DataKind::Captions(Captions::read(section, input)),
        };
        let validation = Validation::read(section, if task == Task::Series { 0.2 } else { 0.1 });
        let workers = section.size("workers", 0..=256).unwrap_or(2);
        let prefetch = section.size("prefetch", 1..=1024).unwrap_or(2);
        section.finish();
        Some(Self { source: source?, validation, kind, workers, prefetch })
    }

    /// How samples share batches.
    pub fn batching(&self) -> Batching {
        match &self.kind {
            DataKind::Series(_) | DataKind::Text(_) | DataKind::Captions(_) => Batching::EQUAL,
            DataKind::Labelled(labelled) => labelled.batching,
            DataKind::Pairs(pairs) => pairs.batching,
        }
    }

    /// The columns of a file that the recipe names.
    pub fn columns(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        match &self.kind {
            DataKind::Series(series) => {
                names.extend(series.columns.iter().flatten().map(String::as_str));
                names.extend(series.time.as_deref());
                names.extend(series.label.as_ref().map(Label::column));
            }
            DataKind::Text(text) => names.push(&text.text_field),
            DataKind::Labelled(texts) => names.extend(texts.columns.iter().flat_map(LabelledColumns::names)),
            DataKind::Pairs(pairs) => names.extend(pairs.columns.iter().flat_map(|c| [&c.text[..], &c.target])),
            DataKind::Captions(captions) => names.extend([&captions.image[..], &captions.caption]),
        }
        names
    }

    /// Tokens of the longest text that is read; 0 for series.
    pub fn longest_text(&self) -> usize {
        match &self.kind {
            DataKind::Series(_) => 0,
            DataKind::Text(text) => text.max_length,
            DataKind::Labelled(texts) => texts.max_length,
            DataKind::Pairs(pairs) => pairs.max_length,
            DataKind::Captions(captions) => captions.max_length,
        }
    }

    /// Tokens of the longest text that is written; 0 where none is.
    pub fn longest_target(&self) -> usize {
        if let DataKind::Pairs(pairs) = &self.kind { pairs.max_target_length } else { 0 }
    }

    /// Whether batches are as long as their longest text.
    pub fn varies_in_length(&self) -> bool {
        matches!(self.kind, DataKind::Labelled(_) | DataKind::Pairs(_))
    }

    /// Reports data that does not go with the model.
    pub(super) fn check(&self, section: &Section<'_>, input: Input) {
        self.check_tokenizer(section);
        match (&self.kind, input) {
            (DataKind::Series(series), Input::Series { features, classes, .. }) => {
                series.check(section, features, classes)
            }
            (DataKind::Text(text), Input::Tokens { max_length, vocab }) => text.check(section, max_length, vocab),
            (DataKind::Labelled(Labelled { max_length, .. }), Input::Tokens { max_length: longest, .. })
            | (DataKind::Pairs(Pairs { max_length, .. }), Input::Tokens { max_length: longest, .. })
            | (DataKind::Captions(Captions { max_length, .. }), Input::Images { max_length: longest, .. }) => {
                check_length(section, *max_length, longest);
            }
            // The task, already checked against the family, decides both sides.
            _ => {}
        }
    }

    /// A file that nothing reads must not go along with the model.
    fn check_tokenizer(&self, section: &Section<'_>) {
        let (DataKind::Text(Text { tokenizer, .. }) | DataKind::Captions(Captions { tokenizer, .. })) = &self.kind
        else {
            return;
        };
        if let (Some(_), Source::Synthetic { name, .. }) = (tokenizer, &self.source) {
            let cause = format!("\"{name}\" has a vocabulary of its own");
            section.refuse("tokenizer", cause, "leave it out, or name a file with `train` instead of `source`");
        }
    }
}

impl Source {
    /// What is said of the format of `file`, which is read as the training data is; `None` where it tells it itself.
    pub fn format_of(&self, file: &Path) -> Option<Format> {
        match self {
            Self::File { train, format } => Format::beside(file, train, *format),
            Self::Synthetic { .. } => None,
        }
    }

    fn read(section: &Section<'_>, task: Task) -> Option<Self> {
        let train = section.file("train");
        let synthetic = section.choice::<Synthetic>("source");
        section.know(&["format"]);
        section.know(&SYNTHETIC_KEYS);
        match (section.has("train"), section.has("source")) {
            (true, false) => Self::file(section, task, train?),
            (false, true) => Self::synthetic(section, task, synthetic?),
            (true, true) => {
                let hint = "keep `train` for a file, or `source` for data made by code";
                section.refuse("source", "`train` and `source` exclude each other", hint);
                None
            }
            (false, false) => {
                let hint =
                    "name a file, train = \"data/train.csv\", or data made by code, source = \"synthetic:regimes\"";
                section.require::<()>("train", None, hint);
                None
            }
        }
    }

    fn file(section: &Section<'_>, task: Task, train: PathBuf) -> Option<Self> {
        for key in SYNTHETIC_KEYS {
            section.not_with(key, "data from a file");
        }
        section.declare("format", KeyKind::choice::<Format>);
        let readable = readable(task);
        let said = match section.get("format") {
            Some(node) => Some(section.choice_of("format", node, &[])?),
            None => None,
        };
        let format = match said {
            Some(format) => format,
            None if task == Task::Contrastive && train.extension().is_none() => Format::Folder,
            None => by_extension(section, &train, readable)?,
        };
        if !readable.contains(&format.holds()) {
            let at = if section.has("format") { "format" } else { "train" };
            let names: Vec<_> = Format::holding(readable).map(Named::name).collect();
            let hint = format!("it reads {}", names.join(", "));
            section.refuse(at, format!("task `{task}` cannot read {format}"), hint);
        }
        Some(Self::File { train, format: said })
    }

    fn synthetic(section: &Section<'_>, task: Task, name: Synthetic) -> Option<Self> {
        section.not_with("format", "data made by code");
        let made_for_it = Synthetic::made_for(task);
        if name != made_for_it {
            let hint = format!("{task}: \"{made_for_it}\"");
            section.refuse("source", format!("\"{name}\" does not go with task `{task}`"), hint);
        }
        let samples = section.size("samples", 1..=100_000_000).unwrap_or(20_000);
        Some(Self::Synthetic { name, samples, seed: section.seed("seed").unwrap_or(1) })
    }
}

/// What the files of a task may hold.
fn readable(task: Task) -> &'static [Holds] {
    match task {
        Task::Series | Task::Classify | Task::Seq2seq => &[Holds::Rows],
        Task::LanguageModel => &[Holds::Rows, Holds::Document],
        Task::Contrastive => &[Holds::Rows, Holds::Images],
    }
}

fn by_extension(section: &Section<'_>, file: &Path, readable: &[Holds]) -> Option<Format> {
    let format = Format::of(file);
    if format.is_none() {
        let names: Vec<_> = Format::holding(readable).map(|format| format!("\"{format}\"")).collect();
        let hint = format!("say it with format = {}", names.join(", "));
        section.refuse("train", "the format does not follow from the file's extension", hint);
    }
    format
}

impl Validation {
    fn read(section: &Section<'_>, default: f64) -> Self {
        section.declare("validation", || KeyKind::any([KeyKind::Number(HELD_OUT), KeyKind::Path]));
        let Some(node) = section.get("validation") else { return Self::Fraction(default) };
        let read = match &node.value {
            Value::Text(_) => section.file("validation").map(Self::File),
            _ => section.number_of("validation", node, HELD_OUT).map(Self::Fraction),
        };
        read.unwrap_or(Self::Fraction(default))
    }
}

fn check_length(section: &Section<'_>, max_length: usize, longest: usize) {
    if max_length > longest {
        let cause = format!("{max_length} tokens are more than the {longest} positions that the model knows");
        section.refuse("max_length", cause, format!("at most {longest}"));
    }
}

/// Tokens per text unless the recipe says: what the model knows, within reason.
fn usual_length(input: Option<Input>) -> usize {
    const USUAL: usize = 512;
    match input {
        Some(Input::Tokens { max_length, .. } | Input::Images { max_length, .. }) => max_length.min(USUAL),
        _ => USUAL,
    }
}

#[cfg(test)]
mod tests;
