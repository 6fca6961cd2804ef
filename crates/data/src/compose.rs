//! Which samples share a batch. At random, or by length: the shuffled order is cut into windows, each window is sorted
//! by size and cut into batches, and the batches of a window come in shuffled order. A pure function of (seed, epoch,
//! sizes): it neither knows the plan nor keeps state that a resumed run would need.

use super::{DataError, Dataset, Position, order::Order};
use plimsoll_base::batching::Compose;
use plimsoll_base::random::mix;
use std::sync::{Mutex, PoisonError};

/// Batches sorted together: enough for batches of even length, few enough that an epoch stays well shuffled.
const WINDOW_BATCHES: usize = 64;
/// Windows of very large batches hold fewer of them.
const WINDOW_SAMPLES: usize = 1 << 20;
/// Windows kept: workers may still read one while others begin the next.
const KEPT: usize = 2;

/// The samples at every position of every epoch.
pub(super) struct Composer {
    order: Order,
    len: usize,
    batch: usize,
    /// Sorted windows, the latest used last; `None` where batches are composed at random.
    windows: Option<Mutex<Vec<Window>>>,
}

/// A part of an epoch, in its final order.
struct Window {
    epoch: u64,
    /// Position of its first sample in the epoch.
    start: usize,
    /// (size, position in the shuffled order, sample)
    samples: Vec<(usize, usize, usize)>,
}

fn window_batches(batch: usize) -> usize {
    (WINDOW_SAMPLES / batch.max(1)).clamp(1, WINDOW_BATCHES)
}

impl Composer {
    /// `batch` is positive.
    pub fn new(order: Order, len: usize, batch: usize, compose: Compose) -> Result<Self, DataError> {
        let windows = match compose {
            Compose::Random => None,
            Compose::Length => {
                let room = len.min(batch.saturating_mul(window_batches(batch)));
                let window = || Window { epoch: 0, start: usize::MAX, samples: Vec::new() };
                let mut windows: Vec<Window> = (0..KEPT).map(|_| window()).collect();
                for window in &mut windows {
                    let refused = |e| DataError::option("batch", format!("a window of {room} samples: {e}"));
                    window.samples.try_reserve_exact(room).map_err(refused)?;
                }
                Some(Mutex::new(windows))
            }
        };
        Ok(Composer { order, len, batch, windows })
    }

    /// Host memory, at most, for batches of `batch` samples.
    pub fn host_bytes(batch: usize, compose: Compose) -> usize {
        match compose {
            Compose::Random => 0,
            Compose::Length => {
                (KEPT * size_of::<(usize, usize, usize)>()).saturating_mul(batch.saturating_mul(window_batches(batch)))
            }
        }
    }

    /// Replaces `out` by the samples from `start` to `end`, which lie in one epoch.
    pub fn samples(&self, dataset: &dyn Dataset, start: Position, end: Position, out: &mut Vec<usize>) {
        let (epoch, range) = (start.epoch, start.index as usize..end.index as usize);
        out.clear();
        let Some(windows) = &self.windows else {
            out.extend(range.map(|index| self.order.sample(epoch, index as u64)));
            return;
        };
        // A window is written before it is labelled, so what a panic left behind is never taken for sorted.
        let mut windows = windows.lock().unwrap_or_else(PoisonError::into_inner);
        for index in range {
            let window = self.window(&mut windows, dataset, epoch, index);
            out.push(window.samples[index - window.start].2);
        }
    }

    /// The window that holds position `index`, from the ones kept or made anew in place of the oldest.
    fn window<'w>(&self, windows: &'w mut [Window], dataset: &dyn Dataset, epoch: u64, index: usize) -> &'w Window {
        let (start, end) = self.bounds(index);
        let known = windows.iter().position(|w| (w.epoch, w.start) == (epoch, start));
        let last = windows.len() - 1;
        match known {
            Some(at) if at == last => {}
            Some(at) => windows[at..].rotate_left(1),
            None => {
                windows.rotate_left(1);
                windows[last].start = usize::MAX;
                self.sort(&mut windows[last].samples, dataset, epoch, start..end);
                (windows[last].epoch, windows[last].start) = (epoch, start);
            }
        }
        &windows[last]
    }

    /// Whole batches spread evenly over the windows; the ragged rest of the epoch is a window of its own, so that it
    /// stays last and holds samples of any length: its mean weighs them more.
    fn bounds(&self, index: usize) -> (usize, usize) {
        let whole = self.len / self.batch;
        let at = index / self.batch;
        if at >= whole {
            return (whole * self.batch, self.len);
        }
        let windows = whole.div_ceil(window_batches(self.batch));
        let first = |window: usize| window * whole / windows;
        // The window whose batches contain `at`: the guess is off by at most one.
        let guess = at * windows / whole;
        let window = if first(guess + 1) <= at { guess + 1 } else { guess };
        (first(window) * self.batch, first(window + 1) * self.batch)
    }

    fn sort(
        &self,
        samples: &mut Vec<(usize, usize, usize)>,
        dataset: &dyn Dataset,
        epoch: u64,
        range: std::ops::Range<usize>,
    ) {
        let start = range.start;
        samples.clear();
        samples.extend(range.map(|index| {
            let sample = self.order.sample(epoch, index as u64);
            (dataset.size(sample), index, sample)
        }));
        samples.sort_unstable();
        if let Some(seed) = self.order.seed() {
            let key = mix(seed ^ mix(epoch ^ mix(start as u64 ^ 0x6261_7463_6865_7321)));
            shuffle_batches(samples, self.batch, key);
        }
    }
}

/// Fisher–Yates over whole batches; what is left over at the end stays there.
fn shuffle_batches<T>(samples: &mut [T], batch: usize, key: u64) {
    for last in (1..samples.len() / batch).rev() {
        let other = ((u128::from(mix(key ^ last as u64)) * (last as u128 + 1)) >> 64) as usize;
        if other < last {
            let (front, back) = samples.split_at_mut(last * batch);
            front[other * batch..][..batch].swap_with_slice(&mut back[..batch]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::tests::Lengths;
    use proptest::prelude::*;

    fn lengths(count: usize) -> Lengths {
        Lengths::new((0..count as u64).map(|i| (mix(i) % 100) as usize + 1).collect(), 100)
    }

    fn composer(data: &Lengths, seed: Option<u64>, batch: usize, compose: Compose) -> Composer {
        let len = data.lengths.len();
        let order = seed.map_or(Order::sequential(len), |seed| Order::shuffled(len, seed));
        Composer::new(order, len, batch, compose).unwrap()
    }

    fn epoch(composer: &Composer, data: &Lengths, epoch: u64, start: usize) -> Vec<Vec<usize>> {
        let (mut batches, mut out) = (Vec::new(), Vec::new());
        for index in (start..data.lengths.len()).step_by(composer.batch) {
            let end = (index + composer.batch).min(data.lengths.len());
            let at = |index: usize| Position { epoch, index: index as u64 };
            composer.samples(data, at(index), at(end), &mut out);
            batches.push(out.clone());
        }
        batches
    }

    /// Values padded to the longest of each batch ÷ values.
    fn cost(data: &Lengths, batches: &[Vec<usize>]) -> f64 {
        let of = |batch: &Vec<usize>| batch.iter().map(|&s| data.lengths[s]).max().unwrap_or(0) * batch.len();
        batches.iter().map(of).sum::<usize>() as f64 / data.lengths.iter().sum::<usize>() as f64
    }

    proptest! {
        #[test]
        fn every_epoch_visits_every_sample_once(len in 1usize..2000, batch in 1usize..40, seed: u64, number in 0u64..9) {
            let data = lengths(len);
            let composer = composer(&data, Some(seed), batch, Compose::Length);
            let batches = epoch(&composer, &data, number, 0);
            let mut seen: Vec<usize> = batches.concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..len).collect::<Vec<_>>());
            // From the middle, with nothing kept from before, it goes on alike.
            let middle = batches.len() / 2;
            let fresh = self::composer(&data, Some(seed), batch, Compose::Length);
            prop_assert_eq!(&epoch(&fresh, &data, number, middle * batch)[..], &batches[middle..]);
        }
    }

    #[test]
    fn sorted_windows_pad_little_and_batches_stay_shuffled() {
        let data = lengths(10_000);
        let by_length = epoch(&composer(&data, Some(3), 32, Compose::Length), &data, 0, 0);
        let at_random = epoch(&composer(&data, Some(3), 32, Compose::Random), &data, 0, 0);
        assert!(cost(&data, &by_length) < 1.03, "{}", cost(&data, &by_length));
        assert!(cost(&data, &at_random) > 1.8);
        // The lengths of neighbouring batches do not follow each other.
        let longest: Vec<usize> = by_length.iter().map(|b| data.lengths[b[0]]).collect();
        let jump = longest.windows(2).map(|w| w[0].abs_diff(w[1])).sum::<usize>() as f64 / (longest.len() - 1) as f64;
        assert!((25.0..42.0).contains(&jump), "mean jump {jump}, 33 if batches were random");
        // Who shares a batch changes from epoch to epoch.
        let next = epoch(&composer(&data, Some(3), 32, Compose::Length), &data, 1, 0);
        let home = |batches: &[Vec<usize>]| {
            let mut home = vec![0; 10_000];
            batches.iter().enumerate().for_each(|(at, batch)| batch.iter().for_each(|&s| home[s] = at));
            home
        };
        let next = home(&next);
        let together = by_length[0].iter().filter(|&&s| next[s] == next[by_length[0][0]]).count();
        assert!(together < 8, "{together} of 32 meet again");
    }

    #[test]
    fn ties_keep_the_shuffled_order_and_the_rest_is_last() {
        let equal = Lengths::new(vec![7; 50], 7);
        let by_length = composer(&equal, Some(1), 8, Compose::Length);
        let batches = epoch(&by_length, &equal, 0, 0);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 8, 8, 8, 8, 2]);
        let mut sorted = batches.clone();
        sorted.sort_by_key(|batch| (0..50).position(|i| Order::shuffled(50, 1).sample(0, i) == batch[0]));
        let shuffled: Vec<usize> = (0..50).map(|i| Order::shuffled(50, 1).sample(0, i)).collect();
        assert_eq!(sorted.concat(), shuffled);
        assert_eq!(sorted.last(), batches.last());
    }

    #[test]
    fn without_a_seed_windows_are_sorted_in_place() {
        let data = lengths(96);
        let batches = epoch(&composer(&data, None, 8, Compose::Length), &data, 0, 0);
        let sizes: Vec<usize> = batches.concat().iter().map(|&s| data.lengths[s]).collect();
        assert!(sizes.is_sorted());
    }

    #[test]
    fn windows_are_even_and_bounded() {
        let data = lengths(1);
        for (len, batch) in [(1, 1), (65 * 4, 4), (64 * 4 + 3, 4), (1000 * 3, 3), (5, 8), (130, 2)] {
            let composer = Composer { len, batch, ..composer(&data, Some(1), 1, Compose::Length) };
            let mut at = 0;
            while at < len {
                let (start, end) = composer.bounds(at);
                assert!(start == at && end > at && end - start <= 64 * batch, "{len}/{batch}: {start}..{end}");
                assert!((start..end).all(|i| composer.bounds(i) == (start, end)), "{len}/{batch}");
                at = end;
            }
        }
        assert_eq!(Composer::host_bytes(32, Compose::Length), 2 * 24 * 64 * 32);
        assert_eq!(Composer::host_bytes(1 << 24, Compose::Length), (2 * 24) << 24);
    }
}
