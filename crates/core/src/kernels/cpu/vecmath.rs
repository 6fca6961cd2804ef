//! exp, tanh and erf without branches or table look-ups, so that a loop over them vectorizes. Errors are a few units
//! in the last place over the whole range; the tests state them.

/// e^x: range reduction to r in ±ln2/2, a degree-6 polynomial, and n added to the exponent bits. A result below the
/// normal range becomes 0, one above the largest float becomes infinite, NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LOG2E: f32 = std::f32::consts::LOG2_E;
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    const LOWEST: f32 = -87.3;
    const HIGHEST: f32 = 88.722_83;
    let clamped = if x < LOWEST { LOWEST } else { x };
    let clamped = if clamped > HIGHEST { HIGHEST } else { clamped };
    let magic = 12_582_912.0f32; // 1.5 · 2^23: adding it rounds to the nearest integer
    let shifted = clamped.mul_add(LOG2E, magic);
    let n = shifted - magic;
    let r = n.mul_add(-LN2_HI, clamped);
    let r = n.mul_add(-LN2_LO, r);
    let p = 1.388_887_9e-3f32;
    let p = p.mul_add(r, 8.333_361e-3);
    let p = p.mul_add(r, 4.166_662_4e-2);
    let p = p.mul_add(r, 1.666_666_3e-1);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r, 1.0);
    let p = p.mul_add(r, 1.0);
    // The low nine bits of `shifted` hold n (those of `magic` are 0). n = 128 only meets p < 1, so no bit is carried
    // into the sign.
    let y = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    let outside = if x < LOWEST { 0.0 } else { x };
    let y = if x >= LOWEST { y } else { outside };
    if x > HIGHEST { f32::INFINITY } else { y }
}

/// tanh by e^2x - 1 for large |x| and an odd polynomial near zero, blended without branches.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let e = exp(-2.0 * a);
    let large = ((1.0 - e) / (1.0 + e)).copysign(x);
    let s = x * x;
    let p = -5.704_988_7e-3f32;
    let p = p.mul_add(s, 2.063_909e-2);
    let p = p.mul_add(s, -5.373_971_6e-2);
    let p = p.mul_add(s, 1.333_144_2e-1);
    let p = p.mul_add(s, -3.333_328e-1);
    let small = (p * s).mul_add(x, x);
    if a < 0.625 { small } else { large }
}

/// erf: x + x·q(x²) near zero, and 1 - e^p(|x|) with p ≈ ln erfc above; blended without branches. Both polynomials are
/// minimax fits of the relative error, q on |x| ≤ 0.9 and p on 0.9 ≤ |x| ≤ 4, from where on erf rounds to ±1.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let a = x.abs();
    let a = if a > 4.0 { 4.0 } else { a };
    let p = -2.082_862e-5f32;
    let p = p.mul_add(a, 4.313_936e-4);
    let p = p.mul_add(a, -4.156_255e-3);
    let p = p.mul_add(a, 2.508_061_8e-2);
    let p = p.mul_add(a, -1.082_203_8e-1);
    let p = p.mul_add(a, -6.334_008_6e-1);
    let p = p.mul_add(a, -1.129_488_3);
    let p = p.mul_add(a, 1.692_051_7e-4);
    let large = (1.0 - exp(p)).copysign(x);
    let s = x * x;
    let q = -6.090_358e-4f32;
    let q = q.mul_add(s, 5.011_962_3e-3);
    let q = q.mul_add(s, -2.677_890_8e-2);
    let q = q.mul_add(s, 1.128_214_1e-1);
    let q = q.mul_add(s, -3.761_252_5e-1);
    let q = q.mul_add(s, 1.283_791_5e-1);
    let small = q.mul_add(x, x);
    if a < 0.9 { small } else { large }
}

/// erf in f64 (for gradient tests), by its series below 3 and its continued fraction above; about 1e-15.
pub(crate) fn erf_f64(x: f64) -> f64 {
    let a = x.abs();
    if a < 3.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let fraction = (1..=60).rev().fold(a, |tail, k| a + k as f64 / 2.0 / tail);
        (1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())).copysign(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest |f − reference| over the reference's magnitude (plus a floor), in units of f32's epsilon.
    fn worst(f: impl Fn(f32) -> f32, reference: impl Fn(f64) -> f64, range: std::ops::Range<f32>) -> f64 {
        let points = 200_001;
        (0..points)
            .map(|i| range.start + (range.end - range.start) * i as f32 / (points - 1) as f32)
            .map(|x| {
                let expected = reference(x as f64);
                (f(x) as f64 - expected).abs() / expected.abs().max(1e-30) / f32::EPSILON as f64
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn exp_is_within_two_units() {
        assert!(worst(exp, f64::exp, -87.0..88.5) < 2.0);
        assert_eq!((exp(-200.0), exp(f32::NEG_INFINITY), exp(200.0), exp(0.0)), (0.0, 0.0, f32::INFINITY, 1.0));
        let payload = f32::from_bits(0x7fc0_0001);
        assert!(exp(f32::NAN).is_nan() && exp(payload).is_nan());
        assert!(worst(exp, f64::exp, 88.5..88.722) < 2.0);
    }

    #[test]
    fn tanh_is_within_three_units() {
        let units = worst(tanh, f64::tanh, -12.0..12.0);
        assert!(units < 3.0, "{units}");
    }

    #[test]
    fn erf_is_within_three_units() {
        let units = worst(erf, erf_f64, -5.0..5.0);
        assert!(units < 3.0, "{units}");
        assert_eq!((erf(9.0), erf(f32::NEG_INFINITY), erf(0.0)), (1.0, -1.0, 0.0));
        assert!(erf(f32::NAN).is_nan());
        assert!((erf_f64(0.5) - 0.5204998778130465).abs() < 1e-15);
        assert!((erf_f64(3.5) - 0.9999992569016276).abs() < 1e-15);
    }
}
