//! `plimsoll predict`: one JSON line per window of a file.

use crate::arguments::Machine;
use crate::device;
use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll::train::{Prediction, TrainedRun};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
pub struct Arguments {
    /// The run's folder
    run: PathBuf,
    /// csv, jsonl or parquet with the feature columns of the training file
    file: PathBuf,
    #[command(flatten)]
    machine: Machine,
}

#[derive(Serialize)]
struct Line<'a> {
    window: usize,
    row: usize,
    label: &'a str,
    class: usize,
    probabilities: &'a [f64],
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (device, _) = device::processor(&arguments.machine)?;
    let mut run = TrainedRun::open(&arguments.run, &device)?;
    let mut failed = None;
    run.predict(&arguments.file, &mut |prediction| match printer::json(&line(prediction)) {
        Ok(heard) => heard,
        Err(failure) => {
            failed = Some(failure);
            false
        }
    })?;
    failed.map_or(Ok(()), Err)
}

fn line<'a>(prediction: &'a Prediction<'_>) -> Line<'a> {
    let Prediction { window, row, class, label, probabilities } = *prediction;
    Line { window, row, label, class, probabilities }
}
