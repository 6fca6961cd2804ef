//! From `--device` to a device.

use crate::arguments::Machine;
use crate::failure::Failure;
use crate::printer::say;
use plimsoll::Device;

fn find(machine: &Machine) -> Result<Device, Failure> {
    let device = Device::named(&machine.device, machine.threads.map(usize::from))?;
    device.notes().iter().for_each(|note| say(&format!("note: {note}")));
    Ok(device)
}

/// A device of this machine, ready to run on.
pub(crate) fn to_run_on(machine: &Machine) -> Result<Device, Failure> {
    let device = find(machine)?;
    if device.facts().is_none() {
        let name = &device.name;
        let hint = format!("plan for it with `plimsoll plan RECIPE --device {name}`; run with --device cuda or cpu");
        return Err(Failure::bad_input(format!("`{name}` is a card of the catalog: it can only be planned for"), hint));
    }
    // On a machine without a card there is nothing to explain.
    if let Some(why) = device.why_no_gpu().filter(|_| has_card()) {
        say(&format!("using the CPU: {why}"));
    }
    Ok(device)
}

/// Whether there is a card of NVIDIA's in this machine, usable or not.
fn has_card() -> bool {
    let vendor = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("vendor")).unwrap_or_default();
    let slots = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    std::path::Path::new("/dev/nvidiactl").exists() || slots.map(vendor).any(|vendor| vendor.trim() == "0x10de")
}

/// What a plan is made for: a device here, or a card that need not be here. What cannot run can still be planned for.
pub(crate) fn to_plan_for(machine: &Machine) -> Result<Device, Failure> {
    Ok(find(machine)?.to_plan_for())
}
