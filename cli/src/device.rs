//! From `--device` to what plans and runs need to know about it.

use crate::arguments::Machine;
use crate::failure::Failure;
use plimsoll::exec::devices::{Card, CpuFacts, card, catalog};
use plimsoll::ops::Target;
use plimsoll::plan::Profile;
use plimsoll::recipe::Precision;
use plimsoll::train::Device;

/// The processor of this machine, ready to run on.
pub fn processor(machine: &Machine) -> Result<(Device, CpuFacts), Failure> {
    match machine.device.as_str() {
        "cpu" => {
            let facts = CpuFacts::gather();
            Ok((cpu(machine, &facts), facts))
        }
        name if is_cuda(name) => Err(no_cuda()),
        name => {
            card(name).map_err(|error| Failure::bad_input(error.to_string(), error.hint()))?;
            let hint = format!("plan for it with `plimsoll plan RECIPE --device {name}`; run with --device cpu");
            Err(Failure::bad_input(
                format!("`{name}` is a card of the catalog: this version can only plan for it"),
                hint,
            ))
        }
    }
}

/// What a plan is made for: the processor here, or a card that need not be here.
pub fn to_plan_for(machine: &Machine) -> Result<Device, Failure> {
    match machine.device.as_str() {
        // What cannot run here can still be planned for.
        "cpu" => Ok(Device { runs: false, ..cpu(machine, &CpuFacts::gather()) }),
        name if is_cuda(name) => Err(no_cuda()),
        name => card_to_plan_for(name),
    }
}

/// A card of the catalog.
pub fn card_to_plan_for(name: &str) -> Result<Device, Failure> {
    card(name).map(of_card).map_err(|error| Failure::bad_input(error.to_string(), error.hint()))
}

/// All cards of the catalog, by memory.
pub fn catalog_cards() -> Vec<Device> {
    catalog().iter().map(of_card).collect()
}

fn is_cuda(name: &str) -> bool {
    name == "cuda" || name.starts_with("cuda:")
}

fn no_cuda() -> Failure {
    Failure::bad_input("this version runs on the CPU; GPU support is not in it yet", "`--device h200` plans for a card")
}

fn cpu(machine: &Machine, facts: &CpuFacts) -> Device {
    let threads = machine.threads.map_or(facts.threads, usize::from);
    Device {
        name: "cpu".into(),
        total_bytes: facts.total_bytes,
        free_bytes: facts.available_bytes,
        reserve_bytes: 0,
        profile: Profile::cpu(threads),
        target: Target::cpu(threads),
        precision: Precision::F32,
        runs: true,
    }
}

/// Shares of a card's peak that training reaches in practice, and the time between two kernels of a captured graph.
const REACHED_FLOPS: f64 = 0.6;
const REACHED_BANDWIDTH: f64 = 0.8;
const SECONDS_PER_KERNEL: f64 = 1e-6;

/// Mixed precision where the card has tensor cores for it.
fn auto_precision(card: &Card) -> Precision {
    match card.compute_capability {
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
        profile: Profile {
            flops_per_s: card.f32_tflops * 1e12 * REACHED_FLOPS,
            bytes_per_s: card.bandwidth_gb_per_s * 1e9 * REACHED_BANDWIDTH,
            launch_s: SECONDS_PER_KERNEL,
        },
        precision: auto_precision(card),
        runs: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(device: &str) -> Machine {
        Machine { device: device.into(), threads: Some(3) }
    }

    #[test]
    fn only_the_processor_runs() {
        let (device, facts) = processor(&machine("cpu")).unwrap();
        assert_eq!((device.target.threads, device.total_bytes), (3, facts.total_bytes));
        for name in ["cuda", "cuda:1", "h200", "h2000"] {
            let failure = processor(&machine(name)).unwrap_err();
            assert_eq!(failure.code, crate::failure::Code::BadInput, "{name}");
            assert!(failure.hints[0].contains("h200"), "{failure:?}");
        }
    }
}
