//! `plimsoll bench`: step time and memory of a reference workload, on a fixed random batch.

mod profile;
mod versus;
mod workload;

use crate::arguments::{Machine, Overrides};
use crate::device::{self, Facts};
use crate::failure::Failure;
use crate::printer::{self, say};
use clap::{Args, builder::PossibleValuesParser};
use plimsoll::data::Batch;
use plimsoll::exec::Executor;
use plimsoll::heap;
use plimsoll::plan::Recompute;
use plimsoll::recipe::Recipe;
use plimsoll::train::{Planned, Shapes, Stepper, Underway, initialize, plan, random_batch, shapes, take_arena};
use profile::Profile;
use serde::Serialize;
use std::time::Instant;
use workload::{WORKLOADS, Workload};

#[derive(Args)]
pub struct Arguments {
    /// What to measure
    #[arg(value_parser = PossibleValuesParser::new(WORKLOADS.map(|w| w.name)))]
    workload: String,
    #[arg(long, value_name = "B", default_value_t = 16, value_parser = positive)]
    batch: usize,
    /// Tokens, or rows of a window (default: 128 tokens, 60 rows)
    #[arg(long, value_name = "S", value_parser = positive)]
    seq: Option<usize>,
    /// Steps that are timed
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = positive)]
    steps: usize,
    /// Steps before them
    #[arg(long, value_name = "N", default_value_t = 4)]
    warmup: usize,
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
struct Row<'a> {
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

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let began = Instant::now();
    let workload = Workload::find(&arguments.workload)?;
    let seq = workload.length(arguments.seq)?;
    let (device, facts) = device::to_run_on(&arguments.machine)?;
    let gpu = if let Facts::Gpu(facts) = &facts { Some(facts.name.as_str()) } else { None };
    if let Some(budgets) = arguments.versus_fixed {
        return versus::run(arguments, workload, seq, &device, budgets);
    }
    let recipe = recipe(arguments, workload, seq, &[])?;
    let planned = plan(&recipe, &device)?;
    let planned_s = began.elapsed().as_secs_f64();
    let mut bench = Bench::new(&recipe, &planned)?;
    let ready_s = planned_s + bench.arena_s + bench.weights_s;
    let (mut times, allocations) = bench.time(arguments.warmup, arguments.steps)?;
    let measured_peak_bytes = bench.executor.measured_bytes();
    times.sort_by(f64::total_cmp);
    let (ms, layout) = (median(&times), &planned.choice.layout);
    if arguments.profile {
        let Bench { arena_s, weights_s, .. } = bench;
        say(&format!(
            "ready after {ready_s:.2} s: plan {planned_s:.2}, arena and kernels {arena_s:.2}, weights {weights_s:.2}"
        ));
        say(&bench.profile(arguments.steps.min(PROFILED_STEPS), ms)?);
    }
    printer::json(&Row {
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

/// A planned step with its arena and its batch.
struct Bench<'p> {
    planned: &'p Planned,
    executor: Box<dyn Executor>,
    stepper: Stepper,
    shapes: Shapes,
    batch: Batch,
    lr: f64,
    done: usize,
    /// What the arena and everything behind it took, and the initial values.
    arena_s: f64,
    weights_s: f64,
}

impl<'p> Bench<'p> {
    fn new(recipe: &Recipe, planned: &'p Planned) -> Result<Bench<'p>, Failure> {
        let choice = &planned.choice;
        let began = Instant::now();
        let mut executor = take_arena(recipe, planned)?;
        let arena_s = began.elapsed().as_secs_f64();
        initialize(&choice.program, &mut executor, recipe.train.seed);
        let weights_s = began.elapsed().as_secs_f64() - arena_s;
        let (stepper, shapes) = (Stepper::new(recipe, choice), shapes(recipe, planned));
        Ok(Bench {
            planned,
            executor,
            stepper,
            shapes,
            batch: random_batch(&choice.program, recipe.train.effective_batch)?,
            lr: recipe.train.optimizer.lr,
            done: 0,
            arena_s,
            weights_s,
        })
    }

    /// Milliseconds of each timed step, and how often they took heap memory. A step takes as long as it is from the end of
    /// the one before to its own: a device works on it while the next one's inputs are made ready, as in training.
    fn time(&mut self, warmup: usize, steps: usize) -> Result<(Vec<f64>, u64), Failure> {
        let (mut times, mut last, mut open) = (Vec::with_capacity(warmup + steps), Instant::now(), None);
        for step in 0..warmup + steps {
            if step == warmup {
                heap::reset();
            }
            let underway = self.start(Executor::run)?;
            let ended = if underway.is_known() { Some(underway) } else { open.replace(underway) };
            ended.map_or(Ok(()), |ended| self.note_end(ended, &mut last, &mut times))?;
        }
        open.map_or(Ok(()), |ended| self.note_end(ended, &mut last, &mut times))?;
        times.drain(..warmup);
        Ok((times, heap::used().allocations))
    }

    fn note_end(&self, ended: Underway, last: &mut Instant, times: &mut Vec<f64>) -> Result<(), Failure> {
        self.stepper.finish(&self.executor, ended)?;
        let before = std::mem::replace(last, Instant::now());
        times.push((*last - before).as_secs_f64() * 1e3);
        Ok(())
    }

    fn start(&mut self, run: impl FnMut(&mut Box<dyn Executor>, usize)) -> Result<Underway, Failure> {
        let Bench { planned, executor, stepper, shapes, batch, lr, done, .. } = self;
        *done += 1;
        Ok(stepper.start(executor, &planned.choice, shapes, batch, *done - 1, *lr, run)?)
    }

    /// The table of some steps, beside what a step takes when nobody looks at its nodes.
    fn profile(&mut self, steps: usize, step_ms: f64) -> Result<String, Failure> {
        let mut profile = Profile::new(&self.planned.choice.program, &self.planned.choice.layout);
        let fed = self.stepper.feeding();
        for _ in 0..steps {
            let underway = self.start(|executor, phase| profile.run(executor, phase))?;
            self.stepper.finish(&self.executor, underway)?;
        }
        Ok(profile.table(steps, self.stepper.feeding() - fed, step_ms))
    }
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
