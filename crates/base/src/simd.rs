//! Runs a loop compiled for the widest vectors of the machine at hand (AVX-512, AVX2 or the baseline).

/// Runs `f` with the machine's best instruction set enabled. Everything `f` calls must be `#[inline(always)]` to
/// profit. The binary itself stays a baseline x86-64 one.
#[inline(always)]
pub fn simd<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}
