//! One self-contained page about a study: what it found, what decides, and how trials shared the memory.

use std::fmt::Write;

use plimsoll::page::{Chart, Html, Series, document, plain};
use plimsoll::{format_bytes, format_seconds};

use super::text::shown;
use super::{Plain, StudyReport, TrialReport};
use crate::attributes as name;
use crate::order;

impl StudyReport {
    /// The page as HTML; no request leaves it.
    pub fn html(&self) -> String {
        let mut page = Html::new();
        self.header(&mut page);
        self.tiles(&mut page);
        page.raw("<div class=\"columns\">");
        self.history(&mut page);
        self.curves(&mut page);
        self.importance_bars(&mut page);
        self.front(&mut page);
        page.raw("</div>");
        self.coordinates(&mut page);
        self.packing(&mut page);
        self.trial_table(&mut page);
        document(&self.study, &page.finish())
    }

    fn header(&self, page: &mut Html) {
        let objectives: Vec<String> =
            self.directions.iter().zip(&self.objectives).map(|(way, name)| format!("{way} {name}")).collect();
        page.raw("<header><div><h1>").text(&self.study).raw("</h1><p class=\"sub\">");
        page.text(&format!("{}; {}", objectives.join(", "), self.storage)).raw("</p></div>");
        let failed = self.trials.iter().filter(|trial| trial.has_failed()).count();
        let (class, words) = match failed {
            0 => ("good", format!("{} trials, none failed", self.trials.len())),
            _ => ("warn", format!("{} trials, {failed} failed", self.trials.len())),
        };
        page.raw("<span class=\"badge ").raw(class).raw("\">").text(&words).raw("</span></header>");
    }

    fn tiles(&self, page: &mut Html) {
        page.raw("<div class=\"tiles\">");
        if let Some(best) = self.best.first().and_then(|number| self.trial(*number)) {
            let objective = self.objectives.first().map_or("value", String::as_str);
            let shown = self.shown_value(best, 0).unwrap_or("-".into());
            page.tile(&format!("best {objective}"), &shown, &format!("trial {}", best.number));
        }
        for (state, count) in &self.counts {
            page.tile(state, &count.to_string(), "trials");
        }
        page.tile("time", &format_seconds(self.seconds), "from the first start to the last end");
        let peak = self.trials.iter().filter_map(|trial| trial.number_attr(name::PEAK_MEMORY_GB)).fold(0.0, f64::max);
        page.tile("largest trial", &format_bytes((peak * 1e9) as u64), "planned peak");
        page.raw("</div>");
    }

    /// Values by trial, and the best so far.
    fn history(&self, page: &mut Html) {
        let values: Vec<(f64, f64)> =
            self.complete().filter_map(|t| Some((t.number as f64, first_value(t)?))).collect();
        let mut best: Vec<(f64, f64)> = Vec::new();
        for (number, value) in &values {
            let before = best.last().map_or(*value, |last| last.1);
            best.push((*number, if self.is_better(*value, before) { *value } else { before }));
        }
        let series = [
            Series { name: "trials", class: "loss", points: values, dots: true },
            Series { name: "best so far", class: "valid", points: best, dots: false },
        ];
        let chart = Chart { series: &series, x_name: "trial", ..Chart::default() };
        section(page, "History", "the first objective of every complete trial", chart.svg());
    }

    /// What trials reported on the way; those that were laid aside end early.
    fn curves(&self, page: &mut Html) {
        let line = |trial: &TrialReport, class: &'static str| Series {
            name: "",
            class,
            points: trial.intermediate.iter().map(|(step, value)| (*step as f64, *value)).collect(),
            dots: false,
        };
        let others = self.trials.iter().filter(|trial| !self.best.contains(&trial.number)).take(MOST_LINES);
        let mut series: Vec<Series> = others.map(|trial| line(trial, "loss pale")).collect();
        let best = self.best.first().and_then(|number| self.trial(*number));
        series.extend(best.map(|trial| line(trial, "valid")));
        let chart = Chart { series: &series, x_name: "evaluation", ..Chart::default() };
        section(page, "Curves", "evaluations of every trial; the best one stands out", chart.svg());
    }

    fn importance_bars(&self, page: &mut Html) {
        if self.importances.is_empty() {
            return;
        }
        let mut sorted: Vec<(&String, &f64)> = self.importances.iter().collect();
        order::sort_by(&mut sorted, |a, b| b.1.total_cmp(a.1));
        page.section("What decides", "importance of each parameter for the first objective (PED-ANOVA)").raw("<table>");
        for (name, share) in sorted {
            let percent = 100.0 * share;
            page.raw("<tr><td class=\"name\">").text(name).raw("</td><td class=\"bar\">");
            page.raw(&format!(
                "<i class=\"layer\" style=\"width:{percent:.1}%\"></i><span>{percent:.0} %</span></td></tr>"
            ));
        }
        page.raw("</table>").end_section();
    }

    /// Two objectives against each other.
    fn front(&self, page: &mut Html) {
        if self.objectives.len() < 2 {
            return;
        }
        let point = |trial: &TrialReport| {
            let values = trial.values.as_deref()?;
            Some((*values.get(1)?, *values.first()?))
        };
        let (front, behind): (Vec<&TrialReport>, Vec<&TrialReport>) =
            self.complete().partition(|trial| self.best.contains(&trial.number));
        let points = |trials: Vec<&TrialReport>| trials.into_iter().filter_map(point).collect();
        let series = [
            Series { name: "trials", class: "loss", points: points(behind), dots: true },
            Series { name: "none is better in both", class: "valid", points: points(front), dots: true },
        ];
        let chart = Chart { series: &series, x_name: &self.objectives[1], ..Chart::default() };
        let title = format!("{} against {}", self.objectives[0], self.objectives[1]);
        section(page, &title, "up to the Pareto front", chart.svg());
    }

    /// A vertical line per parameter, a thread per trial, darker the better it is.
    fn coordinates(&self, page: &mut Html) {
        let trials: Vec<&TrialReport> = self.complete().collect();
        let mut axes: Vec<String> = Vec::new();
        for name in trials.iter().flat_map(|trial| trial.params.keys()) {
            if !axes.contains(name) {
                axes.push(name.clone());
            }
        }
        axes.truncate(MOST_AXES);
        if axes.is_empty() || trials.len() < 2 {
            return;
        }
        let mut svg = format!("<svg viewBox=\"0 0 {WIDE} {TALL}\" role=\"img\">");
        let scales: Vec<Axis> = axes.iter().map(|name| Axis::of(name, &trials)).collect();
        let last = Axis::of_values(&self.objectives[0], &trials);
        let x = |index: usize| 80.0 + (WIDE - 160.0) * index as f64 / axes.len() as f64;
        let mut ranked = trials.clone();
        // The best are drawn last, on top.
        order::sort_by(&mut ranked, |a, b| self.loss(b).total_cmp(&self.loss(a)));
        let count = ranked.len().max(2) as f64;
        for (place, trial) in ranked.iter().enumerate() {
            let at = |(index, axis): (usize, &Axis)| Some(format!("{:.1} {:.1}", x(index), axis.place(trial)?));
            let path: Vec<String> = scales.iter().chain([&last]).enumerate().filter_map(at).collect();
            let strength = 0.08 + 0.8 * (place as f64 / (count - 1.0)).powi(3);
            let class = if self.best.contains(&trial.number) { "valid" } else { "loss" };
            // Writing to a string cannot fail.
            let _ =
                write!(svg, "<path class=\"line {class}\" style=\"opacity:{strength:.2}\" d=\"M{}\"/>", path.join("L"));
        }
        scales.iter().chain([&last]).enumerate().for_each(|(index, axis)| axis.draw(&mut svg, x(index)));
        svg.push_str("</svg>");
        section(page, "Parallel coordinates", "every complete trial; the darker, the better", Some(svg));
    }

    /// Which trial had how much of the memory, when.
    fn packing(&self, page: &mut Html) {
        let mut bars: Vec<(f64, f64, f64, u64)> = Vec::new();
        for trial in &self.trials {
            let same = trial.user_attrs.contains_key(name::SAME_AS);
            if let (Some((from, to)), Some(gb), false) = (trial.span, trial.number_attr(name::PEAK_MEMORY_GB), same) {
                bars.push((from, to, gb * 1e9, trial.number));
            }
        }
        let Some(start) = bars.iter().map(|bar| bar.0).reduce(f64::min) else { return };
        let end = bars.iter().map(|bar| bar.1).fold(start, f64::max);
        let placed = stacked(bars);
        let top = placed.iter().map(|(bar, base)| base + bar.2).fold(0.0, f64::max);
        let budget = self.user_attrs.get("budget_bytes").and_then(Plain::as_f64).unwrap_or(top);
        let (scale, span) = (budget.min(top * 1.25).max(top), (end - start).max(1e-6));
        let x = |at: f64| 96.0 + (WIDE - 116.0) * (at - start) / span;
        let y = |bytes: f64| TALL - 30.0 - (TALL - 50.0) * bytes / scale.max(1.0);
        let mut svg = format!("<svg viewBox=\"0 0 {WIDE} {TALL}\" role=\"img\">");
        for ((from, to, bytes, number), base) in &placed {
            let (left, width) = (x(*from), (x(*to) - x(*from)).max(0.6));
            let (up, height) = (y(base + bytes), (y(*base) - y(base + bytes)).max(0.5));
            let class = COLOURS[*number as usize % COLOURS.len()];
            let _ = write!(
                svg,
                "<rect class=\"fill {class}\" style=\"opacity:.75\" x=\"{left:.1}\" y=\"{up:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
                 <title>trial {number}: {}</title></rect>",
                format_bytes(*bytes as u64)
            );
        }
        for share in [0.0, 0.5, 1.0] {
            let at = y(scale * share);
            let text = format_bytes((scale * share) as u64);
            let _ =
                write!(svg, "<line class=\"grid\" x1=\"96\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>", WIDE - 20.0);
            let _ = write!(svg, "<text class=\"end\" x=\"88\" y=\"{:.1}\">{text}</text>", at + 4.0);
        }
        let _ = write!(
            svg,
            "<text class=\"end faint\" x=\"{}\" y=\"{}\">{}</text>",
            WIDE - 20.0,
            TALL - 8.0,
            format_seconds(span)
        );
        svg.push_str("</svg>");
        let sub = format!(
            "planned bytes of trials side by side over time; the study may take {}",
            format_bytes(budget as u64)
        );
        section(page, "Memory packing", &sub, Some(svg));
    }

    fn trial_table(&self, page: &mut Html) {
        page.section("Trials", "").raw("<table><thead><tr><th class=\"n\">trial</th><th>state</th>");
        for objective in &self.objectives {
            page.raw("<th class=\"n\">").text(objective).raw("</th>");
        }
        page.raw("<th>parameters</th><th class=\"n\">planned</th><th class=\"n\">measured</th><th class=\"n\">time</th><th>why</th></tr></thead><tbody>");
        for trial in &self.trials {
            self.trial_row(trial, page);
        }
        page.raw("</tbody></table>").end_section();
    }

    fn trial_row(&self, trial: &TrialReport, page: &mut Html) {
        page.raw("<tr><td class=\"n\">")
            .text(&trial.number.to_string())
            .raw("</td><td>")
            .text(trial.state)
            .raw("</td>");
        for index in 0..self.objectives.len() {
            let value = self.shown_value(trial, index);
            page.raw("<td class=\"n\">").text(value.as_deref().unwrap_or("-")).raw("</td>");
        }
        let params: Vec<String> = trial.params.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
        page.raw("<td class=\"name\">").text(&params.join(" ")).raw("</td>");
        for key in [name::PEAK_MEMORY_GB, name::MEASURED_PEAK_MEMORY_GB] {
            let bytes = trial.number_attr(key).map_or("-".into(), |gb| format_bytes((gb * 1e9) as u64));
            page.raw("<td class=\"n\">").text(&bytes).raw("</td>");
        }
        let seconds = trial.number_attr(name::SECONDS).or(trial.seconds).map_or("-".into(), format_seconds);
        page.raw("<td class=\"n\">").text(&seconds).raw("</td><td>").text(&trial.why()).raw("</td></tr>");
    }

    fn complete(&self) -> impl Iterator<Item = &TrialReport> {
        self.trials.iter().filter(|trial| trial.is_complete())
    }

    fn is_better(&self, value: f64, other: f64) -> bool {
        if self.directions.first() == Some(&"maximize") { value > other } else { value < other }
    }

    fn loss(&self, trial: &TrialReport) -> f64 {
        let value = first_value(trial).unwrap_or(f64::INFINITY);
        if self.directions.first() == Some(&"maximize") { -value } else { value }
    }
}

const MOST_LINES: usize = 200;
const MOST_AXES: usize = 10;
const WIDE: f64 = 1120.0;
const TALL: f64 = 300.0;
const COLOURS: [&str; 7] = ["weights", "optimizer", "gradients", "activations", "scores", "workspace", "inputs"];

fn first_value(trial: &TrialReport) -> Option<f64> {
    trial.values.as_ref()?.first().copied().filter(|value| value.is_finite())
}

fn section(page: &mut Html, title: &str, sub: &str, svg: Option<String>) {
    if let Some(svg) = svg {
        page.section(title, sub).raw(&svg).end_section();
    }
}

/// Puts bars that overlap in time on top of each other, each at the lowest place that is free.
fn stacked(mut bars: Vec<(f64, f64, f64, u64)>) -> Vec<((f64, f64, f64, u64), f64)> {
    order::sort_by(&mut bars, |a, b| a.0.total_cmp(&b.0));
    let mut placed: Vec<((f64, f64, f64, u64), f64)> = Vec::new();
    for bar in bars {
        let mut beside: Vec<(f64, f64)> =
            placed.iter().filter(|(other, _)| other.1 > bar.0).map(|(other, base)| (*base, base + other.2)).collect();
        order::sort_by(&mut beside, |a, b| a.0.total_cmp(&b.0));
        let mut base = 0.0;
        for (from, to) in beside {
            if from >= base + bar.2 {
                break;
            }
            base = base.max(to);
        }
        placed.push((bar, base));
    }
    placed
}

/// A vertical line of the parallel coordinates.
struct Axis {
    name: String,
    /// Labels of choices in order; empty where values are numbers.
    labels: Vec<String>,
    low: f64,
    high: f64,
    log: bool,
    of_value: bool,
}

impl Axis {
    fn of(name: &str, trials: &[&TrialReport]) -> Axis {
        let values: Vec<&Plain> = trials.iter().filter_map(|trial| trial.params.get(name)).collect();
        if values.iter().all(|value| value.is_number()) {
            return Axis::of_numbers(name, values.iter().filter_map(|value| value.as_f64()), false);
        }
        let mut labels: Vec<String> = Vec::new();
        for label in values.iter().map(|value| shown(value)) {
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        let high = (labels.len() - 1).max(1) as f64;
        Axis { name: name.into(), labels, low: 0.0, high, log: false, of_value: false }
    }

    fn of_values(name: &str, trials: &[&TrialReport]) -> Axis {
        let values: Vec<f64> = trials.iter().filter_map(|trial| first_value(trial)).collect();
        Axis { of_value: true, ..Axis::of_numbers(name, values.into_iter(), true) }
    }

    fn of_numbers(name: &str, values: impl Iterator<Item = f64>, linear: bool) -> Axis {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        // Ranges over more than two powers of ten were drawn logarithmically, as a rule.
        let log = !linear && low > 0.0 && high / low > 100.0;
        Axis { name: name.into(), labels: Vec::new(), low, high, log, of_value: false }
    }

    fn place(&self, trial: &TrialReport) -> Option<f64> {
        let value = match (self.of_value, self.labels.is_empty()) {
            (true, _) => first_value(trial)?,
            (false, true) => trial.params.get(&self.name)?.as_f64()?,
            (false, false) => {
                let label = shown(trial.params.get(&self.name)?);
                self.labels.iter().position(|known| *known == label)? as f64
            }
        };
        let share = match (self.log, self.high > self.low) {
            (_, false) => 0.5,
            (true, _) => (value / self.low).ln() / (self.high / self.low).ln(),
            (false, _) => (value - self.low) / (self.high - self.low),
        };
        Some(TALL - 40.0 - (TALL - 80.0) * share)
    }

    fn draw(&self, svg: &mut String, x: f64) {
        let (top, bottom) = (40.0, TALL - 40.0);
        let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = write!(svg, "<line class=\"arena\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>");
        // Side by side there is no room for whole keys.
        let (name, last) = (escaped(&self.name), escaped(self.name.rsplit('.').next().unwrap_or(&self.name)));
        let _ = write!(svg, "<text class=\"mid strong halo\" x=\"{x:.1}\" y=\"20\">{last}<title>{name}</title></text>");
        let ends: Vec<(f64, String)> = match self.labels.len() {
            0 => vec![(bottom, short(self.low)), (top, short(self.high))],
            1 => vec![((top + bottom) / 2.0, self.labels[0].clone())],
            count => {
                let y = |index: usize| bottom - (bottom - top) * index as f64 / (count - 1) as f64;
                self.labels.iter().enumerate().map(|(index, label)| (y(index), label.clone())).collect()
            }
        };
        for (y, label) in ends {
            let _ =
                write!(svg, "<text class=\"mid halo\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>", y + 4.0, escaped(&label));
        }
    }
}

fn short(value: f64) -> String {
    if value != 0.0 && (value.abs() < 1e-3 || value.abs() >= 1e6) {
        format!("{value:.1e}")
    } else {
        plain((value * 1e4).round() / 1e4)
    }
}
