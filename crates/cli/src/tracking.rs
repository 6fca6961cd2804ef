//! Who is told about a run, and the process beside it that tells them.

use crate::environment::Surroundings;
use crate::failure::Failure;
use crate::printer::say;
use plimsoll_models::recipe::{EventFiles, News, NewsEvery, Recipe};
use plimsoll_runs::{Event, EventLog, Failed};
use plimsoll_track::{
    FollowOptions, Mlflow, Notify, Occasion, ProgressEvery, Settings, TrackError, Watch, deliveries, follow,
};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a run's end waits for what is still to be delivered.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
/// How long a follower waits for one before it to leave.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// From the recipe and the environment. What the recipe names must be right; a variable that happens to be set and is
/// not is a warning.
pub(crate) fn settings(recipe: &Recipe, out: &Path) -> Result<Settings, Failure> {
    Ok(Settings {
        mlflow: mlflow(recipe)?,
        tensorboard: event_files(recipe, out),
        notify: notify(recipe)?,
        every: recipe.track.every.pinned(),
    })
}

pub(crate) fn mlflow(recipe: &Recipe) -> Result<Option<Mlflow>, Failure> {
    let track = &recipe.track;
    if track.mlflow.as_deref() == Some("off") {
        return Ok(None);
    }
    let experiment = track.experiment.as_deref().unwrap_or(&recipe.name);
    let found = Mlflow::find(track.mlflow.as_deref(), experiment, &Surroundings);
    let server = unless_named(found, track.mlflow.is_some())?.flatten();
    server.iter().filter_map(Mlflow::warning).for_each(|words| say(&format!("warning: {words}")));
    Ok(server.map(|mut server| {
        server.parent = track.parent.clone();
        // The recipe goes before the environment.
        server.experiment = track.experiment.clone().unwrap_or(server.experiment);
        server
    }))
}

fn event_files(recipe: &Recipe, out: &Path) -> Option<PathBuf> {
    match &recipe.track.tensorboard {
        EventFiles::Off => None,
        EventFiles::InRun => Some(out.join("tensorboard")),
        EventFiles::Folder(folder) => Some(folder.join(out.file_name().unwrap_or("run".as_ref()))),
    }
}

fn notify(recipe: &Recipe) -> Result<Option<Notify>, Failure> {
    let targets = unless_named(targets(recipe), recipe.notify.urls.is_some())?.unwrap_or_default();
    let every = match recipe.notify.every {
        NewsEvery::Never => ProgressEvery::Never,
        NewsEvery::Epochs(n) => ProgressEvery::Epochs(n),
        NewsEvery::Seconds(seconds) => ProgressEvery::Seconds(seconds as f64),
    };
    let occasions = recipe.notify.on.iter().map(|news| occasion(*news)).collect();
    Ok((!targets.is_empty()).then_some(Notify { targets, occasions, every }))
}

/// The addresses that a recipe names, or those of the usual variables.
pub(crate) fn targets(recipe: &Recipe) -> Result<Vec<plimsoll_track::Target>, TrackError> {
    Notify::targets(recipe.notify.variables().as_deref(), &Surroundings)
}

fn occasion(news: News) -> Occasion {
    match news {
        News::Started => Occasion::Started,
        News::Progress => Occasion::Progress,
        News::Best => Occasion::Best,
        News::Finished => Occasion::Finished,
        News::Failed => Occasion::Failed,
        News::Disk => Occasion::Disk,
    }
}

fn unless_named<T>(found: Result<T, TrackError>, is_named: bool) -> Result<Option<T>, Failure> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_named => Err(refused(&error)),
        Err(error) => {
            say(&format!("warning: {error}: nobody is told there\n  hint: {}", error.hint()));
            Ok(None)
        }
    }
}

pub(crate) fn refused(error: &TrackError) -> Failure {
    Failure::bad_input(error.to_string(), error.hint())
}

/// The process that follows a run. Nothing it does or fails to do is felt by a step.
pub(crate) struct Beside {
    settings: Settings,
    out: PathBuf,
    child: Option<Child>,
    has_started: bool,
    /// Sinks whose trouble was said.
    told: BTreeSet<String>,
}

impl Beside {
    pub(crate) fn new(settings: Settings, out: &Path) -> Beside {
        Beside { settings, out: out.into(), child: None, has_started: false, told: BTreeSet::new() }
    }

    /// Starts with the run's first word, when its folder is one; what there is to say about deliveries.
    pub(crate) fn see(&mut self, event: &Event) -> Vec<String> {
        match event {
            Event::Started(_) if !self.has_started => {
                self.has_started = true;
                self.start().map_or(Vec::new(), |warning| vec![warning])
            }
            Event::Epoch { .. } | Event::Evaluation(_) if self.child.is_some() => self.troubles(),
            _ => Vec::new(),
        }
    }

    fn start(&mut self) -> Option<String> {
        if self.settings.is_empty() {
            return None;
        }
        match spawn(&self.settings, &self.out) {
            Ok(child) => {
                self.child = Some(child);
                None
            }
            Err(cause) => Some(format!("warning: nobody is told about this run: {cause}")),
        }
    }

    /// What is new of them.
    fn troubles(&mut self) -> Vec<String> {
        let in_trouble = deliveries(&self.out).into_iter().filter(|delivery| !delivery.trouble.is_empty());
        let new = in_trouble.filter(|delivery| self.told.insert(delivery.sink.clone()));
        new.map(|delivery| format!("warning: {}: {}; it is tried again", delivery.sink, delivery.trouble)).collect()
    }

    /// The run has ended: waits a little for what is still to be said, and says what was not.
    pub(crate) fn finish(mut self) {
        let Some(mut child) = self.child.take() else { return };
        // The end of the pipe tells it that the run is over.
        drop(child.stdin.take());
        let until = Instant::now() + GRACE + Duration::from_secs(2);
        while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Still in a request that nobody answers: what is not delivered stays in the log, and the folder is free again.
        let _ = child.kill();
        let _ = child.wait();
        for delivery in deliveries(&self.out).iter().filter(|delivery| delivery.is_behind()) {
            let (sink, trouble, out) = (&delivery.sink, delivery.reason(), self.out.display());
            say(&format!(
                "warning: {sink} was not told everything: {trouble}\n  hint: `plimsoll follow {out}` tells the rest"
            ));
        }
    }

    /// A run that came to no first word has no folder to follow: what happened is told at once.
    pub(crate) fn fails(self, reason: &str, oom: bool) {
        let Some(notify) = self.settings.notify.clone().filter(|_| !self.has_started) else { return self.finish() };
        let settings = Settings { notify: Some(notify), ..Settings::default() };
        if tell_failure(&settings, &self.out, reason, oom).is_err() {
            say("warning: nobody could be told about this");
        }
    }
}

fn spawn(settings: &Settings, out: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["follow", "--attached"]).arg(out).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C is for the run: what it says at its end is still to be told.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;
    let mut line = serde_json::to_vec(settings).map_err(std::io::Error::other)?;
    line.push(b'\n');
    // Over a pipe, because arguments can be read by everybody on the machine.
    child.stdin.as_mut().map_or(Ok(()), |pipe| pipe.write_all(&line))?;
    Ok(child)
}

/// A log of one event in a folder of its own, followed to its end.
fn tell_failure(settings: &Settings, out: &Path, reason: &str, oom: bool) -> Result<(), Box<dyn std::error::Error>> {
    let name = out.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
    let folder = std::env::temp_dir().join(format!("plimsoll-{}", std::process::id())).join(name);
    std::fs::create_dir_all(&folder)?;
    let failed = Event::Failed(Failed { step: 0, reason: reason.into(), oom });
    EventLog::open(&folder.join("events.jsonl"))?.write(failed)?;
    let watch = Watch::new();
    watch.end();
    let told = follow(&folder, settings, &watch, FollowOptions { grace: GRACE / 2, patience: Duration::ZERO });
    let _ = std::fs::remove_dir_all(folder.parent().unwrap_or(&folder));
    for delivery in told?.iter().filter(|delivery| !delivery.trouble.is_empty()) {
        say(&format!("warning: {} was not told: {}", delivery.sink, delivery.trouble));
    }
    Ok(())
}
