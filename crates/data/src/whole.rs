//! Labels that are whole numbers: the places of classes, or names for them.

use std::collections::BTreeSet;

/// Beyond this, doubles leave out whole numbers.
const MOST: f64 = 9_007_199_254_740_992.0;

/// A label that may name a class.
pub(crate) fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= MOST).then_some(number as i64)
}

/// The same, of a word.
pub(crate) fn whole_word(word: &str) -> Option<i64> {
    word.parse().ok().and_then(whole)
}

/// What labels a model of so many classes can have, in the order of its outputs, where the data has `found`: the places
/// 0, 1, … where all are among them; or else what was found, where that is as many as there are classes (−1 and 1, stars
/// from 1 to 5). `None`: neither, and which label stands for which class would be a guess.
pub(crate) fn classes_of(found: &BTreeSet<i64>, classes: usize) -> Option<Vec<i64>> {
    let is_place = |label: &i64| usize::try_from(*label).is_ok_and(|label| label < classes);
    match found.iter().all(is_place) {
        true => Some((0..classes as i64).collect()),
        false => (found.len() == classes).then(|| found.iter().copied().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::btree_set, prelude::*};

    #[test]
    fn places_stay_and_other_labels_count_where_there_are_as_many() {
        let classes = |found: &[i64], classes| classes_of(&found.iter().copied().collect(), classes);
        assert_eq!(classes(&[0, 2], 4), Some(vec![0, 1, 2, 3]));
        assert_eq!(classes(&[-1, 1], 2), Some(vec![-1, 1]));
        assert_eq!(classes(&[1, 2, 3, 4, 5], 5), Some(vec![1, 2, 3, 4, 5]));
        assert_eq!(classes(&[1, 2, 3, 4, 5], 6), Some(vec![0, 1, 2, 3, 4, 5]));
        assert_eq!((classes(&[7], 2), classes(&[-1, 0, 1], 2), classes(&[-1, 1], 3)), (None, None, None));
        assert_eq!((whole(-3.0), whole(0.5), whole(1e300), whole(f64::NAN)), (Some(-3), None, None, None));
        assert_eq!((whole_word("2.0"), whole_word("inf"), whole_word("two")), (Some(2), None, None));
    }

    proptest! {
        /// Every label that was found has one class, and there are as many classes as the model has.
        #[test]
        fn whatever_was_found_is_among_the_classes(found in btree_set(-9i64..9, 1..9), classes in 1usize..12) {
            if let Some(all) = classes_of(&found, classes) {
                prop_assert_eq!(all.len(), classes);
                prop_assert!(all.is_sorted() && found.iter().all(|label| all.binary_search(label).is_ok()));
            } else {
                prop_assert_ne!(found.len(), classes);
            }
        }
    }
}
