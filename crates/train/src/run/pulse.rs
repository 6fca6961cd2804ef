//! How device and machine do at one moment. Asked at the times of events only, never inside a step.

use plimsoll_core::graph::Backend;
use plimsoll_cuda::GpuPulse;
use plimsoll_exec::host::{HostMemory, disk_free_bytes};
use plimsoll_planner::Device;
use plimsoll_runs::DeviceEvent;
use std::path::Path;

/// What cannot be asked is absent, and nothing to end a run for.
pub(super) fn take(device: &Device, out: &Path) -> DeviceEvent {
    let host = HostMemory::gather();
    let gpu = match device.target.backend {
        Backend::Cuda => GpuPulse::gather(device.ordinal),
        Backend::Cpu => of_host(host),
    };
    DeviceEvent {
        free_bytes: gpu.free_bytes,
        used_bytes: gpu.used_bytes,
        total_bytes: gpu.total_bytes,
        host_used_bytes: host.used_bytes,
        host_total_bytes: host.total_bytes,
        process_bytes: host.process_bytes,
        disk_free_bytes: disk_free_bytes(out),
        utilization: gpu.utilization,
        watts: gpu.watts,
        celsius: gpu.celsius,
        ..DeviceEvent::default()
    }
}

/// A CPU's memory is the machine's.
fn of_host(host: HostMemory) -> GpuPulse {
    let free_bytes = host.total_bytes.zip(host.used_bytes).map(|(total, used)| total.saturating_sub(used));
    GpuPulse { total_bytes: host.total_bytes, used_bytes: host.used_bytes, free_bytes, ..GpuPulse::default() }
}
