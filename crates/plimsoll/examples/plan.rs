//! Does it fit? A recipe on a card that need not be here:
//! `cargo run --release -p plimsoll --example plan -- recipes/encoder.toml rtx-4090`

use plimsoll::{Device, Explain, PlanFailure, Recipe, plan};
use std::error::Error;
use std::path::Path;

const GIB: f64 = (1u64 << 30) as f64;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [recipe, device] = &arguments[..] else { return Err("give a recipe and a device".into()) };
    let recipe = Recipe::load(Path::new(recipe), &[])?;
    match plan(&recipe, &Device::from_name(device)?) {
        Ok(report) => {
            let peak = (report.arena_bytes + report.reserve_bytes) as f64 / GIB;
            println!("fits: {peak:.2} of {:.2} GiB", report.budget_bytes as f64 / GIB);
            println!("micro-batch {} × {}", report.micro_batch, report.accumulation);
            println!("a step takes about {:.0} ms", report.predicted_step_ms);
            for decision in report.decisions {
                println!("{}: {} ({})", decision.lever, decision.choice, decision.reason);
            }
        }
        Err(PlanFailure::DoesNotFit(smallest)) => println!("{}", smallest.shortage()),
        Err(other) => println!("{other}; {}", other.hints().join("; ")),
    }
    Ok(())
}
