//! `plimsoll plan`: whether it fits, before anything is taken.

mod against;
mod cards;
mod grid;
mod largest;

use crate::advice::ways_out;
use crate::arguments::RecipeFlags;
use crate::commands::report;
use crate::counter::Counter;
use crate::device;
use crate::failure::Failure;
use crate::printer::{self, Paint, say};
use crate::verdict::Verdict;
use clap::Args;
use plimsoll_base::files::write_whole;
use plimsoll_models::recipe::{Precision, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::choose::{Planned, plan, precision};
use plimsoll_planner::whatif::{frontier_of, margins, neighbours};
use plimsoll_report::{frontier_svg, timeline_svg};
use plimsoll_train::run::remarks;
use plimsoll_train::tasks::{beside_the_run, look_at_data};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: RecipeFlags,
    /// The next step up and down of every decision, the card that would do, what another GiB would buy; every layer and
    /// every buffer alive at the peak
    #[arg(long)]
    explain: bool,
    /// Every plan worth having, from the smallest to the fastest; FILE.svg draws it
    #[arg(long)]
    frontier: bool,
    /// Where --frontier draws memory against time
    #[arg(value_name = "FILE.svg", requires = "frontier")]
    picture: Option<PathBuf>,
    /// Draw live memory over the step
    #[arg(long, value_name = "FILE.svg")]
    timeline: Option<PathBuf>,
    /// The best plan on each of these cards: names of the catalog or sizes, as in 8GiB,12GiB,rtx-4090
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with_all = SINGLE)]
    cards: Vec<String>,
    /// The plan for every combination of values: key=1,2,3, key=128..512:32 or key=8,16x1,2 (repeatable)
    #[arg(long, value_name = "KEY=VALUES", conflicts_with_all = SINGLE, conflicts_with = "cards")]
    grid: Vec<String>,
    /// The largest batch that each card (of --cards, or --device) computes at once, at full speed and at all
    #[arg(long, conflicts_with_all = SINGLE, conflicts_with = "grid")]
    largest: bool,
    /// Beside another configuration, component by component: another recipe, or settings as key=value (repeatable)
    #[arg(long, value_name = "RECIPE|KEY=VALUE", conflicts_with_all = SINGLE, conflicts_with_all = ["grid", "cards", "largest"])]
    against: Vec<String>,
    /// Write a page about the plan
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What is asked of one plan, not of a table of them.
const SINGLE: [&str; 4] = ["explain", "frontier", "timeline", "html"];

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let outputs = [&arguments.html, &arguments.timeline, &arguments.picture];
    outputs.into_iter().flatten().try_for_each(|file| refuse_recipe(file, &arguments.common.recipe))?;
    let draft = arguments.common.draft_of_plan(&[])?;
    if !arguments.cards.is_empty() && !arguments.largest {
        return cards::run(arguments, &draft);
    }
    let device = device::to_plan_for(&arguments.common.machine)?;
    let recipe = draft.with(&[])?;
    let plain = device;
    let device = beside_the_run(&plain, look_at_data(&recipe).known());
    if arguments.largest {
        return largest::run(arguments, &draft, &device);
    }
    if !arguments.against.is_empty() {
        return against::run(arguments, &draft, &plain);
    }
    if !arguments.grid.is_empty() {
        return grid::run(arguments, &draft, &device);
    }
    note_precision(&recipe, &device);
    remarks(&recipe).into_iter().for_each(|note| say(&format!("note: {note}")));
    match plan(&recipe, &device) {
        Ok(planned) => show(arguments, &planned, &recipe, Verdict::fits(&recipe, &planned)),
        Err(PlanFailure::DoesNotFit(smallest)) => {
            let (ladder, hints) = ways_out(&draft, &device, &smallest)?;
            let verdict = Verdict::does_not_fit(&recipe, &smallest, &hints, ladder);
            show(arguments, &smallest, &recipe, verdict)?;
            Err(Failure::does_not_fit(&smallest, hints))
        }
        Err(error) => Err(error.into()),
    }
}

/// What is drawn must not take the place of what it is about.
fn refuse_recipe(file: &Path, recipe: &Path) -> Result<(), Failure> {
    let [there, recipe] = [file, recipe].map(|path| path.canonicalize().ok());
    match there.is_some() && there == recipe {
        true => Err(Failure::bad_input(format!("{}: this is the recipe", file.display()), "name another file")),
        false => Ok(()),
    }
}

fn note_precision(recipe: &Recipe, device: &Device) {
    let wanted = precision(recipe, device);
    if device.name == "cpu" && wanted != Precision::F32 {
        say(&format!("note: this version computes in f32 on the CPU: {wanted} is planned, and cannot be run here"));
    }
}

fn show(arguments: &Arguments, planned: &Planned, recipe: &Recipe, mut verdict: Verdict) -> Result<(), Failure> {
    let frontier = match arguments.frontier || arguments.html.is_some() {
        true => frontier_of(recipe, planned)?,
        false => Vec::new(),
    };
    if let Some(path) = &arguments.timeline {
        write_timeline(path, planned, recipe)?;
    }
    if let Some(path) = &arguments.html {
        let ways_out = verdict.report.hints.iter().flatten().map(|hint| format!("way out: {hint}")).collect::<Vec<_>>();
        report::write_plan(path, recipe, planned, &frontier, &ways_out)?;
    }
    if let Some(path) = &arguments.picture {
        write_svg(path, "frontier", &frontier_svg(&frontier, planned.budget_bytes, &title(planned, recipe)))?;
    }
    if arguments.explain {
        explain(planned, recipe, &mut verdict)?;
    }
    verdict.report.frontier = arguments.frontier.then_some(frontier);
    match arguments.common.json {
        true => printer::json(&verdict.report)?,
        false => printer::out(&verdict.text(arguments.explain, Paint::stdout()))?,
    };
    Ok(())
}

/// Margins are asked for where there is a plan to compare with.
fn explain(planned: &Planned, recipe: &Recipe, verdict: &mut Verdict) -> Result<(), Failure> {
    let counter = Counter::new();
    verdict.report.neighbours = Some(neighbours(recipe, planned, &|done, of| counter.show(done, of))?);
    if verdict.report.fits {
        verdict.report.margins = Some(margins(recipe, planned, &plimsoll_planner::Device::catalog())?);
    }
    Ok(())
}

fn write_timeline(path: &Path, planned: &Planned, recipe: &Recipe) -> Result<(), Failure> {
    let budget = planned.budget_bytes.saturating_sub(planned.reserve_bytes);
    let (program, layout) = (&planned.choice.program, &planned.choice.layout);
    write_svg(path, "timeline", &timeline_svg(program, layout, budget, &title(planned, recipe)))
}

fn title(planned: &Planned, recipe: &Recipe) -> String {
    format!("{} on {}", recipe.name, planned.device.name)
}

fn write_svg(path: &Path, what: &str, svg: &str) -> Result<(), Failure> {
    write_whole(path, svg.as_bytes()).map_err(|cause| Failure::writing(path, cause))?;
    say(&format!("{what}: {}", path.display()));
    Ok(())
}
