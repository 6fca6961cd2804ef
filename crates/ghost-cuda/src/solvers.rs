//! cuSOLVER and cuSPARSE: handles, and sizes of workspaces that are not known here, and said so.

use crate::answer::{Status, put};
use crate::handles::{Handle, put_fresh};
use crate::probe::guessed;
use std::ffi::{CStr, c_int};

macro_rules! creators {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *mut Handle) -> Status {
            // SAFETY: the caller's place for the answer.
            unsafe { put_fresh(handle) }
        }
    )*};
}

creators!(cusolverDnCreate cusolverDnCreateParams cusolverDnCreateSyevjInfo cusolverDnCreateGesvdjInfo);
creators!(cusparseCreate cusparseCreateMatDescr cusparseCreateBsrsm2Info cusparseCreateBsrsv2Info);
creators!(cusparseCreateCsr cusparseCreateCoo cusparseCreateDnMat cusparseCreateDnVec);
creators!(cusparseSpGEMM_createDescr cusparseSpSM_createDescr cusparseSpSV_createDescr);

unsafe fn nothing<T: Default>(name: &'static CStr, size: *mut T) -> Status {
    guessed(name);
    // SAFETY: the caller's place for the answer.
    unsafe { put(size, T::default()) }
}

/// A function that answers how many elements it wants to work with, behind arguments that do not matter.
macro_rules! work_size {
    ($name:ident $text:literal $kind:ty, $($skipped:ident)*) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($skipped: usize,)* size: *mut $kind) -> Status {
            let _ = ($($skipped,)*);
            // SAFETY: the caller's place for the answer.
            unsafe { nothing($text, size) }
        }
    };
}

work_size!(cusolverDnSgeqrf_bufferSize c"cusolverDnSgeqrf_bufferSize" c_int, a b c d e);
work_size!(cusolverDnDgeqrf_bufferSize c"cusolverDnDgeqrf_bufferSize" c_int, a b c d e);
work_size!(cusolverDnSgetrf_bufferSize c"cusolverDnSgetrf_bufferSize" c_int, a b c d e);
work_size!(cusolverDnDgetrf_bufferSize c"cusolverDnDgetrf_bufferSize" c_int, a b c d e);
work_size!(cusolverDnSpotrf_bufferSize c"cusolverDnSpotrf_bufferSize" c_int, a b c d e);
work_size!(cusolverDnDpotrf_bufferSize c"cusolverDnDpotrf_bufferSize" c_int, a b c d e);
work_size!(cusolverDnSorgqr_bufferSize c"cusolverDnSorgqr_bufferSize" c_int, a b c d e f g);
work_size!(cusolverDnDorgqr_bufferSize c"cusolverDnDorgqr_bufferSize" c_int, a b c d e f g);
work_size!(cusolverDnSsyevd_bufferSize c"cusolverDnSsyevd_bufferSize" c_int, a b c d e f g);
work_size!(cusolverDnDsyevd_bufferSize c"cusolverDnDsyevd_bufferSize" c_int, a b c d e f g);
work_size!(cusparseSpMM_bufferSize c"cusparseSpMM_bufferSize" usize, a b c d e f g h i);
work_size!(cusparseSDDMM_bufferSize c"cusparseSDDMM_bufferSize" usize, a b c d e f g h i);
work_size!(cusparseSpMV_bufferSize c"cusparseSpMV_bufferSize" usize, a b c d e f g h);

/// As above, with sizes on the card and on the host.
macro_rules! two_work_sizes {
    ($name:ident $text:literal $($skipped:ident)*) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($skipped: usize,)* on_card: *mut usize, on_host: *mut usize) -> Status {
            let _ = ($($skipped,)*);
            // SAFETY: the caller's places for the answers.
            unsafe { nothing($text, on_card) + put(on_host, 0) }
        }
    };
}

two_work_sizes!(cusolverDnXpotrf_bufferSize c"cusolverDnXpotrf_bufferSize" a b c d e f g h);
two_work_sizes!(cusolverDnXgeqrf_bufferSize c"cusolverDnXgeqrf_bufferSize" a b c d e f g h i j);
two_work_sizes!(cusolverDnXsyevd_bufferSize c"cusolverDnXsyevd_bufferSize" a b c d e f g h i j k);
