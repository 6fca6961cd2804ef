//! Sorting what is short or rarely sorted. The library's sort and its maps from iterators are compiled anew for every type
//! and every comparison, six kilobytes each time; these share one sort among all callers.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// As `slice::sort_by`: equal items stay in their order.
pub(crate) fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let places = sorted_places(items.len(), &mut |a, b| compare(&items[a], &items[b]));
    for to in 0..places.len() {
        // What stood there before has been moved on to where what took its place came from.
        let mut from = places[to];
        while from < to {
            from = places[from];
        }
        items.swap(from, to);
    }
}

fn sorted_places(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by(|a, b| compare(*a, *b));
    places
}

/// As `collect`: of equal keys the last one stays.
pub(crate) fn map<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(pairs);
    map
}

/// As `collect`.
pub(crate) fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn items_stand_as_the_library_sorts_them(keys in prop::collection::vec(0u8..9, 0..40)) {
            let mut items: Vec<(u8, usize)> = keys.into_iter().zip(0..).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            sort_by(&mut items, |a, b| a.0.cmp(&b.0));
            prop_assert_eq!(items, expected);
        }

        #[test]
        fn maps_and_sets_are_those_that_collect_makes(pairs in prop::collection::vec((0u8..9, any::<u8>()), 0..40)) {
            prop_assert_eq!(map(pairs.clone()), pairs.iter().copied().collect::<BTreeMap<_, _>>());
            prop_assert_eq!(set(pairs.iter().copied()), pairs.iter().copied().collect::<BTreeSet<_>>());
        }
    }
}
