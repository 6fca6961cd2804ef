//! Sorting that leaves equal values in the order in which NumPy's (scalar) `argsort` leaves them.
//!
//! Of several trials with the same value of a parameter only the outer ones in sorted order get a wide kernel, and
//! trials weigh differently by age. Which of the equal ones that is depends on the sorting algorithm: quicksort by the
//! median of three, and insertion for parts of up to 16.

/// The longest part that is sorted by insertion.
const SMALL: usize = 16;

/// The order in which the values are sorted.
pub(super) fn argsort(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    if values.len() > 1 {
        sort(&mut order, values, 2 * values.len().ilog2());
    }
    order
}

fn sort(mut part: &mut [usize], values: &[f64], mut depth: u32) {
    while part.len() > SMALL {
        if depth == 0 {
            // Quicksort has run into its worst case; equal values are then left in their order.
            return part.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        }
        depth -= 1;
        let middle = partition(part, values);
        let (left, right) = part.split_at_mut(middle);
        sort(left, values, depth);
        part = &mut right[1..];
    }
    insertion(part, values);
}

/// Puts a value into its place, smaller ones before it and larger ones behind; returns the place.
fn partition(part: &mut [usize], values: &[f64]) -> usize {
    let last = part.len() - 1;
    let middle = last / 2;
    for (low, high) in [(0, middle), (middle, last), (0, middle)] {
        if values[part[high]] < values[part[low]] {
            part.swap(low, high);
        }
    }
    let pivot = values[part[middle]];
    part.swap(middle, last - 1);
    let (mut from_left, mut from_right) = (0, last - 1);
    loop {
        from_left += 1;
        while values[part[from_left]] < pivot {
            from_left += 1;
        }
        from_right -= 1;
        while pivot < values[part[from_right]] {
            from_right -= 1;
        }
        if from_left >= from_right {
            break;
        }
        part.swap(from_left, from_right);
    }
    part.swap(from_left, last - 1);
    from_left
}

fn insertion(part: &mut [usize], values: &[f64]) {
    for place in 1..part.len() {
        let mut at = place;
        while at > 0 && values[part[at]] < values[part[at - 1]] {
            part.swap(at, at - 1);
            at -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn every_size_and_every_number_of_equal_values_is_sorted() {
        let mut rng = Rng::new(1);
        for size in 0..300 {
            let kinds = 1 + rng.below(size + 1);
            let values: Vec<f64> = (0..size).map(|_| rng.below(kinds) as f64).collect();
            let order = argsort(&values);
            assert!(order.windows(2).all(|pair| values[pair[0]] <= values[pair[1]]));
            let mut indices = order.clone();
            indices.sort_unstable();
            assert_eq!(indices, (0..size).collect::<Vec<_>>());
        }
    }
}
