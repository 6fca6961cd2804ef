//! The volume that a set of points dominates up to a reference point, and the subset of a given size that dominates
//! the most of it (greedily). Objectives are to be minimized.

use crate::pareto::lexicographic;

/// The volume dominated by `points` up to `reference`.
pub(crate) fn hypervolume(points: &[Vec<f64>], reference: &[f64]) -> f64 {
    if points.is_empty() {
        return 0.0;
    }
    if reference.iter().any(|bound| !bound.is_finite()) {
        return f64::INFINITY;
    }
    let mut sorted: Vec<&[f64]> = points.iter().map(Vec::as_slice).collect();
    sorted.sort_by(|a, b| lexicographic(a, b));
    let volume = volume_of(&non_dominated(&sorted), reference);
    if volume.is_finite() { volume } else { f64::INFINITY }
}

/// Indices of `count` points that dominate a large volume together: each the one that adds most to those before it.
/// Points that are equal count once, unless there are too few different ones.
pub(crate) fn best_subset(points: &[Vec<f64>], count: usize, reference: &[f64]) -> Vec<usize> {
    let mut unique: Vec<usize> = (0..points.len()).collect();
    unique.sort_by(|a, b| lexicographic(&points[*a], &points[*b]).then(a.cmp(b)));
    unique.dedup_by(|later, first| points[*later] == points[*first]);
    if unique.len() <= count {
        let repeated = (0..points.len()).filter(|index| !unique.contains(index));
        let filler: Vec<usize> = repeated.take(count - unique.len()).collect();
        return unique.into_iter().chain(filler).collect();
    }
    if reference.iter().any(|bound| !bound.is_finite()) {
        unique.truncate(count);
        return unique;
    }
    match reference.len() {
        2 => greedy_plane(points, unique, count, reference),
        _ => greedy(points, unique, count, reference),
    }
}

/// In the plane, points in order: what a point adds is a rectangle that its chosen neighbours bound.
fn greedy_plane(points: &[Vec<f64>], mut left: Vec<usize>, count: usize, reference: &[f64]) -> Vec<usize> {
    let mut corners = vec![[reference[0], reference[1]]; left.len()];
    let mut chosen = Vec::with_capacity(count);
    for _ in 0..count {
        let added = left.iter().zip(&corners).map(|(index, corner)| {
            let point = &points[*index];
            (corner[0] - point[0]) * (corner[1] - point[1])
        });
        let best = first_largest(added);
        let index = left.remove(best);
        corners.remove(best);
        corners[..best].iter_mut().for_each(|corner| corner[0] = corner[0].min(points[index][0]));
        corners[best..].iter_mut().for_each(|corner| corner[1] = corner[1].min(points[index][1]));
        chosen.push(index);
    }
    chosen
}

fn greedy(points: &[Vec<f64>], mut left: Vec<usize>, count: usize, reference: &[f64]) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::with_capacity(count);
    // What a point adds can only shrink as others are chosen: an old figure is an upper bound.
    let mut bounds: Vec<f64> = left.iter().map(|index| box_volume(&points[*index], reference)).collect();
    let mut covered = 0.0;
    while chosen.len() < count {
        let best = first_largest(bounds.iter().copied());
        covered += bounds.remove(best);
        chosen.push(left.remove(best));
        if chosen.len() < count {
            tighten(&mut bounds, &left, &chosen, points, reference, covered);
        }
    }
    chosen
}

/// Brings the bounds up to date, the largest first; one that cannot become the largest any more is left as it is.
fn tighten(bounds: &mut [f64], left: &[usize], chosen: &[usize], points: &[Vec<f64>], reference: &[f64], covered: f64) {
    if covered.is_infinite() {
        bounds.fill(f64::INFINITY);
        return;
    }
    let newest = &points[chosen[chosen.len() - 1]];
    for (bound, index) in bounds.iter_mut().zip(left) {
        *bound = bound.min(box_volume(&points[*index], reference) - shared_box(&points[*index], newest, reference));
    }
    let mut order: Vec<usize> = (0..bounds.len()).collect();
    order.sort_by(|a, b| bounds[*b].total_cmp(&bounds[*a]));
    let mut largest = 0.0f64;
    for at in order {
        if box_volume(&points[left[at]], reference).is_infinite() {
            bounds[at] = f64::INFINITY;
            largest = f64::INFINITY;
        } else if bounds[at] >= largest {
            bounds[at] = added_by(left[at], chosen, points, reference, covered);
            largest = largest.max(bounds[at]);
        }
    }
}

fn added_by(index: usize, chosen: &[usize], points: &[Vec<f64>], reference: &[f64], covered: f64) -> f64 {
    if reference.len() <= 3 {
        let together: Vec<Vec<f64>> = chosen.iter().chain([&index]).map(|i| points[*i].clone()).collect();
        return hypervolume(&together, reference) - covered;
    }
    let shared: Vec<Vec<f64>> = chosen.iter().map(|other| worse_of(&points[index], &points[*other])).collect();
    box_volume(&points[index], reference) - hypervolume(&shared, reference)
}

/// The first of the largest.
fn first_largest(values: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (index, value) in values.enumerate() {
        if value > best.1 {
            best = (index, value);
        }
    }
    best.0
}

fn box_volume(point: &[f64], reference: &[f64]) -> f64 {
    reference.iter().zip(point).map(|(bound, value)| bound - value).product()
}

fn worse_of(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a.max(*b)).collect()
}

fn shared_box(a: &[f64], b: &[f64], reference: &[f64]) -> f64 {
    box_volume(&worse_of(a, b), reference)
}

/// Of points in lexicographic order those that no other is at least as good as.
fn non_dominated<'a>(sorted: &[&'a [f64]]) -> Vec<&'a [f64]> {
    let mut front: Vec<&[f64]> = Vec::new();
    for point in sorted {
        let dominated = front.iter().any(|better| better.iter().zip(*point).all(|(a, b)| a <= b));
        if !dominated {
            front.push(point);
        }
    }
    front
}

/// The volume of a front in lexicographic order: in the plane by its stairs, else by what each point adds to those
/// behind it.
fn volume_of(front: &[&[f64]], reference: &[f64]) -> f64 {
    match (front, reference) {
        ([], _) => 0.0,
        ([only], _) => box_volume(only, reference),
        (_, [x, y]) => {
            let ceilings = std::iter::once(*y).chain(front.iter().map(|point| point[1]));
            front.iter().zip(ceilings).map(|(point, ceiling)| (x - point[0]) * (ceiling - point[1])).sum()
        }
        ([first, rest @ ..], _) => {
            let shared: Vec<Vec<f64>> = rest.iter().map(|other| worse_of(first, other)).collect();
            let mut sorted: Vec<&[f64]> = shared.iter().map(Vec::as_slice).collect();
            sorted.sort_by(|a, b| lexicographic(a, b));
            let exclusive = box_volume(first, reference) - volume_of(&non_dominated(&sorted), reference);
            exclusive + volume_of(rest, reference)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn volumes_agree_with_counting_random_points() {
        let mut rng = Rng::new(5);
        for objectives in 2..=4 {
            let points: Vec<Vec<f64>> = (0..7).map(|_| (0..objectives).map(|_| rng.uniform()).collect()).collect();
            let reference = vec![1.0; objectives];
            let hits = (0..200_000).filter(|_| {
                let probe: Vec<f64> = (0..objectives).map(|_| rng.uniform()).collect();
                points.iter().any(|point| point.iter().zip(&probe).all(|(a, b)| a <= b))
            });
            let counted = hits.count() as f64 / 200_000.0;
            assert!((hypervolume(&points, &reference) - counted).abs() < 0.005, "{objectives} objectives");
        }
    }

    #[test]
    fn the_lazy_choice_is_the_greedy_choice() {
        let mut rng = Rng::new(9);
        for objectives in 2..=4 {
            let points: Vec<Vec<f64>> = (0..20).map(|_| (0..objectives).map(|_| rng.uniform()).collect()).collect();
            let reference = vec![1.1; objectives];
            let mut chosen: Vec<usize> = Vec::new();
            for _ in 0..6 {
                let volume_with = |index: usize| {
                    let with: Vec<Vec<f64>> = chosen.iter().chain([&index]).map(|i| points[*i].clone()).collect();
                    hypervolume(&with, &reference)
                };
                let left = (0..20).filter(|index| !chosen.contains(index));
                let next = left.max_by(|a, b| volume_with(*a).total_cmp(&volume_with(*b))).unwrap();
                chosen.push(next);
            }
            let volume =
                |of: &[usize]| hypervolume(&of.iter().map(|i| points[*i].clone()).collect::<Vec<_>>(), &reference);
            let lazy = best_subset(&points, 6, &reference);
            assert!((volume(&lazy) - volume(&chosen)).abs() < 1e-12, "{lazy:?} against {chosen:?}");
        }
    }
}
