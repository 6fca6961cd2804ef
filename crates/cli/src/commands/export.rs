//! `plimsoll export`: a trained model as a folder, which transformers loads where it knows the family.

use crate::arguments::Machine;
use crate::device;
use crate::failure::Failure;
use crate::printer::{self, say};
use clap::Args;
use plimsoll::TrainedRun;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The run's folder
    run: PathBuf,
    /// The folder to write: a new or an empty one; one with an export and nothing else in it is replaced
    dir: PathBuf,
    #[command(flatten)]
    machine: Machine,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ExportJson<'a> {
    weights: &'a Path,
    dir: &'a Path,
    loads_in: &'a str,
}

/// What reads the folder.
fn loads_in(run: &TrainedRun) -> &'static str {
    if run.is_for_transformers() { "transformers" } else { "safetensors" }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = device::to_run_on(&arguments.machine)?;
    let mut run = TrainedRun::open(&arguments.run, &device)?;
    run.export(&arguments.dir)?;
    let answer = ExportJson { weights: run.weights(), dir: &arguments.dir, loads_in: loads_in(&run) };
    if !run.is_for_transformers() {
        say(&format!(
            "note: {} is a family of plimsoll's own, which transformers does not know: model.safetensors holds its \
             weights by name, for any reader of safetensors, and config.json its sizes",
            run.recipe().model.name()
        ));
    }
    match arguments.json {
        true => printer::json(&answer)?,
        false => printer::out(&format!("{} written to {}\n", answer.weights.display(), answer.dir.display()))?,
    };
    Ok(())
}
