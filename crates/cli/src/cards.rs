//! `--cards`: names of the catalog, or sizes.

use crate::arguments::Machine;
use crate::device;
use crate::failure::Failure;
use plimsoll::DeviceError;
use plimsoll_base::units::{Size, parse_size};
use plimsoll_planner::Device;
use plimsoll_planner::cards::{Card, catalog, variants};
use std::cmp::Reverse;

/// The devices to plan for, in the order asked for.
pub(crate) fn devices(names: &[String], machine: &Machine) -> Result<Vec<Device>, Failure> {
    let like = match machine.device.as_str() {
        "auto" | "cpu" => None,
        _ => Some((*device::to_plan_for(machine)?).clone()),
    };
    let found: Result<Vec<_>, _> = names.iter().map(|name| devices_of(name.trim(), like.as_ref())).collect();
    Ok(found?.into_iter().flatten().collect())
}

/// A name without its variant (`h100`) stands for all of them.
fn devices_of(name: &str, like: Option<&Device>) -> Result<Vec<Device>, Failure> {
    match variants(name).as_slice() {
        [] => Ok(vec![device_of(name, like)?]),
        several => Ok(several.iter().map(|card| Device::from_card(card)).collect()),
    }
}

fn device_of(name: &str, like: Option<&Device>) -> Result<Device, Failure> {
    match parse_size(name) {
        Ok(Size::Bytes(bytes)) => Ok(of_size(name, bytes, like)),
        Ok(Size::Percent(_)) => Err(Failure::bad_input(
            format!("--cards {name}: a card is a name or a size"),
            "for example `--cards 8GiB,12GiB,rtx-4090`; `--memory 90%` gives a share of each",
        )),
        Err(_) if name.is_empty() => {
            Err(Failure::bad_input("--cards: a name is missing", "for example `--cards 8GiB,rtx-4090`"))
        }
        // What starts with a number was meant as a size.
        Err(error) if name.starts_with(|c: char| c.is_ascii_digit()) => {
            Err(Failure::bad_input(format!("--cards {name}: {error}"), "for example `--cards 8GiB,12GiB`"))
        }
        Err(_) => Ok(Device::from_name(name).map_err(DeviceError::from)?),
    }
}

/// A size stands for the newest card of the catalog that is sold with so much memory, or is as fast as `like`. Where
/// no recent card has it, the speed is that of the nearest in memory.
fn of_size(size: &str, bytes: u64, like: Option<&Device>) -> Device {
    let distance = |card: &Card| box_gib(card.total_bytes).abs_diff(sold_gib(bytes));
    let recent = catalog().iter().filter(|card| card.compute_capability >= (8, 0));
    let nearest = recent.min_by_key(|card| (distance(card), Reverse(card.compute_capability)));
    let base = match (like, nearest) {
        (Some(like), _) => like.clone(),
        (None, card) => Device::from_card(card.unwrap_or(&catalog()[0])),
    };
    if like.is_none() && box_gib(base.total_bytes) == sold_gib(bytes) {
        return Device { name: format!("{size} ({})", base.name), ..base };
    }
    let name = format!("{size} (as fast as {})", base.name);
    Device { name, total_bytes: bytes, free_bytes: bytes, ..base }
}

/// The number on the box of a card: CUDA reports a little less.
fn box_gib(bytes: u64) -> u64 {
    sold_gib(bytes + bytes / 64)
}

/// Whole GiB.
fn sold_gib(bytes: u64) -> u64 {
    (bytes as f64 / (1u64 << 30) as f64).round() as u64
}
