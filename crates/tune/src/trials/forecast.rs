//! When a study is going to end: predicted seconds first, then what trials really take.

use std::time::{Duration, Instant};

use plimsoll::search::PrunerName;

use super::space::PrunerSettings;

/// Ended trials after which their mean is believed.
const ENOUGH: usize = 3;

/// Seconds of trials, as predicted and as measured.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    began: Instant,
    slots: usize,
    /// The share of a whole training that a trial takes on average, given that some are laid aside.
    share: f64,
    predicted: Vec<f64>,
    /// Wall seconds of trials that ended or were laid aside.
    measured: Vec<f64>,
    promised: Option<f64>,
}

impl Forecast {
    pub(super) fn new(slots: usize, pruner: PrunerSettings, evaluations: usize) -> Forecast {
        let share = expected_share(pruner, evaluations);
        Forecast { began: Instant::now(), slots, share, predicted: Vec::new(), measured: Vec::new(), promised: None }
    }

    pub(super) fn predict(&mut self, seconds: Option<f64>) {
        self.predicted.extend(seconds);
    }

    pub(super) fn measure(&mut self, seconds: f64) {
        self.measured.push(seconds);
    }

    /// What one more trial is going to take.
    fn each(&self, running: &[f64]) -> Option<f64> {
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
        match (&self.measured, running, &self.predicted) {
            (measured, _, _) if measured.len() >= ENOUGH => Some(mean(measured)),
            (_, running, _) if !running.is_empty() => Some(mean(running) * self.share),
            (_, _, predicted) if !predicted.is_empty() => Some(mean(predicted) * self.share),
            _ => None,
        }
    }

    /// Seconds until the end. `running`: of each running trial, the seconds it takes in all and those that are left.
    pub(super) fn left(&self, to_come: usize, running: &[(f64, f64)]) -> Option<f64> {
        let totals: Vec<f64> = running.iter().map(|(all, _)| *all).collect();
        let each = self.each(&totals)?;
        let open: f64 = running.iter().map(|(_, left)| (left * self.share).max(0.0)).sum();
        let waves = (open + each * to_come as f64) / self.slots.max(1) as f64;
        // The last trial to start runs alone in the end.
        Some(waves.max(running.iter().map(|(_, left)| left * self.share).fold(0.0, f64::max)))
    }

    /// Keeps the first forecast that rests on measured speed; says it once.
    pub(super) fn promise(&mut self, left: f64) -> Option<f64> {
        if self.promised.is_some() {
            return None;
        }
        let whole = self.began.elapsed().as_secs_f64() + left;
        self.promised = Some(whole);
        Some(whole)
    }

    pub(super) fn promised(&self) -> Option<f64> {
        self.promised
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Successive halving takes all trials to the first rung, one in `factor` to the next, and so on.
fn expected_share(pruner: PrunerSettings, evaluations: usize) -> f64 {
    if !matches!(pruner.name, PrunerName::Asha | PrunerName::Hyperband) || evaluations <= pruner.first {
        return 1.0;
    }
    let (mut at, mut reaching, mut done) = (pruner.first, 1.0, pruner.first as f64);
    while at < evaluations {
        let next = at.saturating_mul(pruner.factor).min(evaluations);
        reaching /= pruner.factor as f64;
        done += reaching * (next - at) as f64;
        at = next;
    }
    done / evaluations as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: PrunerName) -> PrunerSettings {
        PrunerSettings { name, first: 1, factor: 3, patience: 3 }
    }

    #[test]
    fn halving_takes_its_share_and_running_to_the_end_takes_all() {
        let asha = settings(PrunerName::Asha);
        assert!((expected_share(asha, 9) - (1.0 + 2.0 / 3.0 + 6.0 / 9.0) / 9.0).abs() < 1e-12);
        assert_eq!(expected_share(asha, 1), 1.0);
        assert_eq!(expected_share(settings(PrunerName::None), 9), 1.0);
    }

    #[test]
    fn the_end_follows_from_what_trials_take_and_is_promised_once() {
        let mut forecast = Forecast::new(2, settings(PrunerName::None), 3);
        assert_eq!(forecast.left(4, &[]), None);
        forecast.predict(Some(10.0));
        assert_eq!(forecast.left(4, &[]), Some(20.0));
        assert_eq!(forecast.left(2, &[(8.0, 6.0), (8.0, 2.0)]), Some(12.0));
        (0..3).for_each(|_| forecast.measure(4.0));
        assert_eq!(forecast.left(4, &[]), Some(8.0));
        assert!(forecast.promise(8.0).is_some() && forecast.promise(9.0).is_none());
    }
}
