//! `plimsoll init`: looks at a data file or a checkpoint and writes a commented recipe that `plimsoll plan` accepts.

mod ask;
mod check;
mod fitted;
mod header;
mod look;
mod propose;
mod series;
mod setting;
mod target;
mod texts;
mod write;

use super::presets::family;
use crate::failure::Failure;
use crate::printer::{self, say};
use clap::Args;
use plimsoll_base::formats::Format;
use plimsoll_base::names::{Named, nearest};
use plimsoll_models::families::family_in;
use plimsoll_models::hf::{Config, HfError};
use plimsoll_models::recipe::FamilyName;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Args, Clone)]
pub(crate) struct Arguments {
    /// What to learn from: csv (commas, semicolons or tabs), json, jsonl, parquet, text, or a folder of images
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// What the file is, where neither its extension nor how it begins says it
    #[arg(long, value_name = "NAME", value_parser = format, requires = "data")]
    format: Option<Format>,
    /// A Hugging Face folder (config.json, model.safetensors) to start from
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// The architecture (default: that of the checkpoint, or what suits the data)
    #[arg(long, value_name = "NAME", value_parser = family)]
    family: Option<FamilyName>,
    /// The recipe to write; a file that is there is never overwritten
    #[arg(long, value_name = "FILE", default_value = "recipe.toml")]
    out: PathBuf,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

/// What was written.
#[derive(Serialize)]
struct InitJson<'a> {
    recipe: &'a Path,
    family: FamilyName,
    task: String,
    /// What the user should know besides.
    notes: &'a [String],
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let arguments = if arguments.says_nothing() { &ask::questions(arguments)? } else { arguments };
    refuse_existing(&arguments.out)?;
    let seen = arguments.data.as_deref().map(|path| look::at(path, arguments.format)).transpose()?;
    let family = arguments.family(seen.as_ref())?;
    let proposal = propose::propose(arguments, family, seen.as_ref())?;
    let text = write::text(&proposal)?;
    check::accepted(arguments, &text)?;
    write_new(&arguments.out, &text)?;
    show(arguments, family, &proposal)
}

impl Arguments {
    fn says_nothing(&self) -> bool {
        self.data.is_none() && self.checkpoint.is_none() && self.family.is_none()
    }

    fn family(&self, seen: Option<&look::Seen>) -> Result<FamilyName, Failure> {
        match (self.family, &self.checkpoint, seen) {
            (Some(family), ..) => Ok(family),
            (None, Some(folder), _) => Config::open(folder).and_then(|config| family_in(&config)).map_err(refused),
            (None, None, Some(seen)) => propose::family_for(seen),
            (None, None, None) => Ok(FamilyName::HybridCnnLstm),
        }
    }
}

/// A format by its name in recipes.
fn format(text: &str) -> Result<Format, String> {
    Format::from_name(text).ok_or_else(|| {
        let near = nearest(text, Format::names()).map_or(String::new(), |name| format!("did you mean `{name}`? "));
        format!("{near}formats: {}", Format::names().collect::<Vec<_>>().join(", "))
    })
}

fn refused(error: HfError) -> Failure {
    let (message, hint) = error.cause_and_hint();
    Failure::bad_input(message, hint)
}

fn show(arguments: &Arguments, family: FamilyName, proposal: &propose::Proposal) -> Result<(), Failure> {
    let recipe = arguments.out.as_path();
    if arguments.json {
        let (task, notes) = (proposal.task.to_string(), &proposal.notes[..]);
        printer::json(&InitJson { recipe, family, task, notes })?;
        return Ok(());
    }
    let name = recipe.display();
    printer::out(&format!("{name}: {family} for task {}\n", proposal.task))?;
    for note in &proposal.notes {
        say(note);
    }
    say(&format!("next: `plimsoll plan {name}`, then `plimsoll train {name}`"));
    Ok(())
}

fn refuse_existing(path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_ok() {
        return Err(taken(path));
    }
    Ok(())
}

fn taken(path: &Path) -> Failure {
    Failure::bad_input(
        format!("{}: is there already, and is not overwritten", path.display()),
        "choose another name with --out, or move it away",
    )
}

/// Writes a file that must not be there yet; one that cannot be finished is removed.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(taken(path)),
        opened => opened.map_err(|cause| Failure::writing(path, cause))?,
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|cause| {
        let _ = std::fs::remove_file(path);
        Failure::writing(path, cause)
    })
}
