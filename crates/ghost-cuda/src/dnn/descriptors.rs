//! Versions, handles and descriptors.

use crate::answer::{SUCCESS, Status, put};
use crate::card::card;
use crate::handles::{Handle, put_fresh};
use crate::memory;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    card().cudnn as usize
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetCudartVersion() -> usize {
    card().cuda as usize
}

/// Major, minor or patch level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetProperty(which: c_int, value: *mut c_int) -> Status {
    let version = card().cudnn;
    let part = match which {
        0 => version / 10_000,
        1 => version / 100 % 100,
        _ => version % 100,
    };
    // SAFETY: the caller's place for the answer.
    unsafe { put(value, part) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(_status: Status) -> *const c_char {
    let text: &CStr = c"an error of the stand-in for cuDNN";
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(text: *mut c_char, room: usize) {
    if room > 0 {
        // SAFETY: the caller has `room` bytes.
        unsafe { put(text, 0) };
    }
}

macro_rules! creators {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(descriptor: *mut Handle) -> Status {
            // SAFETY: the caller's place for the answer.
            unsafe { put_fresh(descriptor) }
        }
    )*};
}

/// What a handle takes for itself, as measured on an H200; PyTorch makes one for every thread.
const HANDLE: usize = 10 << 20;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreate(handle: *mut Handle) -> Status {
    memory::keep(HANDLE);
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(handle) }
}

creators!(cudnnCreateFilterDescriptor cudnnCreateConvolutionDescriptor);
creators!(cudnnCreateActivationDescriptor cudnnCreatePoolingDescriptor cudnnCreateCTCLossDescriptor);
creators!(cudnnCreateSpatialTransformerDescriptor);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetStream(_handle: Handle, stream: *mut Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(stream, null_mut()) }
}

/// A generator's state for every thread of the card.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnDropoutGetStatesSize(_handle: Handle, bytes: *mut usize) -> Status {
    let threads = card().multiprocessors as usize * card().threads_per_multiprocessor() as usize;
    // SAFETY: the caller's place for the answer.
    unsafe { put(bytes, threads * 24) }
}

/// What a dropout's descriptor remembers: the share of values that is dropped.
pub struct Dropout {
    pub share: f32,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreateDropoutDescriptor(descriptor: *mut *mut Dropout) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(descriptor, Box::into_raw(Box::new(Dropout { share: 0.0 }))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnDestroyDropoutDescriptor(descriptor: *mut Dropout) -> Status {
    if !descriptor.is_null() {
        // SAFETY: it came from cudnnCreateDropoutDescriptor, and the caller gives it up.
        drop(unsafe { Box::from_raw(descriptor) });
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetDropoutDescriptor(
    descriptor: *mut Dropout,
    _handle: Handle,
    share: f32,
    _states: *mut c_void,
    _bytes: usize,
    _seed: u64,
) -> Status {
    // SAFETY: a descriptor of ours.
    unsafe { put(descriptor, Dropout { share }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnRestoreDropoutDescriptor(
    descriptor: *mut Dropout,
    handle: Handle,
    share: f32,
    states: *mut c_void,
    bytes: usize,
    seed: u64,
) -> Status {
    // SAFETY: as above.
    unsafe { cudnnSetDropoutDescriptor(descriptor, handle, share, states, bytes, seed) }
}

/// What a tensor's descriptor remembers: enough to be asked for the shape of a recurrent layer's weights.
pub struct Tensor {
    pub kind: c_int,
    pub extents: [c_int; 3],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnCreateTensorDescriptor(descriptor: *mut *mut Tensor) -> Status {
    let tensor = Box::new(Tensor { kind: 0, extents: [1; 3] });
    // SAFETY: the caller's place for the answer.
    unsafe { put(descriptor, Box::into_raw(tensor)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnDestroyTensorDescriptor(descriptor: *mut Tensor) -> Status {
    if !descriptor.is_null() {
        // SAFETY: it came from cudnnCreateTensorDescriptor, and the caller gives it up.
        drop(unsafe { Box::from_raw(descriptor) });
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetTensorNdDescriptor(
    descriptor: *const Tensor,
    wanted: c_int,
    kind: *mut c_int,
    dimensions: *mut c_int,
    extents: *mut c_int,
    strides: *mut c_int,
) -> Status {
    // SAFETY: a descriptor of ours, and the caller's places for `wanted` answers.
    unsafe {
        let tensor = &*descriptor;
        put(kind, tensor.kind);
        put(dimensions, 3);
        for place in 0..(wanted.clamp(0, 3) as usize) {
            put(extents.add(place), tensor.extents[place]);
            if !strides.is_null() {
                put(strides.add(place), 1);
            }
        }
    }
    SUCCESS
}

/// The last three arguments of many: what batch norm wants to work with and to keep. Nothing, in PyTorch's mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    _handle: Handle,
    _mode: c_int,
    _ops: c_int,
    _x: *const c_void,
    _z: *const c_void,
    _y: *const c_void,
    _scale: *const c_void,
    _activation: *const c_void,
    bytes: *mut usize,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(bytes, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    _handle: Handle,
    _mode: c_int,
    _ops: c_int,
    _x: *const c_void,
    _y: *const c_void,
    _dy: *const c_void,
    _dz: *const c_void,
    _dx: *const c_void,
    _scale: *const c_void,
    _activation: *const c_void,
    bytes: *mut usize,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(bytes, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    _handle: Handle,
    _mode: c_int,
    _ops: c_int,
    _activation: *const c_void,
    _x: *const c_void,
    bytes: *mut usize,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(bytes, 0) }
}
