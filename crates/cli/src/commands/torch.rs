//! `plimsoll torch`: what PyTorch leaves behind.

use crate::failure::Failure;
use crate::printer;
use clap::{Args, Subcommand};
use plimsoll_base::units::{Size, parse_size};
use plimsoll_ghost::doctor::Diagnosis;
use plimsoll_ghost::snapshot::{Snapshot, SnapshotError};
use std::path::PathBuf;

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A file of `torch.cuda.memory._dump_snapshot`: what was alive and by which lines, what was in pieces, and whether
    /// expandable segments would have saved it. The file is read, never run
    Snapshot(SnapshotArguments),
}

#[derive(Args)]
struct SnapshotArguments {
    /// The pickle
    file: PathBuf,
    /// Replay it on a card of this memory, context aside: 24GiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let What::Snapshot(arguments) = &arguments.what;
    let snapshot = Snapshot::open(&arguments.file).map_err(failure)?;
    let diagnosis = Diagnosis::of(&snapshot, memory(arguments)?);
    if arguments.json {
        printer::json(&diagnosis)?;
    } else {
        printer::out(&diagnosis.text())?;
    }
    Ok(())
}

fn memory(arguments: &SnapshotArguments) -> Result<Option<u64>, Failure> {
    let example = "for example --memory 24GiB";
    match arguments.memory.as_deref().map(parse_size) {
        None => Ok(None),
        Some(Ok(Size::Bytes(bytes))) => Ok(Some(bytes)),
        Some(Ok(Size::Percent(_))) => Err(Failure::bad_input("--memory: a share of what? give a size", example)),
        Some(Err(error)) => Err(Failure::bad_input(format!("--memory: {error}"), example)),
    }
}

fn failure(error: SnapshotError) -> Failure {
    let hint = "such files are written by `torch.cuda.memory._dump_snapshot(\"FILE.pickle\")` after \
                `torch.cuda.memory._record_memory_history()`";
    Failure::bad_input(error.to_string(), hint)
}
