//! What happened in a run, from its events: learning, time, memory.

use super::chart::{Chart, Range, Series, percent, scientific};
use super::html::Html;
use super::milliseconds;
use plimsoll_base::units::{grouped, unit_of};
use plimsoll_planner::choose::Planned;
use plimsoll_runs::{Evaluation, Event, Finished, Started, StepEvent};

/// The events of a run, put together. What a resumed run did again replaces what it had done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunStory {
    pub started: Option<Started>,
    pub steps: Vec<StepEvent>,
    pub evaluations: Vec<Evaluation>,
    pub finished: Option<Finished>,
    pub resumed: usize,
    pub checkpoints: usize,
    /// (epoch, prompt, text)
    pub samples: Vec<(usize, String, String)>,
    /// What was worth a word.
    pub notes: Vec<String>,
    /// Why it ended before its time.
    pub failures: Vec<String>,
}

impl RunStory {
    pub fn of(events: Vec<Event>) -> RunStory {
        let mut story = RunStory::default();
        for event in events {
            story.add(event);
        }
        story
    }

    fn add(&mut self, event: Event) {
        match event {
            Event::Started(started) => self.started = Some(started),
            Event::Resumed { step, .. } => {
                self.resumed += 1;
                self.finished = None;
                self.steps.retain(|s| s.step <= step);
                self.evaluations.retain(|e| e.step <= step);
            }
            Event::Step(step) => self.steps.push(step),
            Event::Evaluation(evaluation) => self.evaluations.push(evaluation),
            Event::Checkpoint { .. } => self.checkpoints += 1,
            Event::Sample { epoch, prompt, text, .. } => self.samples.push((epoch, prompt, text)),
            Event::Note { text } => self.notes.push(text),
            // What the card did meanwhile stands in the events; the page is about memory and time of the run.
            Event::Device(_) | Event::Epoch { .. } => {}
            Event::Failed(failed) => self.failures.push(failed.reason),
            Event::Finished(finished) => self.finished = Some(finished),
        }
    }

    pub fn last_step(&self) -> usize {
        self.steps.last().map_or(0, |step| step.step)
    }

    pub(crate) fn all_steps(&self) -> usize {
        self.started.as_ref().map_or(0, |started| started.steps)
    }

    pub(crate) fn measured_peak_bytes(&self) -> Option<u64> {
        let finished = self.finished.as_ref().map(|finished| finished.measured_peak_bytes);
        finished.or_else(|| self.steps.iter().map(|step| step.measured_peak_bytes).max())
    }

    /// The middle of all steps; the first ones warm up.
    pub(crate) fn median_ms(&self) -> Option<f64> {
        let mut times: Vec<f64> = self.steps.iter().map(|step| step.ms).filter(|ms| ms.is_finite()).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }

    /// Share of the time that steps waited for the loader.
    fn stall_share(&self) -> f64 {
        let (stall, all) = self.steps.iter().fold((0.0, 0.0), |(stall, all), s| (stall + s.stall_ms, all + s.ms));
        if all > 0.0 { stall / all } else { 0.0 }
    }

    fn line(&self, value: fn(&StepEvent) -> f64) -> Vec<(f64, f64)> {
        // What overflowed has no place on a line.
        self.steps.iter().map(|step| (step.step as f64, value(step))).filter(|(_, y)| y.is_finite()).collect()
    }

    fn scores(&self, value: fn(&Evaluation) -> Option<f64>) -> Vec<(f64, f64)> {
        self.evaluations.iter().filter_map(|e| Some((e.step as f64, value(e)?))).collect()
    }
}

/// Numbers of the run, beside those of its plan.
pub(super) fn tiles(run: &RunStory, planned: Option<&Planned>, page: &mut Html) {
    if let Some(ms) = run.median_ms() {
        let predicted = planned.map(|p| p.choice.predicted_step_ms).filter(|predicted| *predicted > 0.0);
        let sub = predicted.map_or(String::new(), |p| against_prediction(ms / p));
        page.tile("measured step", &milliseconds(ms), &sub);
    }
    let speed = run.finished.as_ref().map(|f| f.samples_per_s).or_else(|| run.steps.last().map(|s| s.samples_per_s));
    if let Some(speed) = speed {
        page.tile(
            "samples per second",
            &format!("{speed:.0}"),
            &format!("{:.1} % waiting for data", 100.0 * run.stall_share()),
        );
    }
    if let Some(best) = run.finished.as_ref().and_then(|f| f.best.as_ref()) {
        page.tile("best", &best_words(best.scores.accuracy, best.scores.loss), &format!("at step {}", best.step));
    }
    let sub = match run.resumed {
        0 => format!("{} checkpoints", run.checkpoints),
        n => format!("{} checkpoints, resumed {n} times", run.checkpoints),
    };
    page.tile("steps", &format!("{} / {}", grouped(run.last_step()), grouped(run.all_steps())), &sub);
}

/// A ratio as people say it: in percent where it is near, in times where it is far.
fn against_prediction(ratio: f64) -> String {
    match (0.5..2.0).contains(&ratio) {
        true => format!("{:+.0} % against predicted", 100.0 * (ratio - 1.0)),
        false => format!("{ratio:.1} × the prediction"),
    }
}

fn best_words(accuracy: Option<f64>, loss: f64) -> String {
    accuracy.map_or(format!("loss {loss:.4}"), |a| format!("{:.1} %", 100.0 * a))
}

pub(super) fn sections(run: &RunStory, planned: Option<&Planned>, page: &mut Html) {
    page.raw("<div class=\"columns\">");
    learning(run, page);
    metric(run, page);
    optimizer(run, page);
    time(run, planned, page);
    memory(run, page);
    page.raw("</div>");
    if let Some((epoch, prompt, text)) = run.samples.last() {
        page.section("Written by the model", &format!("after epoch {epoch}")).raw("<blockquote><b>").text(prompt);
        page.raw("</b>").text(text).raw("</blockquote>").end_section();
    }
    for (class, words) in [("note", &run.failures), ("told", &run.notes)] {
        for word in words {
            page.raw(&format!("<p class=\"{class}\">")).text(word).raw("</p>");
        }
    }
}

/// A section of its own, unless there is nothing to draw.
fn chart(page: &mut Html, title: &str, sub: &str, chart: &Chart<'_>) {
    if let Some(svg) = chart.svg() {
        page.section(title, sub).raw(&svg).end_section();
    }
}

fn learning(run: &RunStory, page: &mut Html) {
    let raw = run.line(|step| step.loss);
    let series = [
        Series { name: "", class: "loss pale", points: raw.clone(), dots: false },
        Series { name: "training, smoothed", class: "loss", points: smoothed(&raw), dots: false },
        Series { name: "validation", class: "valid", points: run.scores(|e| Some(e.scores.loss)), dots: true },
    ];
    let best = run.started.as_ref().and_then(|s| s.best_loss).map(|x| format!("best possible {x:.4}"));
    chart(page, "Loss", &best.unwrap_or_default(), &Chart { series: &series, ..Chart::default() });
}

/// What the optimizer was told and what it met.
fn optimizer(run: &RunStory, page: &mut Html) {
    let line = |class, points| [Series { name: "", class, points, dots: false }];
    let (rates, norms) = (line("valid", run.line(|step| step.lr)), line("time", run.line(|step| step.norm)));
    let axis = Chart { y_text: scientific, from_zero: true, ..Chart::default() };
    chart(page, "Learning rate", "", &Chart { series: &rates, ..axis });
    chart(
        page,
        "Norm of the gradients",
        "before it is cut",
        &Chart { series: &norms, from_zero: true, ..Chart::default() },
    );
}

/// The first score that the task has.
fn metric(run: &RunStory, page: &mut Html) {
    type Score = fn(&Evaluation) -> Option<f64>;
    let known: [(&str, Score); 4] = [
        ("Accuracy", |e| e.scores.accuracy),
        ("F1", |e| e.scores.f1),
        ("Correlation", |e| e.scores.pearson),
        ("Correlation of ranks", |e| e.scores.spearman),
    ];
    let found = known.iter().map(|(name, score)| (*name, run.scores(*score))).find(|(_, points)| !points.is_empty());
    let Some((name, points)) = found else { return };
    let series = [
        Series { name: "", class: "valid", points: points.clone(), dots: false },
        Series { name: "validation", class: "valid", points, dots: true },
    ];
    let best = run.started.as_ref().and_then(|s| s.best_accuracy).map(|x| format!("best possible {:.1} %", 100.0 * x));
    chart(
        page,
        name,
        &best.unwrap_or_default(),
        &match name {
            "Accuracy" | "F1" => Chart { series: &series, y_text: percent, within: SHARE, ..Chart::default() },
            _ => Chart { series: &series, ..Chart::default() },
        },
    );
}

const SHARE: Option<Range> = Some(Range { low: 0.0, high: 1.0 });

fn time(run: &RunStory, planned: Option<&Planned>, page: &mut Html) {
    let measured = run.line(|step| step.ms);
    let ends = [measured.first(), measured.last()].into_iter().flatten().map(|p| p.0);
    let predicted = planned.map(|p| p.choice.predicted_step_ms).filter(|ms| *ms > 0.0);
    let level = predicted.map_or(Vec::new(), |ms| ends.map(|x| (x, ms)).collect());
    let series = [
        Series { name: "measured", class: "time", points: measured, dots: false },
        Series { name: "predicted", class: "limit dashed", points: level, dots: false },
        Series { name: "waiting for data", class: "stall", points: run.line(|step| step.stall_ms), dots: false },
    ];
    chart(
        page,
        "Time per step",
        "",
        &Chart { series: &series, y_text: milliseconds, from_zero: true, ..Chart::default() },
    );
}

fn memory(run: &RunStory, page: &mut Html) {
    let most = run.steps.iter().map(|s| s.measured_peak_bytes.max(s.planned_peak_bytes)).max().unwrap_or(0);
    let (unit, name) = unit_of(most as f64);
    let line =
        |bytes: fn(&StepEvent) -> u64| run.steps.iter().map(|s| (s.step as f64, bytes(s) as f64 / unit)).collect();
    let series = [
        Series { name: "measured peak", class: "weights", points: line(|s| s.measured_peak_bytes), dots: false },
        Series { name: "planned peak", class: "limit dashed", points: line(|s| s.planned_peak_bytes), dots: false },
    ];
    let sub = format!("planned and measured peak, {name}");
    chart(page, "Memory", &sub, &Chart { series: &series, from_zero: true, ..Chart::default() });
}

/// An exponential mean over about a fiftieth of the run.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let keep = 1.0 - 1.0 / (points.len() as f64 / 50.0).max(1.0);
    let mut mean = None;
    let finite = points.iter().filter(|(_, y)| y.is_finite());
    finite
        .map(|&(x, y)| {
            let next = mean.map_or(y, |m: f64| keep * m + (1.0 - keep) * y);
            mean = Some(next);
            (x, next)
        })
        .collect()
}
