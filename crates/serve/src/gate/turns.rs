//! Where tokens wait whose addresses showed too many wrong ones: they are looked at one after the other, with a pause
//! before each, right or wrong. So guessing stays slow, and who holds the token gets in all the same, if need be at a
//! second try: where as many wait as may, nobody can tell which of them holds it. Cookies and the printed link never wait.

use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::sleep;

/// Before each token.
const PAUSE: Duration = Duration::from_secs(1);
/// Tokens that wait at one time; the rest is sent away unseen and asked to come back.
const MOST_WAITING: usize = 8;

pub(super) struct Turns {
    places: Semaphore,
    door: Mutex<()>,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { places: Semaphore::new(MOST_WAITING), door: Mutex::new(()) }
    }

    /// Comes back when it is this one's turn; false where too many wait already.
    pub(super) async fn wait(&self) -> bool {
        let Ok(_place) = self.places.try_acquire() else { return false };
        let _door = self.door.lock().await;
        sleep(PAUSE).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn one_waits_for_the_other_and_the_ninth_does_not_wait_at_all() {
        let (turns, start) = (Turns::new(), Instant::now());
        assert_eq!(tokio::join!(turns.wait(), turns.wait()), (true, true));
        assert!(start.elapsed() >= 2 * PAUSE, "{:?}", start.elapsed());
        let _places = turns.places.try_acquire_many(MOST_WAITING as u32).unwrap();
        assert!(!turns.wait().await);
    }
}
