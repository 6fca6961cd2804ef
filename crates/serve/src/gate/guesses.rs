//! Wrong tokens are counted by address: who guesses waits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Wrong tokens of one address in a [`WINDOW`] before it waits for the next.
const MOST: u32 = 10;
/// Of all addresses together, for who has many.
const MOST_OF_ALL: u32 = 200;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses remembered; beyond, only the sum counts.
const MOST_ADDRESSES: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Guesses {
    wrong: HashMap<IpAddr, u32>,
    all: u32,
    since: Option<Instant>,
}

impl Guesses {
    /// Seconds to wait, where too many were wrong.
    pub(super) fn wait(&mut self, from: IpAddr, now: Instant) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        if age >= WINDOW {
            *self = Guesses { since: Some(now), ..Guesses::default() };
            return None;
        }
        let wrong = self.wrong.get(&network(from)).copied().unwrap_or(0);
        (wrong >= MOST || self.all >= MOST_OF_ALL).then(|| (WINDOW - age).as_secs() + 1)
    }

    pub(super) fn wrong(&mut self, from: IpAddr) {
        self.all = self.all.saturating_add(1);
        let from = network(from);
        if self.wrong.len() < MOST_ADDRESSES || self.wrong.contains_key(&from) {
            *self.wrong.entry(from).or_default() += 1;
        }
    }
}

/// Who has one address of version 6 has its whole network.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_waits_and_others_do_not() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        let [bad, good]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        for _ in 0..MOST {
            assert_eq!(guesses.wait(bad, now), None);
            guesses.wrong(bad);
        }
        assert!(guesses.wait(bad, now).is_some_and(|seconds| seconds <= 61));
        assert_eq!(guesses.wait(good, now), None);
        assert_eq!(guesses.wait(bad, now + WINDOW), None);
    }

    #[test]
    fn many_addresses_wait_together_and_take_little_memory() {
        let (mut guesses, now) = (Guesses::default(), Instant::now());
        assert!(guesses.wait("10.9.9.9".parse().unwrap(), now).is_none(), "the window starts with the first question");
        (0..5000u32).for_each(|n| guesses.wrong(IpAddr::from(n.to_be_bytes())));
        assert!(guesses.wait("10.9.9.9".parse().unwrap(), now).is_some());
        assert!(guesses.wrong.len() <= MOST_ADDRESSES);
    }
}
