//! The one device, its properties and attributes, versions and errors.

use crate::answer::{INVALID_DEVICE, NOT_FOUND, OUT_OF_MEMORY, SUCCESS, Status, put};
use crate::card::card;
use crate::lookup::entry_point;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(count, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDevice(device: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(device, 0) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDevice(device: c_int) -> Status {
    if device == 0 { SUCCESS } else { INVALID_DEVICE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(version, card().cuda) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(version, card().cuda) }
}

/// Where a field of the properties lies: in CUDA 12, and in CUDA 13, which dropped some fields.
struct Place(usize, usize);

const SIZES: [usize; 2] = [1032, 1008];
const TOTAL_MEMORY: Place = Place(288, 288);
const SHARED_PER_BLOCK: Place = Place(296, 296);
const MEMORY_PITCH: Place = Place(312, 312);
const CONSTANT_MEMORY: Place = Place(352, 352);
const TEXTURE_ALIGNMENT: Place = Place(368, 368);
const TEXTURE_PITCH_ALIGNMENT: Place = Place(376, 376);
const SHARED_PER_MULTIPROCESSOR: Place = Place(640, 624);
const SHARED_PER_BLOCK_OPTIN: Place = Place(696, 672);
const REGISTERS_PER_BLOCK: Place = Place(304, 304);
const WARP: Place = Place(308, 308);
const THREADS_PER_BLOCK: Place = Place(320, 320);
const THREADS_BY_DIMENSION: Place = Place(324, 324);
const GRID_BY_DIMENSION: Place = Place(336, 336);
const MAJOR: Place = Place(360, 360);
const MINOR: Place = Place(364, 364);
const MULTIPROCESSORS: Place = Place(388, 384);
const MAPS_HOST_MEMORY: Place = Place(400, 392);
const CONCURRENT_KERNELS: Place = Place(576, 560);
const PCI_BUS: Place = Place(584, 568);
const COPY_ENGINES: Place = Place(600, 584);
const UNIFIED_ADDRESSING: Place = Place(604, 588);
const BUS_WIDTH: Place = Place(612, 592);
const L2_CACHE: Place = Place(616, 596);
const THREADS_PER_MULTIPROCESSOR: Place = Place(624, 604);
const GLOBAL_L1: Place = Place(632, 612);
const LOCAL_L1: Place = Place(636, 616);
const REGISTERS_PER_MULTIPROCESSOR: Place = Place(648, 632);
const MANAGED_MEMORY: Place = Place(652, 636);
const COOPERATIVE_LAUNCH: Place = Place(688, 668);
const BLOCKS_PER_MULTIPROCESSOR: Place = Place(712, 688);
const MEMORY_POOLS: Place = Place(744, 720);

/// The bytes of a `cudaDeviceProp`.
struct Properties {
    bytes: Vec<u8>,
    newer: bool,
}

impl Properties {
    fn put(&mut self, place: &Place, value: &[u8]) {
        let at = if self.newer { place.1 } else { place.0 };
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn int(&mut self, place: &Place, value: i32) {
        self.put(place, &value.to_ne_bytes());
    }

    fn ints(&mut self, place: &Place, values: [i32; 3]) {
        self.put(place, &values.map(i32::to_ne_bytes).concat());
    }

    fn size(&mut self, place: &Place, value: u64) {
        self.put(place, &value.to_ne_bytes());
    }

    fn of_card(newer: bool) -> Properties {
        let mut all = Properties { bytes: vec![0; SIZES[usize::from(newer)]], newer };
        let name = &card().name.as_bytes()[..card().name.len().min(255)];
        all.put(&Place(0, 0), name);
        all.memory();
        all.limits();
        all.abilities();
        all
    }

    fn memory(&mut self) {
        self.size(&TOTAL_MEMORY, card().total_bytes);
        self.size(&SHARED_PER_BLOCK, 49_152);
        self.size(&MEMORY_PITCH, 2_147_483_647);
        self.size(&CONSTANT_MEMORY, 65_536);
        self.size(&TEXTURE_ALIGNMENT, 512);
        self.size(&TEXTURE_PITCH_ALIGNMENT, 32);
        self.size(&SHARED_PER_MULTIPROCESSOR, card().shared_bytes() as u64);
        self.size(&SHARED_PER_BLOCK_OPTIN, card().shared_optin_bytes() as u64);
        self.int(&BUS_WIDTH, 384);
        self.int(&L2_CACHE, card().cache_bytes);
    }

    fn limits(&mut self) {
        self.int(&REGISTERS_PER_BLOCK, 65_536);
        self.int(&WARP, 32);
        self.int(&THREADS_PER_BLOCK, 1024);
        self.ints(&THREADS_BY_DIMENSION, [1024, 1024, 64]);
        self.ints(&GRID_BY_DIMENSION, [2_147_483_647, 65_535, 65_535]);
        self.int(&MAJOR, card().major);
        self.int(&MINOR, card().minor);
        self.int(&MULTIPROCESSORS, card().multiprocessors);
        self.int(&THREADS_PER_MULTIPROCESSOR, card().threads_per_multiprocessor());
        self.int(&REGISTERS_PER_MULTIPROCESSOR, 65_536);
        self.int(&BLOCKS_PER_MULTIPROCESSOR, card().blocks_per_multiprocessor());
        self.int(&COPY_ENGINES, 3);
        self.int(&PCI_BUS, 1);
    }

    fn abilities(&mut self) {
        let all = [
            MAPS_HOST_MEMORY,
            CONCURRENT_KERNELS,
            UNIFIED_ADDRESSING,
            GLOBAL_L1,
            LOCAL_L1,
            MANAGED_MEMORY,
            COOPERATIVE_LAUNCH,
            MEMORY_POOLS,
        ];
        all.iter().for_each(|place| self.int(place, 1));
    }

    /// # Safety
    /// `place` is valid for the properties' size.
    unsafe fn write(&self, place: *mut c_void) -> Status {
        // SAFETY: by the contract above.
        unsafe { place.cast::<u8>().copy_from(self.bytes.as_ptr(), self.bytes.len()) };
        SUCCESS
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceProperties(properties: *mut c_void, _device: c_int) -> Status {
    // SAFETY: the caller's struct, of its own CUDA's size.
    unsafe { Properties::of_card(card().cuda >= 13_000).write(properties) }
}

/// The name that CUDA 12 gives to the struct it has had since then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceProperties_v2(properties: *mut c_void, _device: c_int) -> Status {
    // SAFETY: the caller's struct, of CUDA 12's size.
    unsafe { Properties::of_card(false).write(properties) }
}

/// Attributes by their numbers, which runtime and driver share.
pub fn attribute(number: c_int) -> c_int {
    match number {
        1..=3 => 1024,
        4 => 64,
        5 => 2_147_483_647,
        6 | 7 => 65_535,
        8 => 49_152,
        9 | 12 | 82 => 65_536,
        10 => 32,
        16 => card().multiprocessors,
        38 => card().cache_bytes,
        39 => card().threads_per_multiprocessor(),
        75 => card().major,
        76 => card().minor,
        81 => card().shared_bytes(),
        97 => card().shared_optin_bytes(),
        106 => card().blocks_per_multiprocessor(),
        // Concurrent kernels, unified addressing, managed memory, host registration, cooperative launch, memory
        // pools, virtual memory management.
        31 | 41 | 83 | 89 | 90 | 95 | 102 | 115 => 1,
        _ => 0,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetAttribute(value: *mut c_int, number: c_int, _device: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(value, attribute(number)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetPCIBusId(text: *mut c_char, room: c_int, _device: c_int) -> Status {
    let id = b"0000:01:00.0\0";
    if room as usize >= id.len() {
        // SAFETY: the caller has `room` bytes.
        unsafe { text.cast::<u8>().copy_from(id.as_ptr(), id.len()) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Status {
    // SAFETY: the caller's places for the answers.
    unsafe { put(least, 0) + put(greatest, -5) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceCanAccessPeer(able: *mut c_int, _device: c_int, _peer: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(able, 0) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(status: Status) -> *const c_char {
    let text: &CStr = match status {
        SUCCESS => c"no error",
        OUT_OF_MEMORY => c"out of memory",
        INVALID_DEVICE => c"invalid device ordinal",
        _ => c"an error that this stand-in has no words for",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(status: Status) -> *const c_char {
    let name: &CStr = match status {
        SUCCESS => c"cudaSuccess",
        OUT_OF_MEMORY => c"cudaErrorMemoryAllocation",
        INVALID_DEVICE => c"cudaErrorInvalidDevice",
        _ => c"cudaErrorUnknown",
    };
    name.as_ptr()
}

/// A driver function by name, as the runtime finds it for PyTorch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    function: *mut *mut c_void,
    _version: c_uint,
    _flags: c_ulonglong,
    found: *mut c_int,
) -> Status {
    // SAFETY: a C string of the caller's, and its places for the answers.
    unsafe {
        let entry = entry_point(CStr::from_ptr(name));
        put(function, entry.unwrap_or(null_mut()));
        put(found, c_int::from(entry.is_none()));
        if entry.is_some() { SUCCESS } else { NOT_FOUND }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    function: *mut *mut c_void,
    flags: c_ulonglong,
    found: *mut c_int,
) -> Status {
    // SAFETY: as above.
    unsafe { cudaGetDriverEntryPointByVersion(name, function, 0, flags, found) }
}
