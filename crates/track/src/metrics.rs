//! Events as named numbers: what every tracker draws.

use plimsoll_runs::{DeviceEvent, Evaluation, Event, Scores, StepEvent, Timed};

/// One number at one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// `train`, `eval`, `speed`, `memory` or `system`.
    pub group: &'static str,
    pub name: &'static str,
    pub value: f64,
    pub step: usize,
    /// Seconds since 1970; 0 in logs of the first versions.
    pub time: f64,
}

impl Metric {
    /// `train/loss`
    pub fn tag(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }
}

/// The numbers of an event; none for those that are words.
pub fn metrics_of(timed: &Timed) -> Vec<Metric> {
    let time = timed.time.unwrap_or(0.0);
    let (step, values) = match &timed.event {
        Event::Step(step) => (step.step, of_step(step)),
        Event::Evaluation(evaluation) => (evaluation.step, of_evaluation(evaluation)),
        Event::Device(device) => (device.step, of_device(device)),
        _ => return Vec::new(),
    };
    let metric = |(group, name, value): (&'static str, &'static str, Option<f64>)| {
        value.map(|value| Metric { group, name, value, step, time })
    };
    values.into_iter().filter_map(metric).collect()
}

type Values = Vec<(&'static str, &'static str, Option<f64>)>;

fn of_step(step: &StepEvent) -> Values {
    vec![
        ("train", "loss", Some(step.loss)),
        ("train", "gradient_norm", Some(step.norm)),
        ("train", "learning_rate", Some(step.lr)),
        ("train", "epoch", Some(step.epoch as f64)),
        ("train", "loss_scale", step.scale),
        ("speed", "samples_per_s", Some(step.samples_per_s)),
        ("speed", "tokens_per_s", step.tokens_per_s),
        ("speed", "data_samples_per_s", step.data_samples_per_s),
        ("speed", "step_ms", Some(step.ms)),
        ("speed", "stall_ms", Some(step.stall_ms)),
        ("memory", "measured_peak_bytes", Some(step.measured_peak_bytes as f64)),
    ]
}

fn of_evaluation(evaluation: &Evaluation) -> Values {
    let scores: Scores = evaluation.scores;
    vec![
        ("eval", "loss", Some(scores.loss)),
        ("eval", "accuracy", scores.accuracy),
        ("eval", "f1", scores.f1),
        ("eval", "pearson", scores.pearson),
        ("eval", "spearman", scores.spearman),
        ("eval", "seconds", Some(evaluation.ms / 1e3)),
    ]
}

fn of_device(device: &DeviceEvent) -> Values {
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    vec![
        ("memory", "device_used_bytes", bytes(device.used_bytes)),
        ("memory", "device_total_bytes", bytes(device.total_bytes)),
        ("memory", "host_used_bytes", bytes(device.host_used_bytes)),
        ("memory", "host_total_bytes", bytes(device.host_total_bytes)),
        ("memory", "process_bytes", bytes(device.process_bytes)),
        ("system", "disk_free_bytes", bytes(device.disk_free_bytes)),
        ("system", "gpu_utilization_percent", device.utilization.map(f64::from)),
        ("system", "gpu_watts", device.watts),
        ("system", "gpu_celsius", device.celsius.map(f64::from)),
    ]
}

/// Passes on every `every`-th step or, where that is `None`, as many as a curve needs: none closer than a quarter of a
/// second to the last. First steps, and everything that is not a step, always pass.
pub(crate) struct Thinning {
    every: Option<usize>,
    last: Option<(usize, f64)>,
}

const CLOSEST_S: f64 = 0.25;

impl Thinning {
    pub(crate) fn new(every: Option<usize>) -> Thinning {
        Thinning { every, last: None }
    }

    pub(crate) fn passes(&mut self, timed: &Timed) -> bool {
        let Event::Step(step) = &timed.event else { return true };
        let time = timed.time.unwrap_or(0.0);
        let due = match (self.every, self.last) {
            (_, None) => true,
            (Some(every), _) => step.step.is_multiple_of(every.max(1)),
            // A resumed run begins before the last step that was seen.
            (None, Some((last_step, last))) => time - last >= CLOSEST_S || step.step <= last_step,
        };
        if due {
            self.last = Some((step.step, time));
        }
        due
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn step(number: usize, time: f64) -> Timed {
        let line = format!(
            r#"{{"time":{time},"event":"step","step":{number},"epoch":0,"loss":0.5,"norm":null,"lr":0.001,"ms":2.0,
            "samples_per_s":100.0,"stall_ms":0.0,"remaining_s":1.0,"planned_peak_bytes":10,"measured_peak_bytes":10}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn what_an_event_does_not_know_is_no_metric() {
        let names: Vec<String> = metrics_of(&step(3, 1.0)).iter().map(Metric::tag).collect();
        assert!(names.contains(&"train/loss".into()) && names.contains(&"train/gradient_norm".into()));
        assert!(!names.iter().any(|name| name.contains("tokens") || name.contains("scale")), "{names:?}");
        let device =
            r#"{"event":"device","step":1,"utilization":null,"watts":null,"celsius":null,"host_used_bytes":7}"#;
        let metrics = metrics_of(&serde_json::from_str(device).unwrap());
        assert_eq!(metrics.len(), 1, "{metrics:?}");
        assert_eq!((metrics[0].tag(), metrics[0].value), ("memory/host_used_bytes".to_string(), 7.0));
    }

    #[test]
    fn thinning_is_by_time_or_by_steps_and_never_drops_the_first() {
        let count = |every: Option<usize>, gap: f64| {
            let mut thinning = Thinning::new(every);
            (1..=1000).filter(|&n| thinning.passes(&step(n, n as f64 * gap))).count()
        };
        assert_eq!(count(None, 1.0), 1000);
        assert!((3..=5).contains(&count(None, 0.001)), "one second of steps is four points");
        assert_eq!(count(Some(100), 0.001), 11);
        let mut thinning = Thinning::new(None);
        assert!(thinning.passes(&step(9, 1.0)) && !thinning.passes(&step(10, 1.0)) && thinning.passes(&step(5, 1.01)));
    }
}
