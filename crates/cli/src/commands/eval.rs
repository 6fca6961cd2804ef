//! `plimsoll eval`: a trained run on its validation data.

use crate::arguments::TrainedFlags;
use crate::device;
use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll::answers::{ClassScore, Recall};
use plimsoll::{EvalReport, evaluate};
use plimsoll_base::units::format_bytes;
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
    #[serde(flatten)]
    report: EvalReport,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = device::to_run_on(&arguments.trained.machine)?;
    let report = evaluate(arguments.trained.within(), &device, arguments.texts)?;
    if report.lacks_texts {
        printer::say("note: there is no room to write texts in this budget: exact match and ROUGE are left out");
    }
    if !report.remembers_its_data {
        printer::say("note: the run does not remember its data: nothing says whether this is what it was trained with");
    }
    match arguments.json {
        true => printer::json(&EvalJson { run: &arguments.trained.run, report })?,
        false => printer::out(&text(&report))?,
    };
    Ok(())
}

fn text(report: &EvalReport) -> String {
    let accuracy = report.best_possible_accuracy.map(|x| format!("accuracy {:.1} %", 100.0 * x));
    let loss = report.best_possible_loss.map(|x| format!("loss {x:.4}"));
    let possible = accuracy.or(loss).map_or(String::new(), |x| format!("; best possible {x}"));
    format!(
        "{} ({} validation samples)\n  {}{possible}\n{}{}{}  planned peak {}, measured {}\n",
        report.weights.display(),
        report.samples,
        report.found.scores,
        texts_text(report),
        retrieval_text(report),
        classes_text(report),
        format_bytes(report.planned_peak_bytes),
        format_bytes(report.measured_peak_bytes)
    )
}

fn texts_text(report: &EvalReport) -> String {
    report.found.texts.map_or(String::new(), |texts| format!("  exact match and ROUGE over {texts} texts\n"))
}

fn retrieval_text(report: &EvalReport) -> String {
    let Some(retrieval) = &report.found.retrieval else { return String::new() };
    let line = |what: &str, recall: &Recall| {
        let [one, five, ten] = [recall.first, recall.of_five, recall.of_ten].map(|x| 100.0 * x);
        format!("  {what:<14}  at 1 {one:5.1} %, at 5 {five:5.1} %, at 10 {ten:5.1} %\n")
    };
    let head = format!("  retrieval among {} pairs\n", retrieval.among);
    head + &line("image to text", &retrieval.image_to_text) + &line("text to image", &retrieval.text_to_image)
}

/// Precision, recall and F1 of each class, and what was taken for what where that can be read.
fn classes_text(report: &EvalReport) -> String {
    let Some(found) = &report.found.classes else { return String::new() };
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
