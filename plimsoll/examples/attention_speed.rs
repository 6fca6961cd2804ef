//! Milliseconds of fused attention, forward and backward, at the shapes of the built-in families, on two threads:
//! `cargo run --release -p plimsoll --example attention_speed`.

use std::time::Instant;

use plimsoll::exec::cpu::kernels::attention::{self, Options, Shape, View, ViewMut};
use plimsoll::exec::cpu::parallel::with_threads;

const THREADS: usize = 2;

fn main() {
    println!(
        "{:>5} {:>5} {:>5} {:>5} {:>7} {:>12} {:>12}",
        "batch", "time", "heads", "dim", "causal", "forward ms", "backward ms"
    );
    for (batch, time, heads, head_dim, causal) in [
        (4, 128, 32, 2, true),
        (4, 512, 32, 2, true),
        (4, 128, 8, 8, true),
        (32, 60, 4, 128, false),
        (16, 128, 12, 64, false),
        (4, 512, 12, 64, false),
    ] {
        let shape = Shape { batch, q_len: time, k_len: time, heads, head_dim };
        let [forward, backward] = with_threads(THREADS, || measure(shape, causal));
        println!("{batch:>5} {time:>5} {heads:>5} {head_dim:>5} {causal:>7} {forward:>12.3} {backward:>12.3}");
    }
}

/// Best of several runs, forward and backward, in milliseconds.
fn measure(shape: Shape, causal: bool) -> [f64; 2] {
    let row = shape.heads * shape.head_dim;
    let strides = [shape.q_len * row, row, shape.head_dim, 1];
    let wave = |phase: f32| (0..shape.batch * shape.q_len * row).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
    let [q, k, v, dout]: [Vec<f32>; 4] = [0.0, 1.0, 2.0, 3.0].map(wave);
    let [mut out, mut dq, mut dk, mut dv] = [(); 4].map(|()| vec![0f32; q.len()]);
    let mut lse = vec![0f32; shape.batch * shape.heads * shape.q_len];
    let mut scratch = vec![0f32; attention::forward_scratch(shape, THREADS)];
    let mut back_scratch = vec![0f32; attention::backward_scratch(shape, THREADS)];
    let read = |x: &[f32]| View { ptr: x.as_ptr(), strides };
    let write = |x: &mut [f32]| ViewMut { ptr: x.as_mut_ptr(), strides };
    let (q, k, v, dout) = (read(&q), read(&k), read(&v), read(&dout));
    let scale = 1.0 / (shape.head_dim as f32).sqrt();
    let options = Options { scale, causal, key_mask: None, dropout: None };
    // SAFETY: all views are contiguous over vectors of exactly their size.
    let forward = best(|| unsafe {
        attention::forward(shape, q, k, v, options, write(&mut out), lse.as_mut_ptr(), &mut scratch);
    });
    let out = read(&out);
    let backward = best(|| unsafe {
        let (dq, dk, dv) = (write(&mut dq), write(&mut dk), write(&mut dv));
        attention::backward(shape, q, k, v, out, lse.as_ptr(), dout, options, dq, dk, dv, &mut back_scratch);
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
