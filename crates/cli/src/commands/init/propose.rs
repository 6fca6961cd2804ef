//! A recipe for what was seen: which family, which columns, which sizes, and usual settings for learning.

use super::Arguments;
use super::fitted::{Fitted, nothing_suits};
use super::look::{Holds, Seen};
use super::setting::{Setting, quoted, set, set_text};
use super::{series, target, texts};
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
    let is_misread = |column: &SurveyedColumn| column.has_decimal_commas() || column.has_quoted_numbers();
    let counts = |column: &SurveyedColumn| column.is_numeric() || is_misread(column);
    let has_numbers = seen.columns().iter().any(counts);
    // Where nothing else is there to learn from, single words are read.
    let has_prose = seen.has_prose(&texts::TEXT) || !has_numbers && seen.columns().iter().any(SurveyedColumn::is_prose);
    let prose = |names: &[&str]| seen.named(names).filter(|column| column.is_prose());
    let has_labels = || seen.named(&target::LABEL).is_some() || target::label(seen, &[]).is_ok();
    match (prose(&texts::SOURCE), prose(&texts::TARGET)) {
        _ if seen.named(&texts::IMAGE[..4]).is_some() && seen.named(&texts::CAPTION).is_some() => {
            Some(FamilyName::Clip)
        }
        (Some(_), Some(_)) => Some(FamilyName::T5),
        _ if has_prose && seen.columns().len() > 1 && has_labels() => Some(FamilyName::Bert),
        _ if has_prose && seen.columns().len() == 1 => Some(FamilyName::MuSota),
        _ if has_numbers && !has_prose => Some(FamilyName::HybridCnnLstm),
        _ => None,
    }
}

pub(super) fn propose(arguments: &Arguments, family: FamilyName, seen: Option<&Seen>) -> Result<Proposal, Failure> {
    let task = *family.tasks().first().ok_or_else(|| Failure::failed("the family learns nothing", "report it"))?;
    let fitted = seen.map(|seen| fit(arguments, task, seen)).transpose()?.unwrap_or_default();
    let mut proposal = Proposal {
        task,
        made_for: seen.map_or_else(|| "data made by code".into(), Seen::describe),
        settings: Vec::new(),
        notes: Vec::new(),
    };
    proposal.model(arguments, family, fitted.sizes)?;
    proposal.data(arguments, seen, fitted.columns)?;
    proposal.notes.extend(fitted.notes);
    proposal.tokenizer(arguments, seen)?;
    proposal.train(arguments.checkpoint.is_some());
    Ok(proposal)
}

/// What the task makes of the data.
fn fit(arguments: &Arguments, task: Task, seen: &Seen) -> Result<Fitted, Failure> {
    let own_length = arguments.checkpoint.is_some();
    match (task, &seen.holds) {
        (Task::LanguageModel, Holds::Text(_)) | (Task::Contrastive, Holds::Folder) => Ok(Fitted::default()),
        (_, Holds::Text(_) | Holds::Folder) => Err(nothing_suits(seen, "this task reads rows")),
        (Task::Series, _) => series::fit(seen),
        (Task::LanguageModel, _) => texts::corpus(seen),
        (Task::Classify, _) => texts::labelled(seen, own_length),
        (Task::Seq2seq, _) => texts::pairs(seen, own_length),
        (Task::Contrastive, _) => texts::captions(seen),
    }
}

impl Proposal {
    fn model(&mut self, arguments: &Arguments, family: FamilyName, sizes: Vec<Setting>) -> Result<(), Failure> {
        match (&arguments.checkpoint, usual_preset(family)) {
            (Some(folder), _) => self.settings.push(set_text("model.checkpoint", &beside(folder, &arguments.out)?)),
            (None, Some(preset)) => {
                self.settings.push(set_text("model.preset", preset));
                self.notes.push(format!(
                    "the weights start at random: name a Hugging Face folder with --checkpoint to start from {preset}'s"
                ));
            }
            (None, None) => self.settings.push(set_text("model.family", &family.to_string())),
        }
        self.settings.extend(sizes);
        if family == FamilyName::MuSota {
            let sizes = [("model.vocab", BYTE_VOCABULARY), ("model.layers", 8), ("model.max_length", 256)];
            self.settings.extend(sizes.map(|(key, size)| set(key, size)));
        }
        Ok(())
    }

    fn data(&mut self, arguments: &Arguments, seen: Option<&Seen>, columns: Vec<Setting>) -> Result<(), Failure> {
        match seen {
            None => self.settings.push(set_text("data.source", &Synthetic::made_for(self.task).to_string())),
            Some(seen) => {
                self.settings.push(set_text("data.train", &beside(&seen.path, &arguments.out)?));
                self.settings.extend(seen.format.map(|format| set_text("data.format", &format.to_string())));
            }
        }
        self.settings.extend(columns);
        let held_out = if self.task == Task::Series { series::HELD_OUT } else { 0.1 };
        self.settings.push(set("data.validation", held_out));
        Ok(())
    }

    /// Models by a preset need a tokenizer to train; a checkpoint brings its own, and data made by code makes one.
    fn tokenizer(&mut self, arguments: &Arguments, seen: Option<&Seen>) -> Result<(), Failure> {
        let brings_one = |folder: &PathBuf| folder.join("tokenizer.json").is_file();
        let Some(seen) = seen else { return Ok(()) };
        if self.task == Task::Series || arguments.checkpoint.as_ref().is_some_and(brings_one) {
            return Ok(());
        }
        let near = seen.path.parent().unwrap_or(Path::new("")).join("tokenizer.json");
        let is_needed = self.task != Task::LanguageModel;
        self.settings.push(match near.is_file() {
            true => set_text("data.tokenizer", &beside(&near, &arguments.out)?),
            false => Setting {
                commented_out: true,
                remark: is_needed
                    .then_some("There is none beside the data: before training, name the model's own here."),
                ..set("data.tokenizer", quoted("tokenizer.json"))
            },
        });
        if is_needed && !near.is_file() {
            let missing =
                "no tokenizer.json is there: to train, set data.tokenizer to the model's own; a plan needs none";
            self.notes.push(missing.into());
        }
        Ok(())
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

/// A path as the recipe at `out` finds it: as it was given where the recipe stands in the working directory, and in
/// full elsewhere.
fn beside(path: &Path, out: &Path) -> Result<String, Failure> {
    let here = out.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    let full = || std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    let path = if here { path.to_path_buf() } else { full() };
    path.to_str().map(String::from).ok_or_else(|| {
        let message = format!("{}: the path is not UTF-8, and a recipe cannot name it", path.display());
        Failure::bad_input(message, "rename the file, or a folder on the way to it")
    })
}
