//! `plimsoll report`: one page about a run, also while it runs; and the page of `plan --html`.

use crate::arguments::Machine;
use crate::device;
use crate::failure::Failure;
use crate::printer::{self, say};
use clap::Args;
use plimsoll_base::files::{write_inside, write_whole};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::choose::Planned;
use plimsoll_planner::whatif::{FrontierPoint, frontier_of};
use plimsoll_report::page::{Page, RunStory};
use plimsoll_runs::read_events;
use plimsoll_train::run::StoredPlan;
use plimsoll_train::tasks::expected_data;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The run's folder
    run: PathBuf,
    /// Where the page goes (default: report.html in the run's folder)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ReportJson<'a> {
    page: &'a Path,
    steps: usize,
    finished: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = &arguments.run;
    let stored = folder.join("recipe.toml");
    if !stored.is_file() {
        return Err(Failure::bad_input(
            format!("{}: not the folder of a run: it has no recipe.toml", folder.display()),
            "`plimsoll train RECIPE` makes one under runs/",
        ));
    }
    arguments.out.as_deref().map_or(Ok(()), |out| refuse_file_of_run(out, folder))?;
    let recipe = Recipe::load(&stored, &[])?;
    let story = story(folder)?;
    let (planned, notes) = match restored(folder, &recipe) {
        Ok(planned) => (Some(planned), Vec::new()),
        Err(failure) => (None, vec![format!("the plan cannot be shown: {}", failure.message)]),
    };
    // Where planning anew fails, the rest is still shown.
    let frontier = planned.as_ref().and_then(|planned| frontier_of(&recipe, planned).ok()).unwrap_or_default();
    let page = Page {
        recipe: &recipe,
        planned: planned.as_ref(),
        frontier: &frontier,
        run: Some(&story),
        train_samples: None,
        notes: &notes,
    };
    let out = arguments.out.clone().unwrap_or_else(|| folder.join("report.html"));
    // A run may come from somebody else: what its own report.html leads to is not written to.
    let write = if arguments.out.is_some() { write_whole } else { write_inside };
    write(&out, page.html().as_bytes()).map_err(|cause| Failure::writing(&out, cause))?;
    match arguments.json {
        true => {
            printer::json(&ReportJson { page: &out, steps: story.last_step(), finished: story.finished.is_some() })?
        }
        false => printer::out(&format!("{}\n", out.display()))?,
    };
    Ok(())
}

/// Of what is in a run's folder, only pages are replaced by one.
fn refuse_file_of_run(out: &Path, run: &Path) -> Result<(), Failure> {
    let (Ok(there), Ok(run)) = (out.canonicalize(), run.canonicalize()) else { return Ok(()) };
    match there.starts_with(run) && there.extension().is_none_or(|kind| kind != "html") {
        true => Err(Failure::bad_input(format!("{}: this belongs to the run", out.display()), "name another file")),
        false => Ok(()),
    }
}

/// A run that has only begun has no events yet.
fn story(folder: &Path) -> Result<RunStory, Failure> {
    let path = folder.join("events.jsonl");
    match read_events(&path) {
        Ok(events) => Ok(RunStory::of(events)),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(RunStory::default()),
        Err(cause) => Err(Failure::bad_input(format!("{}: {cause}", path.display()), "is it a readable file?")),
    }
}

/// The stored plan with its graphs, for the device that it was made for.
fn restored(folder: &Path, recipe: &Recipe) -> Result<Planned, Failure> {
    let path = folder.join("plan.json");
    let stored = StoredPlan::read(&path)?;
    // A GPU's name follows its number: `cuda:0 NVIDIA H200`.
    let name = stored.device.split(' ').next().unwrap_or("cpu");
    let device = device::to_plan_for(&Machine { device: name.into(), threads: None })?;
    Ok(stored.restore(recipe, &device, &path)?)
}

/// The page of a plan without a run; where it does not fit, with the ways out.
pub(crate) fn write_plan(
    path: &Path,
    recipe: &Recipe,
    planned: &Planned,
    frontier: &[FrontierPoint],
    ways_out: &[String],
) -> Result<(), Failure> {
    let train_samples = expected_data(recipe).map(|data| data.train_samples);
    let page = Page { recipe, planned: Some(planned), frontier, run: None, train_samples, notes: ways_out };
    write_whole(path, page.html().as_bytes()).map_err(|cause| Failure::writing(path, cause))?;
    say(&format!("page: {}", path.display()));
    Ok(())
}
