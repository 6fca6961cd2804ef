//! Device memory: addresses that nothing lies at, and a counter with a limit.

use crate::card::card;
use crate::places::Places;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Far from the heap, from libraries and from stacks. Addresses that are only reserved lie in the first part.
const FIRST: usize = 0x3000_0000_0000;
const PLACES: usize = 0x3800_0000_0000;
const END: usize = 0x3f00_0000_0000;
/// What the driver hands out at once.
pub(crate) const PAGE: usize = 2 << 20;

struct Book {
    /// Size by address.
    held: BTreeMap<usize, usize>,
    places: Places,
    /// Where the next reservation starts.
    next: usize,
    used: u64,
    peak: u64,
}

static BOOK: Mutex<Book> =
    Mutex::new(Book { held: BTreeMap::new(), places: Places::nowhere(), next: 0, used: 0, peak: 0 });
static LAUNCHED: AtomicBool = AtomicBool::new(false);
static SETTLED: AtomicBool = AtomicBool::new(false);
/// What the code of the first kernel takes.
const FIRST_KERNEL: usize = 2 << 20;

fn book() -> MutexGuard<'static, Book> {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A whole number of pages, if that is a number.
pub(crate) fn whole_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE)
}

impl Book {
    fn fits(&self, bytes: usize) -> bool {
        (self.used + card().context_bytes).saturating_add(bytes as u64) <= card().total_bytes
    }

    fn charge(&mut self, bytes: usize) -> bool {
        if !self.fits(bytes) {
            return false;
        }
        self.used += bytes as u64;
        self.peak = self.peak.max(self.used);
        true
    }

    fn places(&mut self) -> &mut Places {
        if self.places.is_nowhere() {
            self.places = Places::new(PLACES, END);
        }
        &mut self.places
    }

    /// Reservations rise; after 8 TiB of them they start again.
    fn reservation(&mut self, bytes: usize) -> Option<usize> {
        let next = self.next.max(FIRST);
        let start = if bytes <= PLACES - next { next } else { FIRST };
        self.next = start.checked_add(bytes).filter(|end| *end <= PLACES)?;
        Some(start)
    }
}

/// A kernel is launched. Those that draw random numbers, with which weights begin, change nothing but that code is there;
/// the first other one makes the context settle.
pub(crate) fn launch(draws: impl FnOnce() -> bool) {
    if SETTLED.load(Ordering::Relaxed) {
        return;
    }
    if !LAUNCHED.swap(true, Ordering::Relaxed) {
        keep(FIRST_KERNEL);
    }
    if !draws() && !SETTLED.swap(true, Ordering::Relaxed) {
        book().places().settle();
    }
}

/// Addresses that a library takes for its own code and keeps. Its bytes count as the context's, so there is always room; where
/// addresses themselves end, nothing is kept.
pub(crate) fn keep(bytes: usize) {
    let _ = book().places().take(bytes);
}

/// Takes memory of the card; `None` where it does not fit.
pub(crate) fn take(bytes: usize) -> Option<usize> {
    let bytes = whole_pages(bytes.max(1))?;
    let mut book = book();
    if !book.charge(bytes) {
        return None;
    }
    let address = book.places().take(bytes)?;
    book.held.insert(address, bytes);
    Some(address)
}

/// Gives memory back; an address that was never handed out is left alone, as are two of one.
pub(crate) fn give(address: usize) {
    let mut book = book();
    if let Some(bytes) = book.held.remove(&address) {
        book.used -= bytes as u64;
        book.places.give(address, bytes);
    }
}

/// Addresses without memory behind them.
pub(crate) fn reserve(bytes: usize) -> Option<usize> {
    book().reservation(whole_pages(bytes.max(1))?)
}

/// Memory without an address, for mapping.
pub(crate) fn create(bytes: usize) -> bool {
    book().charge(bytes)
}

pub(crate) fn release(bytes: usize) {
    let mut book = book();
    book.used = book.used.saturating_sub(bytes as u64);
}

pub(crate) fn free_bytes() -> u64 {
    card().total_bytes.saturating_sub(card().context_bytes).saturating_sub(book().used)
}

/// The most that was held at once, the context aside.
pub(crate) fn peak_bytes() -> u64 {
    book().peak
}

/// Where the block lies that this address is in: start and size.
pub(crate) fn range_of(address: usize) -> Option<(usize, usize)> {
    let book = book();
    let (start, bytes) = book.held.range(..=address).next_back()?;
    (address < start + bytes).then_some((*start, *bytes))
}

/// Whether an address is one of the card's.
pub(crate) fn on_card<T>(pointer: *const T) -> bool {
    (FIRST..END).contains(&(pointer as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: the book is the process's.
    #[test]
    fn what_is_taken_counts_in_pages_until_it_is_given_back_and_what_does_not_fit_is_refused() {
        let before = free_bytes();
        let one = take(1).expect("a byte fits");
        let two = take(PAGE + 1).expect("a page and a byte fit");
        assert_eq!(before - free_bytes(), 3 * PAGE as u64);
        assert!(on_card(one as *const u8) && one.is_multiple_of(PAGE) && two.abs_diff(one) >= PAGE);
        assert_eq!(range_of(two + PAGE), Some((two, 2 * PAGE)));
        assert_eq!(take(card().total_bytes as usize), None);
        assert_eq!(take(usize::MAX), None);
        give(one);
        give(one);
        give(two);
        assert_eq!(free_bytes(), before);
        assert!(peak_bytes() >= 3 * PAGE as u64);
    }
}
