//! A recipe for what was seen: which family, which columns, which sizes, and usual settings for learning.

use super::Arguments;
use super::look::{Holds, Seen};
use crate::failure::Failure;
use plimsoll_data::SurveyedColumn;
use plimsoll_models::families::presets;
use plimsoll_models::recipe::{BYTE_VOCABULARY, FamilyName, Synthetic, Task};
use std::path::{Path, PathBuf};

/// Keys with their values in TOML, table by table, and what the user should know besides.
pub(super) struct Proposal {
    pub task: Task,
    /// What it was made for, in words.
    pub made_for: String,
    pub settings: Vec<Setting>,
    pub notes: Vec<String>,
}

/// One line of the recipe.
pub(super) struct Setting {
    /// Dotted.
    pub key: &'static str,
    /// In TOML.
    pub value: String,
    /// Only shown: the user has to provide it.
    pub commented_out: bool,
}

fn set(key: &'static str, value: impl ToString) -> Setting {
    Setting { key, value: value.to_string(), commented_out: false }
}

fn set_text(key: &'static str, text: &str) -> Setting {
    set(key, quoted(text))
}

/// JSON's escapes are TOML's, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

const TEXT: [&str; 10] =
    ["text", "sentence", "message", "review", "content", "body", "comment", "tweet", "question", "title"];
const LABEL: [&str; 8] = ["label", "labels", "target", "class", "category", "sentiment", "score", "y"];
const SOURCE: [&str; 9] =
    ["source", "input", "document", "article", "question", "prompt", "instruction", "ingredients", "text"];
const TARGET: [&str; 9] =
    ["target", "output", "summary", "highlights", "answer", "response", "completion", "steps", "translation"];
const IMAGE: [&str; 7] = ["image", "picture", "img", "file_name", "filename", "file", "path"];
const CAPTION: [&str; 4] = ["caption", "text", "description", "title"];
const TIME: [&str; 5] = ["time", "timestamp", "datetime", "date", "open_time"];
const PRICE: [&str; 4] = ["close", "price", "value", "target"];

/// The family that suits the data.
pub(super) fn family_for(seen: &Seen) -> Result<FamilyName, Failure> {
    match &seen.holds {
        Holds::Folder => Ok(FamilyName::Clip),
        Holds::Text(_) => Ok(FamilyName::MuSota),
        Holds::Rows(_) => {
            family_for_rows(seen).ok_or_else(|| nothing_suits(seen, "no architecture suits these columns"))
        }
    }
}

fn family_for_rows(seen: &Seen) -> Option<FamilyName> {
    let texts = seen.columns().iter().filter(|column| column.is_text() && column.classes().is_none()).count();
    let numbers = seen.columns().iter().filter(|column| column.is_numeric()).count();
    let pair = (seen.named(&SOURCE), seen.named(&TARGET));
    match pair {
        _ if seen.named(&IMAGE[..4]).is_some() && seen.named(&CAPTION).is_some() => Some(FamilyName::Clip),
        (Some(source), Some(target)) if is_prose(source) && is_prose(target) => Some(FamilyName::T5),
        _ if texts > 0 && seen.class_column(&LABEL, &[]).is_some() => Some(FamilyName::Bert),
        _ if texts > 0 && seen.columns().len() == 1 => Some(FamilyName::MuSota),
        _ if numbers > 0 && texts == 0 => Some(FamilyName::HybridCnnLstm),
        _ => None,
    }
}

/// Texts that are no classes.
fn is_prose(column: &SurveyedColumn) -> bool {
    column.is_text() && column.classes().is_none()
}

fn nothing_suits(seen: &Seen, cause: &str) -> Failure {
    let columns: Vec<&str> = seen.columns().iter().map(|column| column.name.as_str()).collect();
    let columns =
        if columns.is_empty() { "it holds no rows".into() } else { format!("columns are {}", columns.join(", ")) };
    Failure::bad_input(
        format!("{}: {cause}; {columns}", seen.path.display()),
        "name the architecture with --family, and see recipes/ and `plimsoll keys data` for the columns it wants",
    )
}

pub(super) fn propose(arguments: &Arguments, family: FamilyName, seen: Option<&Seen>) -> Result<Proposal, Failure> {
    let task = *family.tasks().first().ok_or_else(|| Failure::failed("the family learns nothing", "report it"))?;
    let mut proposal = Proposal {
        task,
        made_for: seen.map_or_else(|| "data made by code".into(), Seen::describe),
        settings: Vec::new(),
        notes: Vec::new(),
    };
    let data = Data { arguments, seen, task };
    proposal.model(arguments, family, seen)?;
    proposal.settings.extend(data.settings()?);
    proposal.tokenizer(&data);
    proposal.train(arguments.checkpoint.is_some());
    Ok(proposal)
}

impl Proposal {
    fn model(&mut self, arguments: &Arguments, family: FamilyName, seen: Option<&Seen>) -> Result<(), Failure> {
        match (&arguments.checkpoint, usual_preset(family)) {
            (Some(folder), _) => self.settings.push(set_text("model.checkpoint", &beside(folder, &arguments.out))),
            (None, Some(preset)) => {
                self.settings.push(set_text("model.preset", preset));
                self.notes.push(format!(
                    "the weights start at random: name a Hugging Face folder with --checkpoint to start from {preset}'s"
                ));
            }
            (None, None) => self.settings.push(set_text("model.family", &family.to_string())),
        }
        self.settings.extend(sizes(family, self.task, seen)?);
        Ok(())
    }

    /// Models by a preset need a tokenizer to train; a checkpoint brings its own, and data made by code makes one.
    fn tokenizer(&mut self, data: &Data<'_>) {
        let (Some(seen), None) = (data.seen, &data.arguments.checkpoint) else { return };
        if self.task == Task::Series {
            return;
        }
        let near = seen.path.parent().unwrap_or(Path::new("")).join("tokenizer.json");
        let found = near.is_file();
        let path = if found { beside(&near, &data.arguments.out) } else { "tokenizer.json".into() };
        self.settings.push(Setting { key: "data.tokenizer", value: quoted(&path), commented_out: !found });
        if !found && self.task != Task::LanguageModel {
            self.notes.push("to train, set data.tokenizer to the model's tokenizer.json; a plan needs none".into());
        }
    }

    fn train(&mut self, pretrained: bool) {
        let (batch, epochs, lr) = match (self.task, pretrained) {
            (Task::Series, _) => (64, 3, "1e-3"),
            (Task::LanguageModel, _) => (16, 1, "1e-3"),
            (Task::Classify, true) => (32, 3, "2e-5"),
            (Task::Classify, false) => (32, 3, "1e-4"),
            (Task::Seq2seq, true) => (32, 3, "1e-4"),
            (Task::Seq2seq, false) => (32, 3, "1e-3"),
            (Task::Contrastive, true) => (128, 3, "2e-5"),
            (Task::Contrastive, false) => (128, 10, "5e-4"),
        };
        self.settings.extend([
            set_text("train.task", &self.task.to_string()),
            set("train.effective_batch", batch),
            set("train.epochs", epochs),
            set("train.seed", 1),
            set("train.clip_norm", "1.0"),
            set("train.optimizer", format!("{{ name = \"adamw\", lr = {lr}, weight_decay = 0.01 }}")),
            set("train.schedule", "{ name = \"linear\", warmup = 0.1 }"),
            set("train.evaluate", "{ every = \"epoch\" }"),
            set("train.checkpoint", "{ every = \"epoch\", keep = 2 }"),
        ]);
    }
}

/// The base model of a family, or whatever comes first.
fn usual_preset(family: FamilyName) -> Option<&'static str> {
    let of_family: Vec<&str> = presets().iter().filter(|preset| preset.family == family).map(|p| p.name).collect();
    let base = of_family.iter().find(|name| name.contains("base"));
    base.or(of_family.first()).copied()
}

/// Sizes that follow from the data.
fn sizes(family: FamilyName, task: Task, seen: Option<&Seen>) -> Result<Vec<Setting>, Failure> {
    match (task, seen) {
        (Task::Series, Some(seen)) => {
            let series = series(seen)?;
            Ok(vec![
                set("model.features", series.features),
                set("model.window", 60),
                set("model.classes", series.classes),
            ])
        }
        (Task::Classify, Some(seen)) => Ok(vec![set("model.num_labels", labels(classified(seen)?.1))]),
        (Task::LanguageModel, _) if family == FamilyName::MuSota => {
            Ok(vec![set("model.vocab", BYTE_VOCABULARY), set("model.layers", 8), set("model.max_length", 256)])
        }
        _ => Ok(Vec::new()),
    }
}

struct Series<'a> {
    features: usize,
    classes: usize,
    label: Option<&'a SurveyedColumn>,
    /// Where there is no label: the column whose change is one.
    derived_from: Option<&'a SurveyedColumn>,
    time: Option<&'a SurveyedColumn>,
}

fn series(seen: &Seen) -> Result<Series<'_>, Failure> {
    let time = seen.named(&TIME);
    let but = time.map(|column| column.name.as_str());
    let label = seen.named(&LABEL).filter(|column| column.classes().is_some());
    let taken = |column: &&SurveyedColumn| {
        let name = column.name.as_str();
        column.is_numeric() && Some(name) != but && label.is_none_or(|label| label.name != name)
    };
    let numeric: Vec<&SurveyedColumn> = seen.columns().iter().filter(taken).collect();
    let prices = || PRICE.iter().find_map(|name| numeric.iter().find(|c| c.name.eq_ignore_ascii_case(name)));
    let derived_from = if label.is_none() { prices().or(numeric.last()).copied() } else { None };
    if numeric.is_empty() {
        return Err(nothing_suits(seen, "a series needs columns of numbers"));
    }
    Ok(Series { features: numeric.len(), classes: label.map_or(3, labels).max(2), label, derived_from, time })
}

/// Outputs for a column: as many as it has classes, or one number.
fn labels(column: &SurveyedColumn) -> usize {
    let Some(classes) = column.classes() else { return 1 };
    if !column.is_numeric() {
        return classes.len();
    }
    // Whole numbers are the classes' own places.
    let places = classes.iter().map(|value| value.parse::<usize>().ok());
    let highest = places.collect::<Option<Vec<_>>>().and_then(|places| places.into_iter().max());
    highest.map_or(1, |highest| highest + 1)
}

/// The columns of text and label.
fn classified(seen: &Seen) -> Result<(&SurveyedColumn, &SurveyedColumn), Failure> {
    let text = seen.text_column(&TEXT, &LABEL).ok_or_else(|| nothing_suits(seen, "there is no column of texts"))?;
    let but = [text.name.as_str()];
    let named = seen.named(&LABEL).filter(|column| column.name != text.name && column.is_numeric());
    let label = seen.class_column(&LABEL, &but).or(named);
    Ok((text, label.ok_or_else(|| nothing_suits(seen, "there is no column of labels"))?))
}

/// What the table `[data]` is made from.
struct Data<'a> {
    arguments: &'a Arguments,
    seen: Option<&'a Seen>,
    task: Task,
}

impl Data<'_> {
    fn settings(&self) -> Result<Vec<Setting>, Failure> {
        let Some(seen) = self.seen else {
            return Ok(vec![set_text("data.source", &Synthetic::made_for(self.task).to_string()), self.validation()]);
        };
        let mut settings = vec![set_text("data.train", &beside(&seen.path, &self.arguments.out))];
        settings.extend(self.columns(seen)?);
        settings.push(self.validation());
        Ok(settings)
    }

    fn validation(&self) -> Setting {
        set("data.validation", if self.task == Task::Series { "0.2" } else { "0.1" })
    }

    fn columns(&self, seen: &Seen) -> Result<Vec<Setting>, Failure> {
        match (self.task, &seen.holds) {
            (Task::LanguageModel, Holds::Text(_)) | (Task::Contrastive, Holds::Folder) => Ok(Vec::new()),
            (_, Holds::Text(_) | Holds::Folder) => Err(nothing_suits(seen, "this task reads rows")),
            (Task::Series, _) => series(seen).map(|series| series_columns(&series)),
            (Task::LanguageModel, _) => {
                let text =
                    seen.text_column(&TEXT, &[]).ok_or_else(|| nothing_suits(seen, "there is no column of texts"))?;
                Ok(vec![set_text("data.text_field", &text.name)])
            }
            (Task::Classify, _) => {
                let (text, label) = classified(seen)?;
                Ok(vec![set_text("data.text", &text.name), set_text("data.label", &label.name), self.length(text)])
            }
            (Task::Seq2seq, _) => self.pair(seen),
            (Task::Contrastive, _) => self.captioned(seen),
        }
    }

    fn pair(&self, seen: &Seen) -> Result<Vec<Setting>, Failure> {
        let missing = || nothing_suits(seen, "there are no two columns of texts, source and target");
        let source = seen.text_column(&SOURCE, &TARGET).ok_or_else(missing)?;
        let target = seen.text_column(&TARGET, &[source.name.as_str()]).ok_or_else(missing)?;
        let length = set("data.max_target_length", tokens(target));
        let columns = [set_text("data.text", &source.name), set_text("data.target", &target.name)];
        Ok(columns.into_iter().chain([self.length(source), length]).collect())
    }

    fn captioned(&self, seen: &Seen) -> Result<Vec<Setting>, Failure> {
        let missing = || nothing_suits(seen, "there are no columns of images and captions");
        let image = seen.named(&IMAGE).ok_or_else(missing)?;
        let caption = seen.text_column(&CAPTION, &[image.name.as_str()]).ok_or_else(missing)?;
        Ok(vec![set_text("data.image", &image.name), set_text("data.caption", &caption.name)])
    }

    /// A checkpoint may know fewer positions, so its own length holds.
    fn length(&self, column: &SurveyedColumn) -> Setting {
        let own = self.arguments.checkpoint.is_some();
        Setting { key: "data.max_length", value: tokens(column).to_string(), commented_out: own }
    }
}

fn series_columns(series: &Series<'_>) -> Vec<Setting> {
    let time = series.time.map(|column| set_text("data.time", &column.name));
    let label = series.label.map(|column| set_text("data.label", &column.name));
    let derived = series.derived_from.map(|column| {
        set("data.label_from", format!("{{ column = {}, horizon = 1, threshold = 0.0 }}", quoted(&column.name)))
    });
    time.into_iter().chain(label).chain(derived).collect()
}

/// Tokens for the longest text seen, at about three characters each, within what base models know.
fn tokens(column: &SurveyedColumn) -> usize {
    (column.longest / 3 + 2).next_multiple_of(32).clamp(32, 512)
}

/// A path as the recipe at `out` finds it: as it was given where the recipe stands in the working directory, and in
/// full elsewhere.
fn beside(path: &Path, out: &Path) -> String {
    let here = out.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    let full = || std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    let path = if here { path.to_path_buf() } else { full() };
    path.display().to_string()
}
