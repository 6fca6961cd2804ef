//! Devices to plan for. What is free changes all the time: a device is asked anew every few seconds, and small changes
//! are let go, so that an answer stays the same while a slider moves.

use crate::problem::Problem;
use plimsoll::Device;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

const FRESH: Duration = Duration::from_secs(3);
/// A change of what is free by less than this share of all is none.
const SHARE: u64 = 32;
/// Names remembered: those of the catalog, and a few of this machine.
const MOST: usize = 128;

#[derive(Default)]
pub(crate) struct Devices {
    known: Mutex<HashMap<String, (Instant, Device)>>,
    /// Held by the one who asks the machine: that goes through every process of it, and through drivers.
    asking: Mutex<()>,
}

impl Devices {
    /// A device to plan for, by its name. While one asks anew, others go by what was known before.
    pub(crate) fn find(&self, name: &str) -> Result<Device, Problem> {
        self.find_by(name, |name| Device::from_name(name).map_err(|error| Problem::explained(&error).field("device")))
    }

    fn find_by(&self, name: &str, ask: impl Fn(&str) -> Result<Device, Problem>) -> Result<Device, Problem> {
        let is_fresh = |(at, _): &(Instant, Device)| at.elapsed() < FRESH;
        let before = self.known(name);
        if let Some((_, device)) = before.as_ref().filter(|known| is_fresh(known)) {
            return Ok(device.clone());
        }
        let _asking = match (before, self.asking.try_lock()) {
            (_, Ok(asking)) => asking,
            (_, Err(TryLockError::Poisoned(asking))) => asking.into_inner(),
            (Some((_, device)), Err(TryLockError::WouldBlock)) => return Ok(device),
            (None, Err(TryLockError::WouldBlock)) => lock(&self.asking),
        };
        // Who asked before this one may have asked for it, too.
        match self.known(name) {
            Some(known) if is_fresh(&known) => Ok(known.1),
            known => Ok(self.keep(name, known.map(|(_, device)| device), ask(name)?)),
        }
    }

    /// What is known from now on: a small change is none.
    fn keep(&self, name: &str, before: Option<Device>, found: Device) -> Device {
        let kept = before.filter(|before| is_close(before, &found)).unwrap_or(found);
        let mut known = lock(&self.known);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(name.into(), (Instant::now(), kept.clone()));
        kept
    }

    fn known(&self, name: &str) -> Option<(Instant, Device)> {
        lock(&self.known).get(name).cloned()
    }

    /// A training began or ended: what is free is asked anew.
    pub(crate) fn forget(&self) {
        lock(&self.known).clear();
    }
}

fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_close(old: &Device, new: &Device) -> bool {
    old.name == new.name && old.free_bytes.abs_diff(new.free_bytes) <= old.total_bytes / SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    fn card(name: &str) -> Device {
        Device::from_name(name).unwrap()
    }

    /// Devices that were asked for a while ago.
    fn stale(name: &str) -> Devices {
        let devices = Devices::default();
        let long_ago = Instant::now().checked_sub(2 * FRESH).unwrap();
        lock(&devices.known).insert(name.into(), (long_ago, card(name)));
        devices
    }

    #[test]
    fn one_asks_the_machine_and_nobody_who_knows_the_device_waits_for_it() {
        let devices = stale("t4");
        let ((began, begin), (end, ended)) = (channel(), channel::<()>());
        thread::scope(|scope| {
            let devices = &devices;
            let slow = scope.spawn(move || {
                let ask = |_: &str| {
                    began.send(()).unwrap();
                    ended.recv().unwrap();
                    Ok(card("rtx-4090"))
                };
                devices.find_by("t4", ask).unwrap().name.clone()
            });
            begin.recv().unwrap();
            let meanwhile = devices.find_by("t4", |_| panic!("somebody asks already")).unwrap();
            assert_eq!(meanwhile.name, card("t4").name);
            end.send(()).unwrap();
            assert_eq!(slow.join().unwrap(), card("rtx-4090").name);
        });
        let after = devices.find_by("t4", |_| panic!("it is fresh")).unwrap();
        assert_eq!(after.name, card("rtx-4090").name);
    }

    #[test]
    fn what_cannot_be_found_is_not_remembered_and_what_is_forgotten_is_asked_anew() {
        let devices = stale("t4");
        let gone = || devices.find_by("t4", |_| Err(Problem::failed("it is gone")));
        assert!(gone().is_err() && gone().is_err());
        assert!(devices.find_by("t4", |name| Ok(card(name))).is_ok() && gone().is_ok());
        devices.forget();
        assert!(gone().is_err());
    }
}
