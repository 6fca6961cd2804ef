//! The few calls of the driver that the executor needs, each with its error. Nothing here allocates but what it says.

use super::compile::OLDEST_ARCH;
use super::faults::fault;
use super::libraries::Library;
use cudarc::driver::{DriverError, sys};
use plimsoll_core::kernels::cuda::CudaError;
use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

/// The driver of CUDA 13.0, which the libraries of that version need.
const OLDEST_DRIVER: i32 = 13000;

/// Turns the driver's answer into a result that names the call.
pub(super) fn check(call: &'static str, code: sys::CUresult) -> Result<(), CudaError> {
    if code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return Err(CudaError::Full { call });
    }
    let in_its_words = |error: DriverError| {
        let text = |found: Result<&CStr, _>| found.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        CudaError::Driver { call, cause: format!("{}: {}", text(error.error_name()), text(error.error_string())) }
    };
    code.result().map_err(|error| fault(call, code).unwrap_or_else(|| in_its_words(error)))
}

/// Starts the driver, if there is one that is new enough, and counts the devices.
pub(crate) fn device_count() -> Result<usize, CudaError> {
    Library::Driver.load()?;
    let (mut version, mut count) = (0, 0);
    // SAFETY: queries into integers.
    unsafe {
        check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
        refuse_old(version)?;
        check("cuInit", sys::cuInit(0))?;
        check("cuDeviceGetCount", sys::cuDeviceGetCount(&mut count))?;
    }
    Ok(count.max(0) as usize)
}

/// `version` as the driver gives it: 13000 is CUDA 13.0.
fn refuse_old(version: i32) -> Result<(), CudaError> {
    if version >= OLDEST_DRIVER {
        return Ok(());
    }
    let cause = format!("the driver speaks CUDA {}.{}, and 13.0 is needed", version / 1000, version % 1000 / 10);
    Err(CudaError::Unusable { cause, hint: Library::Driver.remedy().into() })
}

/// What the driver tells about a device without taking any of its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverFacts {
    pub name: String,
    pub total_bytes: u64,
    /// Compute capability 9.0 is 90.
    pub arch: u32,
    /// As the management library names it too: `00000000:0F:00.0`.
    pub pci_bus_id: String,
}

impl DriverFacts {
    pub(crate) fn gather(ordinal: usize) -> Result<DriverFacts, CudaError> {
        let device = find(ordinal)?;
        let (mut name, mut bus, mut total, mut major, mut minor) = ([0; 96], [0; 32], 0, 0, 0);
        use sys::CUdevice_attribute_enum::*;
        // SAFETY: queries into buffers whose sizes are given.
        unsafe {
            check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))?;
            check("cuDeviceGetPCIBusId", sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), bus.len() as i32, device))?;
            check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&mut total, device))?;
            let attribute =
                |value: &mut i32, which| check("cuDeviceGetAttribute", sys::cuDeviceGetAttribute(value, which, device));
            attribute(&mut major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            attribute(&mut minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        }
        // SAFETY: the driver ends both with a zero.
        let text = |chars: &[c_char]| unsafe { CStr::from_ptr(chars.as_ptr()) }.to_string_lossy().into_owned();
        let arch = (10 * major + minor).max(0) as u32;
        Ok(DriverFacts { name: text(&name), total_bytes: total as u64, arch, pci_bus_id: text(&bus) })
    }
}

fn find(ordinal: usize) -> Result<sys::CUdevice, CudaError> {
    let count = device_count()?;
    if ordinal >= count {
        let cause = format!("there is no device {ordinal}: the driver sees {count}");
        return Err(CudaError::Unusable { cause, hint: "`plimsoll devices` lists them".into() });
    }
    let mut device = 0;
    // SAFETY: a query; the number is below the count.
    unsafe { check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal as i32))? };
    Ok(device)
}

/// A device with its context, current on the thread that opened it.
pub(super) struct Context {
    device: sys::CUdevice,
    pub arch: u32,
    pub name: String,
}

impl Context {
    pub(crate) fn open(ordinal: usize) -> Result<Context, CudaError> {
        let (facts, device) = (DriverFacts::gather(ordinal)?, find(ordinal)?);
        if facts.arch < OLDEST_ARCH {
            return Err(CudaError::Unusable {
                cause: format!(
                    "{} has compute capability {}.{}: kernels need 7.5",
                    facts.name,
                    facts.arch / 10,
                    facts.arch % 10
                ),
                hint:
                    "plans for older cards can be made with --device and a name of the catalog; train with --device cpu"
                        .into(),
            });
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: the device exists; the context is released when `Context` is dropped.
        unsafe {
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
            let opened = Context { device, arch: facts.arch, name: facts.name };
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            Ok(opened)
        }
    }

    /// Bytes free and in all, of the whole device.
    pub(crate) fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: a query; the context is current.
        unsafe { check("cuMemGetInfo", sys::cuMemGetInfo_v2(&mut free, &mut total))? };
        Ok((free as u64, total as u64))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// The one allocation on the device.
pub(super) struct DeviceArena {
    pub base: u64,
    pub bytes: usize,
}

impl DeviceArena {
    pub(crate) fn new(bytes: usize) -> Result<DeviceArena, CudaError> {
        let mut base = 0;
        // SAFETY: freed when dropped.
        match unsafe { sys::cuMemAlloc_v2(&mut base, bytes.max(1)) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(CudaError::OutOfMemory { bytes: bytes as u64 }),
            code => check("cuMemAlloc", code).map(|()| DeviceArena { base, bytes }),
        }
    }

    pub(crate) fn holds(&self, address: u64) -> bool {
        (self.base..self.base + self.bytes as u64).contains(&address)
    }
}

impl Drop for DeviceArena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; the device is idle, since streams are dropped after synchronizing.
        unsafe { sys::cuMemFree_v2(self.base) };
    }
}

/// Pinned host memory that the device copies from and to, at an address that means the same to both.
pub(super) struct HostRegion {
    pub base: u64,
    bytes: usize,
}

impl HostRegion {
    /// Nothing is taken for nothing. What it holds at first is open.
    pub(crate) fn new(bytes: usize) -> Result<HostRegion, CudaError> {
        let mut memory: *mut c_void = std::ptr::null_mut();
        if bytes > 0 {
            // SAFETY: freed when dropped.
            match unsafe { sys::cuMemHostAlloc(&mut memory, bytes, 0) } {
                sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(CudaError::HostMemory { bytes: bytes as u64 }),
                code => check("cuMemHostAlloc", code)?,
            }
        }
        Ok(HostRegion { base: memory as u64, bytes })
    }

    /// What the device has copied there; it must not be copying now.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this many bytes, or empty.
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }

    /// For the host to write; the device must not be reading what is written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively on this side.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) }
    }

    fn start(&self) -> *mut u8 {
        if self.base == 0 { std::ptr::dangling_mut() } else { self.base as *mut u8 }
    }
}

impl Drop for HostRegion {
    fn drop(&mut self) {
        if self.base != 0 {
            // SAFETY: allocated in `new`; the stream that used it has been waited for.
            unsafe { sys::cuMemFreeHost(self.base as *mut c_void) };
        }
    }
}

pub(super) struct Stream(pub sys::CUstream);

impl Stream {
    pub(crate) fn new() -> Result<Stream, CudaError> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: destroyed when dropped.
        unsafe {
            let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            check("cuStreamCreate", sys::cuStreamCreate(&mut stream, flags))?;
        }
        Ok(Stream(stream))
    }

    /// What is put on it from now on waits for the event, as it was last recorded.
    pub(crate) fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both exist.
        unsafe { check("cuStreamWaitEvent", sys::cuStreamWaitEvent(self.0, event.0, 0)) }
    }

    /// Waits for everything put on it. Errors of kernels show here.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the stream exists.
        unsafe { check("cuStreamSynchronize", sys::cuStreamSynchronize(self.0)) }
    }

    /// What is put on it from now on begins so many milliseconds later.
    pub(crate) fn pause(&self, ms: u32) -> Result<(), CudaError> {
        /// # Safety
        /// None is needed: `ms` is a number and never followed.
        unsafe extern "C" fn sleep(ms: *mut c_void) {
            std::thread::sleep(Duration::from_millis(ms as u64));
        }
        // SAFETY: the number itself is handed on, not a place it lies at.
        unsafe { check("cuLaunchHostFunc", sys::cuLaunchHostFunc(self.0, Some(sleep), ms as usize as *mut c_void)) }
    }

    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the range lies in the arena: the plan was verified.
        unsafe { check("cuMemsetD8Async", sys::cuMemsetD8Async(address, byte, bytes, self.0)) }
    }

    /// Four bytes. Unlike a copy, it does not change over to the engine that copies.
    pub(crate) fn set_word(&self, address: u64, word: u32) -> Result<(), CudaError> {
        // SAFETY: as above; slots are aligned.
        unsafe { check("cuMemsetD32Async", sys::cuMemsetD32Async(address, word, 1, self.0)) }
    }

    /// Between any two of the arena and the host region.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: as above; the host region is pinned, so the driver knows both sides by their addresses.
        unsafe { check("cuMemcpyAsync", sys::cuMemcpyAsync(to, from, bytes, self.0)) }
    }

    /// Waits for the stream, then copies to the host.
    pub(crate) fn read(&self, from: u64, to: &mut [u8]) -> Result<(), CudaError> {
        // SAFETY: the host's buffer lives until the wait is over.
        unsafe {
            check("cuMemcpyAsync", sys::cuMemcpyAsync(to.as_mut_ptr() as u64, from, to.len(), self.0))?;
        }
        self.wait()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created in `new`; nothing runs on it any more after the wait.
        unsafe {
            sys::cuStreamSynchronize(self.0);
            sys::cuStreamDestroy_v2(self.0);
        }
    }
}

pub(super) struct Event(sys::CUevent);

impl Event {
    pub(crate) fn new() -> Result<Event, CudaError> {
        let mut event = std::ptr::null_mut();
        // SAFETY: destroyed when dropped.
        unsafe { check("cuEventCreate", sys::cuEventCreate(&mut event, 0))? };
        Ok(Event(event))
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both exist.
        unsafe { check("cuEventRecord", sys::cuEventRecord(self.0, stream.0)) }
    }

    /// Becomes a node of the graph that is being captured; each launch of that graph records it.
    pub(crate) fn record_in_graph(&self, stream: &Stream) -> Result<(), CudaError> {
        let external = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both exist.
        unsafe { check("cuEventRecordWithFlags", sys::cuEventRecordWithFlags(self.0, stream.0, external)) }
    }

    /// Waits until what was on the stream when it was recorded is done.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the event exists.
        unsafe { check("cuEventSynchronize", sys::cuEventSynchronize(self.0)) }
    }

    pub(crate) fn ms_since(&self, start: &Event) -> Result<f32, CudaError> {
        let mut ms = 0.0;
        // SAFETY: both exist.
        unsafe { check("cuEventElapsedTime", sys::cuEventElapsedTime_v2(&mut ms, start.0, self.0))? };
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created in `new`.
        unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_too_old_is_refused_with_the_one_that_is_needed() {
        assert_eq!(refuse_old(13000), Ok(()));
        let Err(CudaError::Unusable { cause, hint }) = refuse_old(12080) else { panic!("12.8 passed") };
        assert_eq!(cause, "the driver speaks CUDA 12.8, and 13.0 is needed");
        assert!(hint.contains("580"), "{hint}");
    }
}
