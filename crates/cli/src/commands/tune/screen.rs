//! A study on the screen: on a terminal a line for each running trial under what happened, plain lines elsewhere.

use super::parent::Parent;
use crate::printer::{duration, say};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use plimsoll_base::units::format_bytes;
use plimsoll_tune::trials::{RunningTrial, Status, Summary, Watcher};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Plain lines about how things stand come no closer than this.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The live lines are drawn no more often.
const DRAW_EVERY: Duration = Duration::from_millis(200);

pub(crate) struct Screen {
    live: Option<Live>,
    parent: Option<Parent>,
    last: Option<Instant>,
    last_text: String,
}

/// What is drawn again and again.
struct Live {
    all: MultiProgress,
    sum: ProgressBar,
    trials: BTreeMap<u64, ProgressBar>,
}

impl Screen {
    pub(crate) fn new(parent: Option<Parent>) -> Screen {
        Screen { live: io::stderr().is_terminal().then(Live::new), parent, last: None, last_text: String::new() }
    }

    pub(crate) fn close(&mut self, is_over: bool) {
        if let Some(live) = self.live.take() {
            let _ = live.all.clear();
        }
        if let Some(parent) = self.parent.take() {
            parent.end(is_over);
        }
    }
}

impl Watcher for Screen {
    fn line(&mut self, text: &str) {
        match &self.live {
            Some(live) => live.all.suspend(|| say(text)),
            None => say(text),
        }
    }

    fn status(&mut self, status: &Status) {
        let every = if self.live.is_some() { DRAW_EVERY } else { LINE_EVERY };
        if self.last.is_some_and(|last| last.elapsed() < every) {
            return;
        }
        self.last = Some(Instant::now());
        let text = sum_of(status);
        match &mut self.live {
            Some(live) => live.draw(status, &text),
            None if text != self.last_text => say(&text),
            None => {}
        }
        self.last_text = text;
    }

    fn infeasible(&mut self, number: u64, params: &[(String, String)]) {
        if let Some(parent) = &self.parent {
            parent.infeasible(number, params);
        }
    }
}

fn sum_of(status: &Status) -> String {
    let best = status.best.map_or(String::new(), |(number, value)| format!(", best {value:.5} (trial {number})"));
    let left = status.seconds_left.map_or(String::new(), |s| format!(", {} left", duration(s)));
    let paused = if status.paused > 0 { format!(", {} laid aside", status.paused) } else { String::new() };
    let memory = format!("{} of {}", format_bytes(status.taken_bytes), format_bytes(status.budget_bytes));
    format!(
        "{}/{} ended, {} running in {memory}{paused}{best}{left}",
        status.ended,
        status.wanted,
        status.running.len()
    )
}

impl Live {
    fn new() -> Live {
        let all = MultiProgress::new();
        let sum = all.add(ProgressBar::new_spinner().with_style(style("{wide_msg}")));
        Live { all, sum, trials: BTreeMap::new() }
    }

    fn draw(&mut self, status: &Status, text: &str) {
        let shown: Vec<u64> = status.running.iter().map(|trial| trial.number).collect();
        self.trials.retain(|number, bar| {
            let stays = shown.contains(number);
            if !stays {
                bar.finish_and_clear();
            }
            stays
        });
        for trial in &status.running {
            let (all, sum) = (&self.all, &self.sum);
            let fresh = || all.insert_before(sum, ProgressBar::new(0).with_style(style("{bar:20.cyan} {wide_msg}")));
            let bar = self.trials.entry(trial.number).or_insert_with(fresh);
            bar.set_length(trial.steps.max(1) as u64);
            bar.set_position(trial.step as u64);
            bar.set_message(trial_words(trial));
        }
        self.sum.set_message(text.to_string());
        self.sum.tick();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn trial_words(trial: &RunningTrial) -> String {
    let loss = trial.last_value.map_or(String::new(), |value| format!("  loss {value:.4}"));
    let left = trial.seconds_left.map_or(String::new(), |s| format!("  {} left", duration(s)));
    format!("trial {}  step {}/{}  {}{loss}{left}", trial.number, trial.step, trial.steps, format_bytes(trial.bytes))
}

/// The last words, about promises.
pub(crate) fn closing(summary: &Summary) {
    let promised = summary.promised_seconds.map_or(String::new(), |s| format!(", promised {}", duration(s)));
    say(&format!("{} trials ended in {}{promised}", summary.ended, duration(summary.seconds)));
}
