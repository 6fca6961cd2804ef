//! Sorting that leaves equal values in the order in which NumPy's (scalar) `argsort` leaves them.
//!
//! Of several trials with the same value of a parameter only the outer ones in sorted order get a wide kernel, and
//! trials weigh differently by age. Which of the equal ones that is depends on the sorting algorithm: quicksort by the
//! median of three, and insertion for parts of up to 16.

/// The longest part that is sorted by insertion.
const SMALL: usize = 16;

/// The order in which the values are sorted.
pub(super) fn argsort(values: &[f64]) -> Vec<usize> {
    // Values go along with their places: what is compared lies side by side.
    let mut order: Vec<Placed> = values.iter().copied().zip(0..).collect();
    if values.len() > 1 {
        sort(&mut order, 2 * values.len().ilog2());
    }
    order.into_iter().map(|(_, place)| place).collect()
}

/// A value and where it was.
type Placed = (f64, usize);

fn sort(mut part: &mut [Placed], mut depth: u32) {
    while part.len() > SMALL {
        if depth == 0 {
            // Quicksort has run into its worst case; equal values are then left in their order.
            return part.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        depth -= 1;
        let middle = partition(part);
        let (left, right) = part.split_at_mut(middle);
        sort(left, depth);
        part = &mut right[1..];
    }
    insertion(part);
}

/// Puts a value into its place, smaller ones before it and larger ones behind; returns the place.
fn partition(part: &mut [Placed]) -> usize {
    let last = part.len() - 1;
    let middle = last / 2;
    for (low, high) in [(0, middle), (middle, last), (0, middle)] {
        if part[high].0 < part[low].0 {
            part.swap(low, high);
        }
    }
    let pivot = part[middle].0;
    part.swap(middle, last - 1);
    let (mut from_left, mut from_right) = (0, last - 1);
    loop {
        from_left += 1;
        while part[from_left].0 < pivot {
            from_left += 1;
        }
        from_right -= 1;
        while pivot < part[from_right].0 {
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

fn insertion(part: &mut [Placed]) {
    for place in 1..part.len() {
        let mut at = place;
        let moved = part[place];
        while at > 0 && moved.0 < part[at - 1].0 {
            part[at] = part[at - 1];
            at -= 1;
        }
        part[at] = moved;
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
