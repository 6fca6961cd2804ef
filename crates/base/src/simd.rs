//! Runs a loop compiled for the widest vectors of the machine at hand (AVX-512, AVX2 or the baseline).

/// Runs `f` with the machine's best instruction set enabled. Everything `f` calls must be `#[inline(always)]` to
/// profit. The binary itself stays a baseline x86-64 one.
#[inline(always)]
pub fn simd<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    match x86::widest() {
        // SAFETY: the machine has what the function is compiled for.
        x86::AVX512 => return unsafe { x86::avx512(f) },
        // SAFETY: the same.
        x86::AVX2 => return unsafe { x86::avx2(f) },
        _ => (),
    }
    // Vectors of other processors are part of their baseline.
    f()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::is_x86_feature_detected as has;
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    const UNKNOWN: u8 = 0;
    const BASELINE: u8 = 1;
    pub(super) const AVX2: u8 = 2;
    pub(super) const AVX512: u8 = 3;

    /// Asked once: a loop is often shorter than the question.
    static WIDEST: AtomicU8 = AtomicU8::new(UNKNOWN);

    #[inline(always)]
    pub(super) fn widest() -> u8 {
        match WIDEST.load(Relaxed) {
            UNKNOWN => look(),
            known => known,
        }
    }

    #[cold]
    fn look() -> u8 {
        let found = if has_avx512() {
            AVX512
        } else if has_avx2() {
            AVX2
        } else {
            BASELINE
        };
        WIDEST.store(found, Relaxed);
        found
    }

    fn has_avx2() -> bool {
        has!("avx2") && has!("fma") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt")
    }

    fn has_avx512() -> bool {
        let wide = has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
        wide && has_avx2()
    }

    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn avx2<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn avx512<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

#[cfg(test)]
mod tests {
    use super::simd;

    /// What rounds once in one form and twice in another would show.
    #[inline(always)]
    fn sums(values: &[f32]) -> [f32; 16] {
        let mut sums = [0.0; 16];
        for block in values.as_chunks::<16>().0 {
            for (sum, value) in sums.iter_mut().zip(block) {
                *sum = value.mul_add(*value, *sum);
            }
        }
        sums
    }

    #[test]
    fn every_form_that_this_machine_has_comes_to_the_same() {
        let values: Vec<f32> = (0..1600).map(|i| (i as f32 * 0.37).sin()).collect();
        let plain = sums(&values);
        assert_eq!(simd(|| sums(&values)), plain);
        #[cfg(target_arch = "x86_64")]
        {
            use super::x86;
            let widest = x86::widest();
            if widest >= x86::AVX2 {
                // SAFETY: the machine has it.
                assert_eq!(unsafe { x86::avx2(|| sums(&values)) }, plain);
            }
            if widest >= x86::AVX512 {
                // SAFETY: the same.
                assert_eq!(unsafe { x86::avx512(|| sums(&values)) }, plain);
            }
        }
    }
}
