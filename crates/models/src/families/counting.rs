//! Counting parameters and values, and sizes that must divide each other.

use crate::reading::section::Section;

/// Σ of products, checked: how parameters and values are counted.
pub(super) fn sum_of_products(terms: &[&[usize]]) -> Option<u64> {
    terms.iter().try_fold(0u64, |sum, term| {
        let product = term.iter().try_fold(1u64, |p, &n| p.checked_mul(n as u64))?;
        sum.checked_add(product)
    })
}

/// The numbers of heads that divide a width.
pub(super) fn dividing(width: usize) -> impl Iterator<Item = usize> {
    (1..=width.min(1024)).filter(move |heads| width.is_multiple_of(*heads))
}

/// Reports heads that do not divide a width.
pub(super) fn check_divides(section: &Section<'_>, key: &str, heads: usize, width: usize, width_name: &str) {
    if !width.is_multiple_of(heads) {
        let nearest = dividing(width).min_by_key(|h| h.abs_diff(heads)).unwrap_or(1);
        section.refuse(
            key,
            format!("{heads} heads do not divide the width {width} ({width_name})"),
            format!("the nearest number that does is {nearest}"),
        );
    }
}
