//! A part held out for validation: shuffled, always the same, and with the same share of every class.

use crate::order::Order;

/// Not the seed of the training: runs that differ in it are judged on the same samples.
const SPLIT_SEED: u64 = 0x73_706c_6974;

/// Divides `len` samples; both parts ascend. `class` is below `classes`.
pub(super) fn hold_out(len: usize, fraction: f64, classes: usize, class: impl Fn(usize) -> usize) -> [Vec<u32>; 2] {
    let mut count = vec![0usize; classes.max(1)];
    (0..len).for_each(|sample| count[class(sample)] += 1);
    let mut wanted: Vec<usize> = count.iter().map(|&n| (n as f64 * fraction).round() as usize).collect();
    // A few samples must not round to no validation at all.
    if fraction > 0.0 && len > 1 && wanted.iter().all(|&n| n == 0) {
        let largest = (0..count.len()).max_by_key(|&class| count[class]).unwrap_or(0);
        wanted[largest] = 1;
    }
    let order = Order::shuffled(len, SPLIT_SEED);
    let mut held_out = vec![false; len];
    for index in 0..len as u64 {
        let sample = order.sample(0, index);
        let left = &mut wanted[class(sample)];
        if *left > 0 {
            *left -= 1;
            held_out[sample] = true;
        }
    }
    [false, true].map(|part| (0..len as u32).filter(|&sample| held_out[sample as usize] == part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_keeps_its_share() {
        let class = |sample: usize| usize::from(sample.is_multiple_of(10));
        let [train, validation] = hold_out(1000, 0.2, 2, class);
        assert_eq!((train.len(), validation.len()), (800, 200));
        assert_eq!(validation.iter().filter(|&&s| class(s as usize) == 1).count(), 20);
        let mut all: Vec<u32> = train.iter().chain(&validation).copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        assert_ne!(validation, (800..1000).collect::<Vec<_>>(), "not simply the end");
        assert_eq!(hold_out(1000, 0.2, 2, class)[1], validation);
        assert!(hold_out(5, 0.0, 1, |_| 0)[1].is_empty());
        assert_eq!(hold_out(4, 0.1, 2, |s| s % 2)[1].len(), 1);
    }
}
