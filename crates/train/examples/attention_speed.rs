//! Milliseconds of fused attention, forward and backward, at the shapes of the built-in families, on two threads:
//! `cargo run --release -p plimsoll-train --example attention_speed`, or `… attention_speed 1` for another number of them.

use std::time::Instant;

use plimsoll_base::random::Stream;
use plimsoll_core::kernels::cpu::attention::{self, AttentionShape, Bias, Dropout, Options, Targets, View, ViewMut};
use plimsoll_core::kernels::cpu::parallel::with_threads;

/// What is done beside the products.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extra {
    Nothing,
    Causal,
    /// The last fifth of the keys is padding.
    Mask,
    MaskAndDropout,
    Relative,
    Disentangled,
}

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |n| n.parse().expect("a number of threads"));
    println!(
        "{:>5} {:>5} {:>5} {:>5} {:>15} {:>11} {:>11}",
        "batch", "time", "heads", "dim", "extra", "forward ms", "backward ms"
    );
    use Extra::*;
    let encoder: &[Extra] = &[Nothing, Mask, MaskAndDropout, Disentangled];
    for (batch, time, heads, head_dim, extras) in [
        (4, 128, 32, 2, &[Causal][..]),
        (4, 512, 32, 2, &[Causal]),
        (4, 128, 8, 8, &[Causal]),
        (32, 60, 4, 128, &[Nothing]),
        (16, 128, 12, 32, encoder),
        (4, 128, 12, 32, encoder),
        (16, 64, 4, 64, encoder),
        (4, 64, 6, 64, &[Nothing, Mask, MaskAndDropout, Relative]),
        (32, 50, 8, 64, &[Nothing]),
        (4, 512, 12, 64, &[Nothing]),
    ] {
        for &extra in extras {
            let (bias, bias_rows) = match extra {
                Relative => (Bias::Relative { bidirectional: true, max_distance: 128 }, 32),
                Disentangled => (Bias::Disentangled { buckets: 256, max_distance: 512 }, 512),
                _ => (Bias::None, 0),
            };
            let causal = extra == Causal;
            let shape = AttentionShape { batch, q_len: time, k_len: time, heads, head_dim, causal, bias, bias_rows };
            let [forward, backward] = with_threads(threads, || measure(shape, extra, threads));
            let extra = format!("{extra:?}");
            println!("{batch:>5} {time:>5} {heads:>5} {head_dim:>5} {extra:>15} {forward:>11.3} {backward:>11.3}");
        }
    }
}

fn wave(len: usize, phase: f32) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.37 + phase).sin()).collect()
}

/// Best of several runs, forward and backward, in milliseconds.
fn measure(shape: AttentionShape, extra: Extra, threads: usize) -> [f64; 2] {
    let row = shape.heads * shape.head_dim;
    let strides = [shape.q_len * row, row, shape.head_dim, 1];
    let [q, k, v, dout] = [0.0, 1.0, 2.0, 3.0].map(|phase| wave(shape.batch * shape.q_len * row, phase));
    let [mut out, mut dq, mut dk, mut dv] = [(); 4].map(|()| vec![0f32; q.len()]);
    let mut lse = vec![0f32; shape.batch * shape.heads * shape.q_len];
    let mut scratch = vec![0f32; attention::forward_scratch(shape, threads)];
    let mut back_scratch = vec![0f32; attention::backward_scratch(shape, threads)];
    let read = |x: &[f32]| View { ptr: x.as_ptr(), strides };
    let write = |x: &mut [f32]| ViewMut { ptr: x.as_mut_ptr(), strides };
    let (q, k, v, dout) = (read(&q), read(&k), read(&v), read(&dout));
    let seen = |n: usize| (n % shape.k_len < shape.k_len - shape.k_len / 5) as i32;
    let mask: Vec<i32> = (0..shape.batch * shape.k_len).map(seen).collect();
    let tables = [4.0, 5.0].map(|phase| wave(shape.bias_rows * row, phase));
    let mut dtables = tables.clone();
    let dropout = Dropout { stream: Stream::new(1, 2, 3), p: 0.1, first_sample: 0 };
    let options = Options {
        scale: 1.0 / (shape.head_dim as f32).sqrt(),
        tables: tables.each_ref().map(|table| table.as_ptr()),
        position: None,
        key_mask: matches!(extra, Extra::Mask | Extra::MaskAndDropout).then_some(mask.as_ptr()),
        dropout: (extra == Extra::MaskAndDropout).then_some(dropout),
    };
    // SAFETY: all views are contiguous over vectors of exactly their size.
    let forward = best(|| unsafe {
        attention::forward(shape, q, k, v, options, write(&mut out), lse.as_mut_ptr(), &mut scratch);
    });
    let out = read(&out);
    // SAFETY: as above; the gradients are vectors of their own.
    let backward = best(|| unsafe {
        let tables = dtables.each_mut().map(|table| table.as_mut_ptr());
        let to = Targets { q: write(&mut dq), k: write(&mut dk), v: write(&mut dv), tables };
        attention::backward(shape, q, k, v, out, lse.as_ptr(), dout, options, to, &mut back_scratch);
    });
    [forward, backward]
}

fn best(mut run: impl FnMut()) -> f64 {
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e3
    };
    let first = time(&mut run);
    let runs = (400.0 / first).clamp(5.0, 2000.0) as usize;
    (0..runs).map(|_| time(&mut run)).fold(first, f64::min)
}
