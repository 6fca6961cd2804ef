//! `plimsoll follow`: tells trackers and people about a run, beside it or after it. What `train` starts for itself.

use crate::failure::Failure;
use crate::printer::{self, say};
use crate::tracking::{self, refused};
use clap::Args;
use plimsoll_models::recipe::Recipe;
use plimsoll_track::{Delivery, FollowOptions, Settings, Watch, follow};
use serde::Serialize;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The run's folder
    run: PathBuf,
    /// Seconds to go on trying after the run has ended
    #[arg(long, value_name = "N", default_value_t = tracking::GRACE.as_secs(), value_parser = clap::value_parser!(u64).range(0..=86400))]
    grace: u64,
    /// One JSON value on stdout
    #[arg(long)]
    json: bool,
    /// Settings come over standard input, whose end is the run's
    #[arg(long, hide = true)]
    attached: bool,
}

#[derive(Serialize)]
struct Undelivered {
    sink: String,
    left_bytes: u64,
    trouble: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let watch = Watch::new();
    let settings = if arguments.attached { from_pipe(&watch)? } else { of_run(&arguments.run, &watch)? };
    let patience = if arguments.attached { tracking::PATIENCE } else { Duration::ZERO };
    let options = FollowOptions { grace: Duration::from_secs(arguments.grace), patience };
    let told = follow(&arguments.run, &settings, &watch, options).map_err(|error| refused(&error))?;
    if arguments.attached {
        return Ok(());
    }
    show(&told, arguments.json)
}

/// As `train` starts it. A pipe that ends at once is a run that ended at once.
fn from_pipe(watch: &Watch) -> Result<Settings, Failure> {
    let (mut line, mut stdin) = (String::new(), std::io::stdin().lock());
    let read = stdin.read_line(&mut line);
    drop(stdin);
    let settings = read.ok().and_then(|_| serde_json::from_str(&line).ok());
    let watch = watch.clone();
    thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        watch.end();
    });
    settings.ok_or_else(|| Failure::bad_input("no settings on standard input", "leave out --attached"))
}

/// The settings of the run's own recipe, with what the environment says now.
fn of_run(run: &Path, watch: &Watch) -> Result<Settings, Failure> {
    let recipe = Recipe::load(&run.join("recipe.toml"), &[])?;
    let settings = tracking::settings(&recipe, run)?;
    if settings.is_empty() {
        return Err(Failure::bad_input(
            format!("{}: nobody is to be told about this run", run.display()),
            "set MLFLOW_TRACKING_URI, DISCORD_WEBHOOK or APPRISE_URLS, or write [track] or [notify] into its recipe.toml",
        ));
    }
    let (run, watch) = (run.to_path_buf(), watch.clone());
    thread::spawn(move || {
        while is_training(&run) {
            thread::sleep(Duration::from_millis(500));
        }
        watch.end();
    });
    Ok(settings)
}

/// The process that is named in the lock lives. Asked without touching the lock, which a resumed run may want just now.
fn is_training(run: &Path) -> bool {
    let pid = std::fs::read_to_string(run.join("run.lock")).unwrap_or_default();
    let pid: String = pid.chars().take_while(char::is_ascii_digit).collect();
    !pid.is_empty() && Path::new("/proc").join(pid).join("exe").exists()
}

fn show(told: &[Delivery], json: bool) -> Result<(), Failure> {
    if json {
        let row =
            |d: &Delivery| Undelivered { sink: d.sink.clone(), left_bytes: d.left_bytes, trouble: d.trouble.clone() };
        printer::json(&told.iter().map(row).collect::<Vec<_>>())?;
    } else {
        told.iter().filter(|d| d.trouble.is_empty()).for_each(|d| say(&format!("{}: everything is told", d.sink)));
    }
    let mut failed = told.iter().filter(|delivery| !delivery.trouble.is_empty());
    match failed.next() {
        None => Ok(()),
        Some(first) => {
            let others = failed.map(|delivery| format!("; {}: {}", delivery.sink, delivery.trouble));
            let message = format!("{}: {}{}", first.sink, first.trouble, others.collect::<String>());
            Err(Failure::failed(message, "the rest stays in events.jsonl: say this again when it is back"))
        }
    }
}
