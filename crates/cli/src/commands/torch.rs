//! `plimsoll torch`: what PyTorch leaves behind.

use crate::failure::{Code, Failure};
use crate::printer;
use clap::{Args, Subcommand};
use plimsoll_base::units::{Size, parse_size};
use plimsoll_ghost::doctor::Diagnosis;
use plimsoll_ghost::replay::Replay;
use plimsoll_ghost::settings::Settings;
use plimsoll_ghost::snapshot::{Snapshot, SnapshotError};
use plimsoll_ghost::text;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A file of `torch.cuda.memory._dump_snapshot`: what was alive and by which lines, what was in pieces, and whether
    /// expandable segments would have saved it. The file is read, never run
    Snapshot(SnapshotArguments),
    /// The same file, replayed allocation by allocation: on a smaller card, under other settings of the allocator, over
    /// the addresses that a driver may give
    Replay(ReplayArguments),
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

#[derive(Args)]
struct ReplayArguments {
    /// The pickle
    file: PathBuf,
    /// Memory that segments may take, context aside: 24GiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Settings to try beside those it ran with, as in PYTORCH_CUDA_ALLOC_CONF: --conf max_split_size_mb:128 (repeatable;
    /// without any, expandable_segments:True is tried)
    #[arg(long, value_name = "SETTINGS")]
    conf: Vec<String>,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        What::Snapshot(arguments) => diagnose(arguments),
        What::Replay(arguments) => replay(arguments),
    }
}

fn diagnose(arguments: &SnapshotArguments) -> Result<(), Failure> {
    let memory = memory(arguments.memory.as_deref())?;
    let snapshot = Snapshot::open(&arguments.file).map_err(failure)?;
    let diagnosis = Diagnosis::of(&snapshot, memory);
    if arguments.json {
        printer::json(&diagnosis)?
    } else {
        printer::out(&diagnosis.text())?
    };
    Ok(())
}

/// A replay as it was that dies inside the memory given does not fit.
fn replay(arguments: &ReplayArguments) -> Result<(), Failure> {
    let (memory, others) = (memory(arguments.memory.as_deref())?, others(&arguments.conf)?);
    let snapshot = Snapshot::open(&arguments.file).map_err(failure)?;
    let replay = Replay::of(&snapshot, memory, &others);
    if arguments.json {
        printer::json(&replay)?
    } else {
        printer::out(&replay.text())?
    };
    if replay.ways.iter().any(|way| way.death.is_none()) {
        return Ok(());
    }
    let needs = text::bytes(replay.peak_reserved_bytes);
    Err(Failure {
        code: Code::DoesNotFit,
        message: "it runs out of memory under every setting that was tried".into(),
        hints: vec![format!("without a limit it reserves {needs}")],
    })
}

fn others(conf: &[String]) -> Result<Vec<(String, Settings)>, Failure> {
    let growing = vec!["expandable_segments:True".to_string()];
    let texts: &[String] = if conf.is_empty() { &growing } else { conf };
    let parse = |text: &String| {
        let example = "for example --conf expandable_segments:True";
        let settings = Settings::parse(text);
        settings.map(|found| (text.clone(), found)).map_err(|e| Failure::bad_input(format!("--conf {e}"), example))
    };
    texts.iter().map(parse).collect()
}

fn memory(text: Option<&str>) -> Result<Option<u64>, Failure> {
    let example = "for example --memory 24GiB";
    match text.map(parse_size) {
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
