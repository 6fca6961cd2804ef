//! `plimsoll bench`: step time and memory of a reference workload, on a fixed random batch.

mod profile;
mod versus;
mod workload;

use crate::arguments::{Machine, Overrides};
use crate::device;
use crate::failure::Failure;
use crate::printer::{self, say};
use clap::{Args, builder::PossibleValuesParser};
use plimsoll::Facts;
use plimsoll_core::plan::Recompute;
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::choose::plan;
use plimsoll_train::calibrate::Rehearsal;
use profile::Profile;
use serde::Serialize;
use std::time::Instant;
use workload::{WORKLOADS, Workload};

/// The time of each is kept.
const MOST_STEPS: i64 = 1_000_000;

#[derive(Args)]
pub(crate) struct Arguments {
    /// What to measure
    #[arg(value_parser = PossibleValuesParser::new(WORKLOADS.map(|w| w.name)))]
    workload: String,
    #[arg(long, value_name = "B", default_value_t = 16, value_parser = positive)]
    batch: usize,
    /// Tokens, or rows of a window (default: 128 tokens, 60 rows)
    #[arg(long, value_name = "S", value_parser = positive)]
    seq: Option<usize>,
    /// Steps that are timed
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=MOST_STEPS))]
    steps: u32,
    /// Steps before them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=MOST_STEPS))]
    warmup: u32,
    #[arg(long, default_value = "f32", value_parser = ["f32", "tf32", "bf16-mixed", "fp16-mixed", "bf16"])]
    prec: String,
    /// Pin the micro-batch
    #[arg(long, value_name = "N", value_parser = positive)]
    micro_batch: Option<usize>,
    /// Pin what is computed twice instead of kept
    #[arg(long, value_name = "LEVEL", value_parser = ["none", "cheap", "some", "layers"])]
    recompute: Option<String>,
    /// Measure the plans chosen for this many budgets, in alternation with every fixed strategy: one line per budget
    #[arg(long, value_name = "BUDGETS", value_parser = positive, conflicts_with_all = ["micro_batch", "recompute"])]
    versus_fixed: Option<usize>,
    /// Also time each kind of op (a table on stderr)
    #[arg(long)]
    profile: bool,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    overrides: Overrides,
    /// The answer is one JSON line with or without it
    #[arg(long)]
    json: bool,
}

/// The fields of the PyTorch side, and memory as it was planned and measured.
#[derive(Serialize)]
struct BenchLine<'a> {
    peer: String,
    workload: &'a str,
    batch: usize,
    seq: usize,
    prec: &'a str,
    device: &'a str,
    /// Which GPU, on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<&'a str>,
    recompute: bool,
    compile: bool,
    params: usize,
    ms: f64,
    ms_min: f64,
    predicted_ms: f64,
    samples_per_s: f64,
    arena_bytes: usize,
    resident_bytes: usize,
    measured_peak_bytes: u64,
    micro_batch: usize,
    threads: usize,
    step_allocations: u64,
    /// From the start of the command to the first step: plan, kernels, arena, initial values.
    ready_s: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let began = Instant::now();
    let workload = Workload::find(&arguments.workload)?;
    let seq = workload.length(arguments.seq)?;
    let device = device::to_run_on(&arguments.machine)?;
    let gpu = if let Some(Facts::Gpu(facts)) = device.facts() { Some(facts.name.as_str()) } else { None };
    if let Some(budgets) = arguments.versus_fixed {
        return versus::run(arguments, workload, seq, &device, budgets);
    }
    let recipe = recipe(arguments, workload, seq, &[])?;
    let planned = plan(&recipe, &device)?;
    let planned_s = began.elapsed().as_secs_f64();
    let mut rehearsal = Rehearsal::new(&recipe, &planned)?;
    let Rehearsal { arena_s, weights_s, .. } = rehearsal;
    let ready_s = planned_s + arena_s + weights_s;
    let (seconds, allocations) = rehearsal.time(arguments.warmup as usize, arguments.steps as usize)?;
    let measured_peak_bytes = rehearsal.executor.measured_bytes();
    let times = sorted_ms(seconds);
    let (ms, layout) = (median(&times), &planned.choice.layout);
    if arguments.profile {
        say(&format!(
            "ready after {ready_s:.2} s: plan {planned_s:.2}, arena and kernels {arena_s:.2}, weights {weights_s:.2}"
        ));
        say(&profile(&mut rehearsal, (arguments.steps as usize).min(PROFILED_STEPS), ms)?);
    }
    printer::json(&BenchLine {
        peer: format!("plimsoll {}", env!("CARGO_PKG_VERSION")),
        workload: &arguments.workload,
        batch: arguments.batch,
        seq,
        prec: &arguments.prec,
        device: if gpu.is_some() { "cuda" } else { &device.name },
        gpu,
        recompute: planned.choice.settings.recompute != Recompute::None,
        compile: false,
        params: planned.choice.program.parameters(),
        ms: rounded(ms, 3),
        ms_min: rounded(times[0], 3),
        predicted_ms: rounded(planned.choice.predicted_step_ms, 3),
        samples_per_s: rounded(arguments.batch as f64 / ms * 1e3, 1),
        arena_bytes: layout.arena_bytes,
        resident_bytes: layout.resident_bytes,
        measured_peak_bytes,
        micro_batch: planned.choice.settings.micro_batch,
        threads: device.target.threads,
        step_allocations: allocations,
        ready_s: rounded(ready_s, 2),
    })?;
    Ok(())
}

/// Enough for a stable table, few enough not to wait for it.
const PROFILED_STEPS: usize = 4;

fn recipe(arguments: &Arguments, workload: &Workload, seq: usize, pins: &[String]) -> Result<Recipe, Failure> {
    let mut more = vec![format!("memory.precision={}", arguments.prec)];
    more.extend(arguments.micro_batch.map(|n| format!("memory.micro_batch={n}")));
    more.extend(arguments.recompute.iter().map(|level| format!("memory.recompute={level}")));
    more.extend_from_slice(pins);
    let text = workload.recipe(arguments.batch, seq);
    Ok(Recipe::parse(&text, &format!("{}.toml", workload.name), &arguments.overrides.settings(&more))?)
}

/// The table of some steps, beside what a step takes when nobody looks at its nodes.
fn profile(rehearsal: &mut Rehearsal<'_>, steps: usize, step_ms: f64) -> Result<String, Failure> {
    let choice = &rehearsal.planned.choice;
    let mut profile = Profile::new(&choice.program, &choice.layout);
    let fed = rehearsal.feeding();
    for _ in 0..steps {
        rehearsal.step(|executor, phase| profile.run(executor, phase))?;
    }
    Ok(profile.table(steps, rehearsal.feeding() - fed, step_ms))
}

fn sorted_ms(seconds: Vec<f64>) -> Vec<f64> {
    let mut times: Vec<f64> = seconds.into_iter().map(|seconds| seconds * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&n| n > 0).ok_or_else(|| "a whole number from 1".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_even_and_odd() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
