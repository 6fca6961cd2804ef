//! Fork and join over task indices. Results never depend on the number of threads: a task owns its outputs, and a
//! reduction across tasks is combined by the caller in index order.

mod pool;

use std::cell::Cell;
use std::sync::OnceLock;
use std::thread;

thread_local! {
    /// Whether this thread is running a task; calls of `parallel` from there run in place.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
    /// The limit set by [`with_threads`], 0 for none.
    static LIMIT: Cell<usize> = const { Cell::new(0) };
}

/// Threads that kernels may occupy at once: the cores, or what [`with_threads`] says; 1 inside a task.
pub fn threads() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    match (IN_TASK.get(), LIMIT.get()) {
        (true, _) => 1,
        (false, 0) => *CORES.get_or_init(|| thread::available_parallelism().map_or(1, |n| n.get())),
        (false, limit) => limit,
    }
}

/// Runs `f` with every `parallel` that this thread calls meanwhile limited to `threads` threads (more than there are
/// cores is allowed).
pub fn with_threads<R>(threads: usize, f: impl FnOnce() -> R) -> R {
    let _restore = Restore { cell: &LIMIT, before: LIMIT.replace(threads.max(1)) };
    f()
}

/// Runs `task(i)` once for every `i` in `0..tasks`, in any order and on any thread; returns when all are done.
/// Tasks are handed out in ascending order. Inside a task, or while another thread uses the pool, they run in place.
/// Does not allocate once the pool has started as many threads as it is asked for. A task's panic is passed on when
/// the other tasks have ended.
pub fn parallel(tasks: usize, task: impl Fn(usize) + Sync) {
    run(tasks, &task);
}

/// Apart from [`parallel`], and called: inlined, every task would be compiled twice, for the pool and for one thread.
#[inline(never)]
fn run(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    let helpers = threads().min(tasks).saturating_sub(1);
    if helpers == 0 {
        return (0..tasks).for_each(task);
    }
    let _restore = Restore { cell: &IN_TASK, before: IN_TASK.replace(true) };
    pool::run(tasks, helpers, task);
}

/// Puts a thread-local value back, also when a panic passes.
struct Restore<T: Copy + 'static> {
    cell: &'static thread::LocalKey<Cell<T>>,
    before: T,
}

impl<T: Copy> Drop for Restore<T> {
    fn drop(&mut self) {
        self.cell.set(self.before);
    }
}

/// A pointer that tasks may write through at disjoint places.
pub struct SharedMut<T>(*mut T);

impl<T> Clone for SharedMut<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SharedMut<T> {}

// SAFETY: the pointer is only dereferenced through `slice`, whose caller promises disjoint ranges per task.
unsafe impl<T: Send> Send for SharedMut<T> {}
// SAFETY: as for `Send`: whoever slices it promises that no two tasks share an element.
unsafe impl<T: Send> Sync for SharedMut<T> {}

impl<T> SharedMut<T> {
    pub fn new(pointer: *mut T) -> Self {
        SharedMut(pointer)
    }
    pub(crate) fn ptr(self) -> *mut T {
        self.0
    }
    /// # Safety
    /// `start..start + len` lies in the allocation, and no other task touches it meanwhile.
    pub(crate) unsafe fn slice<'a>(self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller promises that the range lies inside and is its own.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}

/// Splits `data` into pieces of `chunk` elements (the last may be shorter) and runs `task(index, piece)` on each.
pub fn parallel_chunks<T: Send>(data: &mut [T], chunk: usize, task: impl Fn(usize, &mut [T]) + Sync) {
    let (len, base) = (data.len(), SharedMut::new(data.as_mut_ptr()));
    parallel(len.div_ceil(chunk), |i| {
        let start = i * chunk;
        // SAFETY: pieces of different indices are disjoint.
        task(i, unsafe { base.slice(start, chunk.min(len - start)) })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn runs_each_once(tasks: usize) {
        let hits: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        parallel(tasks, |i| {
            hits[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn every_task_runs_once_whatever_the_threads() {
        for threads in [1, 2, 3, 16] {
            with_threads(threads, || {
                for round in 0..500 {
                    runs_each_once(round % 40);
                }
            });
        }
    }

    #[test]
    fn calls_from_many_threads_at_once_all_finish() {
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| (0..300).for_each(|round| with_threads(4, || runs_each_once(round % 20))));
            }
        });
    }

    #[test]
    fn sleeping_workers_wake() {
        // Another test may hold the pool for a moment, in which case the tasks run in place: try again.
        let ran_elsewhere = (0..50).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            let ids = Mutex::new(std::collections::HashSet::new());
            with_threads(2, || {
                parallel(2, |_| {
                    std::thread::sleep(Duration::from_millis(20));
                    ids.lock().unwrap().insert(std::thread::current().id());
                });
            });
            ids.into_inner().unwrap().len() == 2
        });
        assert!(ran_elsewhere);
    }

    #[test]
    fn nested_calls_run_in_place() {
        with_threads(3, || {
            parallel(6, |_| {
                assert_eq!(threads(), 1);
                let outer = std::thread::current().id();
                parallel(4, |_| assert_eq!(std::thread::current().id(), outer));
            });
            assert_eq!(threads(), 3);
        });
    }

    #[test]
    fn a_panic_in_any_task_reaches_the_caller_and_the_pool_survives() {
        for bad in [0, 1, 7] {
            let caught = catch_unwind(|| with_threads(3, || parallel(8, |i| assert!(i != bad, "task {i}"))));
            let payload = caught.expect_err("the panic was swallowed");
            assert_eq!(payload.downcast_ref::<String>().unwrap(), &format!("task {bad}"));
            assert!(!IN_TASK.get());
            with_threads(3, || runs_each_once(10));
        }
    }

    #[test]
    fn chunks_cover_the_slice() {
        let mut data = vec![0usize; 103];
        parallel_chunks(&mut data, 10, |i, piece| piece.iter_mut().for_each(|x| *x += i + 1));
        assert!(data.iter().enumerate().all(|(at, &x)| x == at / 10 + 1));
    }
}
