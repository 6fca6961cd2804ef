//! The threads behind `parallel`: started once, each with a mailbox that holds at most one job.
//!
//! A job lives on its caller's stack. The caller posts its address to some mailboxes, takes tasks itself until none is
//! left, then takes the job back from every mailbox that has not been opened and waits for the workers that have. So
//! a worker that is slow to wake delays nobody, and no address outlives its job.

use crate::kernels::cpu::subnormals::Mode;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a worker looks into its mailbox before it sleeps: longer than the usual gap between two kernels of a step,
/// because waking a sleeping thread takes as long as a small kernel.
const IDLE: Duration = Duration::from_micros(500);
/// Looks at the mailbox between two looks at the clock.
const LOOKS: usize = 64;
/// Looks at a busy mailbox before a caller gives its time slice away.
const WAIT_SPINS: usize = 1000;

/// A call of `parallel` in progress.
struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    tasks: usize,
    next: AtomicUsize,
    /// How the caller computes: so does whoever helps.
    mode: Mode,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Takes tasks until none is left. A panic ends this thread's part; the others finish theirs.
    fn work(&self) {
        let run = || {
            while let Some(index) = Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < self.tasks) {
                (self.task)(index);
            }
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
    }
}

struct Worker {
    /// Null: idle. `OPENED`: at work. Else a posted job.
    mailbox: AtomicPtr<Job<'static>>,
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

fn opened() -> *mut Job<'static> {
    ptr::without_provenance_mut(1)
}

impl Worker {
    fn start() -> Option<&'static Worker> {
        let mailbox = AtomicPtr::new(ptr::null_mut());
        // Leaked on purpose: workers live as long as the process.
        let worker: &'static Worker =
            Box::leak(Box::new(Worker { mailbox, asleep: AtomicBool::new(false), thread: OnceLock::new() }));
        let handle = thread::Builder::new().name("plimsoll-worker".into()).spawn(move || worker.serve()).ok()?;
        worker.thread.set(handle.thread().clone()).ok()?;
        Some(worker)
    }

    fn serve(&self) -> ! {
        super::IN_TASK.set(true);
        plimsoll_base::heap::count_this_thread();
        loop {
            let job = self.receive();
            // SAFETY: the caller of the job waits until the mailbox is empty again.
            let job = unsafe { &*job };
            job.mode.set();
            job.work();
            self.mailbox.store(ptr::null_mut(), Ordering::Release);
        }
    }

    /// Waits for a job and opens the mailbox.
    fn receive(&self) -> *mut Job<'static> {
        loop {
            let idle_since = Instant::now();
            while idle_since.elapsed() < IDLE {
                for _ in 0..LOOKS {
                    let job = self.mailbox.load(Ordering::Relaxed);
                    if !job.is_null() && self.replace(job, opened()) {
                        return job;
                    }
                    std::hint::spin_loop();
                }
            }
            // `post` writes the mailbox before it reads `asleep`; here it is the other way round, so that one of the
            // two sees the other, and an early unpark makes the park return at once.
            self.asleep.store(true, Ordering::SeqCst);
            if self.mailbox.load(Ordering::SeqCst).is_null() {
                thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
        }
    }

    fn replace(&self, from: *mut Job<'static>, to: *mut Job<'static>) -> bool {
        self.mailbox.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn post(&self, job: *mut Job<'static>) {
        self.mailbox.store(job, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Returns when the worker cannot touch the job any more.
    fn take_back(&self, job: *mut Job<'static>) {
        if self.replace(job, ptr::null_mut()) {
            return;
        }
        let mut looks = 0;
        while !self.mailbox.load(Ordering::Acquire).is_null() {
            looks += 1;
            if looks < WAIT_SPINS { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }
}

static WORKERS: Mutex<Vec<&'static Worker>> = Mutex::new(Vec::new());

/// The workers, unless another thread is using them.
fn claim() -> Option<MutexGuard<'static, Vec<&'static Worker>>> {
    match WORKERS.try_lock() {
        Ok(workers) => Some(workers),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Runs the tasks on the calling thread and up to `helpers` workers. Allocates only when it starts workers.
pub(super) fn run(tasks: usize, helpers: usize, task: &(dyn Fn(usize) + Sync)) {
    let mode = Mode::of_this_thread();
    let job = Job { task, tasks, next: AtomicUsize::new(0), mode, panic: Mutex::new(None) };
    match claim() {
        None => job.work(),
        Some(mut workers) => {
            while workers.len() < helpers
                && let Some(worker) = Worker::start()
            {
                workers.push(worker);
            }
            let helping = &workers[..helpers.min(workers.len())];
            // The lifetime is erased to fit the mailbox; `take_back` makes sure that no worker outstays it.
            let address = ptr::from_ref(&job).cast_mut().cast::<Job<'static>>();
            helping.iter().for_each(|worker| worker.post(address));
            job.work();
            helping.iter().for_each(|worker| worker.take_back(address));
        }
    }
    if let Some(payload) = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
        resume_unwind(payload);
    }
}
