//! A counting allocator: proves that steps allocate nothing, and measures by how much they grow the heap.
//!
//! The program installs it with `#[global_allocator]`. Only threads that are marked count: those that run kernels. What
//! the loader or the display allocate meanwhile is host memory, planned and reported on its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

pub struct CountingAllocator;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static MARKED: Cell<bool> = const { Cell::new(false) };
}

/// What marked threads did since [`reset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUse {
    pub allocations: u64,
    /// The most the live heap has grown.
    pub peak_growth_bytes: u64,
}

pub fn reset() {
    ALLOCATIONS.store(0, Relaxed);
    LIVE.store(0, Relaxed);
    PEAK.store(0, Relaxed);
}

pub fn used() -> HeapUse {
    HeapUse { allocations: ALLOCATIONS.load(Relaxed), peak_growth_bytes: PEAK.load(Relaxed).max(0) as u64 }
}

/// Marks the current thread while `f` runs.
pub fn counted<R>(f: impl FnOnce() -> R) -> R {
    let before = MARKED.replace(true);
    let result = f();
    MARKED.set(before);
    result
}

/// Marks the current thread for good: it runs nothing but kernels.
pub fn count_this_thread() {
    MARKED.set(true);
}

#[inline]
fn count(bytes: i64) {
    if MARKED.get() {
        ALLOCATIONS.fetch_add((bytes > 0) as u64, Relaxed);
        let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(live, Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is the one of `System`.
        unsafe { System.alloc(layout) }
    }
    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is the one of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is the one of `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
