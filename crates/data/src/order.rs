//! The order of samples: sequential, or shuffled by a permutation that is a pure function of (seed, epoch). The
//! permutation is computed per index, so it takes no memory and a resumed run needs nothing but its position.

use plimsoll_base::random::mix;
use serde::{Deserialize, Serialize};

const ROUNDS: u64 = 6;

/// Where a stream of samples stands: `index` samples of epoch `epoch` are consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub epoch: u64,
    pub index: u64,
}

/// Order of `len` samples over epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    len: u64,
    /// `None`: sequential.
    seed: Option<u64>,
    /// Bits of one half of the Feistel network; its domain of 2^(2·half) covers `len`.
    half: u32,
}

impl Order {
    pub(crate) fn sequential(len: usize) -> Self {
        Order { len: len as u64, seed: None, half: 0 }
    }

    pub(crate) fn shuffled(len: usize, seed: u64) -> Self {
        let bits = u64::BITS - (len as u64).saturating_sub(1).leading_zeros();
        // Halves of 4 bits at least: with fewer, too few different permutations exist.
        Order { len: len as u64, seed: Some(seed), half: bits.div_ceil(2).max(4) }
    }

    /// `None`: sequential.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// The sample at `index < len` of epoch `epoch`.
    pub fn sample(&self, epoch: u64, index: u64) -> usize {
        let Some(seed) = self.seed else { return index as usize };
        let key = mix(seed ^ mix(epoch.wrapping_add(0x9E3779B97F4A7C15)));
        let mut at = self.permute(key, index);
        // Cycle walking: the network permutes a larger domain; following it until it comes back inside permutes ours.
        while at >= self.len {
            at = self.permute(key, at);
        }
        at as usize
    }

    fn permute(&self, key: u64, at: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (at >> self.half, at & mask);
        for round in 0..ROUNDS {
            let turned = left ^ (mix(key ^ mix((round << 56) ^ right)) & mask);
            (left, right) = (right, turned);
        }
        (left << self.half) | right
    }
}

/// Cuts the endless stream of epochs that begins at `start` into batches: every epoch ends with a ragged batch where
/// `batch` does not divide it, and no batch spans two epochs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts {
    len: u64,
    batch: u64,
    start: Position,
}

impl Cuts {
    /// `len` and `batch` are positive. A start at the end of an epoch is the start of the next.
    pub(crate) fn new(len: u64, batch: u64, start: Position) -> Self {
        let start =
            if start.index >= len { Position { epoch: start.epoch.saturating_add(1), index: 0 } } else { start };
        Cuts { len, batch, start }
    }

    /// First and end position of batch number `ticket`.
    pub(crate) fn batch(&self, ticket: u64) -> (Position, Position) {
        let per_epoch = self.len.div_ceil(self.batch);
        let in_first = (self.len - self.start.index).div_ceil(self.batch);
        let (epoch, index) = match ticket.checked_sub(in_first) {
            None => (self.start.epoch, self.start.index + ticket * self.batch),
            Some(later) => {
                (self.start.epoch.saturating_add(1).saturating_add(later / per_epoch), later % per_epoch * self.batch)
            }
        };
        let end = (index + self.batch).min(self.len);
        (Position { epoch, index }, Position { epoch, index: end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_epoch_visits_every_sample_once(len in 1usize..3000, seed: u64, epoch in 0u64..1000) {
            let order = Order::shuffled(len, seed);
            let mut seen = vec![false; len];
            for index in 0..len as u64 {
                let sample = order.sample(epoch, index);
                prop_assert!(!std::mem::replace(&mut seen[sample], true));
            }
        }

        #[test]
        fn cuts_cover_epochs_without_gaps(len in 1u64..50, batch in 1u64..20, index in 0u64..50, tickets in 1u64..40) {
            let cuts = Cuts::new(len, batch, Position { epoch: 3, index: index.min(len) });
            let mut at = cuts.batch(0).0;
            for ticket in 0..tickets {
                let (start, end) = cuts.batch(ticket);
                let expected = if at.index == len { Position { epoch: at.epoch + 1, index: 0 } } else { at };
                prop_assert_eq!(start, expected);
                prop_assert!(end.index > start.index && end.index - start.index <= batch);
                prop_assert!(end.index - start.index == batch || end.index == len);
                at = end;
            }
        }
    }

    #[test]
    fn shuffles_differ_by_seed_and_epoch_and_look_random() {
        let len = 1000usize;
        let at = |seed, epoch| (0..len as u64).map(|i| Order::shuffled(len, seed).sample(epoch, i)).collect::<Vec<_>>();
        let one = at(1, 0);
        assert_ne!(one, at(1, 1));
        assert_ne!(one, at(2, 0));
        // Mean distance between neighbours is len/3 for a random permutation.
        let jump = one.windows(2).map(|w| w[0].abs_diff(w[1])).sum::<usize>() as f64 / (len - 1) as f64;
        assert!((300.0..367.0).contains(&jump), "mean jump {jump}");
        // A random permutation has one fixed point on average.
        let fixed: usize = (0..200).map(|s| at(s, 0).iter().enumerate().filter(|(i, x)| i == *x).count()).sum();
        assert!((140..260).contains(&fixed), "{fixed} fixed points in 200 permutations");
    }

    #[test]
    fn sequential_order_is_the_identity() {
        let order = Order::sequential(5);
        assert_eq!((0..5).map(|i| order.sample(7, i)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
