//! `plimsoll eval`: a trained run on its validation data.

use crate::arguments::Machine;
use crate::device;
use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll_base::units::format_bytes;
use plimsoll_runs::Scores;
use plimsoll_train::infer::TrainedRun;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Arguments {
    /// The run's folder
    run: PathBuf,
    #[command(flatten)]
    machine: Machine,
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
    scores: Scores,
    /// What the best possible model would reach, where the data's source knows it.
    best_possible_accuracy: Option<f64>,
    best_possible_loss: Option<f64>,
    planned_peak_bytes: u64,
    measured_peak_bytes: u64,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = device::to_run_on(&arguments.machine)?;
    let mut run = TrainedRun::open(&arguments.run, &device)?;
    let (scores, data) = run.evaluate()?;
    let answer = EvalJson {
        run: &arguments.run,
        weights: &run.weights,
        samples: data.validation.map_or(0, |v| v.len()),
        scores,
        best_possible_accuracy: data.best_accuracy,
        best_possible_loss: data.best_loss,
        planned_peak_bytes: run.planned.planned_peak_bytes(),
        measured_peak_bytes: run.measured_bytes(),
    };
    match arguments.json {
        true => printer::json(&answer)?,
        false => printer::out(&answer.text())?,
    };
    Ok(())
}

impl EvalJson<'_> {
    fn text(&self) -> String {
        let accuracy = self.best_possible_accuracy.map(|x| format!("accuracy {:.1} %", 100.0 * x));
        let loss = self.best_possible_loss.map(|x| format!("loss {x:.4}"));
        let possible = accuracy.or(loss).map_or(String::new(), |x| format!("; best possible {x}"));
        format!(
            "{} ({} validation samples)\n  {}{possible}\n  planned peak {}, measured {}\n",
            self.weights.display(),
            self.samples,
            self.scores,
            format_bytes(self.planned_peak_bytes),
            format_bytes(self.measured_peak_bytes)
        )
    }
}
