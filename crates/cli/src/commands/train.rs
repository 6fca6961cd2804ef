//! `plimsoll train`: plan, say what is coming, train.

use super::devices;
use crate::advice::ways_out;
use crate::arguments::RecipeFlags;
use crate::device;
use crate::failure::{Code, Failure};
use crate::printer::{self, Paint, indented, plain, say};
use crate::progress::Progress;
use crate::tracking::{self, Beside};
use crate::verdict::{Verdict, budget_words};
use clap::Args;
use plimsoll::PlanReport;
use plimsoll_base::explain::Explain;
use plimsoll_base::units::format_bytes;
use plimsoll_models::hf::HfError;
use plimsoll_models::recipe::{Draft, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::choose::Planned;
use plimsoll_runs::{Best, End, Event, Finished, Scores, read_events};
use plimsoll_track::Settings;
use plimsoll_train::RunError;
use plimsoll_train::run::{Run, RunFolder};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: RecipeFlags,
    /// The run's folder (default: runs/<recipe>-<n>)
    #[arg(long, value_name = "DIR", alias = "output-dir")]
    out: Option<PathBuf>,
    /// Write the trained model here too, as `plimsoll export` does
    #[arg(long, value_name = "DIR", alias = "model-dir")]
    model_output: Option<PathBuf>,
    /// Go on with a run: that of --out, or the latest of this recipe
    #[arg(long, alias = "resume-from-checkpoint")]
    resume: bool,
    /// Stop after so many updates for now; --resume goes on, as if it had not stopped (train.steps: a shorter run)
    #[arg(long, value_name = "N", alias = "max-steps", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Use this plan.json instead of choosing one
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Tell nobody about the run: no trackers, no notifications
    #[arg(long)]
    no_track: bool,
    /// Take over the library's algorithms of another run's plan.json where products are the same, for the same bits
    #[arg(long, value_name = "FILE", hide = true)]
    products: Option<PathBuf>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    end: End,
    steps: usize,
    epochs: usize,
    #[serde(rename = "final")]
    last: Option<Scores>,
    best: Option<Best>,
    planned_peak_bytes: u64,
    measured_peak_bytes: u64,
    host_peak_bytes: u64,
    samples_per_s: f64,
    seconds: f64,
    run: &'a Path,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let draft = arguments.common.draft(&[])?;
    let recipe = draft.with(&[])?;
    let folder = folder(arguments, &recipe.name)?;
    let device = device::to_run_on(&arguments.common.machine)?;
    device.facts().into_iter().for_each(|facts| say(devices::text(facts).trim_end()));
    arguments.common.usual.notes().iter().for_each(|note| say(note));
    let beside = beside(arguments, &recipe, folder.path())?;
    let mut run = match open(arguments, &draft, &device, folder) {
        Ok(run) => run,
        Err(failure) => {
            beside.fails(&failure.message, failure.code == Code::DoesNotFit);
            return Err(failure);
        }
    };
    run.stop_at = arguments.steps.map(|steps| usize::try_from(steps).unwrap_or(usize::MAX));
    arguments.model_output.iter().try_for_each(|dir| run.check_model_output(dir))?;
    if let Some(path) = &arguments.products {
        run.take_over_products(path)?;
    }
    announce(&run, arguments.resume);
    let mut progress = Progress::new();
    let (finished, beside) = train(&mut run, beside, &mut progress)?;
    if let Some(dir) = arguments.model_output.as_ref().filter(|_| finished.end != End::Interrupted) {
        run.copy_model(dir)?;
        say(&format!("model written to {}", dir.display()));
    }
    show_outcome(arguments, &progress, &finished, &run.out)?;
    // Last, for it may take a while: everything else has been said by then.
    beside.finish();
    match finished.end {
        End::Interrupted => {
            Err(Failure::failed(format!("interrupted at step {}", finished.steps), resume_hint(&run.out)))
        }
        End::Completed | End::Stopped => Ok(()),
    }
}

/// Trains, with the screen and whoever else is told.
fn train(run: &mut Run, mut beside: Beside, progress: &mut Progress) -> Result<(Finished, Beside), Failure> {
    let stop = stop_on_signals()?;
    let finished = run.train(&stop, &mut |event| {
        progress.show(event);
        beside.see(event).iter().for_each(|line| progress.line(line));
    });
    progress.close();
    match finished {
        Ok(finished) => Ok((finished, beside)),
        Err(error) => {
            beside.fails(&error.message(), error.lacks_memory());
            Err(after_start(error, &run.out))
        }
    }
}

/// Whoever is to be told; found wrong before anything is planned.
fn beside(arguments: &Arguments, recipe: &Recipe, out: &Path) -> Result<Beside, Failure> {
    let settings = if arguments.no_track { Settings::default() } else { tracking::settings(recipe, out)? };
    Ok(Beside::new(settings, out))
}

fn open(arguments: &Arguments, draft: &Draft, device: &Device, folder: RunFolder) -> Result<Run, Failure> {
    let recipe = draft.with(&[])?;
    match (Run::open_in(folder, recipe.clone(), device, arguments.plan.as_deref()), &arguments.plan) {
        (Ok(run), _) => Ok(run),
        (Err(RunError::Planning(PlanFailure::DoesNotFit(planned))), Some(path)) => Err(too_large(path, &planned)),
        (Err(RunError::Planning(PlanFailure::DoesNotFit(smallest))), None) => {
            // Beside what the data takes, which was loaded by then.
            let (ladder, hints) = ways_out(draft, &smallest.device, &smallest)?;
            if arguments.common.json {
                printer::json(&PlanReport::of_smallest(&recipe, &smallest, &hints, ladder))?;
            }
            Err(Failure::does_not_fit(&smallest, hints))
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// A plan from elsewhere that this budget has no room for.
fn too_large(path: &Path, planned: &Planned) -> Failure {
    let [needed, budget] = [planned.planned_peak_bytes(), planned.budget_bytes].map(format_bytes);
    let message = format!("{}: the plan needs {needed}, the budget is {budget}", path.display());
    Failure { code: Code::DoesNotFit, message, hints: vec!["leave out --plan: a plan for this budget is made".into()] }
}

/// A failure in the middle of a run also says how to go on.
fn after_start(error: RunError, out: &Path) -> Failure {
    let is_written = matches!(error, RunError::HuggingFace(HfError::Write { .. }));
    let can_resume = is_written || matches!(error, RunError::Io { .. } | RunError::Checkpoint(_));
    let mut failure = Failure::from(error);
    if can_resume && out.join("recipe.toml").exists() {
        failure.hints.push(resume_hint(out));
    }
    failure
}

/// The stored recipe holds every setting of this command line.
fn resume_hint(out: &Path) -> String {
    let out = out.display();
    format!("go on with `plimsoll train {out}/recipe.toml --out {out} --resume`")
}

/// The folder asked for, the latest run of this recipe, or the first free name; no other process trains in it then.
fn folder(arguments: &Arguments, name: &str) -> Result<RunFolder, Failure> {
    let runs = Path::new("runs");
    match (&arguments.out, arguments.resume) {
        (Some(out), resume) => Ok(RunFolder::claim(out, resume)?),
        (None, false) => Ok(RunFolder::claim_next(runs, name)?),
        (None, true) => {
            let latest = latest_run(runs, name).ok_or_else(|| {
                Failure::bad_input(
                    format!("there is no run of {name} to go on with in runs/"),
                    "train without --resume, or name the run's folder with --out",
                )
            })?;
            Ok(RunFolder::claim(&runs.join(format!("{name}-{latest}")), true)?)
        }
    }
}

/// The highest n of the folders `<name>-<n>` that hold a run.
fn latest_run(runs: &Path, name: &str) -> Option<usize> {
    let entries = std::fs::read_dir(runs).ok()?.flatten();
    let number = |entry: std::fs::DirEntry| {
        let folder = entry.file_name().into_string().ok()?;
        let number = folder.strip_prefix(name)?.strip_prefix('-')?.parse::<usize>().ok()?;
        entry.path().join("recipe.toml").exists().then_some(number)
    };
    entries.filter_map(number).max()
}

/// Everything that is known before the first step.
fn announce(run: &Run, resume: bool) {
    let (paint, planned) = (Paint::stderr(), &run.planned);
    say(&format!("  budget {}, {}\n", format_bytes(planned.budget_bytes), budget_words(&run.recipe, planned)));
    say(&Verdict::of_run(run).short_text(paint));
    say(&format!("{}\n{}", paint.bold("data"), indented(&plain(&run.data.report.to_string()))));
    if resume && !run.resumed {
        say(&format!("nothing to go on with in {}: starting from step 0", run.out.display()));
    }
    if run.resumed && run.from.is_none() {
        say(&format!("warning: {}: starting again from step 0", without_checkpoint(&run.out)));
    }
    run.changes.iter().for_each(|change| say(&format!("note: {change}")));
    let settings = &planned.choice.settings;
    // What a device's runtime takes is known to the byte once kernels are loaded.
    let most = if planned.reserve_bytes > 0 { "at most " } else { "" };
    say(&format!(
        "{}: micro-batch {} × {}, planned peak {most}{} of {} budget, {} steps, into {}",
        paint.green("ready to train"),
        settings.micro_batch,
        settings.accumulation,
        format_bytes(planned.planned_peak_bytes()),
        format_bytes(planned.budget_bytes),
        run.steps(),
        run.out.display()
    ));
}

/// Why a run that began has nothing to go on from: it had not come that far, or what it wrote is gone.
fn without_checkpoint(out: &Path) -> String {
    let events = read_events(&out.join("events.jsonl")).unwrap_or_default();
    let written = events.iter().filter_map(|event| match event {
        Event::Checkpoint { step, .. } => Some(*step),
        _ => None,
    });
    match written.max() {
        Some(step) => format!("{} has no checkpoint, and had one of step {step}", out.display()),
        None => format!("{} has no checkpoint yet", out.display()),
    }
}

/// The first signal asks the run to save and leave; the second leaves at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let handler = move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
        say("stopping after this step, with a checkpoint; once more leaves at once");
    };
    ctrlc::set_handler(handler).map_err(|cause| Failure::deaf(&cause))?;
    Ok(stop)
}

/// How it went, in words: on stdout, or beside the JSON that stands there.
fn show_outcome(arguments: &Arguments, progress: &Progress, finished: &Finished, out: &Path) -> Result<(), Failure> {
    let words = outcome_words(progress, finished, out);
    if !arguments.common.json {
        return printer::out(&words).map(drop);
    }
    say(words.trim_end());
    printer::json(&Outcome {
        end: finished.end,
        steps: finished.steps,
        epochs: finished.epochs,
        last: finished.last,
        best: finished.best,
        planned_peak_bytes: finished.planned_peak_bytes,
        measured_peak_bytes: finished.measured_peak_bytes,
        host_peak_bytes: finished.host_peak_bytes,
        samples_per_s: finished.samples_per_s,
        seconds: finished.seconds,
        run: out,
    })
    .map(drop)
}

fn outcome_words(progress: &Progress, finished: &Finished, out: &Path) -> String {
    let early = if finished.end == End::Stopped { "stopped early: evaluations did not get better\n" } else { "" };
    let paused = match progress.steps() {
        all if finished.end == End::Completed && finished.steps < all => {
            format!("stopped after step {} of {all}, as asked: {}\n", finished.steps, resume_hint(out))
        }
        _ => String::new(),
    };
    format!("{early}{}{paused}run: {}\n", progress.summary(finished), out.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_run_is_the_highest_number_with_a_recipe() {
        let dir = tempfile::tempdir().unwrap();
        for (name, whole) in [("a-1", true), ("a-9", true), ("a-10", true), ("a-11", false), ("a-b-30", true)] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            if whole {
                std::fs::write(dir.path().join(name).join("recipe.toml"), "").unwrap();
            }
        }
        assert_eq!(latest_run(dir.path(), "a"), Some(10));
        assert_eq!(latest_run(dir.path(), "b"), None);
        assert_eq!(latest_run(&dir.path().join("nowhere"), "a"), None);
    }
}
