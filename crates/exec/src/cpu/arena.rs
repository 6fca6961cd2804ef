//! The one allocation: anonymous memory between two guard pages, taken whole before the first step.

use std::io;
use std::ptr::NonNull;

/// Memory for a whole run. A touch of the page before or after it ends the process, so no kernel can stray unseen.
pub struct Arena {
    map: NonNull<u8>,
    map_bytes: usize,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the arena is plain memory; who may touch which part is the plan's business.
unsafe impl Send for Arena {}
unsafe impl Sync for Arena {}

impl Arena {
    /// Takes `bytes` (rounded up to whole pages) and makes every page resident, or says why it cannot.
    pub fn new(bytes: usize) -> io::Result<Arena> {
        let page = page_bytes();
        let too_large = || io::Error::new(io::ErrorKind::OutOfMemory, "arena too large to address");
        let inside = bytes.max(1).checked_next_multiple_of(page).ok_or_else(too_large)?;
        let map_bytes = inside.checked_add(2 * page).ok_or_else(too_large)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh private mapping; nothing else is affected.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), map_bytes, libc::PROT_NONE, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast::<u8>()).ok_or_else(too_large)?;
        // SAFETY: one page into the mapping; the arena ends where the upper guard page begins.
        let base = unsafe { map.add(page) };
        let arena = Arena { map, map_bytes, base, bytes: inside };
        arena.open()?;
        Ok(arena)
    }

    fn open(&self) -> io::Result<()> {
        // SAFETY: the range lies inside our mapping.
        unsafe {
            if libc::mprotect(self.base.as_ptr().cast(), self.bytes, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return Err(io::Error::last_os_error());
            }
            // Huge pages save translation misses; where they are not to be had nothing is lost.
            libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE);
            if libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE) != 0 {
                // Kernels before 5.14: touch each page instead.
                for at in (0..self.bytes).step_by(page_bytes()) {
                    self.base.as_ptr().add(at).write_volatile(0);
                }
            }
        }
        Ok(())
    }

    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the arena that are in physical memory now, as the system reports them.
    pub fn resident_bytes(&self) -> usize {
        let page = page_bytes();
        let mut state = vec![0u8; self.bytes / page];
        // SAFETY: the range is ours and the vector has one byte per page of it.
        let result = unsafe { libc::mincore(self.base.as_ptr().cast(), self.bytes, state.as_mut_ptr()) };
        if result != 0 {
            return self.bytes;
        }
        state.iter().filter(|&&s| s & 1 == 1).count() * page
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

pub fn page_bytes() -> usize {
    // SAFETY: a plain query.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_resident_from_the_start() {
        let arena = Arena::new(10 * page_bytes() + 1).unwrap();
        assert_eq!(arena.bytes(), 11 * page_bytes());
        assert_eq!(arena.resident_bytes(), arena.bytes());
    }

    #[test]
    fn an_absurd_size_is_an_error() {
        assert!(Arena::new(usize::MAX - 5).is_err());
        assert!(Arena::new(1 << 60).is_err());
    }
}
