//! Which trials mean the same training: those are trained once; and which only train longer: those go on.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

use plimsoll::Recipe;

use super::folder::StudyFolder;
use crate::attributes::{ENDLESS, EPOCHS, SAME_AS, TRAINING};
use crate::error::{Error, Result};
use crate::json::Json;
use crate::trial::{State, Trial};

/// What a trial learns, as far as another could learn the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lesson {
    pub learning: String,
    /// For trainings that can be made longer.
    pub endless: Option<String>,
    pub epochs: usize,
}

impl Lesson {
    pub(super) fn of(recipe: &Recipe) -> Result<Lesson> {
        let failed = |error: plimsoll::RecipeError| Error::Input(error.to_string());
        let endless = recipe.endless_hash().transpose().map_err(failed)?;
        Ok(Lesson { learning: recipe.learning_hash().map_err(failed)?, endless, epochs: recipe.train.epochs })
    }

    pub(super) fn attributes(&self) -> Vec<(String, Json)> {
        let text = |text: &str| Json::from(text);
        let mut attributes = vec![(TRAINING.to_string(), text(&self.learning))];
        attributes.extend(self.endless.as_deref().map(|endless| (ENDLESS.to_string(), text(endless))));
        attributes.push((EPOCHS.to_string(), Json::Int(self.epochs as i64)));
        attributes
    }

    /// The first trial that trains the same and has not failed at it, or the first that is through.
    pub(super) fn twin<'t>(&self, trials: &'t [Arc<Trial>]) -> Option<&'t Arc<Trial>> {
        let is_twin = |trial: &&Arc<Trial>| {
            let same = attribute(trial, TRAINING) == Some(&self.learning);
            let leads = !trial.user_attrs.contains_key(SAME_AS) && trial.state != State::Waiting;
            same && leads && trial.state != State::Failed && trial.is_feasible()
        };
        // What was laid aside may have gone on as another trial since.
        trials.iter().filter(is_twin).max_by_key(|trial| (trial.state == State::Complete, Reverse(trial.number)))
    }

    /// The trial that came farthest of those that train the same, only less; complete, so that nobody works on it.
    pub(super) fn shorter<'t>(&self, trials: &'t [Arc<Trial>]) -> Option<&'t Arc<Trial>> {
        let endless = self.endless.as_deref()?;
        let epochs = |trial: &Trial| trial.user_attrs.get(EPOCHS).and_then(Json::as_i64).unwrap_or(0);
        let is_shorter = |trial: &&Arc<Trial>| {
            let same = attribute(trial, ENDLESS).is_some_and(|own| own == endless);
            let leads = !trial.user_attrs.contains_key(SAME_AS);
            same && leads && trial.state == State::Complete && (1..self.epochs as i64).contains(&epochs(trial))
        };
        trials.iter().filter(is_shorter).max_by_key(|trial| epochs(trial))
    }
}

fn attribute<'t>(trial: &'t Trial, key: &str) -> Option<&'t String> {
    match trial.user_attrs.get(key) {
        Some(Json::Text(text)) => Some(text),
        _ => None,
    }
}

/// Makes a run's folder that goes on where another ended, with more epochs.
pub(super) fn lengthen(from: &Path, to: &Path, epochs: usize) -> Result<()> {
    let longer = Recipe::load(&from.join("recipe.toml"), &[format!("train.epochs={epochs}")]);
    let recipe = longer.map_err(|error| Error::Input(error.to_string()))?;
    go_on_in(from, to, &recipe.to_toml().map_err(|error| Error::Input(error.to_string()))?)
}

/// Makes a trial's run and recipe those of another, which was laid aside.
pub(super) fn carry_over(folder: &StudyFolder, before: u64, number: u64) -> Result<()> {
    let from = folder.trial(before);
    let stored = from.join("recipe.toml");
    let text = std::fs::read_to_string(&stored).map_err(Error::file(&stored))?;
    go_on_in(&from, &folder.trial(number), &text)?;
    let [written, copy] = [before, number].map(|number| folder.log(number).with_extension("toml"));
    std::fs::copy(&written, &copy).map(drop).map_err(Error::file(&written))
}

/// A run's checkpoints, plan and events with this recipe in another folder.
fn go_on_in(from: &Path, to: &Path, recipe: &str) -> Result<()> {
    let draft = to.with_extension("draft");
    let _ = std::fs::remove_dir_all(&draft);
    copy_folder(&from.join("checkpoints"), &draft.join("checkpoints"))?;
    for file in ["plan.json", "events.jsonl"] {
        std::fs::copy(from.join(file), draft.join(file)).map_err(Error::file(&from.join(file)))?;
    }
    let path = draft.join("recipe.toml");
    std::fs::write(&path, recipe).map_err(Error::file(&path))?;
    std::fs::rename(&draft, to).map_err(Error::file(to))
}

/// Files of checkpoints are never written again, so that one file can stand in two folders.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(Error::file(to))?;
    for entry in std::fs::read_dir(from).map_err(Error::file(from))?.flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &target)?;
        } else if std::fs::hard_link(&path, &target).is_err() {
            std::fs::copy(&path, &target).map_err(Error::file(&path))?;
        }
    }
    Ok(())
}
