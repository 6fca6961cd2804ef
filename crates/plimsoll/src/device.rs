//! Devices: this machine's CPU and GPUs, and cards that are not here.

use crate::profiles::{self, Measured};
use plimsoll_base::explain::{Explain, Fault};
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_core::plan::Profile;
use plimsoll_cuda::{GpuFacts, estimated_reserve_bytes, missing_libraries};
use plimsoll_exec::host::CpuFacts;
use plimsoll_planner::cards::{Card, UnknownCard, card};
use plimsoll_planner::{Beside, Device as Planned};
use plimsoll_train::tasks::{graph_bytes, loader_bytes};
use std::ops::{Deref, DerefMut};
use thiserror::Error;

/// A device to plan for or to train on.
///
/// ```
/// use plimsoll::Device;
///
/// let card = Device::from_name("rtx-4090")?;
/// assert!(!card.runs, "it need not be here to plan for it");
/// let here = Device::detect()?;
/// assert!(here.free_bytes <= here.total_bytes);
/// # Ok::<(), plimsoll::DeviceError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    device: Planned,
    facts: Option<Facts>,
    notes: Vec<String>,
    why_no_gpu: Option<String>,
}

/// What this program takes beside data and arena, at most: its code, its graphs, its threads. Every process that trains
/// is held against it (`tools/memory/within-limit`).
const PROGRAM_BYTES: u64 = 32 << 20;

/// What the system says about a device of this machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// The CPU and its memory.
    Cpu(CpuFacts),
    /// A card.
    Gpu(GpuFacts),
}

/// Why there is no such device.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// Neither here nor in the catalog.
    #[error(transparent)]
    Unknown(#[from] UnknownCard),
    /// Not what a device is called.
    #[error("`{0}` names no device")]
    Malformed(String),
    /// It is here, and cannot be used.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl Explain for DeviceError {
    fn fault(&self) -> Fault {
        if let DeviceError::Cuda(error) = self { error.fault() } else { Fault::BadInput }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            DeviceError::Unknown(error) => vec![error.hint()],
            DeviceError::Malformed(_) => vec!["the first GPU is cuda:0".into()],
            DeviceError::Cuda(error) => error.hints(),
        }
    }
}

impl Device {
    /// A GPU if one can be used here, otherwise the CPU; [`Device::why_no_gpu`] then says why.
    pub fn detect() -> Result<Device, DeviceError> {
        Device::named("auto", None)
    }

    /// `auto`, `cpu`, `cuda`, `cuda:1`, or a card of the catalog: `t4`, `rtx-4090`, `h200`, …
    pub fn from_name(name: &str) -> Result<Device, DeviceError> {
        Device::named(name, None)
    }

    /// The same, with this many threads where it is the CPU.
    pub fn named(name: &str, threads: Option<usize>) -> Result<Device, DeviceError> {
        match (name, name.strip_prefix("cuda")) {
            ("auto", _) => Ok(Device::auto(threads)),
            ("cpu", _) => Ok(Device::cpu(threads)),
            (_, Some("")) => Device::gpu(0),
            (_, Some(rest)) if rest.starts_with(':') => {
                let ordinal = rest[1..].parse().map_err(|_| DeviceError::Malformed(name.into()))?;
                Device::gpu(ordinal)
            }
            _ => Ok(Device::from_card(card(name)?)),
        }
    }

    /// A card that need not be here: it can be planned for.
    pub fn from_card(card: &Card) -> Device {
        Device::planned(Planned::from_card(card))
    }

    /// A card of which nothing but its memory is known, as an out-of-memory error tells it: one of the catalog that has
    /// about as much, with just that memory.
    pub fn of_memory(total_bytes: u64) -> Device {
        Device::planned(Planned::of_memory(total_bytes))
    }

    fn planned(device: Planned) -> Device {
        Device { device, facts: None, notes: Vec::new(), why_no_gpu: None }
    }

    fn auto(threads: Option<usize>) -> Device {
        Device::gpu(0).unwrap_or_else(|why| Device { why_no_gpu: Some(why.to_string()), ..Device::cpu(threads) })
    }

    fn cpu(threads: Option<usize>) -> Device {
        let (facts, mut notes) = (CpuFacts::gather(), Vec::new());
        let threads = threads.unwrap_or(facts.threads);
        let measured = profiles::of(&Measured::Cpu { name: facts.name.clone(), threads }, &mut notes);
        let profile = measured.unwrap_or_else(|| Profile::cpu(threads));
        let device = Planned {
            total_bytes: facts.total_bytes,
            reserve_bytes: PROGRAM_BYTES,
            beside: Beside { recipe: loader_bytes, plan: graph_bytes },
            profile,
            ..Planned::cpu(threads, facts.available_bytes)
        };
        Device { device, facts: Some(Facts::Cpu(facts)), notes, why_no_gpu: None }
    }

    fn gpu(ordinal: usize) -> Result<Device, DeviceError> {
        let (facts, mut notes) = (GpuFacts::gather(ordinal)?, Vec::new());
        if let Some(library) = missing_libraries().first() {
            return Err(CudaError::Missing { library: library.name(), remedy: library.remedy() }.into());
        }
        let mut device = unmeasured(&facts);
        // A card that cannot be opened, because it is too old or another process left nothing, can still be planned for.
        if let Ok(Some(bytes)) = estimated_reserve_bytes(ordinal) {
            device.reserve_bytes = bytes;
        }
        if let Some(profile) = profiles::of(&Measured::Gpu { name: facts.name.clone() }, &mut notes) {
            device.profile = profile;
        }
        Ok(Device { device, facts: Some(Facts::Gpu(facts)), notes, why_no_gpu: None })
    }

    /// The same to plan for only.
    pub fn to_plan_for(mut self) -> Device {
        self.device.runs = false;
        self
    }

    /// What the system says about it; `None` for cards that are not here.
    pub fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }

    /// What is worth knowing about how it was found: calibrations that could not be used.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Why it is the CPU, where a GPU was looked for first.
    pub fn why_no_gpu(&self) -> Option<&str> {
        self.why_no_gpu.as_deref()
    }

    /// What a calibration of it is kept under.
    pub fn measured(&self) -> Option<Measured> {
        let threads = self.device.target.threads;
        self.facts.as_ref().map(|facts| match facts {
            Facts::Cpu(facts) => Measured::Cpu { name: facts.name.clone(), threads },
            Facts::Gpu(facts) => Measured::Gpu { name: facts.name.clone() },
        })
    }

    /// Forgets what calibrations found: rates are the built-in ones again.
    pub fn forget_measurements(&mut self) {
        self.device.profile = match &self.facts {
            Some(Facts::Gpu(facts)) => unmeasured(facts).profile,
            Some(Facts::Cpu(_)) => Profile::cpu(self.device.target.threads),
            None => return,
        };
    }
}

fn unmeasured(facts: &GpuFacts) -> Planned {
    let memory = [facts.total_bytes, facts.free_bytes];
    Planned::from_gpu((facts.ordinal, &facts.name), facts.compute_capability, memory)
}

impl Deref for Device {
    type Target = Planned;

    fn deref(&self) -> &Planned {
        &self.device
    }
}

impl DerefMut for Device {
    fn deref_mut(&mut self) -> &mut Planned {
        &mut self.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_runs_and_cards_of_the_catalog_do_not() {
        let cpu = Device::named("cpu", Some(3)).unwrap();
        let Some(Facts::Cpu(facts)) = cpu.facts() else { panic!("the CPU is no GPU") };
        assert_eq!((cpu.target.threads, cpu.total_bytes, cpu.runs), (3, facts.total_bytes, true));
        let card = Device::from_name("h200").unwrap();
        assert!(!card.runs && card.facts().is_none());
    }

    #[test]
    fn what_names_no_device_is_bad_input_with_a_hint() {
        for name in ["h2000", "cuda:x", "cuda:99", ""] {
            let error = Device::from_name(name).unwrap_err();
            assert_eq!(error.fault(), Fault::BadInput, "{name}");
            assert!(!error.hints().is_empty(), "{error:?}");
        }
    }
}
