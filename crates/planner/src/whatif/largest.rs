//! The largest batch that a device computes at once: what people ask a card for, whatever the recipe's own batch is.

use super::attempt::{Attempt, Outline, attempt};
use super::parallel::{Progress, on_all_cores};
use crate::choose::{budget_bytes, precision};
use crate::{Device, PlanFailure};
use plimsoll_models::recipe::{Draft, Precision};
use serde::Serialize;

/// Samples beyond which nobody asks.
const MOST: usize = 1 << 17;

/// How much of a recipe a device takes at once.
#[deny(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LargestRow {
    /// The card's name.
    pub card: String,
    /// What may be taken of it.
    pub budget_bytes: u64,
    /// What is computed in there.
    pub precision: Precision,
    /// The largest batch with nothing recomputed: the usual advice. None where not even one sample fits so.
    pub plain: Option<Outline>,
    /// The largest batch there is, however slow. None where not even one sample fits.
    pub largest: Option<Outline>,
}

/// The largest batches on each device.
pub fn largest(draft: &Draft, devices: &[Device], done: Progress<'_>) -> Result<Vec<LargestRow>, PlanFailure> {
    let row = |device: &Device| -> Result<LargestRow, PlanFailure> {
        let recipe = draft.with(&[])?;
        let plain = most(draft, device, &["memory.recompute=none"])?;
        Ok(LargestRow {
            card: device.name.clone(),
            budget_bytes: budget_bytes(&recipe, device),
            precision: precision(&recipe, device),
            largest: most(draft, device, &[])?.or_else(|| plain.clone()),
            plain,
        })
    };
    on_all_cores(devices, done, row).into_iter().collect()
}

/// The plan with the most samples that fits: doubled until one does not, then halved between the two.
fn most(draft: &Draft, device: &Device, sets: &[&str]) -> Result<Option<Outline>, PlanFailure> {
    let at_once = |batch: usize| -> Result<Option<Outline>, PlanFailure> {
        let sizes = [format!("train.effective_batch={batch}"), format!("memory.micro_batch={batch}")];
        let all: Vec<String> = sizes.into_iter().chain(sets.iter().map(|set| set.to_string())).collect();
        let Attempt { fits, plan, .. } = attempt(&draft.with(&all)?, device)?;
        Ok(plan.filter(|_| fits))
    };
    let (mut best, mut low, mut high) = (None, 0, 1);
    while high <= MOST {
        match at_once(high)? {
            Some(plan) => (best, low, high) = (Some(plan), high, 2 * high),
            None => break,
        }
    }
    while high - low > 1 && high <= MOST {
        let middle = low + (high - low) / 2;
        match at_once(middle)? {
            Some(plan) => (best, low) = (Some(plan), middle),
            None => high = middle,
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::super::recipes::{SERIES, TEXT};
    use super::*;

    #[test]
    fn one_sample_more_than_the_largest_does_not_fit() {
        for text in [SERIES, TEXT] {
            let draft = Draft::of_text(text, "drawn.toml");
            let one = draft.with(&["train.effective_batch=1".into(), "memory.micro_batch=1".into()]).unwrap();
            let smallest = attempt(&one, &Device::cpu(2, 1 << 34)).unwrap().plan.unwrap().planned_peak_bytes;
            for times in [2, 9] {
                let device = Device::cpu(2, smallest * times);
                let row = largest(&draft, std::slice::from_ref(&device), &|_, _| ()).unwrap().remove(0);
                let best = row.largest.unwrap();
                assert_eq!((best.accumulation, best.planned_peak_bytes <= row.budget_bytes), (1, true));
                assert!(
                    row.plain.is_none_or(|plain| plain.micro_batch <= best.micro_batch && plain.recompute == "none")
                );
                let more = best.micro_batch + 1;
                let sets = [format!("train.effective_batch={more}"), format!("memory.micro_batch={more}")];
                assert!(!attempt(&draft.with(&sets).unwrap(), &device).unwrap().fits, "{more}");
            }
        }
    }

    #[test]
    fn where_nothing_fits_there_is_no_largest() {
        let draft = Draft::of_text(SERIES, "drawn.toml");
        let row = largest(&draft, &[Device::cpu(2, 4096)], &|_, _| ()).unwrap().remove(0);
        assert_eq!((row.plain, row.largest), (None, None));
    }
}
