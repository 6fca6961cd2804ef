//! How many trials run side by side, in how much memory and on how many threads each.

use std::collections::BTreeMap;

use plimsoll::{Device, DeviceError, format_bytes};

use super::plans::Plans;
use crate::error::{Error, Result};
use crate::trial::TrialId;

/// What the user says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// As many as make the study end soonest.
    Auto,
    Fixed(usize),
}

/// The memory of a study's device, and who has which part of it.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub budget_bytes: u64,
    /// So many trials at once, at most.
    pub slots: usize,
    /// What each trial computes with, where the device is the CPU.
    pub threads: Option<usize>,
    taken: BTreeMap<TrialId, u64>,
    /// By how much a trial's own plan, which has seen the data, was above what was expected of it.
    surplus_bytes: u64,
}

/// More processes than this only wait for each other.
const MOST_ON_A_GPU: usize = 8;
/// A plan may be so much slower for lack of memory and still gain by company.
const SLOWER: f64 = 1.15;
/// One more trial at a time must make the study so much faster.
const WORTH: f64 = 1.03;

impl Room {
    /// Decides by plans of the recipe itself: the searched keys as they are written there.
    pub(super) fn decide(plans: &mut Plans, device: &str, threads: Option<usize>, parallel: Parallel) -> Result<Room> {
        let whole = device_of(device, threads)?;
        let budget_bytes = plans.budget(&whole)?;
        let on_cpu = whole.name == "cpu";
        let cores = if on_cpu { whole.target.threads } else { available_cores() };
        let slots = match parallel {
            Parallel::Fixed(slots) => slots.max(1),
            Parallel::Auto if on_cpu => fastest_on_cpu(plans, cores, budget_bytes)?,
            Parallel::Auto => widest_on_gpu(plans, &whole, cores, budget_bytes)?,
        };
        let threads = on_cpu.then(|| (cores / slots).max(1));
        Ok(Room { budget_bytes, slots, threads, taken: BTreeMap::new(), surplus_bytes: 0 })
    }

    /// The device as one trial sees it.
    pub(super) fn device(&self, name: &str) -> Result<Device> {
        device_of(name, self.threads)
    }

    /// Budgets to plan a trial in, the smallest first: its share, and more where that is too little.
    pub(super) fn shares(&self) -> Vec<u64> {
        let share = |slots: usize| self.budget_bytes / slots as u64;
        let halved = std::iter::successors(Some(self.slots), |slots| (*slots > 1).then_some(slots / 2));
        halved.map(share).collect()
    }

    pub(super) fn has_room(&self, bytes: u64) -> bool {
        // What needs more than there is, by an estimate that moved, still runs: alone.
        let free = self.budget_bytes.saturating_sub(self.taken.values().sum());
        let bytes = bytes.saturating_add(self.surplus_bytes);
        self.taken.len() < self.slots && (bytes <= free || self.taken.is_empty())
    }

    pub(super) fn has_slot(&self) -> bool {
        self.taken.len() < self.slots
    }

    pub(super) fn take(&mut self, trial: TrialId, bytes: u64) {
        self.taken.insert(trial, bytes);
    }

    /// A running trial says what it was planned for; those to come are like it.
    pub(super) fn learn(&mut self, trial: TrialId, expected_bytes: u64, planned_bytes: u64) {
        let surplus = planned_bytes.saturating_sub(expected_bytes);
        if surplus > 0 {
            self.surplus_bytes = self.surplus_bytes.max(surplus);
            self.taken.insert(trial, planned_bytes);
        }
    }

    pub(super) fn give_back(&mut self, trial: TrialId) {
        self.taken.remove(&trial);
    }

    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken.values().sum()
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        let threads =
            self.threads.map_or(String::new(), |n| format!(" on {n} thread{}", if n == 1 { "" } else { "s" }));
        let each = if self.slots > 1 { " each" } else { "" };
        let count = if self.slots == 1 { "one at a time".into() } else { format!("{} at a time", self.slots) };
        format!("{count}{threads}{each}, inside {}", format_bytes(self.budget_bytes))
    }
}

pub(super) fn device_of(name: &str, threads: Option<usize>) -> Result<Device> {
    let explained = |error: DeviceError| {
        let hints = plimsoll::Explain::hints(&error);
        Error::Input(format!("{error}\nhint: {}", hints.first().map_or("see `plimsoll devices`", String::as_str)))
    };
    Device::named(name, threads).map_err(explained)
}

fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Predicted milliseconds of a step in a share of the memory; none where nothing fits there.
fn step_ms(plans: &mut Plans, device: &Device, share: u64) -> Result<Option<f64>> {
    let recipe = plans.recipe(&[format!("memory.budget={share}")])?;
    let outlook = plans.outlook(&recipe, device)?;
    Ok((outlook.fits && outlook.step_ms > 0.0).then_some(outlook.step_ms))
}

/// Cores are shared out: the division with the most steps per second of all trials together.
fn fastest_on_cpu(plans: &mut Plans, cores: usize, budget: u64) -> Result<usize> {
    let (mut best, mut speed) = (1, 0.0);
    for slots in 1..=cores.max(1) {
        let device = device_of("cpu", Some((cores / slots).max(1)))?;
        let Some(ms) = step_ms(plans, &device, budget / slots as u64)? else { break };
        if slots as f64 / ms > speed * WORTH {
            (best, speed) = (slots, slots as f64 / ms);
        }
    }
    Ok(best)
}

/// As many as do not slow each other's plan: what one leaves idle, others use.
fn widest_on_gpu(plans: &mut Plans, device: &Device, cores: usize, budget: u64) -> Result<usize> {
    let Some(alone) = step_ms(plans, device, budget)? else { return Ok(1) };
    for slots in (2..=MOST_ON_A_GPU.min(cores.max(1))).rev() {
        if step_ms(plans, device, budget / slots as u64)?.is_some_and(|ms| ms <= alone * SLOWER) {
            return Ok(slots);
        }
    }
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_to_all_of_the_memory_and_bytes_are_never_given_twice() {
        let mut room = Room { budget_bytes: 1000, slots: 5, threads: None, taken: BTreeMap::new(), surplus_bytes: 0 };
        assert_eq!(room.shares(), [200, 500, 1000]);
        room.take(1, 600);
        assert!(room.has_room(400) && !room.has_room(401));
        room.take(2, 400);
        assert!(!room.has_room(1) && room.taken_bytes() == 1000);
        room.give_back(1);
        assert!(room.has_room(600));
        room.learn(2, 400, 450);
        assert!(room.taken_bytes() == 450 && room.has_room(500) && !room.has_room(501));
        room.surplus_bytes = 0;
        (3..7).for_each(|trial| room.take(trial, 0));
        assert!(!room.has_room(0) && !room.has_slot());
    }
}
