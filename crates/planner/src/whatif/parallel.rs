//! Many plans at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Hears how many plans are made, of how many.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// `work` on every item, on all cores; results stand in the order of the items.
pub(super) fn on_all_cores<T: Sync, R: Send>(items: &[T], done: Progress<'_>, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return results };
            results.push((index, work(item)));
            done(finished.fetch_add(1, Ordering::Relaxed) + 1, items.len());
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let joined = handles.into_iter().map(|handle| handle.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        joined.flatten().collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_and_all_are_heard_of() {
        let items: Vec<usize> = (0..100).collect();
        let most = AtomicUsize::new(0);
        let heard = |n: usize, _: usize| {
            most.fetch_max(n, Ordering::Relaxed);
        };
        let squares = on_all_cores(&items, &heard, |n| n * n);
        assert!(squares.iter().zip(&items).all(|(square, n)| *square == n * n) && squares.len() == 100);
        assert_eq!(most.into_inner(), 100);
        assert!(on_all_cores(&[], &|_, _| (), |n: &usize| *n).is_empty());
    }
}
