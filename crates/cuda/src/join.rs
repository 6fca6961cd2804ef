//! Fewer launches: sweeps over tensors that have nothing to do with each other become one.
//!
//! A sweep may also run earlier than its place, past launches that neither touch what it writes nor write what it reads; but
//! never past a copy from or to the host: those who wait for the one would wait for what the other waits for too.

use super::launches::{Joined, Shares, Step};
use plimsoll_core::kernels::cuda::Recorded;

/// How many launches a sweep is carried past at most. Farther back there is hardly ever anything to join.
const REACH: usize = 256;

/// Joins what can be joined. What remains stands where the first of those that it consists of did.
pub(super) fn join(steps: Vec<Step>) -> Vec<Joined> {
    let groups = groups(&steps);
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    let mut take = |index: usize| steps[index].take().expect("a launch is in one group");
    groups.iter().map(|group| merged(group.iter().map(|&index| take(index)).collect())).collect()
}

fn merged(group: Vec<Step>) -> Joined {
    let shares = shares(&group);
    let mut steps = group.into_iter();
    let Step { mut launch, mut touched, lane, .. } = steps.next().expect("a group has a first launch");
    for step in steps {
        if let (Recorded::Sweep(all), Recorded::Sweep(one)) = (&mut launch, step.launch) {
            all.sets.extend(one.sets);
        }
        touched.reads.extend(step.touched.reads);
        touched.writes.extend(step.touched.writes);
    }
    Joined { shares, launch, touched, lane }
}

/// A launch that stands alone is all its node's; of a joined one each node has as much as it has elements.
fn shares(group: &[Step]) -> Shares {
    let elements = |step: &Step| match &step.launch {
        Recorded::Sweep(sweep) => sweep.sets.iter().map(|set| set.elements).sum::<usize>().max(1) as f64,
        _ => 1.0,
    };
    let all: f64 = group.iter().map(elements).sum();
    let of = |step: &Step| {
        let share = elements(step) / all;
        step.ticks.iter().map(|&(tick, part)| (tick, part * share)).collect::<Shares>()
    };
    group.iter().flat_map(of).collect()
}

/// Which launches run together, in the order in which they run.
fn groups(steps: &[Step]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        match place(steps, &groups, step) {
            Some(at) => groups[at].push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// The nearest group that a launch can join.
fn place(steps: &[Step], groups: &[Vec<usize>], step: &Step) -> Option<usize> {
    let Recorded::Sweep(sweep) = &step.launch else { return None };
    for (at, group) in groups.iter().enumerate().rev().take(REACH) {
        let is_apart = |&other: &usize| steps[other].touched.is_independent_of(&step.touched);
        if steps[group[0]].lane != step.lane || !group.iter().all(is_apart) {
            return None;
        }
        if matches!(&steps[group[0]].launch, Recorded::Sweep(first) if first.is_like(sweep, group.len() + 1)) {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::launches::{Lane, Touched};
    use super::*;
    use plimsoll_core::kernels::cuda::{Arg, Kernel, Set, Source, Sweep};
    use std::iter::once;
    use std::ops::Range;

    fn touched(reads: Range<u64>, writes: Range<u64>) -> Touched {
        Touched { reads: once(reads).collect(), writes: once(writes).collect() }
    }

    /// Over as many elements as bytes are read.
    fn sweep(entry: &'static str, reads: Range<u64>, writes: Range<u64>) -> Step {
        let kernel = Kernel::new(Source { name: "any", text: "" }, entry);
        let elements = (reads.end - reads.start) as usize;
        let sets = vec![Set { addresses: vec![reads.start, writes.start], words: Vec::new(), elements }];
        let launch = Recorded::Sweep(Sweep { kernel, width: 1, sets, shared: vec![Arg::U32(1)] });
        Step { launch, touched: touched(reads, writes), ticks: Shares::from_elem((0, 1.0), 1), lane: Lane::Kernels }
    }

    fn other(reads: Range<u64>, writes: Range<u64>) -> Step {
        let launch = Recorded::Fill { address: 0, byte: 0, bytes: 0 };
        Step { launch, touched: touched(reads, writes), ticks: Shares::from_elem((0, 1.0), 1), lane: Lane::Kernels }
    }

    #[test]
    fn sweeps_are_joined_past_what_does_not_concern_them() {
        let steps = [
            sweep("cast", 0..4, 100..102),
            other(100..102, 200..300),
            sweep("cast", 4..8, 102..104),
            sweep("scale", 0..4, 150..152),
            other(8..12, 300..400),
            sweep("cast", 8..12, 104..106),
        ];
        assert_eq!(groups(&steps), [vec![0, 2, 5], vec![1], vec![3], vec![4]]);
        let joined = join(steps.to_vec());
        let Recorded::Sweep(all) = &joined[0].launch else { panic!("the first is a sweep") };
        assert_eq!(all.sets.iter().map(|set| set.addresses[0]).collect::<Vec<_>>(), [0, 4, 8]);
    }

    #[test]
    fn a_joined_launch_is_shared_by_elements() {
        let at = |tick: usize, step: Step| Step { ticks: Shares::from_elem((tick, 1.0), 1), ..step };
        let steps = vec![
            at(2, sweep("cast", 0..30, 100..130)),
            at(5, sweep("cast", 30..40, 130..140)),
            at(6, other(0..1, 0..1)),
        ];
        let shares: Vec<Shares> = join(steps).into_iter().map(|joined| joined.shares).collect();
        assert_eq!(shares.iter().map(|s| s.to_vec()).collect::<Vec<_>>(), [vec![(2, 0.75), (5, 0.25)], vec![(6, 1.0)]]);
    }

    #[test]
    fn nothing_is_carried_past_what_it_reads_or_overwrites() {
        let first = sweep("cast", 0..4, 100..102);
        let after = sweep("cast", 4..8, 102..104);
        for between in [other(50..51, 4..5), other(103..105, 60..61), other(50..51, 90..110)] {
            assert_eq!(groups(&[first.clone(), between, after.clone()]), [[0], [1], [2]]);
        }
        // One that reads what the other writes, and two that write the same.
        assert_eq!(groups(&[first.clone(), sweep("cast", 101..105, 102..104)]).len(), 2);
        assert_eq!(groups(&[first, sweep("cast", 4..8, 101..103)]).len(), 2);
    }

    #[test]
    fn nothing_is_carried_past_a_copy_from_or_to_the_host() {
        let copy = Step { lane: Lane::ToHost, ..other(0..4, 500..504) };
        let steps = [sweep("cast", 0..4, 100..102), copy, sweep("cast", 4..8, 102..104)];
        assert_eq!(groups(&steps), [[0], [1], [2]]);
    }

    #[test]
    fn a_launch_holds_so_many_sets() {
        let steps: Vec<Step> = (0..300).map(|i| sweep("cast", i..i + 1, 1000 + i..1001 + i)).collect();
        assert_eq!(groups(&steps).iter().map(Vec::len).collect::<Vec<_>>(), [120, 120, 60]);
    }

    /// Runs steps on bytes: what a step writes depends on which it is and on what it reads. Those of a group read
    /// before any of them writes.
    fn run(steps: &[Step], groups: &[Vec<usize>]) -> Vec<u64> {
        let mut memory: Vec<u64> = (0..64).collect();
        for group in groups {
            let result = |&index: &usize| {
                let read = steps[index].touched.reads.iter().flat_map(|range| range.clone());
                read.fold(index as u64 + 1, |sum, at| (sum ^ memory[at as usize]).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            };
            let results: Vec<u64> = group.iter().map(result).collect();
            for (&index, result) in group.iter().zip(results) {
                let written = steps[index].touched.writes.iter().flat_map(|range| range.clone());
                written.for_each(|at| memory[at as usize] = result ^ at);
            }
        }
        memory
    }

    #[test]
    fn joining_changes_nothing_that_is_computed() {
        let mut rng = plimsoll_core::ops::SampleRng::new(7);
        let mut joined = 0;
        for _ in 0..300 {
            let steps: Vec<Step> = (0..40)
                .map(|_| {
                    let range = |rng: &mut plimsoll_core::ops::SampleRng| {
                        let start = rng.size(0, 59) as u64;
                        start..start + rng.size(1, 4) as u64
                    };
                    let (reads, writes) = (range(&mut rng), range(&mut rng));
                    match rng.size(0, 2) {
                        0 => other(reads, writes),
                        1 => sweep("cast", reads, writes),
                        _ => sweep("scale", reads, writes),
                    }
                })
                .collect();
            let together = groups(&steps);
            joined += steps.len() - together.len();
            let apart: Vec<Vec<usize>> = (0..steps.len()).map(|index| vec![index]).collect();
            assert_eq!(run(&steps, &together), run(&steps, &apart), "{steps:?}");
        }
        assert!(joined > 300, "only {joined} launches were joined");
    }
}
