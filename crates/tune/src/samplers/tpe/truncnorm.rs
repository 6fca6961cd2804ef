//! The truncated normal distribution in logarithms, accurate far out in the tails.
//!
//! The formulas, and the places where one gives way to another, are those of Optuna 5.0: narrow intervals lose digits
//! in any formula, and only the same one loses the same digits.

use std::f64::consts::{LN_2, PI, SQRT_2};

// SAFETY: both are pure functions of the C math library that every target links, with this signature.
unsafe extern "C" {
    safe fn erf(x: f64) -> f64;
    safe fn erfc(x: f64) -> f64;
}

/// ln √(2π)
pub(super) const LN_SQRT_2PI: f64 = 0.918_938_533_204_672_7;

/// ln Φ(x)
pub(super) fn log_ndtr(x: f64) -> f64 {
    if x > 6.0 {
        -ndtr(-x)
    } else if x > -20.0 {
        ndtr(x).ln()
    } else {
        log_ndtr_far_left(x)
    }
}

/// Φ(x), from whichever of erf and erfc is accurate there.
fn ndtr(x: f64) -> f64 {
    let scaled = x / SQRT_2;
    let turn = 1.0 / SQRT_2;
    if scaled < -turn {
        0.5 * erfc(-scaled)
    } else if scaled < turn {
        0.5 + 0.5 * erf(scaled)
    } else {
        1.0 - 0.5 * erfc(scaled)
    }
}

/// The asymptotic series: Φ(x) ≈ φ(x)/|x| · (1 − 1/x² + 1·3/x⁴ − …).
fn log_ndtr_far_left(x: f64) -> f64 {
    let leading = -0.5 * x.powi(2) - (-x).ln() - 0.5 * (2.0 * PI).ln();
    let inverse_square = 1.0 / x.powi(2);
    let (mut last, mut sum, mut numerator, mut factor, mut sign) = (0.0f64, 1.0f64, 1.0, 1.0, 1.0);
    let mut term = 0.0;
    while (last - sum).abs() > f64::EPSILON {
        term += 1.0;
        last = sum;
        sign = -sign;
        factor *= inverse_square;
        numerator *= 2.0 * term - 1.0;
        sum += sign * numerator * factor;
    }
    leading + sum.ln()
}

/// ln(Φ(b) − Φ(a)) for a ≤ b.
pub(super) fn log_gauss_mass(a: f64, b: f64) -> f64 {
    if b <= 0.0 {
        log_difference(log_ndtr(b), log_ndtr(a))
    } else if a > 0.0 {
        log_difference(log_ndtr(-a), log_ndtr(-b))
    } else {
        (-central_ndtr(a) - central_ndtr(-b)).ln_1p()
    }
}

fn central_ndtr(x: f64) -> f64 {
    // Out there erf is −1 to the last digit.
    if x < SATURATED { 0.0 } else { 0.5 + 0.5 * erf(x / SQRT_2) }
}

/// erf(x / √2) is −1 in f64 below this.
const SATURATED: f64 = -8.5;

/// ln(eᵖ − e^q)
fn log_difference(p: f64, q: f64) -> f64 {
    p + (-(q - p).exp()).ln_1p()
}

/// ln(eᵖ + e^q)
fn log_sum(p: f64, q: f64) -> f64 {
    if p == q {
        return p + LN_2;
    }
    let (larger, smaller) = if p > q { (p, q) } else { (q, p) };
    if larger == f64::NEG_INFINITY { larger } else { larger + (smaller - larger).exp().ln_1p() }
}

/// ln of the normal density at `x`.
pub(super) fn log_pdf(x: f64) -> f64 {
    -(x * x) / 2.0 - LN_SQRT_2PI
}

/// The point below which a share `q` of the normal distribution between `a` and `b` lies.
pub(super) fn quantile(q: f64, a: f64, b: f64) -> f64 {
    if q <= 0.0 {
        return a;
    }
    if q >= 1.0 {
        return b;
    }
    let mass = log_gauss_mass(a, b);
    let inside = if a < 0.0 {
        inverse_log_ndtr(log_sum(log_ndtr(a), q.ln() + mass))
    } else {
        // The left tail is the accurate one.
        -inverse_log_ndtr(log_sum(log_ndtr(-b), (-q).ln_1p() + mass))
    };
    inside.clamp(a, b)
}

/// `x` with ln Φ(x) = `y`, by Newton's method from an approximation of the logistic or of the tail.
fn inverse_log_ndtr(y: f64) -> f64 {
    let is_near_one = y > -1e-2;
    let target = if is_near_one { (-y.exp_m1()).ln() } else { y };
    let mut x = if target < -5.0 {
        -(-2.0 * (target + LN_SQRT_2PI)).sqrt()
    } else {
        -(3f64.sqrt() / PI) * (-target).exp_m1().ln()
    };
    for _ in 0..100 {
        let log_phi = log_ndtr(x);
        let change = (log_phi - target) * (log_phi - log_pdf(x)).exp();
        x -= change;
        if change.abs() < 1e-8 * x.abs() || !x.is_finite() {
            break;
        }
    }
    if is_near_one { -x } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_logarithm_of_the_normal_integral_is_right_in_every_branch() {
        // Reference: 40 digits by continued fraction and series.
        for (x, expected) in [
            (-40.0, -804.608_442_013_754),
            (-20.0, -203.917_155_371_097),
            (-5.0, -15.064_998_393_988_725),
            (0.0, -std::f64::consts::LN_2),
            (3.0, -0.001_350_809_964_748_193),
            (7.0, -1.279_812_543_885_835e-12),
        ] {
            let found = log_ndtr(x);
            assert!(((found - expected) / expected).abs() < 1e-12, "ln Φ({x}) = {found}, not {expected}");
        }
    }

    proptest! {
        #[test]
        fn a_quantile_has_its_share_below_it(q in 0.0..1.0f64, a in -30.0..29.0f64, width in 0.01..30.0f64) {
            let b = a + width;
            let x = quantile(q, a, b);
            prop_assert!((a..=b).contains(&x));
            if q > 1e-6 {
                let share = (log_gauss_mass(a, x) - log_gauss_mass(a, b)).exp();
                prop_assert!((share - q).abs() < 1e-6, "{} below instead of {}", share, q);
            }
        }

        #[test]
        fn the_mass_of_two_halves_is_the_mass_of_the_whole(a in -8.0..8.0f64, left in 0.01..3.0f64, right in 0.01..3.0f64) {
            let (middle, b) = (a + left, a + left + right);
            let sum = log_sum(log_gauss_mass(a, middle), log_gauss_mass(middle, b));
            prop_assert!((sum - log_gauss_mass(a, b)).abs() < 1e-9);
        }
    }
}
