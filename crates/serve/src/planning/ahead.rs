//! What may be asked next, planned while nobody waits, on one thread that gives way to everything else: where a slider goes
//! next is known before it moves.

use super::{Checked, Planner};
use crate::limits::{LAST, give_way};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// Hints that are kept; older ones are about where a slider was.
const MOST: usize = 32;
/// How long to leave the planner to those who wait.
const PATIENCE: Duration = Duration::from_millis(20);

/// A question, and a setting that may be laid over it.
pub(super) struct Hint {
    pub about: Arc<Checked>,
    pub setting: String,
}

pub(super) fn channel() -> (SyncSender<Hint>, Receiver<Hint>) {
    sync_channel(MOST)
}

/// The thread ends with its planner. A system that gives none answers all the same, a little later.
pub(super) fn start(hinted: Receiver<Hint>, planner: &Arc<Planner>) {
    let planner = Arc::downgrade(planner);
    let _ = thread::Builder::new().name("ahead".into()).spawn(move || {
        give_way(LAST);
        work(&hinted, &planner);
    });
}

fn work(hinted: &Receiver<Hint>, planner: &Weak<Planner>) {
    let mut wanted = VecDeque::new();
    loop {
        if wanted.is_empty() {
            let Ok(hint) = hinted.recv() else { return };
            wanted.push_front(hint);
        }
        hinted.try_iter().for_each(|hint| wanted.push_front(hint));
        wanted.truncate(MOST);
        let Some(planner) = planner.upgrade() else { return };
        if planner.is_asked() {
            drop(planner);
            thread::sleep(PATIENCE);
        } else if let Some(Hint { about, setting }) = wanted.pop_front()
            // A stop of a slider that the recipe does not allow is none.
            && let Ok(question) = about.under(setting, &planner.allowed)
        {
            planner.foresee(&question);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::{Allowed, Question};
    use serde_json::json;
    use std::time::Instant;

    #[tokio::test]
    async fn the_next_stop_of_a_slider_is_planned_before_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let planner = Planner::start(Allowed::new(root.clone(), root));
        let recipe = include_str!("../../../../recipes/quickstart.toml");
        let ask = |set: &str, ahead: &[&str]| {
            let question = json!({"recipe": recipe, "device": "rtx-4090", "quick": true, "set": [set], "ahead": ahead});
            serde_json::from_value::<Question>(question).unwrap().check(&planner.allowed).unwrap()
        };
        let (now, next) = ("train.effective_batch=64", "train.effective_batch=80");
        assert!(!planner.knows(&ask(next, &[])));
        let asked = planner.prepare(crate::planning::Kind::Plan, ask(now, &[next])).unwrap();
        planner.answer(asked).await.unwrap();
        let start = Instant::now();
        while !planner.knows(&ask(next, &[])) {
            assert!(start.elapsed() < Duration::from_secs(60), "nobody planned ahead");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!planner.knows(&ask("train.effective_batch=96", &[])));
    }
}
