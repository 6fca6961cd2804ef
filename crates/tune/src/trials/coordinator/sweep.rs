//! Removes models and checkpoints of trials that are behind the best ones; all else of them stays. Gigabytes take seconds
//! to remove, so another thread does it while the study goes on.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use super::Coordinator;
use crate::attributes as name;
use crate::error::Result;
use crate::json::Json;
use crate::order;
use crate::trial::{Direction, State, Trial};

/// A thread that removes folders; dropping it waits until all are gone.
pub(super) struct Sweeper {
    folders: Option<Sender<PathBuf>>,
    thread: Option<JoinHandle<()>>,
    /// Trials that were handed over.
    swept: HashSet<u64>,
}

impl Sweeper {
    pub(super) fn new() -> Sweeper {
        let (folders, doomed) = channel::<PathBuf>();
        // What cannot be removed only takes room.
        let thread = thread::spawn(move || doomed.iter().for_each(|folder| drop(std::fs::remove_dir_all(folder))));
        Sweeper { folders: Some(folders), thread: Some(thread), swept: HashSet::new() }
    }

    fn remove(&self, folder: PathBuf) {
        if let Some(folders) = &self.folders {
            let _ = folders.send(folder);
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.folders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Coordinator {
    pub(super) fn sweep(&mut self) -> Result<()> {
        let Some(keep) = self.options.search.keep else { return Ok(()) };
        let trials = self.trials()?;
        let direction = self.study.directions()[0];
        let front: Vec<u64> = self.study.best()?.iter().map(|trial| trial.number).collect();
        // A longer training may go on from a checkpoint.
        let goes_on = self.options.search.moves("train.epochs");
        let parts: &[&str] = if goes_on { &["model"] } else { &["model", "checkpoints"] };
        for number in superfluous(&trials, direction, keep, &front) {
            if self.sweeper.swept.insert(number) {
                let folder = self.options.folder.trial(number);
                parts.iter().for_each(|part| self.sweeper.remove(folder.join(part)));
            }
        }
        Ok(())
    }
}

/// Complete trials that are neither among the best `keep` nor on the front.
fn superfluous(trials: &[Arc<Trial>], direction: Direction, keep: usize, front: &[u64]) -> Vec<u64> {
    let complete = trials.iter().filter(|trial| trial.state == State::Complete);
    let mut ranked: Vec<(f64, u64)> =
        complete.filter_map(|trial| Some((direction.loss(trial.value()?), trial.number))).collect();
    order::sort_by(&mut ranked, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let leaders: Vec<u64> = ranked.iter().take(keep).map(|(_, number)| leader_of(trials, *number)).collect();
    let behind = ranked.iter().skip(keep).map(|(_, number)| *number);
    behind.filter(|number| !front.contains(number) && !leaders.contains(number)).collect()
}

/// The trial that trained for this one.
fn leader_of(trials: &[Arc<Trial>], number: u64) -> u64 {
    let trial = trials.iter().find(|trial| trial.number == number);
    let leader = trial.and_then(|trial| trial.user_attrs.get(name::SAME_AS)).and_then(Json::as_i64);
    leader.map_or(number, |leader| leader as u64)
}
