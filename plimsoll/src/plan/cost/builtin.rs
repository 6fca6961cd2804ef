//! The processor that plans are made for when the one at hand has not been measured.

use super::{AMOUNTS, Amount, Amounts, Grain, Profile, Speedups};
use crate::ops::Class;

/// Threads that the table was measured with.
const MEASURED_THREADS: f64 = 2.0;
/// Threads that share the way to far memory before more of them bring nothing.
const THREADS_TO_MEMORY: f64 = 16.0;
/// Bytes near one core.
const NEAR_BYTES: usize = 2 << 20;

pub(super) fn cpu(threads: usize) -> Profile {
    let threads = threads.max(1);
    let seconds = MEASURED.iter().map(|&(class, rates)| (class, scaled(Amounts(rates), threads as f64)));
    Profile {
        grain: Profile::cpu_grain(threads),
        seconds: seconds.collect(),
        overlaps: false,
        speedups: Speedups::NONE,
        tf32: false,
        phase_s: PHASE_S,
    }
}

impl Profile {
    /// How the kernels for processors cut work up.
    pub fn cpu_grain(threads: usize) -> Grain {
        Grain { tile: [1, 32], depth: 256, near_bytes: NEAR_BYTES * threads.max(1), units: 1 }
    }
}

/// What is done in parallel takes less time with more threads; starting it does not.
fn scaled(rates: Amounts, threads: f64) -> Amounts {
    let compute = MEASURED_THREADS / threads;
    let memory = MEASURED_THREADS / threads.min(THREADS_TO_MEMORY);
    let mut rates = rates;
    for (amount, factor) in [
        (Amount::Flops, compute),
        (Amount::NearBytes, compute),
        (Amount::FarBytes, memory),
        (Amount::Left, compute),
        (Amount::Right, compute),
        (Amount::Result, compute),
    ] {
        rates.set(amount, rates.of(amount) * factor);
    }
    rates
}

const PHASE_S: f64 = 20e-6;

/// Seconds per node, operation, near byte, far byte, product, and element of left, right and result.
const MEASURED: [(Class, [f64; AMOUNTS]); 1] = [(Class::Product, [4e-6, 4.5e-12, 0.0, 5e-11, 0.0, 0.0, 0.0, 0.0])];
