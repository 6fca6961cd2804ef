use super::driver::{Product, Right};
use super::*;
use crate::kernels::cpu::parallel::with_threads;
use proptest::prelude::*;

/// Reproducible values in ±1 that are not representable in a few bits.
fn values<T: Float>(len: usize, seed: u64) -> Vec<T> {
    (0..len as u64)
        .map(|i| T::of((plimsoll_base::random::mix(seed ^ (i << 20)) >> 11) as f64 / 2f64.powi(52) - 1.0))
        .collect()
}

/// How an operand lies in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Rows,
    Columns,
    WideRows,
    Strided,
}

const LAYOUTS: [Layout; 4] = [Layout::Rows, Layout::Columns, Layout::WideRows, Layout::Strided];

fn strides(layout: Layout, rows: usize, cols: usize) -> (usize, usize) {
    match layout {
        Layout::Rows => (cols, 1),
        Layout::Columns => (1, rows),
        Layout::WideRows => (cols + 5, 1),
        Layout::Strided => (2 * cols + 1, 2),
    }
}

fn matrix<T: Float>(data: &mut Vec<T>, layout: Layout, rows: usize, cols: usize, seed: u64) -> Matrix<T> {
    let (row_stride, col_stride) = strides(layout, rows, cols);
    // Exactly as long as the matrix reaches, so that a sanitizer or an unlucky page sees a read past it.
    let len = if rows * cols == 0 { 0 } else { (rows - 1) * row_stride + (cols - 1) * col_stride + 1 };
    *data = values(len, seed);
    Matrix { ptr: data.as_ptr(), row_stride, col_stride }
}

struct Case<T> {
    dims: Dims,
    a: Matrix<T>,
    b: Matrix<T>,
    ldc: usize,
    c: Vec<T>,
    epilogue: Epilogue<T>,
    _data: [Vec<T>; 3],
}

impl<T: Float> Case<T> {
    fn new(dims: Dims, layouts: [Layout; 2], activation: Activation, bias: bool, accumulate: bool, alpha: f64) -> Self {
        let mut data = [vec![], vec![], values(dims.n, 3)];
        let a = matrix(&mut data[0], layouts[0], dims.m, dims.k, 1);
        let b = matrix(&mut data[1], layouts[1], dims.k, dims.n, 2);
        let ldc = dims.n + 3;
        let c = if accumulate { values(dims.m * ldc, 4) } else { vec![T::of(f64::NAN); dims.m * ldc] };
        let bias = bias.then_some(data[2].as_ptr());
        Case {
            dims,
            a,
            b,
            ldc,
            c,
            epilogue: Epilogue { alpha: T::of(alpha), bias, activation, accumulate },
            _data: data,
        }
    }

    /// The definition: the sum in f64, the activation in T (how exact it is there is for the tests of `vecmath`).
    fn expected(&self, i: usize, j: usize) -> f64 {
        let product: f64 = (0..self.dims.k)
            .map(|p| unsafe { (*self.a.offset(i, p).ptr).to_f64() * (*self.b.offset(p, j).ptr).to_f64() })
            .sum();
        let bias = self.epilogue.bias.map_or(0.0, |bias| unsafe { (*bias.add(j)).to_f64() });
        let held = if self.epilogue.accumulate { self.c[i * self.ldc + j].to_f64() } else { 0.0 };
        self.epilogue.activation.apply(T::of(self.epilogue.alpha.to_f64() * product + bias + held)).to_f64()
    }

    fn run(&self, product: impl FnOnce(&Self, *mut T)) -> Vec<T> {
        let mut c = self.c.clone();
        product(self, c.as_mut_ptr());
        c
    }

    fn parallel(&self, threads: usize) -> Vec<T> {
        let mut scratch = vec![T::of(f64::NAN); scratch_len(self.dims, threads)];
        self.run(|case, c| unsafe { gemm(case.dims, case.a, case.b, c, case.ldc, case.epilogue, &mut scratch) })
    }

    fn serial(&self) -> Vec<T> {
        let mut scratch = vec![T::of(f64::NAN); scratch_len(self.dims, 1)];
        self.run(|case, c| unsafe { gemm_serial(case.dims, case.a, case.b, c, case.ldc, case.epilogue, &mut scratch) })
    }

    fn packed(&self) -> Vec<T> {
        let mut scratch = vec![T::of(f64::NAN); scratch_len(self.dims, 1)];
        let mut packed = vec![T::of(f64::NAN); packed_b_len(self.dims.n, self.dims.k)];
        unsafe { pack_b(self.dims.n, self.dims.k, self.b, &mut packed) };
        self.run(|case, c| unsafe {
            gemm_packed_b(case.dims, case.a, &packed, c, case.ldc, case.epilogue, &mut scratch)
        })
    }

    /// Right values where C is, and nothing written between its rows.
    fn check(&self, c: &[T], tolerance: f64) {
        let scale = 1.0 + (self.dims.k as f64).sqrt() * self.epilogue.alpha.to_f64().abs();
        for (at, (&got, &before)) in c.iter().zip(&self.c).enumerate() {
            let (i, j) = (at / self.ldc, at % self.ldc);
            if j < self.dims.n {
                let expected = self.expected(i, j);
                let error = (got.to_f64() - expected).abs();
                assert!(error <= tolerance * scale, "{:?} ({i}, {j}): {got:?} is not {expected}", self.dims);
            } else {
                assert_eq!(got.to_f64().to_bits(), before.to_f64().to_bits(), "wrote past row {i}");
            }
        }
    }
}

fn bits<T: Float>(c: &[T]) -> Vec<u64> {
    c.iter().map(|x| x.to_f64().to_bits()).collect()
}

fn activations() -> impl Strategy<Value = Activation> {
    use Activation::*;
    prop::sample::select(vec![None, Relu, Gelu, GeluTanh, Tanh, Sigmoid, Silu, QuickGelu])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn equals_the_definition(
        (m, n, k) in (0usize..70, 0usize..100, 0usize..80),
        layouts in [prop::sample::select(LAYOUTS.to_vec()), prop::sample::select(LAYOUTS.to_vec())],
        activation in activations(),
        (bias, accumulate) in any::<(bool, bool)>(),
        alpha in prop::sample::select(vec![1.0, 0.5, -1.25]),
    ) {
        let dims = Dims { m, n, k };
        let case = Case::<f32>::new(dims, layouts, activation, bias, accumulate, alpha);
        let c = case.serial();
        case.check(&c, 3e-6);
        prop_assert_eq!(bits(&c), bits(&case.packed()));
        prop_assert_eq!(bits(&c), bits(&case.parallel(3)));
        let case = Case::<f64>::new(dims, layouts, activation, bias, accumulate, alpha);
        case.check(&case.serial(), 1e-13);
    }
}

#[test]
fn many_blocks_of_every_dimension_equal_the_definition() {
    for (dims, layout) in [
        (Dims { m: 131, n: 97, k: 1100 }, Layout::Rows),
        (Dims { m: 5, n: 1057, k: 530 }, Layout::Columns),
        (Dims { m: 1, n: 33, k: 2000 }, Layout::Rows),
        (Dims { m: 300, n: 1, k: 700 }, Layout::Columns),
    ] {
        for accumulate in [false, true] {
            let case = Case::<f32>::new(dims, [layout; 2], Activation::Relu, true, accumulate, 0.5);
            let c = case.serial();
            case.check(&c, 3e-6);
            assert_eq!(bits(&c), bits(&case.packed()));
        }
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    for (m, n, k) in [(70, 640, 65), (257, 300, 600), (8, 2100, 300), (900, 40, 100)] {
        for layouts in [[Layout::Rows, Layout::Columns], [Layout::Columns, Layout::Rows]] {
            let case = Case::<f32>::new(Dims { m, n, k }, layouts, Activation::Gelu, true, true, 1.0);
            let serial = bits(&case.serial());
            for threads in [1, 2, 3, 7] {
                let parallel = with_threads(threads, || case.parallel(threads));
                assert_eq!(serial, bits(&parallel), "{threads} threads, {:?}", case.dims);
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_kernel() {
    let dims = Dims { m: 45, n: 75, k: 530 };
    for layouts in
        [[Layout::Rows, Layout::Columns], [Layout::Columns, Layout::Strided], [Layout::Strided, Layout::Rows]]
    {
        let case = Case::<f32>::new(dims, layouts, Activation::None, true, true, 0.3);
        let expected = bits(&case.serial());
        for kernel in kernel::all_f32() {
            let mut scratch = vec![f32::NAN; scratch_len(dims, 1)];
            let c = case.run(|case, c| unsafe {
                let Case { a, ldc, epilogue, .. } = *case;
                Product { kernel: &kernel, dims, a, c, ldc, epilogue }.run(Right::Plain(case.b), &mut scratch)
            });
            assert_eq!(expected, bits(&c), "kernel of {} rows", kernel.max_rows);
        }
    }
}

#[test]
fn less_scratch_means_fewer_threads_not_other_bits() {
    let case =
        Case::<f32>::new(Dims { m: 200, n: 200, k: 100 }, [Layout::Rows; 2], Activation::None, false, false, 1.0);
    let mut scratch = vec![f32::NAN; scratch_len(case.dims, 1)];
    let c = case.run(|case, c| unsafe { gemm(case.dims, case.a, case.b, c, case.ldc, case.epilogue, &mut scratch) });
    assert_eq!(bits(&c), bits(&case.serial()));
}

#[test]
fn a_batch_is_its_products() {
    for (count, dims) in [
        (0, Dims { m: 4, n: 4, k: 4 }),
        (1, Dims { m: 130, n: 70, k: 90 }),
        (3, Dims { m: 17, n: 33, k: 65 }),
        (16, Dims { m: 60, n: 60, k: 16 }),
    ] {
        let Dims { m, n, k } = dims;
        let (a, b) = (values::<f32>(count * m * k, 1), values::<f32>(k * n, 2));
        let (mut batch, mut single) = (vec![f32::NAN; count * m * n], vec![f32::NAN; count * m * n]);
        let left = |i: usize| Matrix { ptr: a[i * m * k..].as_ptr(), row_stride: k, col_stride: 1 };
        let right = Matrix { ptr: b.as_ptr(), row_stride: 1, col_stride: k };
        let mut scratch = vec![f32::NAN; batch_scratch_len(count, dims, threads())];
        let store = Epilogue::store();
        unsafe {
            gemm_batch(count, dims, left(0), m * k, right, 0, batch.as_mut_ptr(), n, m * n, store, &mut scratch);
            let mut scratch = vec![f32::NAN; scratch_len(dims, 1)];
            for i in 0..count {
                gemm_serial(dims, left(i), right, single[i * m * n..].as_mut_ptr(), n, store, &mut scratch);
            }
        }
        assert_eq!(bits(&batch), bits(&single));
    }
}

#[test]
fn a_nan_comes_through_relu() {
    assert!(Activation::Relu.apply(f32::NAN).is_nan());
    assert_eq!(Activation::Relu.apply(-1.0f32), 0.0);
}

#[test]
fn a_grid_covers_c_exactly_once() {
    for (m, n) in [(1, 1), (1, 1000), (1000, 1), (97, 650), (33, 33)] {
        let dims = Dims { m, n, k: 4096 };
        for threads in 1..9 {
            let grid = Grid::choose(dims, threads);
            assert!(grid.tasks() <= threads);
            let mut hits = vec![0; m * n];
            for task in 0..grid.tasks() {
                let (rows, cols) = grid.rectangle(dims, task);
                rows.for_each(|i| cols.clone().for_each(|j| hits[i * n + j] += 1));
            }
            assert!(hits.iter().all(|&h| h == 1), "{dims:?} on {threads} threads: {grid:?}");
        }
    }
}

#[test]
fn every_task_has_scratch_enough() {
    // 225 rows: a task of 113 in three blocks of 38, and one of 112 in two of 56. Columns alike: 1056 and 1024.
    let odd = [1, 57, 225, 449, 1057, 2080, 3137];
    for (m, n, threads) in odd.iter().flat_map(|&m| odd.map(|n| (m, n))).flat_map(|(m, n)| [2, 3, 4].map(|t| (m, n, t)))
    {
        let dims = Dims { m, n, k: 512 };
        let grid = Grid::choose(dims, threads);
        for (rows, cols) in (0..grid.tasks()).map(|task| grid.rectangle(dims, task)) {
            let task = Dims { m: rows.len(), n: cols.len(), k: dims.k };
            assert!(blocking::serial_scratch(task) <= grid.task_scratch(dims), "{dims:?} cut by {grid:?}");
        }
    }
}

/// Plans give a smaller product the scratch of a larger one.
#[test]
fn a_smaller_product_wants_no_more_scratch_and_always_has_enough() {
    let mut rng = crate::ops::SampleRng::new(5);
    for _ in 0..3000 {
        let [m, n, k] = [(); 3].map(|()| {
            let most = [16, 64, 300, 3000][rng.size(0, 3)];
            rng.size(1, most)
        });
        let (large, threads) = (Dims { m, n, k }, rng.size(1, 64));
        let small = Dims { m: rng.size(1, large.m), n: rng.size(1, large.n), k: rng.size(1, large.k) };
        let there = scratch_len(large, threads);
        assert!(scratch_len(small, threads) <= there, "{small:?} and {large:?} on {threads} threads");
        let grid = Grid::fitting(small, threads, there);
        assert!(grid.tasks() <= threads && grid.tasks() * grid.task_scratch(small) <= there, "{small:?}: {grid:?}");
        let count = rng.size(1, 40);
        let [few, many] = [small, large].map(|dims| batch_scratch_len(count, dims, threads));
        assert!(few <= many && few >= blocking::serial_scratch(small), "{count} of {small:?} and {large:?}");
    }
}

#[test]
fn the_scratch_of_a_product_keeps_its_threads_busy() {
    let sides = [48, 96, 128, 200, 384, 512, 768, 1000, 3072];
    for (m, n, k) in sides.iter().flat_map(|&m| sides.iter().flat_map(move |&n| sides.map(|k| (m, n, k)))) {
        for threads in [2, 4, 8, 16, 32] {
            let dims = Dims { m, n, k };
            let [fastest, fitting] =
                [usize::MAX, scratch_len(dims, threads)].map(|there| Grid::fitting(dims, threads, there).cost(dims));
            assert!(4 * fitting <= 5 * fastest, "{dims:?} on {threads} threads: {fitting} instead of {fastest}");
        }
    }
}
