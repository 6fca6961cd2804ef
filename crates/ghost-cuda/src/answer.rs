//! What calls answer, and writing through pointers that callers may leave out.

use std::ffi::c_int;

/// Error codes of the runtime and the driver, where they agree.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const INVALID_VALUE: Status = 1;
pub(crate) const OUT_OF_MEMORY: Status = 2;
pub(crate) const INVALID_DEVICE: Status = 101;
pub(crate) const NOT_FOUND: Status = 500;
pub(crate) const NOT_SUPPORTED: Status = 801;

/// Writes an answer where the caller wants one.
///
/// # Safety
/// `place` is null or valid for a write of `T`.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Status {
    if !place.is_null() {
        // SAFETY: not null, and valid by the contract above.
        unsafe { place.write_unaligned(value) };
    }
    SUCCESS
}
