//! Hyperband: several ASHA brackets side by side that begin at different rungs, because nobody knows how early a rung
//! tells anything. A trial's bracket follows from the study's name and its number, as Optuna's does.

use std::sync::Arc;

use super::{Asha, Judgement, Pruner};
use crate::samplers::History;
use crate::trial::{Trial, TrialId};

/// Brackets from `min_resource` to `max_resource` steps.
#[derive(Clone, Debug)]
pub struct Hyperband {
    pub min_resource: i64,
    pub max_resource: i64,
    pub reduction_factor: i64,
}

impl Hyperband {
    pub(crate) fn brackets(&self) -> u32 {
        let eta = self.reduction_factor.max(2);
        let (mut step, mut count) = (self.min_resource.max(1), 1);
        while let Some(next) = step.checked_mul(eta).filter(|next| *next <= self.max_resource) {
            step = next;
            count += 1;
        }
        count
    }

    /// The share of trials in a bracket: those that stop early cost less, and get more trials.
    fn share(&self, bracket: u32) -> u64 {
        let brackets = self.brackets();
        let longest = brackets - 1 - bracket;
        let weight = (self.reduction_factor.max(2) as f64).powi(longest as i32);
        (f64::from(brackets) * weight / f64::from(longest + 1)).ceil() as u64
    }

    /// The bracket of the trial with this number.
    pub(crate) fn bracket_of(&self, study: &str, number: u64) -> u32 {
        let total: u64 = (0..self.brackets()).map(|bracket| self.share(bracket)).sum();
        let mut place = u64::from(crc32(format!("{study}_{number}").as_bytes())) % total;
        for bracket in 0..self.brackets() {
            match place.checked_sub(self.share(bracket)) {
                Some(left) => place = left,
                None => return bracket,
            }
        }
        0
    }

    fn asha(&self, bracket: u32) -> Asha {
        Asha { min_resource: self.min_resource, reduction_factor: self.reduction_factor, skip: bracket }
    }

    fn trials_of(&self, bracket: u32, history: &History, study: &str) -> Vec<Arc<Trial>> {
        let inside = history.trials.iter().filter(|trial| self.bracket_of(study, trial.number) == bracket);
        inside.cloned().collect()
    }
}

impl Pruner for Hyperband {
    fn judge(&mut self, history: &History, trial: &Trial, study: &str) -> Judgement {
        let bracket = self.bracket_of(study, trial.number);
        self.asha(bracket).judge_in(&self.trials_of(bracket, history, study), history, trial)
    }

    fn promotable(&mut self, history: &History, study: &str) -> Option<TrialId> {
        (0..self.brackets())
            .find_map(|bracket| self.asha(bracket).promotable_in(&self.trials_of(bracket, history, study), history))
    }
}

/// The checksum of zip files.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn brackets_cover_the_range_and_short_ones_get_more_trials() {
        let hyperband = Hyperband { min_resource: 1, max_resource: 81, reduction_factor: 3 };
        assert_eq!(hyperband.brackets(), 5);
        let mut counts = [0; 5];
        (0..2000).for_each(|number| counts[hyperband.bracket_of("study", number) as usize] += 1);
        assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
        assert!(counts[4] > 0);
    }
}
