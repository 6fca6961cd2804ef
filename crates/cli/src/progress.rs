//! A run on the screen. It reads events and nothing else: a bar on a terminal, plain lines elsewhere.

use crate::printer::{duration, plain, say};
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_base::units::format_bytes;
use plimsoll_runs::{Best, DeviceEvent, End, Evaluation, Event, Finished, Started, StepEvent};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Plain step lines come no closer than this.
const LINE_EVERY: Duration = Duration::from_secs(2);

pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    steps: usize,
    /// Of the source: what the best possible model reaches.
    best_accuracy: Option<f64>,
    best_loss: Option<f64>,
    last_line: Option<Instant>,
    /// Where a resumed run went on.
    first_step: usize,
    effective_batch: usize,
    /// An epoch has just begun: the next facts about the device are said.
    says_memory: bool,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:12.cyan} {pos}/{len} {wide_msg}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Progress {
            bar,
            steps: 0,
            best_accuracy: None,
            best_loss: None,
            last_line: None,
            first_step: 0,
            effective_batch: 0,
            says_memory: false,
        }
    }

    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::Started(started) => self.start(started),
            Event::Resumed { step, replanned } => {
                self.first_step = *step;
                self.line(&resumed_line(*step, *replanned));
            }
            Event::Epoch { epoch, epochs, .. } => {
                self.says_memory = true;
                self.line(&format!("Starting epoch {}/{epochs}", epoch + 1));
            }
            Event::Step(step) => self.step(step),
            Event::Evaluation(evaluation) => self.line(&evaluation_line(evaluation)),
            Event::Checkpoint { path, bytes, best, .. } => {
                let best = if *best { ", best so far" } else { "" };
                self.line(&format!("checkpoint {path} ({}{best})", format_bytes(*bytes)));
            }
            Event::Sample { prompt, text, .. } => self.line(&format!("sample: {}", one_line(prompt, text))),
            Event::Device(device) => self.device(device),
            Event::Note { text } => self.line(&plain(text)),
            Event::Finished(_) | Event::Failed(_) => self.close(),
        }
    }

    /// Leaves the screen to what comes after; also after an error.
    pub(crate) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn start(&mut self, started: &Started) {
        self.steps = started.steps;
        self.effective_batch = started.effective_batch;
        (self.best_accuracy, self.best_loss) = (started.best_accuracy, started.best_loss);
        if let Some(bar) = &self.bar {
            bar.set_length(started.steps as u64);
        }
        self.line(&batch_line(started));
        facts_line(started).iter().for_each(|line| self.line(line));
    }

    fn device(&mut self, device: &DeviceEvent) {
        if std::mem::take(&mut self.says_memory) {
            memory_line(device).iter().for_each(|line| self.line(line));
        }
    }

    fn step(&mut self, step: &StepEvent) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(bar_words(step) + &self.ragged(step));
                bar.set_position(step.step as u64);
            }
            None => {
                let due = self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY);
                if due || step.step == self.steps {
                    self.last_line = Some(Instant::now());
                    say(&format!("step {}/{}  {}{}", step.step, self.steps, step_words(step), self.ragged(step)));
                }
            }
        }
    }

    /// The last batch of an epoch is what is left over: its loss is that of few samples, and says little.
    fn ragged(&self, step: &StepEvent) -> String {
        let samples = (step.samples_per_s * step.ms / 1e3).round() as usize;
        match samples < self.effective_batch {
            true => format!("  (the epoch's last batch: {samples} of {} samples)", self.effective_batch),
            false => String::new(),
        }
    }

    /// A line of its own, above the bar.
    pub(crate) fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    /// Updates of the whole run.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// The last lines of a run.
    pub(crate) fn summary(&self, finished: &Finished) -> String {
        let mut text = self.pace(finished);
        if let Some(best) = finished.best {
            text += &self.reached(best);
        }
        text += &format!(
            "planned peak {}, measured {}\n",
            format_bytes(finished.planned_peak_bytes),
            format_bytes(finished.measured_peak_bytes)
        );
        // Stopped for now, not all steps are done.
        let is_whole = finished.end != End::Completed || finished.steps >= self.steps;
        let end = if is_whole { finished.end } else { End::Stopped };
        text += &success_line(&Finished { end, ..finished.clone() });
        text
    }

    /// Of a resumed run only what was done since is timed.
    fn pace(&self, finished: &Finished) -> String {
        let (done, all) = (finished.steps.saturating_sub(self.first_step), finished.steps);
        let time = duration(finished.seconds);
        match (done, self.first_step) {
            (0, _) => format!("{all} steps, all of them done before\n"),
            (_, 0) => format!("{all} steps in {time}, {:.1} samples/s\n", finished.samples_per_s),
            _ => format!(
                "{done} steps in {time} after the {} before, {:.1} samples/s\n",
                self.first_step, finished.samples_per_s
            ),
        }
    }

    /// What was reached beside what can be, where the data's source knows that.
    fn reached(&self, best: Best) -> String {
        let accuracy = self.best_accuracy.map(|x| format!("accuracy {:.1} %", 100.0 * x));
        let loss = self.best_loss.map(|x| format!("loss {x:.4}"));
        let possible = accuracy.or(loss).map_or(String::new(), |x| format!("; best possible {x}"));
        format!("reached {} at step {}{possible}\n", best.scores, best.step)
    }
}

/// What stands behind the bar: first what must be seen on a narrow terminal.
fn bar_words(step: &StepEvent) -> String {
    let [planned, measured] = [step.planned_peak_bytes, step.measured_peak_bytes].map(format_bytes);
    let norm = match step.scale.filter(|_| step.skipped) {
        Some(scale) => format!("skipped, loss scale {scale}"),
        None => format!("norm {:.3}", step.norm),
    };
    format!(
        "{} left  {measured} of {planned}  loss {:.4}  lr {:.2e}  {:.0} samples/s  {norm}  stall {:.1} ms",
        duration(step.remaining_s),
        step.loss,
        step.lr,
        step.samples_per_s,
        step.stall_ms,
    )
}

/// What learning sees, and how a step makes it up.
fn batch_line(started: &Started) -> String {
    format!(
        "batch size {} × gradient accumulation {} = effective batch size {}",
        started.micro_batch, started.accumulation, started.effective_batch
    )
}

/// Precision, recompute and attention as facts, where the log has them.
fn facts_line(started: &Started) -> Option<String> {
    let attention = match started.attention.as_deref()? {
        "fused" => "fused attention (flash: scores are never stored)",
        _ => "attention with stored scores",
    };
    let recompute = match started.recompute.as_deref()? {
        "none" => "nothing recomputed".to_string(),
        level => format!("activation checkpointing: {level}"),
    };
    Some(format!("precision {}, {recompute}, {attention}", started.precision.as_deref()?))
}

/// `GPU memory: 28.50 GiB / 32.00 GiB (89 %), GPU 97 %, host memory: …`
fn memory_line(device: &DeviceEvent) -> Option<String> {
    let of = |name: &str, used: Option<u64>, total: Option<u64>| {
        let (used, total) = (used?, total.filter(|total| *total > 0)?);
        let percent = 100.0 * used as f64 / total as f64;
        Some(format!("{name}: {} / {} ({percent:.0} %)", format_bytes(used), format_bytes(total)))
    };
    let is_gpu = device.total_bytes != device.host_total_bytes;
    let gpu = of("GPU memory", device.used_bytes, device.total_bytes).filter(|_| is_gpu);
    let load = device.utilization.map(|percent| format!("GPU utilization {percent} %"));
    let host = of("memory of the machine", device.host_used_bytes, device.host_total_bytes);
    let process = device.process_bytes.map(|bytes| format!("this process {}", format_bytes(bytes)));
    let parts: Vec<String> = [gpu, load, host, process].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Said only of what happened: the run went to its end inside its plan.
fn success_line(finished: &Finished) -> String {
    let within = finished.measured_peak_bytes <= finished.planned_peak_bytes;
    match finished.end {
        End::Completed if within => {
            "success: no out-of-memory errors, memory stable within the plan, one copy of the weights, all steps done\n"
                .into()
        }
        End::Stopped if within => "success: no out-of-memory errors, memory stable within the plan\n".into(),
        _ => String::new(),
    }
}

fn step_words(step: &StepEvent) -> String {
    let norm = match step.scale.filter(|_| step.skipped) {
        Some(scale) => format!("skipped: too large for f16, loss scale now {scale}"),
        None => format!("norm {:.3}", step.norm),
    };
    format!(
        "loss {:.4}  {norm}  lr {:.2e}  {}  stall {:.1} ms  peak {} planned, {} measured  {} left",
        step.loss,
        step.lr,
        speed_words(step),
        step.stall_ms,
        format_bytes(step.planned_peak_bytes),
        format_bytes(step.measured_peak_bytes),
        duration(step.remaining_s)
    )
}

/// Training speed beside what the loader could deliver.
fn speed_words(step: &StepEvent) -> String {
    let tokens = step.tokens_per_s.map_or(String::new(), |speed| format!(" {speed:.0} tokens/s"));
    let data = step.data_samples_per_s.map_or(String::new(), |speed| format!("  data {speed:.0} samples/s"));
    format!("{:.0} samples/s ({} batches/s){tokens}{data}", step.samples_per_s, rounded(1e3 / step.ms.max(1e-6)))
}

/// Two digits that say something: 4.2, 0.031, 420.
fn rounded(x: f64) -> String {
    let decimals = if x > 0.0 { (1 - x.log10().floor() as i32).clamp(0, 6) } else { 0 };
    format!("{x:.*}", decimals as usize)
}

fn evaluation_line(e: &Evaluation) -> String {
    let best = if e.best { "  best so far" } else { "" };
    format!(
        "evaluation at step {} (epoch {}): {} over {} samples, {}{best}",
        e.step,
        e.epoch + 1,
        e.scores,
        e.samples,
        duration(e.ms / 1e3)
    )
}

fn resumed_line(step: usize, replanned: bool) -> String {
    let bits = if replanned { "; the stored plan does not fit this device, with the new one bits differ" } else { "" };
    format!("resumed at step {step}{bits}")
}

/// Text of a model may hold anything; on the screen it is one line.
fn one_line(prompt: &str, text: &str) -> String {
    let shown = |c: char| if c == '\n' { '⏎' } else { c };
    let clean = |c: &char| *c == '\n' || !c.is_control();
    prompt.chars().chain(text.chars()).filter(clean).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_runs::Scores;

    fn progress(best_accuracy: Option<f64>, best_loss: Option<f64>) -> Progress {
        let (last_line, first_step, effective_batch) = (None, 0, 64);
        let says_memory = false;
        Progress { bar: None, steps: 9, best_accuracy, best_loss, last_line, first_step, effective_batch, says_memory }
    }

    #[test]
    fn what_was_reached_stands_beside_what_can_be() {
        let scores = Scores { loss: 0.2, accuracy: Some(0.921), ..Scores::default() };
        let best = Best { step: 7, scores };
        let line = progress(Some(0.934), None).reached(best);
        assert_eq!(line, "reached loss 0.2000, accuracy 92.1 % at step 7; best possible accuracy 93.4 %\n");
        assert!(progress(None, Some(0.25)).reached(best).contains("best possible loss 0.2500"));
        assert!(!progress(None, None).reached(best).contains("possible"));
    }

    #[test]
    fn a_terminal_of_80_columns_shows_time_left_memory_and_loss() {
        let line = r#"{"step":99999,"epoch":1,"loss":1.33353,"norm":8.752,"scale":null,"skipped":false,"lr":0.000274,
            "ms":1.0,"samples_per_s":95.0,"stall_ms":0.1,"remaining_s":7260.0,"planned_peak_bytes":1234567890,
            "measured_peak_bytes":1234567890}"#;
        let step: StepEvent = serde_json::from_str(line).unwrap();
        let bar = format!("{} 99999/99999 {}", "█".repeat(12), bar_words(&step));
        let seen: String = bar.chars().take(80).collect();
        assert!(seen.contains("2 h 1 min left  1.15 GiB of 1.15 GiB  loss 1.3335"), "{seen}");
    }

    #[test]
    fn a_batch_of_what_is_left_over_is_called_so() {
        let line = r#"{"step":9,"epoch":1,"loss":1.3,"norm":8.7,"scale":null,"skipped":false,"lr":0.1,"ms":20.0,
            "samples_per_s":150.0,"stall_ms":0.1,"remaining_s":0.0,"planned_peak_bytes":1,"measured_peak_bytes":1}"#;
        let step: StepEvent = serde_json::from_str(line).unwrap();
        assert_eq!(progress(None, None).ragged(&step), "  (the epoch's last batch: 3 of 64 samples)");
        assert_eq!(progress(None, None).ragged(&StepEvent { samples_per_s: 3200.0, ..step }), "");
    }

    #[test]
    fn sample_text_cannot_break_the_screen() {
        assert_eq!(one_line("a", "b\n\x1b[31mc\u{7}"), "ab⏎[31mc");
    }

    fn started() -> Started {
        let line = r#"{"version":"1","recipe":"r","recipe_hash":"h","device":"cpu","budget_bytes":1,"planned_peak_bytes":1,
            "parameters":1,"effective_batch":128,"micro_batch":8,"accumulation":16,"precision":"bf16-mixed",
            "recompute":"layers","attention":"fused","steps":9,"steps_per_epoch":3,"train_samples":1,
            "validation_samples":0,"best_accuracy":null,"best_loss":null}"#;
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn the_start_names_batch_precision_recompute_and_attention() {
        assert_eq!(batch_line(&started()), "batch size 8 × gradient accumulation 16 = effective batch size 128");
        let facts = facts_line(&started()).unwrap();
        assert!(facts.starts_with("precision bf16-mixed, activation checkpointing: layers, fused"), "{facts}");
        assert_eq!(facts_line(&Started { precision: None, ..started() }), None);
    }

    #[test]
    fn memory_is_said_with_its_share_and_what_is_not_known_is_left_out() {
        let gib = |n: u64| Some(n << 30);
        let gpu = DeviceEvent {
            used_bytes: gib(24),
            total_bytes: gib(32),
            utilization: Some(97),
            host_used_bytes: gib(8),
            host_total_bytes: gib(64),
            ..DeviceEvent::default()
        };
        let line = memory_line(&gpu).unwrap();
        assert!(line.starts_with("GPU memory: 24 GiB / 32 GiB (75 %), GPU utilization 97 %, memory"), "{line}");
        let cpu = DeviceEvent { total_bytes: gib(64), used_bytes: gib(8), utilization: None, ..gpu };
        assert_eq!(memory_line(&cpu).unwrap(), "memory of the machine: 8 GiB / 64 GiB (12 %)");
        assert_eq!(memory_line(&DeviceEvent::default()), None);
    }

    #[test]
    fn success_is_said_only_of_a_run_that_stayed_within_its_plan() {
        let line = r#"{"end":"completed","steps":9,"epochs":3,"final":null,"best":null,"planned_peak_bytes":10,
            "measured_peak_bytes":10,"host_peak_bytes":1,"samples_per_s":1.0,"seconds":1.0}"#;
        let finished: Finished = serde_json::from_str(line).unwrap();
        assert!(success_line(&finished).contains("no out-of-memory errors"));
        assert_eq!(success_line(&Finished { measured_peak_bytes: 11, ..finished.clone() }), "");
        assert_eq!(success_line(&Finished { end: End::Interrupted, ..finished }), "");
    }

    #[test]
    fn speeds_keep_two_digits_that_say_something() {
        for (x, text) in [(4.21, "4.2"), (0.0312, "0.031"), (420.3, "420"), (0.0, "0")] {
            assert_eq!(rounded(x), text);
        }
    }
}
