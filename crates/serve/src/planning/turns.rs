//! Who plans next where more ask than there are cores: what is soon done goes before what takes long, so that few wait
//! behind it. Each unit of work is worth a little time of waiting: whatever comes is late once, and nobody waits for ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How much later somebody with one unit of work less may come, and yet go first. A unit is a layer of a model, which takes
/// less than this to plan: of flan-t5-xl's 48 layers 4 to 20 ms each.
const PER_UNIT: Duration = Duration::from_millis(25);

/// Beyond, more work makes nobody wait longer: 25 seconds.
const MOST_WORK: usize = 1000;

pub(super) struct Turns(Mutex<Waiting>);

struct Waiting {
    /// Threads that nobody has.
    free: usize,
    queue: Vec<Waiter>,
}

struct Waiter {
    due: Instant,
    call: oneshot::Sender<Turn>,
}

/// A thread that is somebody's as long as this lives; then it is the next one's.
pub(super) struct Turn(Arc<Turns>);

impl Turns {
    pub(super) fn new(threads: usize) -> Arc<Turns> {
        Arc::new(Turns(Mutex::new(Waiting { free: threads, queue: Vec::new() })))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a thread to do so much work with. Who goes away while waiting is left out.
    pub(super) async fn take(self: &Arc<Turns>, work: usize) -> Turn {
        match self.enter(Instant::now() + PER_UNIT * work.min(MOST_WORK) as u32) {
            Ok(turn) => turn,
            Err(call) => call.await.expect("who waits is called, for whoever calls holds this"),
        }
    }

    fn enter(self: &Arc<Turns>, due: Instant) -> Result<Turn, oneshot::Receiver<Turn>> {
        let mut waiting = self.waiting();
        if waiting.free > 0 {
            waiting.free -= 1;
            return Ok(Turn(self.clone()));
        }
        let (call, called) = oneshot::channel();
        waiting.queue.push(Waiter { due, call });
        Err(called)
    }

    /// The one that is due first.
    fn next(&self) -> Option<Waiter> {
        let mut waiting = self.waiting();
        let first = waiting.queue.iter().enumerate().min_by_key(|(_, waiter)| waiter.due).map(|(at, _)| at);
        let next = first.map(|at| waiting.queue.swap_remove(at));
        waiting.free += next.is_none() as usize;
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(next) = self.0.next() {
            // Gone: its turn comes back and is dropped in its place, which calls the one behind it.
            let _ = next.call.send(Turn(self.0.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Asks in this order while the only thread is somebody's, and says who was called when.
    async fn order(works: &[usize]) -> Vec<usize> {
        let (turns, (say, said)) = (Turns::new(1), mpsc::channel());
        let held = turns.take(0).await;
        let waiting: Vec<_> = works
            .iter()
            .map(|&work| {
                let called = turns.enter(Instant::now() + PER_UNIT * work as u32).err().unwrap();
                let say = say.clone();
                tokio::spawn(async move {
                    let _turn = called.await.unwrap();
                    say.send(work).unwrap();
                })
            })
            .collect();
        drop(held);
        for waiter in waiting {
            waiter.await.unwrap();
        }
        said.try_iter().collect()
    }

    #[tokio::test]
    async fn what_is_soon_done_goes_first() {
        assert_eq!(order(&[48, 3, 24, 6]).await, [3, 6, 24, 48]);
        assert_eq!(order(&[7, 7, 7]).await, [7, 7, 7]);
    }

    #[tokio::test]
    async fn who_waited_long_goes_before_what_comes_now() {
        let turns = Turns::new(1);
        let held = turns.take(0).await;
        let now = Instant::now();
        let mut long = turns.enter(now + PER_UNIT * 48).err().unwrap();
        let mut short = turns.enter(now + 50 * PER_UNIT).err().unwrap();
        drop(held);
        assert!(long.try_recv().is_ok() && short.try_recv().is_ok(), "one after the other");
    }

    #[tokio::test]
    async fn a_turn_of_somebody_who_left_is_the_next_ones() {
        let turns = Turns::new(1);
        let held = turns.take(0).await;
        let gone = turns.enter(Instant::now()).err().unwrap();
        let mut there = turns.enter(Instant::now() + PER_UNIT).err().unwrap();
        drop(gone);
        drop(held);
        let turn = there.try_recv().expect("called in its place");
        assert_eq!(turns.waiting().free, 0);
        drop(turn);
        assert_eq!(turns.waiting().free, 1);
        drop(turns.take(5).await);
    }

    #[tokio::test]
    async fn as_many_work_at_a_time_as_there_are_threads() {
        let turns = Turns::new(2);
        let (one, two) = (turns.take(9).await, turns.take(1).await);
        let mut three = turns.enter(Instant::now()).err().unwrap();
        assert!(three.try_recv().is_err());
        drop(one);
        let three = three.try_recv().unwrap();
        drop((two, three));
        assert_eq!(turns.waiting().free, 2);
    }
}
