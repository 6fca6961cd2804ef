//! `plimsoll predict`: one JSON line per row of a file, also for rows that have no answer.

use crate::arguments::TrainedFlags;
use crate::device;
use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll::TrainedRun;
use plimsoll::answers::Question;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    trained: TrainedFlags,
    /// csv, jsonl or parquet with the columns of the training file (the label may be missing), or a folder of images
    file: PathBuf,
    /// The column with what rows are called, which goes along with each answer (default: `id`, where the file has one)
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    /// Tokens to write at most, where the answer is a text (default: the recipe's max_target_length)
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,
    /// Continuations followed at once, where the answer is a text
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = beams)]
    beams: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = device::to_run_on(&arguments.trained.machine)?;
    let mut run = TrainedRun::open_to_write(arguments.trained.within(), &device, arguments.tokens, arguments.beams)?;
    let question = Question { file: &arguments.file, id: arguments.id.as_deref() };
    let (mut failed, mut rows, mut unanswered, mut heard) = (None, 0u64, 0u64, true);
    run.predict(&question, &mut |prediction| {
        rows += 1;
        unanswered += u64::from(prediction.answer.is_none());
        heard = printer::json(prediction).unwrap_or_else(|failure| {
            failed = Some(failure);
            false
        });
        heard
    })?;
    match (failed, unanswered) {
        (Some(failure), _) => Err(failure),
        (None, 0) => Ok(()),
        // Nobody listens any more: there may be rows that were not even looked at.
        (None, _) if !heard => Ok(()),
        (None, _) => tell_unanswered(rows, unanswered, run.leaves_out_bad_rows()),
    }
}

/// Rows without an answer are a failure, unless the recipe says that such rows may be left out.
fn tell_unanswered(rows: u64, unanswered: u64, allowed: bool) -> Result<(), Failure> {
    let message = format!("{unanswered} of {rows} rows have no answer; their lines have an `error` instead");
    if allowed {
        printer::say(&format!("note: {message}"));
        return Ok(());
    }
    Err(Failure::failed(message, "correct these rows and ask about them again; the other answers stand"))
}

/// From 1 to 64 continuations.
pub(crate) fn beams(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=64).contains(n)).ok_or_else(|| "a whole number from 1 to 64".into())
}
