//! What is nearer to zero than 1.2e-38 (subnormal) takes a processor many times as long as any other number, and learning
//! cannot tell it from zero: probabilities far from the label, moments of weights that are not used. A step of
//! flan-t5-small takes half the time with such numbers as zeros (benches/runs/2026-11-18-xeon-2core).

use std::marker::PhantomData;

/// Until it is dropped, this thread takes subnormal numbers for zero, and so do tasks that it hands out.
pub struct AsZero {
    before: Mode,
    /// The mode is the thread's: it is put back where it was changed.
    _of_this_thread: PhantomData<*const ()>,
}

impl AsZero {
    pub fn begin() -> AsZero {
        let before = Mode::of_this_thread();
        Mode(before.0 | ZERO).set();
        AsZero { before, _of_this_thread: PhantomData }
    }
}

impl Drop for AsZero {
    fn drop(&mut self) {
        self.before.set();
    }
}

/// The register that says how a thread computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mode(Word);

#[cfg(target_arch = "x86_64")]
type Word = u32;
#[cfg(not(target_arch = "x86_64"))]
type Word = u64;

/// Operands and results, both bits of MXCSR.
#[cfg(target_arch = "x86_64")]
const ZERO: Word = 1 << 15 | 1 << 6;
/// Both are one bit of FPCR.
#[cfg(target_arch = "aarch64")]
const ZERO: Word = 1 << 24;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ZERO: Word = 0;

// The compiler counts with the mode that a thread starts in. What it computes itself are constants, none of which is
// subnormal, and where it moves an operation to the other side of a change, a subnormal is kept: it is slow, not wrong.
#[cfg(target_arch = "x86_64")]
impl Mode {
    pub(super) fn of_this_thread() -> Mode {
        let mut word = 0;
        // SAFETY: stores the register in `word`, and nothing else.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut word, options(nostack, preserves_flags)) };
        Mode(word)
    }

    pub(super) fn set(self) {
        // SAFETY: a word that the register held, with at most the bits of `ZERO` changed.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &self.0, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
impl Mode {
    pub(super) fn of_this_thread() -> Mode {
        let word;
        // SAFETY: reads the register, and nothing else.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
        Mode(word)
    }

    pub(super) fn set(self) {
        // SAFETY: a word that the register held, with at most the bits of `ZERO` changed.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) self.0, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Mode {
    pub(super) fn of_this_thread() -> Mode {
        Mode(ZERO)
    }

    pub(super) fn set(self) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use crate::kernels::cpu::parallel::{parallel, with_threads};
    use std::hint::black_box;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// A quarter of the smallest normal number.
    fn quarter() -> f32 {
        black_box(f32::MIN_POSITIVE) * black_box(0.25)
    }

    #[test]
    fn subnormal_numbers_are_zero_until_the_guard_is_dropped() {
        let mode = Mode::of_this_thread();
        assert!(quarter() > 0.0);
        let kept = quarter();
        {
            let _zero = AsZero::begin();
            assert_eq!(quarter(), 0.0);
            assert_eq!(black_box(kept) * black_box(1e30), 0.0, "an operand is zero, too");
            assert_eq!(black_box(f32::MIN_POSITIVE) * black_box(1.0), f32::MIN_POSITIVE);
        }
        assert!(quarter() > 0.0);
        assert_eq!(Mode::of_this_thread().0 & ZERO, mode.0 & ZERO);
    }

    #[test]
    fn tasks_compute_as_who_hands_them_out_does() {
        for zero in [false, true, false] {
            let guard = zero.then(AsZero::begin);
            let zeros = AtomicUsize::new(0);
            with_threads(4, || {
                parallel(16, |_| {
                    // Long enough for every worker to take one.
                    std::thread::sleep(Duration::from_millis(1));
                    zeros.fetch_add(usize::from(quarter() == 0.0), Ordering::Relaxed);
                });
            });
            assert_eq!(zeros.into_inner(), if zero { 16 } else { 0 });
            drop(guard);
        }
    }
}
