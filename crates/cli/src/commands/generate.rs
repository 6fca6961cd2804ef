//! `plimsoll generate`: a trained language model continues a text, an encoder–decoder answers one.

use super::predict::beams;
use crate::arguments::TrainedFlags;
use crate::device;
use crate::failure::Failure;
use crate::printer;
use clap::Args;
use plimsoll::TrainedRun;
use plimsoll::answers::GenerationOptions;
use serde::Serialize;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    trained: TrainedFlags,
    /// The text to continue or to answer
    #[arg(long, default_value = "")]
    prompt: String,
    /// Tokens to write
    #[arg(long, value_name = "N", default_value_t = 200)]
    tokens: usize,
    /// Continuations followed at once (with --temperature 0)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = beams)]
    beams: usize,
    /// Draw from the likeliest K tokens only; 0 is all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Draw from the likeliest tokens that make up this share
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = share)]
    top_p: f64,
    /// 0 always takes the likeliest token (default: 0.8, with beams 0)
    #[arg(long, value_name = "T", value_parser = temperature)]
    temperature: Option<f64>,
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct GenerateJson<'a> {
    prompt: &'a str,
    text: &'a str,
    planned_peak_bytes: u64,
    measured_peak_bytes: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let device = device::to_run_on(&arguments.trained.machine)?;
    let mut run =
        TrainedRun::open_to_write(arguments.trained.within(), &device, Some(arguments.tokens.max(1)), arguments.beams)?;
    let usual = if arguments.beams > 1 { 0.0 } else { 0.8 };
    let options = GenerationOptions {
        max_new_tokens: arguments.tokens,
        beams: arguments.beams,
        temperature: arguments.temperature.unwrap_or(usual),
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        seed: arguments.seed,
        ..GenerationOptions::default()
    };
    let text = run.generate(&arguments.prompt, &options)?;
    match arguments.json {
        true => printer::json(&GenerateJson {
            prompt: &arguments.prompt,
            text: &text,
            planned_peak_bytes: run.planned_peak_bytes(),
            measured_peak_bytes: run.measured_peak_bytes(),
        })?,
        false => {
            let prompt = if run.continues() { &arguments.prompt } else { "" };
            printer::out(&printer::plain_on_terminal(format!("{prompt}{text}\n")))?
        }
    };
    Ok(())
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("a number above 0, at most 1".into()),
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(t) if (0.0..=100.0).contains(&t) => Ok(t),
        _ => Err("a number from 0 to 100".into()),
    }
}
