//! How far along many plans are: a bar on a terminal, a line now and then elsewhere.

use crate::printer::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Plain lines come no closer than this; what takes less time says nothing.
const LINE_EVERY: Duration = Duration::from_secs(2);

pub(crate) struct Counter {
    bar: Option<ProgressBar>,
    last_line: Mutex<Instant>,
}

impl Counter {
    pub(crate) fn new() -> Counter {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:20.cyan} {pos}/{len} plans");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Counter { bar, last_line: Mutex::new(Instant::now()) }
    }

    pub(crate) fn show(&self, done: usize, of: usize) {
        if let Some(bar) = &self.bar {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
            return;
        }
        // Whoever finds the lock held leaves the line to the holder.
        if let Ok(mut last) = self.last_line.try_lock()
            && last.elapsed() >= LINE_EVERY
        {
            *last = Instant::now();
            say(&format!("{done} of {of} planned"));
        }
    }
}

impl Drop for Counter {
    /// Leaves the screen to what comes after.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
