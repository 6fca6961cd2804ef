//! Devices to plan for. What is free changes all the time: a device is asked anew every few seconds, and small changes
//! are let go, so that an answer stays the same while a slider moves.

use crate::problem::Problem;
use plimsoll::Device;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const FRESH: Duration = Duration::from_secs(3);
/// A change of what is free by less than this share of all is none.
const SHARE: u64 = 32;
/// Names remembered: those of the catalog, and a few of this machine.
const MOST: usize = 128;

#[derive(Default)]
pub(crate) struct Devices(Mutex<HashMap<String, (Instant, Device)>>);

impl Devices {
    /// A device to plan for, by its name.
    pub(crate) fn find(&self, name: &str) -> Result<Device, Problem> {
        let known = self.known(name);
        if let Some((at, device)) = &known
            && at.elapsed() < FRESH
        {
            return Ok(device.clone());
        }
        let found = Device::from_name(name).map_err(|error| Problem::explained(&error).field("device"))?;
        let kept = match known {
            Some((_, old)) if is_close(&old, &found) => old,
            _ => found,
        };
        let mut devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if devices.len() >= MOST {
            devices.clear();
        }
        devices.insert(name.into(), (Instant::now(), kept.clone()));
        Ok(kept)
    }

    fn known(&self, name: &str) -> Option<(Instant, Device)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// A training began or ended: what is free is asked anew.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn is_close(old: &Device, new: &Device) -> bool {
    old.name == new.name && old.free_bytes.abs_diff(new.free_bytes) <= old.total_bytes / SHARE
}
