//! `plimsoll plan`: whether it fits, before anything is taken.

use crate::advice::hints;
use crate::arguments::RecipeFlags;
use crate::commands::report;
use crate::device;
use crate::failure::Failure;
use crate::printer::{self, Paint, say};
use crate::verdict::Verdict;
use clap::Args;
use plimsoll::recipe::{Precision, Recipe};
use plimsoll::report::timeline_svg;
use plimsoll::train::{Planned, TrainError, plan, precision};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    common: RecipeFlags,
    /// Every layer and every buffer alive at the peak
    #[arg(long)]
    explain: bool,
    /// Draw live memory over the step
    #[arg(long, value_name = "FILE.svg")]
    timeline: Option<PathBuf>,
    /// Write a page about the plan
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let recipe = arguments.common.load(&[])?;
    let device = device::to_plan_for(&arguments.common.machine)?;
    if device.name == "cpu" && precision(&recipe, &device) != Precision::F32 {
        let wanted = precision(&recipe, &device);
        say(&format!("note: this version computes in f32 on the CPU: {wanted} is planned, and cannot be run here"));
    }
    match plan(&recipe, &device) {
        Ok(planned) => show(arguments, &planned, &recipe, &Verdict::fits(&recipe, &planned)),
        Err(TrainError::DoesNotFit(smallest)) => {
            let hints = hints(&recipe, &device, &smallest);
            show(arguments, &smallest, &recipe, &Verdict::does_not_fit(&recipe, &smallest, &hints))?;
            Err(Failure::does_not_fit(&smallest, hints))
        }
        Err(error) => Err(error.into()),
    }
}

fn show(arguments: &Arguments, planned: &Planned, recipe: &Recipe, verdict: &Verdict) -> Result<(), Failure> {
    if let Some(path) = &arguments.timeline {
        write_timeline(path, planned, recipe)?;
    }
    if let Some(path) = &arguments.html {
        report::write_plan(path, recipe, planned)?;
    }
    match arguments.common.json {
        true => printer::json(verdict)?,
        false => printer::out(&verdict.text(arguments.explain, Paint::stdout())),
    };
    Ok(())
}

fn write_timeline(path: &Path, planned: &Planned, recipe: &Recipe) -> Result<(), Failure> {
    let title = format!("{} on {}", recipe.name, planned.device.name);
    let budget = planned.budget_bytes.saturating_sub(planned.reserve_bytes);
    let svg = timeline_svg(&planned.choice.program, &planned.choice.layout, budget, &title);
    std::fs::write(path, svg).map_err(|cause| Failure::writing(path, cause))?;
    say(&format!("timeline: {}", path.display()));
    Ok(())
}
