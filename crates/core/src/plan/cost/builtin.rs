//! The CPU that plans are made for when the one at hand has not been measured.

use super::{AMOUNTS, Amount, Amounts, Grain, Profile, Speedups};
use crate::graph::Class;
use std::collections::BTreeMap;

/// What each of several threads loses to the others: caches they share, and waiting for the last one.
const LOST: f64 = 1.15;
/// Handing a node's work out to them.
const JOIN_S: f64 = 2e-6;
/// Threads that share the way to far memory before more of them bring nothing.
const THREADS_TO_MEMORY: f64 = 16.0;
/// Bytes near one core.
const NEAR_BYTES: usize = 2 << 20;

pub(super) fn cpu(threads: usize) -> Profile {
    let threads = threads.max(1);
    let seconds = FITTED.iter().map(|&(class, rates)| (class, scaled(Amounts(rates), threads as f64)));
    Profile {
        // How the kernels for CPUs cut work up.
        grain: Grain { tile: [1, 32], depth: 256, near_bytes: NEAR_BYTES * threads, units: 1 },
        seconds: seconds.collect(),
        half_seconds: BTreeMap::new(),
        overlaps: false,
        hides_inputs: false,
        speedups: Speedups::NONE,
        tf32: false,
        phase_s: PHASE_S,
    }
}

/// What is done in parallel takes less time with more threads; starting it takes more.
fn scaled(rates: Amounts, threads: f64) -> Amounts {
    if threads <= 1.0 {
        return rates;
    }
    let [compute, memory] = [threads, threads.min(THREADS_TO_MEMORY)].map(|threads| LOST / threads);
    let times = |rates: Amounts, amount: Amount, factor: f64| rates.with(amount, rates.of(amount) * factor);
    let parallel = [Amount::Flops, Amount::NearBytes, Amount::Left, Amount::Right, Amount::Result];
    let rates = parallel.into_iter().fold(rates, |rates, amount| times(rates, amount, compute));
    let rates =
        [Amount::FarBytes, Amount::HostBytes].into_iter().fold(rates, |rates, amount| times(rates, amount, memory));
    rates.with(Amount::Node, rates.of(Amount::Node) + JOIN_S)
}

const PHASE_S: f64 = 20e-6;

/// Fitted to steps on one thread of a server CPU; most times per node, and the rows of `Move`, `Elementwise` and
/// `ConvolutionGrad`, were set by hand where the fit saw too little, and those of `Disentangled`, `FeedForward` and
/// `FactoredUpdate` are their plain relatives'. Seconds per node, operation, near byte, far byte, product, element of
/// left, right and result, byte from or to the host, which here is the same memory, and term of a deep sum, which here
/// takes no time of its own.
#[rustfmt::skip]
const FITTED: [(Class, [f64; AMOUNTS]); 25] = [
    (Class::Move, [4.00e-7, 1.34e-10, 0.0, 3.00e-11, 0.0, 0.0, 0.0, 0.0, 1.50e-10, 0.0]),
    (Class::Elementwise, [4.00e-7, 8.00e-11, 1.00e-11, 3.00e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Function, [4.00e-7, 2.21e-11, 2.64e-12, 2.67e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Random, [4.00e-7, 2.15e-11, 1.23e-11, 1.50e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Norm, [4.00e-7, 0.0, 6.08e-11, 6.58e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::NormGrad, [4.00e-7, 9.95e-12, 3.97e-11, 3.86e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Softmax, [1.00e-6, 1.38e-10, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Reduction, [4.00e-7, 0.0, 2.52e-11, 8.31e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Gather, [4.00e-7, 0.0, 2.12e-11, 6.27e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Scatter, [4.00e-7, 0.0, 2.32e-11, 5.57e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Product, [4.00e-7, 6.96e-12, 0.0, 2.72e-11, 5.80e-7, 7.42e-13, 8.66e-11, 3.13e-11, 0.0, 0.0]),
    (Class::Grouped, [2.92e-6, 2.47e-11, 3.62e-12, 7.19e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Attention, [8.41e-7, 1.50e-11, 7.02e-12, 1.14e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::AttentionGrad, [4.00e-7, 6.29e-12, 7.51e-11, 7.38e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Disentangled, [8.41e-7, 1.50e-11, 7.02e-12, 1.14e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::DisentangledGrad, [4.00e-7, 6.29e-12, 7.51e-11, 7.38e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::FeedForward, [8.41e-7, 1.50e-11, 7.02e-12, 1.14e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::FeedForwardGrad, [4.00e-7, 6.29e-12, 7.51e-11, 7.38e-11, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Recurrent, [4.00e-7, 6.06e-12, 7.61e-11, 1.21e-10, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::RecurrentGrad, [4.00e-7, 5.95e-12, 1.52e-11, 1.66e-10, 0.0, 0.0, 7.84e-14, 0.0, 0.0, 0.0]),
    (Class::Convolution, [9.91e-6, 5.69e-12, 2.26e-11, 0.0, 8.69e-7, 0.0, 1.26e-9, 0.0, 0.0, 0.0]),
    (Class::ConvolutionGrad, [4.00e-7, 7.50e-12, 0.0, 6.00e-11, 0.0, 0.0, 1.26e-10, 0.0, 0.0, 0.0]),
    (Class::Loss, [4.00e-7, 2.61e-11, 5.31e-11, 7.02e-12, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::Update, [4.00e-7, 4.42e-11, 6.55e-12, 6.82e-12, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    (Class::FactoredUpdate, [4.00e-7, 4.42e-11, 6.55e-12, 6.82e-12, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
];
