//! Fork and join over task indices. Results never depend on the number of threads: a task owns its outputs, and a
//! reduction across tasks is combined by the caller in index order.

/// Threads that kernels may occupy at once (the size of the pool the step runs in).
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Runs `task(i)` once for every `i` in `0..tasks`, in any order and on any thread; returns when all are done.
/// Does not allocate when called from inside the pool.
pub fn parallel(tasks: usize, task: impl Fn(usize) + Sync) {
    split(0, tasks, &task);
}

fn split(first: usize, end: usize, task: &(impl Fn(usize) + Sync)) {
    match end - first {
        0 => {}
        1 => task(first),
        n => {
            let middle = first + n / 2;
            rayon::join(|| split(first, middle, task), || split(middle, end, task));
        }
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
unsafe impl<T: Send> Sync for SharedMut<T> {}

impl<T> SharedMut<T> {
    pub fn new(pointer: *mut T) -> Self {
        SharedMut(pointer)
    }
    pub fn ptr(self) -> *mut T {
        self.0
    }
    /// # Safety
    /// `start..start + len` lies in the allocation, and no other task touches it meanwhile.
    pub unsafe fn slice<'a>(self, start: usize, len: usize) -> &'a mut [T] {
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
