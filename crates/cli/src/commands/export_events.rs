//! `plimsoll export-events`: a run's events for other trackers.

use crate::failure::Failure;
use crate::printer;
use crate::tracking::refused;
use clap::{Args, ValueEnum};
use plimsoll_base::files::open_to_read;
use plimsoll_runs::{Timed, holder, read_timed};
use plimsoll_track::{
    Exposed, FollowOptions, RunFacts, Settings, Watch, follow, metrics_of, openmetrics, planned_components,
};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The run's folder
    run: PathBuf,
    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// TensorBoard's: the folder for its event files
    #[arg(long, value_name = "DIR", required_if_eq("format", "tensorboard"))]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One event per line, as the run wrote them; what tools/track/replay.py reads
    Jsonl,
    /// One number per line: time, step, name, value
    Csv,
    /// The last of everything, as Prometheus reads it
    Openmetrics,
    /// Event files, into --out
    Tensorboard,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = arguments.run.join("events.jsonl");
    let events = read_timed(&path).map_err(|cause| {
        Failure::bad_input(
            format!("{}: {cause}", path.display()),
            "name the folder of a run, such as runs/quickstart-1",
        )
    })?;
    if arguments.format != Format::Tensorboard && arguments.out.is_some() {
        let hint = "leave it out: lines go to standard output, `plimsoll export-events RUN --format csv > FILE`";
        return Err(Failure::bad_input("--out is where the event files of --format tensorboard go", hint));
    }
    match arguments.format {
        Format::Jsonl => jsonl(&events),
        Format::Csv => csv(&events),
        Format::Openmetrics => metrics(&arguments.run, &events),
        Format::Tensorboard => event_files(&events, arguments.out.as_deref().unwrap_or(Path::new("."))),
    }
}

fn jsonl(events: &[Timed]) -> Result<(), Failure> {
    for timed in events {
        if !printer::json(timed)? {
            break;
        }
    }
    Ok(())
}

fn csv(events: &[Timed]) -> Result<(), Failure> {
    let mut text = String::from("time,step,name,value\n");
    for metric in events.iter().flat_map(metrics_of) {
        // Names are ours and hold no comma.
        text += &format!("{},{},{},{}\n", metric.time, metric.step, metric.tag(), metric.value);
    }
    printer::out(&text).map(drop)
}

fn metrics(run: &Path, events: &[Timed]) -> Result<(), Failure> {
    let mut facts = RunFacts::default();
    events.iter().for_each(|timed| facts.add(timed));
    let facts = facts.judged(holder(run).is_some());
    let name = run.file_name().map_or("run".into(), |name| name.to_string_lossy());
    let mut plan = Vec::new();
    // A run without one has no parts to tell.
    let _ = open_to_read(&run.join("plan.json")).and_then(|mut file| file.read_to_end(&mut plan));
    let components = planned_components(&plan);
    printer::out(&openmetrics(&[Exposed { run: &name, facts: &facts, components: &components }], &[])).map(drop)
}

/// TensorBoard draws every file of a folder: of a run that is written twice each point would stand there twice.
fn refuse_event_files(out: &Path) -> Result<(), Failure> {
    let is_event_file = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().contains(".tfevents.");
    match std::fs::read_dir(out).into_iter().flatten().flatten().any(is_event_file) {
        false => Ok(()),
        true => Err(Failure::bad_input(
            format!("{}: holds event files already, beside which every point would be drawn again", out.display()),
            "name a new folder with --out, or remove the event files",
        )),
    }
}

/// Through the same follower as a run's own, over a copy: the run's folder stays as it is.
fn event_files(events: &[Timed], out: &Path) -> Result<(), Failure> {
    refuse_event_files(out)?;
    let writing = |cause: std::io::Error| Failure::writing(out, cause);
    let copy = std::env::temp_dir().join(format!("plimsoll-export-{}", std::process::id()));
    std::fs::create_dir_all(&copy).map_err(writing)?;
    let lines: Vec<String> = events.iter().filter_map(|timed| serde_json::to_string(timed).ok()).collect();
    std::fs::write(copy.join("events.jsonl"), lines.join("\n") + "\n").map_err(writing)?;
    let settings = Settings { tensorboard: Some(out.into()), every: Some(1), ..Settings::default() };
    let watch = Watch::new();
    watch.end();
    let told = follow(&copy, &settings, &watch, FollowOptions { grace: Duration::ZERO, patience: Duration::ZERO });
    let _ = std::fs::remove_dir_all(&copy);
    match told.map_err(|error| refused(&error))?.iter().find(|delivery| !delivery.trouble.is_empty()) {
        None => Ok(()),
        Some(delivery) => Err(Failure::failed(delivery.trouble.clone(), "check the folder and the space left")),
    }
}
