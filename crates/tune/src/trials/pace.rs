//! What a trial takes, alone or beside others: a process starts, its steps share the device, what it stores the disk.
//!
//! The figures for GPUs and the disk are from studies on one machine (an H200 with 16 cores, tools/tune/gpu-study): eight
//! processes that start at once reach their first step after 2.1 s, one alone after 0.9; one stores 0.45 GB/s, eight of
//! them 0.9 to 1.5. The start on a CPU and what loading takes are guesses. What trials really take replaces all of them.

use plimsoll::{Device, Every, Recipe};

use super::plans::Outlook;

/// Of a process before its first step and behind its last.
const START_S: f64 = 0.3;
/// The same where the device has to be opened and kernels to be loaded, and what each process beside it adds: drivers serve
/// one at a time.
const GPU_START_S: f64 = 1.2;
const GPU_START_BESIDE_S: f64 = 0.17;
/// What a model is drawn or read with.
const LOADED_PER_S: f64 = 1e9;
/// Evaluations beside the steps.
const BESIDE: f64 = 1.1;
/// What one process stores in a second, checksums and all, and what a disk takes of all of them.
const STORED_PER_S: f64 = 0.45e9;
const DISK_PER_S: f64 = 1.2e9;
/// Until what trials take and what they leave each other agree.
const ROUNDS: usize = 20;

/// Who runs beside a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    slots: usize,
    on_gpu: bool,
}

/// Seconds that a trial is expected to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Length {
    pub seconds: f64,
    /// Of those, the ones behind its last step.
    pub closing: f64,
}

impl Pace {
    pub(super) fn of(device: &Device, slots: usize) -> Pace {
        Pace { slots: slots.max(1), on_gpu: device.name != "cpu" }
    }

    /// Of a training of so many steps; none where nobody knows how many there are.
    pub(super) fn length(&self, recipe: &Recipe, steps: Option<usize>, outlook: &Outlook) -> Option<Length> {
        let steps = steps?;
        let checkpoints = checkpoints(recipe, steps) as f64 * outlook.checkpoint_bytes as f64;
        let bytes = checkpoints + outlook.model_bytes as f64;
        let seconds = self.seconds(steps as f64 * outlook.step_ms * 1e-3 * BESIDE, bytes, self.start(outlook));
        let last = bytes.min((outlook.checkpoint_bytes + outlook.model_bytes) as f64);
        Some(Length { seconds, closing: (last / STORED_PER_S).min(seconds) })
    }

    fn start(&self, outlook: &Outlook) -> f64 {
        let process = match self.on_gpu {
            true => GPU_START_S + GPU_START_BESIDE_S * (self.slots - 1) as f64,
            false => START_S,
        };
        process + outlook.checkpoint_bytes as f64 / LOADED_PER_S
    }

    /// Others are in the same phase for the share of their time that it takes: a trial waits for them so long.
    fn seconds(&self, steps_s: f64, stored_bytes: f64, start_s: f64) -> f64 {
        let others = (self.slots - 1) as f64;
        let (mut steps, mut stores) = (steps_s, stored_bytes / STORED_PER_S);
        for _ in 0..ROUNDS {
            let all = start_s + steps + stores;
            // On a CPU every trial has cores of its own, and its plan knows how many.
            steps = steps_s * (1.0 + if self.on_gpu { others * steps / all } else { 0.0 });
            stores = (stored_bytes / STORED_PER_S).max(stored_bytes * (1.0 + others * stores / all) / DISK_PER_S);
        }
        start_s + steps + stores
    }
}

/// How many checkpoints a run writes: those that are asked for, or about every other evaluation, as a better one.
fn checkpoints(recipe: &Recipe, steps: usize) -> usize {
    let times = |every: Every| match every {
        Every::Never => 0,
        Every::Epoch => recipe.train.epochs,
        Every::Steps(n) => steps.div_ceil(n.max(1)),
    };
    times(recipe.train.checkpoint.every).max(times(recipe.train.evaluate.every) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(slots: usize, on_gpu: bool) -> Pace {
        Pace { slots, on_gpu }
    }

    #[test]
    fn work_on_one_gpu_is_not_done_sooner_side_by_side_but_starts_are() {
        let busy = |slots| pace(slots, true).seconds(1000.0, 0.0, 1.0);
        assert!((busy(8) / 8.0 / busy(1) - 1.0).abs() < 0.01, "{} {}", busy(8), busy(1));
        let idle = |slots| pace(slots, true).seconds(0.1, 0.0, 2.0);
        assert!(idle(8) < 1.05 * idle(1), "{} {}", idle(8), idle(1));
        assert_eq!(pace(4, false).seconds(10.0, 0.0, 0.0), 10.0);
    }

    #[test]
    fn a_disk_takes_so_much_and_no_more() {
        let stores = |slots| pace(slots, true).seconds(0.0, 1e9, 0.0);
        assert!((stores(1) - 1e9 / STORED_PER_S).abs() < 1e-9);
        assert!((stores(8) - 8e9 / DISK_PER_S).abs() < 1e-6, "{}", stores(8));
    }
}
