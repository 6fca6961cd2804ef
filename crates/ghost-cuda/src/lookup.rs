//! Functions by name, wherever they were loaded from.

use std::ffi::{CStr, CString, c_char, c_void};

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The function of this name, here or in the shim; newer names (`…_v2`) serve where the plain one is missing.
pub(crate) fn entry_point(name: &CStr) -> Option<*mut c_void> {
    let newer = |version: &str| CString::new([name.to_bytes(), version.as_bytes()].concat()).ok();
    find(name)
        .or_else(|| newer("_v2").and_then(|name| find(&name)))
        .or_else(|| newer("_v3").and_then(|name| find(&name)))
}

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: null asks for all that is loaded; the name is a C string.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
