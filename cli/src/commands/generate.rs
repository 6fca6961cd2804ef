//! `plimsoll generate`: a trained language model continues a text.

use crate::arguments::Machine;
use crate::device;
use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll::train::TrainedRun;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
pub struct Arguments {
    /// The run's folder
    run: PathBuf,
    /// The text to continue
    #[arg(long, default_value = "")]
    prompt: String,
    /// Tokens to write
    #[arg(long, value_name = "N", default_value_t = 200)]
    tokens: usize,
    /// 0 always takes the likeliest token
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = temperature)]
    temperature: f64,
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    machine: Machine,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    prompt: &'a str,
    text: &'a str,
    planned_peak_bytes: u64,
    measured_peak_bytes: u64,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (device, _) = device::processor(&arguments.machine)?;
    let mut run = TrainedRun::open(&arguments.run, &device)?;
    let text = run.generate(&arguments.prompt, arguments.tokens, arguments.temperature, arguments.seed)?;
    match arguments.json {
        true => printer::json(&Answer {
            prompt: &arguments.prompt,
            text: &text,
            planned_peak_bytes: run.planned.planned_peak_bytes(),
            measured_peak_bytes: run.measured_bytes(),
        })?,
        false => printer::out(&format!("{}{text}\n", arguments.prompt)),
    };
    Ok(())
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(t) if (0.0..=100.0).contains(&t) => Ok(t),
        _ => Err("a number from 0 to 100".into()),
    }
}
