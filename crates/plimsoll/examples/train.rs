//! Trains a recipe and looks at its events:
//! `cargo run --release -p plimsoll --example train -- recipes/quickstart.toml runs/mine`

use plimsoll::{Device, Event, Recipe, Run, RunOptions};
use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [recipe, out] = &arguments[..] else { return Err("give a recipe and a folder for the run".into()) };
    let recipe = Recipe::load(Path::new(recipe), &[])?;
    // Plans and loads the data. Nothing is trained before everything has its place.
    let options = RunOptions { out: out.into(), resume: false, plan: None, stop_at: None };
    let device = Device::detect()?;
    let mut run = Run::open(recipe, &device, &options)?;
    // Set it from another thread, and the run writes a checkpoint and leaves.
    let stop = AtomicBool::new(false);
    let finished = run.train(&stop, &mut |event| match event {
        Event::Step(step) if step.step % 50 == 0 => println!("step {}: loss {:.4}", step.step, step.loss),
        Event::Evaluation(evaluation) => println!("after step {}: {}", evaluation.step, evaluation.scores),
        _ => {}
    })?;
    println!("planned {} bytes, measured {}", finished.planned_peak_bytes, finished.measured_peak_bytes);
    Ok(())
}
