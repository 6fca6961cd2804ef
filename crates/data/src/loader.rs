//! Batches ahead of time. Workers fill recycled buffers; the consumer receives them in order, so what it sees does not
//! depend on the number of workers. Tickets and free buffers are taken together: the oldest missing batch always has
//! a buffer, and at most `prefetch` batches wait.

use super::{
    Batch, DataError, Dataset, FieldSpec, Position, batch_bytes,
    compose::Composer,
    order::{Cuts, Order},
};
use plimsoll_base::batching::{Buckets, Compose};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

/// Workers copy slices, tokenize and decode images; stating their stack makes it part of the planned host memory.
const WORKER_STACK_BYTES: usize = 1 << 20;
/// More threads than this is a slip of the pen.
const MOST_WORKERS: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples per batch (the effective batch).
    pub batch: usize,
    /// Background threads; with 0, batches are filled when asked for.
    pub workers: usize,
    /// Batches ahead of the consumer.
    pub prefetch: usize,
    /// `Some(seed)`: shuffled anew each epoch; `None`: sequential.
    pub shuffle: Option<u64>,
    /// The stream ends after this many epochs, counted from epoch 0; `None`: never.
    pub epochs: Option<u64>,
    /// Which samples share a batch.
    pub compose: Compose,
    /// The lengths that batches may have.
    pub buckets: Buckets,
}

impl LoaderOptions {
    /// One sequential pass, as for evaluation.
    pub fn evaluation(batch: usize, workers: usize, prefetch: usize) -> Self {
        let (compose, buckets) = (Compose::Random, Buckets::Auto);
        LoaderOptions { batch, workers, prefetch, shuffle: None, epochs: Some(1), compose, buckets }
    }

    fn check(&self) -> Result<(), DataError> {
        if self.batch == 0 {
            return Err(DataError::option("batch", "must be at least 1"));
        }
        if self.workers > MOST_WORKERS {
            return Err(DataError::option("workers", format!("{} is more than {MOST_WORKERS}", self.workers)));
        }
        if self.prefetch == 0 && self.workers > 0 {
            return Err(DataError::option("prefetch", "must be at least 1 batch when there are workers"));
        }
        Ok(())
    }

    /// Buffers in circulation: those ahead and the one the consumer holds.
    fn buffers(&self) -> usize {
        if self.workers == 0 { 1 } else { self.prefetch.saturating_add(1) }
    }

    /// Host memory of a loader with these options: buffers, worker stacks, sorted windows. The dataset itself is not included.
    pub fn host_bytes(&self, fields: &[FieldSpec]) -> Result<usize, DataError> {
        self.check()?;
        let buffers = batch_bytes(fields, self.batch)?.checked_mul(self.buffers());
        buffers
            .and_then(|bytes| bytes.checked_add(self.workers * WORKER_STACK_BYTES))
            .and_then(|bytes| bytes.checked_add(Composer::host_bytes(self.batch, self.compose)))
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| DataError::option("prefetch", "the buffers overflow the address space"))
    }
}

/// What the loader did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoaderStats {
    pub batches: u64,
    pub samples: u64,
    /// Time the consumer spent waiting for batches.
    pub stall: Duration,
    pub elapsed: Duration,
    /// What the workers filled so far, delivered or not, and the time each of them took for it on average.
    pub filled: u64,
    pub filling: Duration,
}

impl LoaderStats {
    /// What the loader delivers when nobody holds it up; `None` before the first batch.
    pub fn filled_per_s(&self) -> Option<f64> {
        (self.filled > 0).then(|| self.filled as f64 / self.filling.as_secs_f64().max(1e-9))
    }
}

struct Source {
    dataset: Arc<dyn Dataset>,
    composer: Composer,
    cuts: Cuts,
    epochs: Option<u64>,
    filled: AtomicU64,
    filling_ns: AtomicU64,
}

impl Source {
    fn ended(&self, ticket: u64) -> bool {
        self.epochs.is_some_and(|epochs| self.cuts.batch(ticket).0.epoch >= epochs)
    }

    /// Fills `batch` with batch number `ticket`. A panic of the dataset becomes an error: the consumer waits for it.
    fn fill(&self, ticket: u64, batch: &mut Batch) -> Result<(), DataError> {
        (batch.start, batch.end) = self.cuts.batch(ticket);
        let began = Instant::now();
        let work = || batch.compose(&*self.dataset, &self.composer);
        let filled = catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(DataError::Worker { cause: format!("panic in batch {ticket}") }));
        self.filling_ns.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        self.filled.fetch_add(batch.len() as u64, Relaxed);
        filled
    }
}

type Filled = (Batch, Result<(), DataError>);

struct Queue {
    next_ticket: u64,
    free: Vec<Batch>,
    /// Batch `ticket` waits at `ticket % ready.len()`.
    ready: Vec<Option<Filled>>,
    stop: bool,
}

struct Shared {
    source: Source,
    queue: Mutex<Queue>,
    work: Condvar,
    filled: Condvar,
}

impl Shared {
    /// The queue holds no half-made state, so a poisoned lock is as good as another.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some((ticket, mut batch)) = self.take() {
            let result = self.source.fill(ticket, &mut batch);
            let mut queue = self.lock();
            let slots = queue.ready.len() as u64;
            queue.ready[(ticket % slots) as usize] = Some((batch, result));
            drop(queue);
            self.filled.notify_one();
        }
    }

    /// The next ticket together with a free buffer; `None` when the loader is dropped or the stream has ended.
    fn take(&self) -> Option<(u64, Batch)> {
        let mut queue = self.lock();
        loop {
            if queue.stop || self.source.ended(queue.next_ticket) {
                return None;
            }
            if let Some(batch) = queue.free.pop() {
                queue.next_ticket += 1;
                return Some((queue.next_ticket - 1, batch));
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A stream of batches from `start`. Dropping it stops and joins the workers.
pub struct Loader {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// The batch lent to the consumer, recycled by the next call.
    current: Option<Batch>,
    ticket: u64,
    position: Position,
    stats: LoaderStats,
    began: Instant,
}

impl Loader {
    pub fn new(dataset: Arc<dyn Dataset>, options: &LoaderOptions, start: Position) -> Result<Self, DataError> {
        options.host_bytes(dataset.fields())?;
        if dataset.is_empty() {
            return Err(DataError::option("data", "the dataset holds no sample"));
        }
        let order = match options.shuffle {
            Some(seed) => Order::shuffled(dataset.len(), seed),
            None => Order::sequential(dataset.len()),
        };
        let batch = || Batch::bucketed(dataset.fields(), options.batch, options.buckets);
        let free = (0..options.buffers()).map(|_| batch());
        let queue = Queue {
            next_ticket: 0,
            free: free.collect::<Result<_, _>>()?,
            ready: (0..options.buffers()).map(|_| None).collect(),
            stop: false,
        };
        let cuts = Cuts::new(dataset.len() as u64, options.batch as u64, start);
        let composer = Composer::new(order, dataset.len(), options.batch, options.compose)?;
        let (filled, filling_ns) = Default::default();
        let source = Source { dataset, composer, cuts, epochs: options.epochs, filled, filling_ns };
        let shared =
            Arc::new(Shared { source, queue: Mutex::new(queue), work: Condvar::new(), filled: Condvar::new() });
        let mut loader = Loader {
            shared,
            workers: Vec::with_capacity(options.workers),
            current: None,
            ticket: 0,
            position: start,
            stats: LoaderStats::default(),
            began: Instant::now(),
        };
        loader.start_workers(options.workers)?;
        Ok(loader)
    }

    /// A failure drops the loader, which stops the workers already running.
    fn start_workers(&mut self, workers: usize) -> Result<(), DataError> {
        for index in 0..workers {
            let shared = Arc::clone(&self.shared);
            let builder = Builder::new().name(format!("loader-{index}")).stack_size(WORKER_STACK_BYTES);
            let thread = builder.spawn(move || shared.work());
            self.workers.push(thread.map_err(|error| DataError::option("workers", error.to_string()))?);
        }
        Ok(())
    }

    /// The next batch; `None` after the last epoch. After an error the stream goes on with the batch behind it.
    #[allow(clippy::should_implement_trait)] // the batch is lent, which `Iterator` cannot express
    pub fn next(&mut self) -> Option<Result<&Batch, DataError>> {
        self.recycle();
        if self.shared.source.ended(self.ticket) {
            return None;
        }
        let asked = Instant::now();
        let (batch, result) = if self.workers.is_empty() { self.fill_now()? } else { self.wait() };
        self.stats.stall += asked.elapsed();
        self.ticket += 1;
        self.position = batch.end;
        let batch = self.current.insert(batch);
        if let Err(error) = result {
            return Some(Err(error));
        }
        self.stats.batches += 1;
        self.stats.samples += batch.len() as u64;
        Some(Ok(batch))
    }

    /// The position behind the last batch delivered: what a checkpoint stores and [`Loader::new`] starts from.
    pub fn position(&self) -> Position {
        self.position
    }

    pub fn stats(&self) -> LoaderStats {
        let source = &self.shared.source;
        let filling = Duration::from_nanos(source.filling_ns.load(Relaxed)) / self.workers.len().max(1) as u32;
        LoaderStats { elapsed: self.began.elapsed(), filled: source.filled.load(Relaxed), filling, ..self.stats }
    }

    fn recycle(&mut self) {
        if let Some(batch) = self.current.take() {
            self.shared.lock().free.push(batch);
            self.shared.work.notify_one();
        }
    }

    fn fill_now(&mut self) -> Option<Filled> {
        let mut batch = self.shared.lock().free.pop()?;
        let result = self.shared.source.fill(self.ticket, &mut batch);
        Some((batch, result))
    }

    fn wait(&self) -> Filled {
        let mut queue = self.shared.lock();
        let slot = (self.ticket % queue.ready.len() as u64) as usize;
        loop {
            if let Some(filled) = queue.ready[slot].take() {
                return filled;
            }
            queue = self.shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker cannot panic outside `Source::fill`, which catches; there is nothing to report.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
#[path = "loader_tests.rs"]
mod tests;
