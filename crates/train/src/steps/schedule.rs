//! The learning rate as a function of the step.

use plimsoll_models::recipe::{Schedule, ScheduleShape, Warmup};

/// The rate of update `step` (counted from 0) of `steps`.
pub(crate) fn learning_rate(schedule: &Schedule, peak: f64, step: usize, steps: usize) -> f64 {
    let warmup = match schedule.warmup {
        Warmup::Steps(n) => n as f64,
        Warmup::Fraction(fraction) => fraction * steps as f64,
    };
    let done = step as f64;
    if done < warmup {
        // The first update already moves.
        return peak * (done + 1.0) / (warmup + 1.0);
    }
    let progress = ((done - warmup) / (steps as f64 - warmup).max(1.0)).clamp(0.0, 1.0);
    let floor = schedule.min_lr_fraction;
    let falling = match schedule.name {
        ScheduleShape::Constant => return peak,
        ScheduleShape::Linear => 1.0 - progress,
        ScheduleShape::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
    };
    peak * (floor + (1.0 - floor) * falling)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(name: ScheduleShape, warmup: Warmup) -> Schedule {
        Schedule { name, warmup, min_lr_fraction: 0.0 }
    }

    #[test]
    fn warm_up_rises_and_decay_falls() {
        for shape in [ScheduleShape::Linear, ScheduleShape::Cosine] {
            let s = schedule(shape, Warmup::Fraction(0.1));
            let rates: Vec<f64> = (0..100).map(|i| learning_rate(&s, 1.0, i, 100)).collect();
            assert!(rates[..10].windows(2).all(|w| w[0] < w[1]) && rates[10..].windows(2).all(|w| w[0] > w[1]));
            assert!(rates[10] == 1.0 && rates[0] > 0.0 && rates[99] > 0.0 && rates[99] < 0.05);
        }
    }

    #[test]
    fn constant_stays_after_the_warm_up() {
        let s = schedule(ScheduleShape::Constant, Warmup::Steps(3));
        assert_eq!(learning_rate(&s, 2.0, 1, 10), 1.0);
        assert!((3..10).all(|i| learning_rate(&s, 2.0, i, 10) == 2.0));
    }
}
