//! One file per command.

mod advise;
mod bench;
mod calibrate;
mod completions;
mod devices;
mod eval;
mod export;
mod export_events;
mod follow;
mod generate;
mod ghost;
mod init;
mod keys;
mod notify;
mod plan;
mod predict;
mod presets;
mod report;
mod serve;
mod study;
mod torch;
mod train;
mod tune;

use crate::failure::Failure;
use clap::{Parser, Subcommand};

/// Trains neural networks inside a memory budget that is known to the byte before the first step.
#[derive(Parser)]
#[command(name = "plimsoll", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a commented recipe for your data file or checkpoint
    Init(init::Arguments),
    /// The plan of a recipe: fits or not, what was decided and why, and where the memory goes
    Plan(plan::Arguments),
    /// Plan, then train
    Train(train::Arguments),
    /// Search the keys that a recipe's [search] names: every trial planned before it runs, packed into the memory there is
    Tune(tune::Arguments),
    /// What a study found: best trials, what decides, memory and time
    Study(study::Arguments),
    /// Scores of a trained run on its validation data
    Eval(eval::Arguments),
    /// Answer every row of a file with a trained run: labels, numbers, texts or embeddings
    Predict(predict::Arguments),
    /// Let a trained run write text
    Generate(generate::Arguments),
    /// Write a trained model as a folder, which transformers loads where it knows the family
    Export(export::Arguments),
    /// A run's events for other trackers: lines of JSON, CSV, OpenMetrics, TensorBoard's files
    ExportEvents(export_events::Arguments),
    /// Tell trackers and people about a run: what `train` could not deliver, or a run that goes on
    Follow(follow::Arguments),
    /// Try the notifications
    Notify(notify::Arguments),
    /// The page and the API in a browser: plans while sliders move, trainings started, followed and compared
    Serve(serve::Arguments),
    /// A page about a run: memory, learning and time, planned and measured
    Report(report::Arguments),
    /// Advice for a training that stays in PyTorch: settings for a recipe, and what an out-of-memory error means
    Advise(advise::Arguments),
    /// Run a PyTorch program, unchanged, on a card that is not there: does it fit, where would it die, what does it hold
    Ghost(ghost::Arguments),
    /// What PyTorch leaves behind: memory snapshots
    Torch(torch::Arguments),
    /// Devices here: total, free, and which processes hold the rest
    Devices(devices::Arguments),
    /// Step time and memory of a reference workload
    Bench(bench::Arguments),
    /// Measure this device, for better predictions of time
    Calibrate(calibrate::Arguments),
    /// Every key of a recipe: what it may be, its default and what it means
    Keys(keys::Arguments),
    /// Models that a recipe can name, with their sizes
    Presets(presets::Arguments),
    /// Completion of commands and flags for a shell
    Completions(completions::Arguments),
    /// Manual pages: of plimsoll, or with --out of every command
    Man(completions::ManArguments),
}

impl Command {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Command::Init(arguments) => init::run(arguments),
            Command::Plan(arguments) => plan::run(arguments),
            Command::Train(arguments) => train::run(arguments),
            Command::Tune(arguments) => tune::run(arguments),
            Command::Study(arguments) => study::run(arguments),
            Command::Eval(arguments) => eval::run(arguments),
            Command::Predict(arguments) => predict::run(arguments),
            Command::Generate(arguments) => generate::run(arguments),
            Command::Export(arguments) => export::run(arguments),
            Command::ExportEvents(arguments) => export_events::run(arguments),
            Command::Follow(arguments) => follow::run(arguments),
            Command::Notify(arguments) => notify::run(arguments),
            Command::Serve(arguments) => serve::run(arguments),
            Command::Report(arguments) => report::run(arguments),
            Command::Advise(arguments) => advise::run(arguments),
            Command::Ghost(arguments) => ghost::run(arguments),
            Command::Torch(arguments) => torch::run(arguments),
            Command::Devices(arguments) => devices::run(arguments),
            Command::Bench(arguments) => bench::run(arguments),
            Command::Calibrate(arguments) => calibrate::run(arguments),
            Command::Keys(arguments) => keys::run(arguments),
            Command::Presets(arguments) => presets::run(arguments),
            Command::Completions(arguments) => completions::run(arguments),
            Command::Man(arguments) => completions::run_man(arguments),
        }
    }
}
