//! The lengths that batches may have. A graph is built and planned for each of them, so they are few; padding to the
//! next one costs little, because they stand closer where texts are short.

use super::{FieldSpec, fields::axis_maxima};
use plimsoll_base::batching::Buckets;

/// Below this length the rungs keep the distance of the octave above it.
const FIRST_OCTAVE: usize = 16;
/// Rungs per octave unless the recipe says: a batch is at most 1/16 longer than its longest text.
const ONE_AXIS: usize = 16;
/// With two axes every pair of lengths is a shape of its own.
const TWO_AXES: usize = 4;

/// A pure function of (longest, rungs per octave).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// Ascending; the last is the longest length there is.
    rungs: Vec<usize>,
}

impl Ladder {
    /// `steps` rungs in every octave from 16 on; `max` is always one.
    pub fn new(max: usize, steps: usize) -> Self {
        let (max, steps) = (max.max(1), steps.max(1));
        let mut rungs = Vec::new();
        let first = (1..=steps).map(|k| (FIRST_OCTAVE * k).div_ceil(steps));
        let octaves = (0..usize::BITS - FIRST_OCTAVE.ilog2()).map(|octave| FIRST_OCTAVE << octave);
        let higher = octaves.flat_map(|from| {
            (1..=steps).map(move |k| from.saturating_add((from as u128 * k as u128).div_ceil(steps as u128) as usize))
        });
        for rung in first.chain(higher).take_while(|&rung| rung < max) {
            if rungs.last() != Some(&rung) {
                rungs.push(rung);
            }
        }
        rungs.push(max);
        Ladder { rungs }
    }

    /// Everything is padded to `max`.
    pub fn fixed(max: usize) -> Self {
        Ladder { rungs: vec![max.max(1)] }
    }

    /// One ladder per axis of `fields`.
    pub fn of_fields(fields: &[FieldSpec], buckets: Buckets) -> Vec<Ladder> {
        let maxima = axis_maxima(fields);
        let steps = match (buckets, maxima.len()) {
            (Buckets::Off, _) => return maxima.into_iter().map(Ladder::fixed).collect(),
            (Buckets::Steps(steps), _) => steps,
            (Buckets::Auto, 0 | 1) => ONE_AXIS,
            (Buckets::Auto, _) => TWO_AXES,
        };
        maxima.into_iter().map(|max| Ladder::new(max, steps)).collect()
    }

    /// The smallest rung that holds `length`; the longest one for what is longer still.
    pub fn round(&self, length: usize) -> usize {
        self.rungs[self.rung(length)]
    }

    /// The number of that rung, from 0.
    pub fn rung(&self, length: usize) -> usize {
        self.rungs.partition_point(|&rung| rung < length).min(self.rungs.len() - 1)
    }

    /// All lengths, ascending.
    pub fn lengths(&self) -> &[usize] {
        &self.rungs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;
    use proptest::prelude::*;

    #[test]
    fn rungs_are_what_the_rule_says() {
        assert_eq!(Ladder::new(5, 16).lengths(), [1, 2, 3, 4, 5]);
        let fine = Ladder::new(128, 16);
        assert_eq!(fine.lengths().len(), 32 + 16 + 16);
        assert_eq!((fine.round(31), fine.round(33), fine.round(66), fine.round(128)), (31, 34, 68, 128));
        assert_eq!(Ladder::new(40, 4).lengths(), [4, 8, 12, 16, 20, 24, 28, 32, 40]);
        assert_eq!(Ladder::new(50, 1).lengths(), [16, 32, 50]);
        assert_eq!(Ladder::new(12, 32).lengths(), (1..=12).collect::<Vec<_>>());
        assert_eq!(Ladder::fixed(77).round(3), 77);
        assert_eq!(Ladder::new(usize::MAX, 16).round(usize::MAX), usize::MAX);
    }

    proptest! {
        #[test]
        fn rounding_goes_up_by_little_and_never_beyond(max in 1usize..5000, steps in 1usize..40, length in 0usize..5000) {
            let ladder = Ladder::new(max, steps);
            let length = length.min(max);
            let rung = ladder.round(length);
            prop_assert!(rung >= length && rung <= max && ladder.lengths().contains(&rung));
            prop_assert!(ladder.lengths().windows(2).all(|w| w[0] < w[1]));
            prop_assert_eq!(ladder.round(rung), rung);
            let slack = length.max(FIRST_OCTAVE).div_ceil(steps);
            prop_assert!(rung <= length.max(1) + slack, "{} became {}", length, rung);
        }
    }

    #[test]
    fn data_with_two_axes_gets_coarser_ladders() {
        let field = |axis| FieldSpec::variable("f", Element::I32, axis, 64, 0);
        let counts = |fields: &[FieldSpec], buckets| -> Vec<usize> {
            Ladder::of_fields(fields, buckets).iter().map(|l| l.lengths().len()).collect()
        };
        assert_eq!(counts(&[field(0), field(0)], Buckets::Auto), [48]);
        assert_eq!(counts(&[field(0), field(1)], Buckets::Auto), [12, 12]);
        assert_eq!(counts(&[field(0), field(1)], Buckets::Off), [1, 1]);
        assert_eq!(counts(&[field(0), field(1)], Buckets::Steps(1)), [3, 3]);
        assert!(counts(&[FieldSpec::new("x", Element::F32, &[3])], Buckets::Auto).is_empty());
    }
}
