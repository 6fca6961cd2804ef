//! This machine, as it was a moment ago.

use plimsoll::Machine;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Who looks again this soon sees the same: it takes a walk through every process of the machine.
const FRESH: Duration = Duration::from_millis(500);

pub(crate) fn glance() -> Arc<Machine> {
    static LAST: Last = Last(Mutex::new(None));
    LAST.look()
}

/// What was seen last, and when.
struct Last(Mutex<Option<(Instant, Arc<Machine>)>>);

impl Last {
    /// Those who look at one time look once.
    fn look(&self) -> Arc<Machine> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, seen)) = &*last
            && at.elapsed() < FRESH
        {
            return seen.clone();
        }
        let seen = Arc::new(Machine::gather());
        *last = Some((Instant::now(), seen.clone()));
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_twice_sees_what_was_seen_and_later_looks_anew() {
        let last = Last(Mutex::new(None));
        let start = Instant::now();
        let (first, second) = (last.look(), last.look());
        // On a machine that stood still meanwhile it may have been looked at anew.
        assert!(Arc::ptr_eq(&first, &second) || start.elapsed() >= FRESH);
        std::thread::sleep(FRESH);
        assert!(!Arc::ptr_eq(&second, &last.look()));
    }
}
