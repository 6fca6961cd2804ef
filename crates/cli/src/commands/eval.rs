//! `plimsoll eval`: a trained run on its validation data.

use crate::arguments::TrainedFlags;
use crate::device;
use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll_base::explain::{Explain, Fault};
use plimsoll_base::units::format_bytes;
use plimsoll_planner::Device;
use plimsoll_train::infer::{Evaluated, TrainedRun};
use plimsoll_train::scoring::{ClassScore, Recall};
use plimsoll_train::{LoadedData, RunError};
use serde::Serialize;
use std::path::Path;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    trained: TrainedFlags,
    /// Where answers are texts: how many of the validation data are written and compared (exact match, ROUGE); 0 for none
    #[arg(long, value_name = "N", default_value_t = 200)]
    texts: usize,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct EvalJson<'a> {
    run: &'a Path,
    weights: &'a Path,
    samples: usize,
    #[serde(flatten)]
    found: Evaluated,
    /// What the best possible model would reach, where the data's source knows it.
    best_possible_accuracy: Option<f64>,
    best_possible_loss: Option<f64>,
    planned_peak_bytes: u64,
    measured_peak_bytes: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = device::to_run_on(&arguments.trained.machine)?;
    let (run, found, data) = judged(arguments, &device)?;
    let answer = EvalJson {
        run: &arguments.trained.run,
        weights: run.weights(),
        samples: data.validation.map_or(0, |v| v.len()),
        found,
        best_possible_accuracy: data.best_accuracy,
        best_possible_loss: data.best_loss,
        planned_peak_bytes: run.planned_peak_bytes(),
        measured_peak_bytes: run.measured_bytes(),
    };
    match arguments.json {
        true => printer::json(&answer)?,
        false => printer::out(&answer.text())?,
    };
    Ok(())
}

/// With texts written where they are wanted and there is room; scores without texts are better than none.
fn judged(arguments: &Arguments, device: &Device) -> Result<(TrainedRun, Evaluated, LoadedData), Failure> {
    let plain = || judge(TrainedRun::open(arguments.trained.within(), device)?, 0);
    if arguments.texts == 0 {
        return Ok(plain()?);
    }
    let writing = TrainedRun::open_to_judge(arguments.trained.within(), device);
    match writing.and_then(|run| judge(run, arguments.texts)) {
        Err(error) if error.fault() == Fault::DoesNotFit => {
            let scores = plain()?;
            printer::say("note: there is no room to write texts in this budget: exact match and ROUGE are left out");
            Ok(scores)
        }
        judged => Ok(judged?),
    }
}

fn judge(mut run: TrainedRun, texts: usize) -> Result<(TrainedRun, Evaluated, LoadedData), RunError> {
    let (found, data) = run.evaluate(texts)?;
    Ok((run, found, data))
}

impl EvalJson<'_> {
    fn text(&self) -> String {
        let accuracy = self.best_possible_accuracy.map(|x| format!("accuracy {:.1} %", 100.0 * x));
        let loss = self.best_possible_loss.map(|x| format!("loss {x:.4}"));
        let possible = accuracy.or(loss).map_or(String::new(), |x| format!("; best possible {x}"));
        format!(
            "{} ({} validation samples)\n  {}{possible}\n{}{}{}  planned peak {}, measured {}\n",
            self.weights.display(),
            self.samples,
            self.found.scores,
            self.texts_text(),
            self.retrieval_text(),
            self.classes_text(),
            format_bytes(self.planned_peak_bytes),
            format_bytes(self.measured_peak_bytes)
        )
    }

    fn texts_text(&self) -> String {
        self.found.texts.map_or(String::new(), |texts| format!("  exact match and ROUGE over {texts} texts\n"))
    }

    fn retrieval_text(&self) -> String {
        let Some(retrieval) = &self.found.retrieval else { return String::new() };
        let line = |what: &str, recall: &Recall| {
            let [one, five, ten] = [recall.first, recall.of_five, recall.of_ten].map(|x| 100.0 * x);
            format!("  {what:<14}  at 1 {one:5.1} %, at 5 {five:5.1} %, at 10 {ten:5.1} %\n")
        };
        let head = format!("  retrieval among {} pairs\n", retrieval.among);
        head + &line("image to text", &retrieval.image_to_text) + &line("text to image", &retrieval.text_to_image)
    }

    /// Precision, recall and F1 of each class, and what was taken for what where that can be read.
    fn classes_text(&self) -> String {
        let Some(found) = &self.found.classes else { return String::new() };
        let row = |class: &ClassScore| {
            let shares = [class.precision, class.recall, class.f1].map(|x| format!("{x:.3}"));
            [vec![printable(&class.name)], shares.to_vec(), vec![class.support.to_string()]].concat()
        };
        let header = ["class", "precision", "recall", "F1", "samples"].map(String::from).to_vec();
        let shown = found.classes.len().min(MOST_SHOWN);
        let rows = std::iter::once(header).chain(found.classes[..shown].iter().map(row)).collect();
        let mut text = aligned(rows);
        if found.classes.len() > shown {
            text += &format!("  and {} more (--json has all)\n", found.classes.len() - shown);
        }
        text + &found.confusion.as_ref().map_or(String::new(), |counts| confusion_text(&found.classes, counts))
    }
}

/// Classes that are listed on a terminal, and those whose confusion is.
const MOST_SHOWN: usize = 40;
const MOST_CONFUSED: usize = 12;

fn confusion_text(classes: &[ClassScore], counts: &[Vec<u64>]) -> String {
    if classes.len() > MOST_CONFUSED {
        return String::new();
    }
    let name = |class: &ClassScore| printable(&class.name);
    let header = std::iter::once("truth \\ answer".to_string()).chain(classes.iter().map(name)).collect();
    let row = |(class, counts): (&ClassScore, &Vec<u64>)| {
        std::iter::once(name(class)).chain(counts.iter().map(u64::to_string)).collect()
    };
    aligned(std::iter::once(header).chain(classes.iter().zip(counts).map(row)).collect())
}

/// Names come from data: they must not move the cursor, nor the columns.
fn printable(name: &str) -> String {
    const SHOWN: usize = 24;
    let plain: String = name.chars().take(SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if name.chars().count() > SHOWN { plain + "…" } else { plain }
}

/// Columns, the first to the left and the others to the right.
fn aligned(rows: Vec<Vec<String>>) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("  {}\n", cells.collect::<Vec<_>>().join("  "))
    };
    rows.iter().map(line).collect()
}
