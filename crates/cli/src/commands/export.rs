//! `plimsoll export`: a trained model as a folder that transformers loads.

use crate::arguments::Machine;
use crate::device;
use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll_train::infer::TrainedRun;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Arguments {
    /// The run's folder
    run: PathBuf,
    /// The folder to write; one that holds a model is replaced
    dir: PathBuf,
    #[command(flatten)]
    machine: Machine,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    weights: &'a Path,
    dir: &'a Path,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (device, _) = device::to_run_on(&arguments.machine)?;
    let run = TrainedRun::open(&arguments.run, &device)?;
    run.export(&arguments.dir)?;
    let answer = Answer { weights: &run.weights, dir: &arguments.dir };
    match arguments.json {
        true => printer::json(&answer)?,
        false => printer::out(&format!("{} written to {}\n", answer.weights.display(), answer.dir.display())),
    };
    Ok(())
}
