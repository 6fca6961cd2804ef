//! `plimsoll predict`: one JSON line per row of a file.

use crate::arguments::Machine;
use crate::device;
use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll_train::infer::TrainedRun;
use std::path::PathBuf;

#[derive(Args)]
pub struct Arguments {
    /// The run's folder
    run: PathBuf,
    /// csv, jsonl or parquet with the columns of the training file (the label may be missing), or a folder of images
    file: PathBuf,
    /// Tokens to write at most, where the answer is a text (default: the recipe's max_target_length)
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,
    /// Continuations followed at once, where the answer is a text
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = beams)]
    beams: usize,
    #[command(flatten)]
    machine: Machine,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = device::to_run_on(&arguments.machine)?;
    let mut run = TrainedRun::open_to_write(&arguments.run, &device, arguments.tokens, arguments.beams)?;
    let mut failed = None;
    run.predict(&arguments.file, &mut |prediction| match printer::json(prediction) {
        Ok(heard) => heard,
        Err(failure) => {
            failed = Some(failure);
            false
        }
    })?;
    failed.map_or(Ok(()), Err)
}

/// From 1 to 64 continuations.
pub fn beams(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=64).contains(n)).ok_or_else(|| "a whole number from 1 to 64".into())
}
