//! The GPUs here, as the driver and its management library describe them. Nothing of their memory is taken for it.

#![deny(missing_docs)]

use crate::{DriverFacts, Library, device_count};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_exec::host::processes::{self, Holder};
use serde::Serialize;
use std::ffi::OsStr;
use std::sync::OnceLock;

/// One GPU now. What the management library does not tell is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuFacts {
    /// Which of several, as the driver counts them.
    pub ordinal: usize,
    /// What the driver calls it.
    pub name: String,
    /// (major, minor)
    pub compute_capability: (u32, u32),
    /// All of its memory.
    pub total_bytes: u64,
    /// What of it nobody holds.
    pub free_bytes: u64,
    /// Other processes that hold its memory, largest first.
    pub holders: Vec<Holder>,
    /// Percent of the last moments in which something ran.
    pub utilization: Option<u32>,
    /// What it draws.
    pub watts: Option<f64>,
    /// How warm it is.
    pub celsius: Option<u32>,
}

impl GpuFacts {
    /// Asks the driver and its management library.
    pub fn gather(ordinal: usize) -> Result<GpuFacts, CudaError> {
        let driver = DriverFacts::gather(ordinal)?;
        let device = nvml().and_then(|nvml| nvml.device_by_pci_bus_id(driver.pci_bus_id.as_str()).ok());
        let memory = device.as_ref().and_then(|device| device.memory_info().ok());
        Ok(GpuFacts {
            ordinal,
            name: driver.name,
            compute_capability: (driver.arch / 10, driver.arch % 10),
            total_bytes: memory.as_ref().map_or(driver.total_bytes, |memory| memory.total),
            free_bytes: memory.as_ref().map_or(driver.total_bytes, |memory| memory.free),
            holders: device.as_ref().map_or_else(Vec::new, holders),
            utilization: device.as_ref().and_then(|d| d.utilization_rates().ok()).map(|rates| rates.gpu),
            watts: device.as_ref().and_then(|d| d.power_usage().ok()).map(|milliwatts| f64::from(milliwatts) / 1e3),
            celsius: device.as_ref().and_then(|d| d.temperature(TemperatureSensor::Gpu).ok()),
        })
    }
}

/// How a GPU does at one moment: what can be asked in the middle of a run. Absent is what is not told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuPulse {
    /// All of its memory.
    pub total_bytes: Option<u64>,
    /// What of it nobody holds.
    pub free_bytes: Option<u64>,
    /// What of it anybody holds.
    pub used_bytes: Option<u64>,
    /// Percent of the last moments in which something ran.
    pub utilization: Option<u32>,
    /// What it draws.
    pub watts: Option<f64>,
    /// How warm it is.
    pub celsius: Option<u32>,
}

impl GpuPulse {
    /// Without the management library nothing of it is known.
    pub fn gather(ordinal: usize) -> GpuPulse {
        let Ok(driver) = DriverFacts::gather(ordinal) else { return GpuPulse::default() };
        let device = nvml().and_then(|nvml| nvml.device_by_pci_bus_id(driver.pci_bus_id.as_str()).ok());
        let Some(device) = device else {
            return GpuPulse { total_bytes: Some(driver.total_bytes), ..GpuPulse::default() };
        };
        let memory = device.memory_info().ok();
        GpuPulse {
            total_bytes: memory.as_ref().map(|memory| memory.total),
            free_bytes: memory.as_ref().map(|memory| memory.free),
            used_bytes: memory.as_ref().map(|memory| memory.used),
            utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
            watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        }
    }
}

/// All GPUs, or why there are none.
pub fn gpus() -> Result<Vec<GpuFacts>, CudaError> {
    (0..device_count()?).map(GpuFacts::gather).collect()
}

/// Libraries that running on a GPU would need and that are not here.
pub fn missing_libraries() -> Vec<Library> {
    Library::ALL.into_iter().filter(|library| !library.is_here()).collect()
}

/// Free bytes of a device, before anything is done with it; `None` without the management library.
pub(crate) fn gpu_free_bytes(ordinal: usize) -> Option<u64> {
    let driver = DriverFacts::gather(ordinal).ok()?;
    let memory = nvml()?.device_by_pci_bus_id(driver.pci_bus_id.as_str()).ok()?.memory_info().ok()?;
    Some(memory.free)
}

/// What the driver says that this process holds of a device; `None` where it does not tell, as in some containers.
pub(crate) fn own_gpu_bytes(ordinal: usize) -> Option<u64> {
    let driver = DriverFacts::gather(ordinal).ok()?;
    let device = nvml()?.device_by_pci_bus_id(driver.pci_bus_id.as_str()).ok()?;
    let own = device.running_compute_processes().ok()?.into_iter().find(|process| process.pid == std::process::id())?;
    match own.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    }
}

/// The driver's own version; `None` without the management library.
pub(crate) fn driver_version() -> Option<String> {
    nvml()?.sys_driver_version().ok()
}

/// Opened once; where there is none it is looked for again, as a driver may be loaded meanwhile.
fn nvml() -> Option<&'static Nvml> {
    static OPENED: OnceLock<Nvml> = OnceLock::new();
    if OPENED.get().is_none() {
        // Of two threads that open it at once the second one's is closed again.
        OPENED.set(Nvml::builder().lib_path(OsStr::new("libnvidia-ml.so.1")).init().ok()?).ok();
    }
    OPENED.get()
}

fn holders(device: &nvml_wrapper::Device<'_>) -> Vec<Holder> {
    let lists = [device.running_compute_processes(), device.running_graphics_processes()];
    let mut holders: Vec<Holder> = Vec::new();
    for process in lists.into_iter().flatten().flatten().filter(|process| process.pid != std::process::id()) {
        let UsedGpuMemory::Used(bytes) = process.used_gpu_memory else { continue };
        if holders.iter().all(|known| known.pid != process.pid) {
            holders.push(Holder { pid: process.pid, name: processes::name(process.pid), bytes });
        }
    }
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.bytes), holder.pid));
    holders
}
