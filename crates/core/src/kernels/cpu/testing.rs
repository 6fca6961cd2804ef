//! What the kernel tests share: reproducible numbers, comparisons, thread counts.

use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::with_threads;

/// The value poisoned buffers hold: a kernel that reads one before writing it shows up as NaN in its result.
pub fn poisoned<T: Float>(len: usize) -> Vec<T> {
    vec![T::of(f64::NAN); len]
}

/// `len` numbers in ±0.5 which the golden scripts build by the same formula.
pub fn ramp(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * 37 + seed * 101) % 64) as f64 / 64.0 - 0.5).collect()
}

/// `len` pseudo-random numbers in ±1.
pub fn noise(len: usize, seed: u64) -> Vec<f64> {
    let word = |i: usize| plimsoll_base::random::mix(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (i as u64 + 1));
    (0..len).map(|i| (word(i) >> 11) as f64 / (1u64 << 52) as f64 - 1.0).collect()
}

pub fn cast<T: Float>(values: &[f64]) -> Vec<T> {
    values.iter().map(|&v| T::of(v)).collect()
}

/// Fails unless every element is within `tolerance` of the expected one, relative to the largest expected magnitude.
pub fn assert_close<T: Float>(what: &str, actual: &[T], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len(), "{what}: length");
    let scale = expected.iter().fold(1e-3, |m: f64, v| m.max(v.abs()));
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        let error = (a.to_f64() - e).abs() / scale;
        assert!(error <= tolerance, "{what}[{i}]: {a:?} instead of {e} (relative error {error:e})");
    }
}

/// The gradient of `loss` at `at` by central differences.
pub fn differences(at: &[f64], mut loss: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    let mut point = at.to_vec();
    let mut slope = |i: usize| {
        let step = 1e-5;
        point[i] = at[i] + step;
        let above = loss(&point);
        point[i] = at[i] - step;
        let below = loss(&point);
        point[i] = at[i];
        (above - below) / (2.0 * step)
    };
    (0..at.len()).map(&mut slope).collect()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Fails unless `f` gives the same bits on 1, 2 and 5 threads.
pub fn assert_same_bits_on_any_threads(f: impl Fn() -> Vec<f32>) {
    let bits = |threads| with_threads(threads, || f().iter().map(|v| v.to_bits()).collect::<Vec<_>>());
    let one = bits(1);
    assert_eq!(one, bits(2), "1 and 2 threads");
    assert_eq!(one, bits(5), "1 and 5 threads");
}
