//! Runs as OpenMetrics text: what Prometheus scrapes at `/metrics`.

use crate::facts::{DURATIONS, RunFacts, RunState};
use std::fmt::Write;

/// What the text is served as.
pub const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A run by the name that its series have.
pub struct Exposed<'a> {
    pub run: &'a str,
    pub facts: &'a RunFacts,
    /// Bytes of the plan by component, where they are known.
    pub components: &'a [(String, u64)],
}

/// The text of all runs. `jobs`: how many wait, run and so on, for `plimsoll_queue_jobs`.
pub fn openmetrics(runs: &[Exposed<'_>], jobs: &[(&str, u64)]) -> String {
    let mut text = Text::default();
    text.family("plimsoll_build", "info", "What serves this.");
    text.sample("plimsoll_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    text.run_info(runs);
    text.states(runs);
    for (name, kind, help, value) in SERIES {
        text.series(name, kind, help, runs, value);
    }
    text.durations(runs);
    text.components(runs);
    text.jobs(jobs);
    text.0 += "# EOF\n";
    text.0
}

type Value = fn(&RunFacts) -> Option<f64>;

/// Name, type, help, and the value where a run has one. A counter's samples end in `_total`.
const SERIES: [(&str, &str, &str, Value); 26] = [
    ("plimsoll_steps", "counter", "Updates done.", |f| Some(f.step.as_ref()?.step as f64)),
    ("plimsoll_samples", "counter", "Samples trained on.", |f| f.step.is_some().then_some(f.samples)),
    ("plimsoll_tokens", "counter", "Tokens trained on, without padding.", |f| f.tokens),
    ("plimsoll_data_stall_seconds", "counter", "Time that steps waited for data.", |f| {
        f.step.is_some().then_some(f.stall_s)
    }),
    ("plimsoll_run_steps", "gauge", "Updates of the whole run.", |f| Some(f.started.as_ref()?.steps as f64)),
    ("plimsoll_run_parameters", "gauge", "Parameters of the model.", |f| Some(f.started.as_ref()?.parameters as f64)),
    ("plimsoll_train_loss", "gauge", "Loss of the last step.", |f| Some(f.step.as_ref()?.loss)),
    ("plimsoll_gradient_norm", "gauge", "Norm of all gradients at the last step.", |f| Some(f.step.as_ref()?.norm)),
    ("plimsoll_learning_rate", "gauge", "Learning rate of the last step.", |f| Some(f.step.as_ref()?.lr)),
    ("plimsoll_epoch", "gauge", "Epoch of the last step, from 0.", |f| Some(f.step.as_ref()?.epoch as f64)),
    ("plimsoll_samples_per_second", "gauge", "Training speed of the last step.", |f| {
        Some(f.step.as_ref()?.samples_per_s)
    }),
    ("plimsoll_tokens_per_second", "gauge", "Training speed of the last step in tokens.", |f| {
        f.step.as_ref()?.tokens_per_s
    }),
    ("plimsoll_data_samples_per_second", "gauge", "What the loader can deliver.", |f| {
        f.step.as_ref()?.data_samples_per_s
    }),
    ("plimsoll_memory_budget_bytes", "gauge", "The most that the run may take of the device.", |f| {
        Some(f.started.as_ref()?.budget_bytes as f64)
    }),
    ("plimsoll_memory_measured_bytes", "gauge", "Measured peak on the device.", |f| {
        Some(f.step.as_ref()?.measured_peak_bytes as f64)
    }),
    ("plimsoll_device_memory_used_bytes", "gauge", "Memory of the device in use, by anybody.", |f| {
        Some(f.device.as_ref()?.used_bytes? as f64)
    }),
    ("plimsoll_device_memory_total_bytes", "gauge", "Memory of the device.", |f| {
        Some(f.device.as_ref()?.total_bytes? as f64)
    }),
    ("plimsoll_host_memory_used_bytes", "gauge", "Memory of the machine in use, by anybody.", |f| {
        Some(f.device.as_ref()?.host_used_bytes? as f64)
    }),
    ("plimsoll_process_resident_bytes", "gauge", "Memory that the training process holds.", |f| {
        Some(f.device.as_ref()?.process_bytes? as f64)
    }),
    ("plimsoll_gpu_utilization_ratio", "gauge", "Part of the last moments in which the GPU was at work.", |f| {
        Some(f64::from(f.device.as_ref()?.utilization?) / 100.0)
    }),
    ("plimsoll_gpu_power_watts", "gauge", "Power that the GPU takes.", |f| f.device.as_ref()?.watts),
    ("plimsoll_gpu_temperature_celsius", "gauge", "Temperature of the GPU.", |f| {
        Some(f64::from(f.device.as_ref()?.celsius?))
    }),
    ("plimsoll_eval_loss", "gauge", "Loss of the last evaluation.", |f| Some(f.evaluation.as_ref()?.scores.loss)),
    ("plimsoll_eval_accuracy_ratio", "gauge", "Accuracy of the last evaluation.", |f| {
        f.evaluation.as_ref()?.scores.accuracy
    }),
    ("plimsoll_last_checkpoint_timestamp_seconds", "gauge", "When the last checkpoint was written.", |f| {
        f.last_checkpoint
    }),
    ("plimsoll_expected_end_timestamp_seconds", "gauge", "When the run is expected to end.", RunFacts::expected_end),
];

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
        // A name that ends in a unit has to say so.
        if let Some(unit) = ["bytes", "seconds", "ratio", "celsius", "watts"].iter().find(|unit| name.ends_with(*unit))
        {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {}", number(value));
    }

    fn series(&mut self, name: &str, kind: &str, help: &str, runs: &[Exposed<'_>], value: Value) {
        self.family(name, kind, help);
        let sample = if kind == "counter" { format!("{name}_total") } else { name.into() };
        for run in runs {
            if let Some(value) = value(run.facts) {
                self.sample(&sample, &[("run", run.run)], value);
            }
        }
    }

    fn run_info(&mut self, runs: &[Exposed<'_>]) {
        self.family("plimsoll_run", "info", "What a run trains, and on what.");
        for run in runs {
            let Some(started) = &run.facts.started else { continue };
            let words = |text: &Option<String>| text.clone().unwrap_or_default();
            let (family, precision) = (words(&started.family), words(&started.precision));
            let labels =
                [("run", run.run), ("family", &family), ("device", &started.device), ("precision", &precision)];
            self.sample("plimsoll_run_info", &labels, 1.0);
        }
    }

    fn states(&mut self, runs: &[Exposed<'_>]) {
        self.family("plimsoll_run_state", "stateset", "How a run stands.");
        for run in runs {
            for state in RunState::ALL {
                let labels = [("run", run.run), ("plimsoll_run_state", state.name())];
                self.sample("plimsoll_run_state", &labels, f64::from(u8::from(run.facts.state == state)));
            }
        }
    }

    fn durations(&mut self, runs: &[Exposed<'_>]) {
        self.family("plimsoll_step_duration_seconds", "histogram", "How long steps took.");
        for run in runs.iter().filter(|run| run.facts.step.is_some()) {
            let mut below = 0;
            for (count, end) in run.facts.durations.iter().zip(DURATIONS.map(Some).into_iter().chain([None])) {
                below += count;
                let end = end.map_or("+Inf".into(), number);
                let labels = [("run", run.run), ("le", &end)];
                self.sample("plimsoll_step_duration_seconds_bucket", &labels, below as f64);
            }
            self.sample("plimsoll_step_duration_seconds_count", &[("run", run.run)], below as f64);
            self.sample("plimsoll_step_duration_seconds_sum", &[("run", run.run)], run.facts.duration_s);
        }
    }

    /// By component where the plan is known, and what all of it comes to.
    fn components(&mut self, runs: &[Exposed<'_>]) {
        self.family("plimsoll_memory_planned_bytes", "gauge", "Planned peak on the device.");
        for run in runs {
            for (component, bytes) in run.components {
                let labels = [("run", run.run), ("component", component)];
                self.sample("plimsoll_memory_planned_bytes", &labels, *bytes as f64);
            }
            if let Some(started) = run.facts.started.as_ref().filter(|_| run.components.is_empty()) {
                let labels = [("run", run.run), ("component", "all")];
                self.sample("plimsoll_memory_planned_bytes", &labels, started.planned_peak_bytes as f64);
            }
        }
    }

    fn jobs(&mut self, jobs: &[(&str, u64)]) {
        if !jobs.is_empty() {
            self.family("plimsoll_queue_jobs", "gauge", "Jobs of the queue.");
            jobs.iter()
                .for_each(|(state, count)| self.sample("plimsoll_queue_jobs", &[("state", state)], *count as f64));
        }
    }
}

fn number(value: f64) -> String {
    match value {
        x if x.is_nan() => "NaN".into(),
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        x => format!("{x:?}"),
    }
}

/// A run may be called anything.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::step;

    #[test]
    fn samples_stand_under_their_family_and_names_are_escaped() {
        let mut facts = RunFacts::default();
        (1..=3).for_each(|n| facts.add(&step(n, n as f64)));
        let text = openmetrics(&[Exposed { run: "a\"b\\c\nd", facts: &facts, components: &[] }], &[("waiting", 2)]);
        assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
        assert!(text.contains("plimsoll_steps_total{run=\"a\\\"b\\\\c\\nd\"} 3.0\n"), "{text}");
        assert!(text.contains("plimsoll_gradient_norm{run=\"a\\\"b\\\\c\\nd\"} NaN\n"));
        assert!(text.contains("le=\"+Inf\"} 3.0\n") && text.contains("plimsoll_queue_jobs{state=\"waiting\"} 2.0\n"));
        assert!(!text.contains("plimsoll_gpu_power_watts{"), "what is not known has no sample");
        let families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let mut names: Vec<&str> = families.iter().filter_map(|line| line.split(' ').next()).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "a family stands once");
    }

    #[test]
    fn no_runs_are_a_text_too() {
        assert!(openmetrics(&[], &[]).contains("plimsoll_build_info{version="));
    }
}
