//! Elementwise launches that can be joined: hundreds of small tensors take their time from the launches, not the bytes.

use super::{Arg, Grid, Kernel};

/// An elementwise kernel over sets of tensors, such as a weight with its moments and its gradient; see sweep.cuh.
/// Launches that differ in their sets alone can be one.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// With `WIDTH`, but without the macros that follow from the sets.
    pub kernel: Kernel,
    /// Elements that a thread handles.
    pub width: usize,
    pub sets: Vec<Set>,
    /// The arguments that all sets share.
    pub shared: Vec<Arg>,
}

/// Tensors of equally many elements, and what else belongs to them alone, such as where chance comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    pub addresses: Vec<u64>,
    pub words: Vec<u64>,
    pub elements: usize,
}

/// Bytes of sets in a launch. Kernels take 4 KiB of arguments on every card; the rest is for what sets share.
const TABLE_BYTES: usize = 3840;
const THREADS: usize = 256;

impl Sweep {
    fn tensors(&self) -> usize {
        self.sets[0].addresses.len()
    }

    fn own_words(&self) -> usize {
        self.sets[0].words.len()
    }

    /// 64-bit words of a set: its addresses, its own words, its length and its first block.
    fn words_per_set(&self) -> usize {
        self.tensors() + self.own_words() + 2
    }

    fn most_sets(&self) -> usize {
        Sweep::most_sets_of(self.tensors() + self.own_words())
    }

    /// How many sets of so many tensors and words of their own a launch has room for.
    pub(crate) fn most_sets_of(words: usize) -> usize {
        TABLE_BYTES / (8 * (words + 2))
    }

    /// Whether one launch can do what both do, `sets` of them in all.
    pub fn is_like(&self, other: &Sweep, sets: usize) -> bool {
        sets <= self.most_sets()
            && self.tensors() == other.tensors()
            && self.own_words() == other.own_words()
            && self.kernel == other.kernel
            && self.shared == other.shared
    }

    /// The kernels that sweeps like this one are launched with, by room for sets.
    pub fn kernels(&self) -> impl Iterator<Item = (usize, Kernel)> + '_ {
        let sized = |room: usize| {
            let kernel = self.kernel.clone().define("TENSORS", self.tensors());
            kernel.define("OWN_WORDS", self.own_words()).define("SETS", room)
        };
        [1, 16, self.most_sets()].into_iter().map(move |room| (room, sized(room)))
    }

    /// The kernel with the least room that holds the sets, and that room.
    fn fitting(&self) -> Option<(usize, Kernel)> {
        self.kernels().find(|(room, _)| self.sets.len() <= *room)
    }

    /// The kernel with room for the sets.
    pub fn kernel(&self) -> Kernel {
        self.fitting().map_or_else(|| self.kernel.clone(), |(_, kernel)| kernel)
    }

    fn blocks(&self, set: &Set) -> usize {
        set.elements.div_ceil(THREADS * self.width)
    }

    pub fn grid(&self) -> Grid {
        Grid::new(self.sets.iter().map(|set| self.blocks(set)).sum(), THREADS)
    }

    /// The sets as the kernel reads them, up to its room for them.
    pub fn table(&self) -> Vec<u64> {
        let (mut words, mut first) = (Vec::new(), 0);
        for set in &self.sets {
            words.extend_from_slice(&set.addresses);
            words.extend_from_slice(&set.words);
            words.extend([set.elements as u64, first as u64]);
            first += self.blocks(set);
        }
        let room = self.fitting().map_or(self.sets.len(), |(room, _)| room);
        words.resize(room * self.words_per_set(), 0);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::cuda::Source;

    fn sweep(elements: &[usize]) -> Sweep {
        let kernel = Kernel::new(Source { name: "cast", text: "" }, "cast");
        let set = |&elements: &usize| Set { addresses: vec![64, 128], words: Vec::new(), elements };
        Sweep { kernel, width: 4, sets: elements.iter().map(set).collect(), shared: Vec::new() }
    }

    #[test]
    fn a_table_has_the_first_block_of_each_set_and_room_for_more() {
        let three = sweep(&[1, 1025, 4096]);
        assert_eq!(three.table()[..12], [64, 128, 1, 0, 64, 128, 1025, 1, 64, 128, 4096, 3]);
        assert_eq!((three.table().len(), three.grid().blocks[0]), (16 * 4, 7));
        assert_eq!(sweep(&[5]).table(), [64, 128, 5, 0]);
    }

    #[test]
    fn sets_bring_words_of_their_own() {
        let mut two = sweep(&[5, 6]);
        two.sets.iter_mut().zip([7, 9]).for_each(|(set, site)| set.words = vec![site, 16]);
        assert_eq!(two.table()[..12], [64, 128, 7, 16, 5, 0, 64, 128, 9, 16, 6, 1]);
        assert!(two.is_like(&two, 80) && !two.is_like(&two, 81) && !two.is_like(&sweep(&[5]), 2));
    }

    #[test]
    fn arguments_fit_on_every_card() {
        let most = sweep(&[1; 120]);
        assert_eq!(most.table().len() * 8, TABLE_BYTES);
        assert!(most.is_like(&most, 120) && !most.is_like(&most, 121));
    }
}
