//! Prints GFLOP/s of matrix products at the shapes that training uses: `cargo run --release --example gemm_speed`.

use plimsoll_core::kernels::cpu::gemm::{self, Dims, Epilogue, Matrix};
use plimsoll_core::kernels::cpu::parallel::threads;
use std::time::{Duration, Instant};

/// m, n, k, A transposed, B transposed.
const SHAPES: [(usize, usize, usize, bool, bool); 21] = [
    (1024, 1024, 1024, false, false),
    (1920, 2048, 512, false, true),
    (1920, 512, 2048, false, true),
    (1920, 1536, 512, false, true),
    (1920, 1024, 512, false, true),
    (1920, 2048, 256, false, true),
    (1920, 2048, 512, false, false),
    (512, 2048, 1920, true, false),
    (512, 1536, 1920, true, false),
    (512, 640, 64, false, true),
    (512, 64, 640, false, true),
    (512, 192, 64, false, true),
    (64, 640, 512, true, false),
    (512, 1000, 64, false, true),
    (1000, 64, 512, true, false),
    (1, 2048, 512, false, false),
    (1, 2048, 512, false, true),
    (8, 2048, 512, false, false),
    (8, 2048, 512, false, true),
    (32, 2048, 512, false, true),
    (32, 128, 384, false, true),
];

fn main() {
    println!("{} threads", threads());
    for (m, n, k, a_transposed, b_transposed) in SHAPES {
        let dims = Dims { m, n, k };
        let (a, b) = (filled(m * k), filled(k * n));
        let mut c = vec![0.0f32; m * n];
        let mut scratch = vec![0.0; gemm::scratch_len(dims, threads())];
        let (a, b) = (matrix(&a, m, k, a_transposed), matrix(&b, k, n, b_transposed));
        let speed = |product: &mut dyn FnMut()| 2.0 * (m * n * k) as f64 / fastest(product).as_secs_f64() / 1e9;
        // SAFETY: the matrices have the shapes said.
        let parallel =
            speed(&mut || unsafe { gemm::gemm(dims, a, b, c.as_mut_ptr(), n, Epilogue::store(), &mut scratch) });
        let serial =
            speed(&mut || unsafe { gemm::gemm_serial(dims, a, b, c.as_mut_ptr(), n, Epilogue::store(), &mut scratch) });
        let form = |transposed| if transposed { 't' } else { 'n' };
        let (a, b) = (form(a_transposed), form(b_transposed));
        println!("{m:5} {n:5} {k:5} {a}{b}  {parallel:7.1} GFLOP/s, on one thread {serial:7.1}");
    }
    recurrence();
}

/// The LSTM's product with B packed once, on one thread.
fn recurrence() {
    let dims = Dims { m: 32, n: 1024, k: 256 };
    let (a, b) = (filled(dims.m * dims.k), filled(dims.k * dims.n));
    let mut packed = vec![0.0; gemm::packed_b_len(dims.n, dims.k)];
    let (mut c, mut scratch) = (vec![0.0f32; dims.m * dims.n], vec![0.0; gemm::scratch_len(dims, 1)]);
    let (a, b) = (matrix(&a, dims.m, dims.k, false), matrix(&b, dims.k, dims.n, true));
    // SAFETY: the matrices have the shapes said.
    unsafe { gemm::pack_b(dims.n, dims.k, b, &mut packed) };
    let time = fastest(&mut || unsafe {
        gemm::gemm_packed_b(dims, a, &packed, c.as_mut_ptr(), dims.n, Epilogue::store(), &mut scratch)
    });
    let speed = 2.0 * (dims.m * dims.n * dims.k) as f64 / time.as_secs_f64() / 1e9;
    println!("   32  1024   256 packed B, on one thread {speed:7.1} GFLOP/s");
}

fn filled(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i % 23) as f32 / 23.0 - 0.5).collect()
}

fn matrix(data: &[f32], rows: usize, cols: usize, transposed: bool) -> Matrix<f32> {
    let (row_stride, col_stride) = if transposed { (1, rows) } else { (cols, 1) };
    Matrix { ptr: data.as_ptr(), row_stride, col_stride }
}

/// The fastest of the runs that fit into a third of a second.
fn fastest(product: &mut dyn FnMut()) -> Duration {
    let (start, mut best) = (Instant::now(), Duration::MAX);
    while start.elapsed() < Duration::from_millis(300) {
        let before = Instant::now();
        product();
        best = best.min(before.elapsed());
    }
    best
}
