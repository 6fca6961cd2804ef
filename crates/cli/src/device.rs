//! From `--device` to what plans and runs need to know about it.

use crate::arguments::Machine;
use crate::failure::Failure;
use crate::printer::say;
use crate::profiles::{self, Measured};
use plimsoll_core::graph::Target;
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_core::plan::Profile;
use plimsoll_cuda::estimated_reserve_bytes;
use plimsoll_cuda::{GpuFacts, missing_libraries};
use plimsoll_exec::host::CpuFacts;
use plimsoll_models::recipe::Precision;
use plimsoll_planner::Device;
use plimsoll_planner::cards::{Card, card, catalog, nearest_card};

/// What is known about the device of a run.
pub enum Facts {
    Cpu(CpuFacts),
    Gpu(GpuFacts),
}

/// What `--device` names.
enum Named {
    /// A GPU if one can be used here, otherwise the processor.
    Auto,
    Cpu,
    Gpu(usize),
    Card(&'static Card),
}

fn named(machine: &Machine) -> Result<Named, Failure> {
    let name = machine.device.as_str();
    match (name, name.strip_prefix("cuda")) {
        ("auto", _) => Ok(Named::Auto),
        ("cpu", _) => Ok(Named::Cpu),
        (_, Some("")) => Ok(Named::Gpu(0)),
        (_, Some(rest)) if rest.starts_with(':') => match rest[1..].parse() {
            Ok(ordinal) => Ok(Named::Gpu(ordinal)),
            Err(_) => Err(Failure::bad_input(format!("`{name}` names no device"), "the first GPU is cuda:0")),
        },
        _ => Ok(Named::Card(card(name).map_err(|error| Failure::bad_input(error.to_string(), error.hint()))?)),
    }
}

/// A device of this machine, ready to run on.
pub fn to_run_on(machine: &Machine) -> Result<(Device, Facts), Failure> {
    match named(machine)? {
        Named::Cpu => Ok(cpu(machine)),
        Named::Gpu(ordinal) => Ok(gpu(ordinal)?),
        Named::Auto => gpu(0).or_else(|why| {
            say(&format!("using the CPU: {}", why.message));
            Ok(cpu(machine))
        }),
        Named::Card(card) => {
            let name = card.name;
            let hint =
                format!("plan for it with `plimsoll plan RECIPE --device {name}`; run with --device cuda or cpu");
            Err(Failure::bad_input(format!("`{name}` is a card of the catalog: it can only be planned for"), hint))
        }
    }
}

/// What a plan is made for: a device here, or a card that need not be here. What cannot run can still be planned for.
pub fn to_plan_for(machine: &Machine) -> Result<Device, Failure> {
    let device = match named(machine)? {
        Named::Card(card) => of_card(card),
        Named::Gpu(ordinal) => gpu(ordinal)?.0,
        Named::Cpu => cpu(machine).0,
        Named::Auto => gpu(0).map_or_else(|_| cpu(machine).0, |(device, _)| device),
    };
    Ok(Device { runs: false, ..device })
}

/// A card of the catalog.
pub fn card_to_plan_for(name: &str) -> Result<Device, Failure> {
    card(name).map(of_card).map_err(|error| Failure::bad_input(error.to_string(), error.hint()))
}

/// All cards of the catalog, by memory.
pub fn catalog_cards() -> Vec<Device> {
    catalog().iter().map(of_card).collect()
}

fn cpu(machine: &Machine) -> (Device, Facts) {
    let facts = CpuFacts::gather();
    let threads = machine.threads.map_or(facts.threads, usize::from);
    let measured = profiles::of(&Measured::Cpu { name: facts.name.clone(), threads });
    let profile = measured.unwrap_or_else(|| Profile::cpu(threads));
    let device = Device { total_bytes: facts.total_bytes, profile, ..Device::cpu(threads, facts.available_bytes) };
    (device, Facts::Cpu(facts))
}

fn gpu(ordinal: usize) -> Result<(Device, Facts), Failure> {
    let facts = GpuFacts::gather(ordinal)?;
    if let Some(library) = missing_libraries().first() {
        return Err(CudaError::Missing { library: library.name(), remedy: library.remedy() }.into());
    }
    let mut device = of_gpu(&facts);
    // A card that cannot be opened, because it is too old or another process left nothing, can still be planned for.
    if let Ok(Some(bytes)) = estimated_reserve_bytes(ordinal) {
        device.reserve_bytes = bytes;
    }
    let profile = profiles::of(&Measured::Gpu { name: facts.name.clone() }).unwrap_or(device.profile);
    Ok((Device { profile, ..device }, Facts::Gpu(facts)))
}

/// The card of the catalog that it is, or the nearest one of its generation, with the memory that it has.
pub(crate) fn of_gpu(facts: &GpuFacts) -> Device {
    Device {
        name: format!("cuda:{} {}", facts.ordinal, facts.name),
        total_bytes: facts.total_bytes,
        free_bytes: facts.free_bytes,
        precision: auto_precision(facts.compute_capability),
        runs: true,
        ordinal: facts.ordinal,
        ..of_card(nearest_card(facts.compute_capability, facts.total_bytes))
    }
}

/// Mixed precision where the card has tensor cores for it.
fn auto_precision(compute_capability: (u32, u32)) -> Precision {
    match compute_capability {
        (8.., _) => Precision::Bf16Mixed,
        (7, 5) => Precision::Fp16Mixed,
        _ => Precision::F32,
    }
}

fn of_card(card: &Card) -> Device {
    Device {
        name: card.name.into(),
        total_bytes: card.total_bytes,
        free_bytes: card.total_bytes,
        reserve_bytes: card.reserve_bytes,
        target: Target::CUDA,
        profile: card.profile(),
        precision: auto_precision(card.compute_capability),
        runs: false,
        ordinal: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    fn machine(device: &str) -> Machine {
        Machine { device: device.into(), threads: Some(3) }
    }

    #[test]
    fn the_processor_runs_and_cards_of_the_catalog_do_not() {
        let (device, facts) = to_run_on(&machine("cpu")).unwrap();
        let Facts::Cpu(facts) = facts else { panic!("the CPU is no GPU") };
        assert_eq!((device.target.threads, device.total_bytes), (3, facts.total_bytes));
        for name in ["h200", "h2000", "cuda:x", "cuda:99"] {
            let Err(failure) = to_run_on(&machine(name)) else { panic!("{name} runs") };
            assert_eq!(failure.code, Code::BadInput, "{name}");
            assert!(!failure.hints.is_empty(), "{failure:?}");
        }
    }

    fn found(name: &str, compute_capability: (u32, u32), total_bytes: u64) -> GpuFacts {
        let (holders, name) = (Vec::new(), name.into());
        let free_bytes = total_bytes / 2;
        GpuFacts {
            ordinal: 1,
            name,
            compute_capability,
            total_bytes,
            free_bytes,
            holders,
            utilization: None,
            watts: None,
            celsius: None,
        }
    }

    #[test]
    fn a_gpu_is_planned_as_the_card_it_is() {
        let h200 = of_gpu(&found("NVIDIA H200", (9, 0), 143771 << 20));
        assert_eq!((h200.reserve_bytes, h200.precision), (card("h200").unwrap().reserve_bytes, Precision::Bf16Mixed));
        assert_eq!((h200.ordinal, h200.runs, h200.free_bytes), (1, true, (143771 << 20) / 2));
        let t4 = of_gpu(&found("Tesla T4", (7, 5), 15360 << 20));
        assert_eq!((t4.reserve_bytes, t4.precision), (card("t4").unwrap().reserve_bytes, Precision::Fp16Mixed));
    }
}
