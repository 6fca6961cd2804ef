//! Handles that nobody looks behind.

use crate::answer::{Status, put};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) type Handle = *mut c_void;

static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

/// A new one, never null.
pub(crate) fn fresh() -> Handle {
    NEXT.fetch_add(16, Ordering::Relaxed) as Handle
}

/// # Safety
/// `place` is null or valid for a write.
pub(crate) unsafe fn put_fresh(place: *mut Handle) -> Status {
    // SAFETY: by the contract above.
    unsafe { put(place, fresh()) }
}
