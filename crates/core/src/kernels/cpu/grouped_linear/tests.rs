use super::*;
use crate::kernels::cpu::parallel::threads;
use crate::kernels::cpu::testing::*;

fn shapes() -> Vec<GroupedShape> {
    let shape = |rows, groups, parts, (inputs, outputs), extra| GroupedShape {
        rows,
        groups,
        parts,
        inputs,
        outputs,
        row_stride: groups * inputs + extra,
    };
    vec![
        shape(7, 16, 3, (4, 4), 0),
        shape(130, 4, 1, (4, 4), 5),
        shape(3, 8, 2, (2, 2), 1),
        shape(5, 16, 1, (1, 1), 0),
        shape(70, 4, 3, (8, 8), 0),
        shape(9, 2, 2, (16, 16), 3),
        shape(6, 3, 3, (4, 4), 2),
        shape(5, 2, 2, (3, 5), 1),
        shape(40, 2, 3, (33, 36), 0),
        shape(1, 1, 1, (1, 1), 0),
    ]
}

struct Inputs {
    x: Vec<f64>,
    w: Vec<f64>,
    b: Vec<f64>,
    dy: Vec<f64>,
}

struct Outcome<T> {
    y: Vec<T>,
    /// The written columns only.
    dx: Vec<T>,
    dw: Vec<T>,
    db: Vec<T>,
}

fn inputs(s: GroupedShape, seed: u64) -> Inputs {
    Inputs {
        x: noise(s.rows * s.row_stride, seed),
        w: noise(s.weights(), seed + 1),
        b: noise(s.biases(), seed + 2),
        dy: noise(s.rows * s.y_row(), seed + 3),
    }
}

fn run<T: Float>(s: GroupedShape, i: &Inputs) -> Outcome<T> {
    let (x, w, b, dy) = (cast::<T>(&i.x), cast::<T>(&i.w), cast::<T>(&i.b), cast::<T>(&i.dy));
    let (mut y, mut dx) = (poisoned::<T>(dy.len()), poisoned::<T>(x.len()));
    let (mut dw, mut db) = (poisoned::<T>(w.len()), poisoned::<T>(b.len()));
    // SAFETY: every vector is as long as the shape says, and scratch as asked for.
    unsafe {
        let mut scratch = poisoned(forward_scratch(s, threads()));
        forward(s, x.as_ptr(), w.as_ptr(), b.as_ptr(), y.as_mut_ptr(), &mut scratch);
        let mut scratch = poisoned(backward_input_scratch(s, threads()));
        backward_input(s, dy.as_ptr(), w.as_ptr(), dx.as_mut_ptr(), &mut scratch);
        let mut scratch = poisoned(backward_weights_scratch(s, threads()));
        backward_weights(s, x.as_ptr(), dy.as_ptr(), dw.as_mut_ptr(), db.as_mut_ptr(), &mut scratch);
    }
    let untouched = dx.chunks(s.row_stride).all(|row| row[s.groups * s.inputs..].iter().all(|v| v.to_f64().is_nan()));
    assert!(untouched, "columns beyond the groups were written");
    let dx = dx.chunks(s.row_stride).flat_map(|row| row[..s.groups * s.inputs].to_vec()).collect();
    Outcome { y, dx, dw, db }
}

/// The definition and its gradients, which is linear in x and in w.
fn naive(s: GroupedShape, i: &Inputs) -> Outcome<f64> {
    let width = s.groups * s.inputs;
    let (mut y, mut dx) = (vec![0.0; i.dy.len()], vec![0.0; s.rows * width]);
    let (mut dw, mut db) = (vec![0.0; i.w.len()], vec![0.0; i.b.len()]);
    for (at, y) in y.iter_mut().enumerate() {
        let (m, p) = (at / s.y_row(), at / (s.groups * s.outputs) % s.parts);
        let (g, o) = (at / s.outputs % s.groups, at % s.outputs);
        let unit = (g * s.parts + p) * s.outputs + o;
        *y = i.b[unit];
        db[unit] += i.dy[at];
        for k in 0..s.inputs {
            let (x, weight) = (i.x[m * s.row_stride + g * s.inputs + k], unit * s.inputs + k);
            *y += x * i.w[weight];
            dw[weight] += x * i.dy[at];
            dx[m * width + g * s.inputs + k] += i.w[weight] * i.dy[at];
        }
    }
    Outcome { y, dx, dw, db }
}

#[test]
fn matches_the_definition_in_both_precisions() {
    for (n, s) in shapes().into_iter().enumerate() {
        let inputs = inputs(s, 10 * n as u64);
        let (expected, double, single) = (naive(s, &inputs), run::<f64>(s, &inputs), run::<f32>(s, &inputs));
        assert_close(&format!("y {s:?}"), &double.y, &expected.y, 1e-13);
        assert_close(&format!("dx {s:?}"), &double.dx, &expected.dx, 1e-13);
        assert_close(&format!("dw {s:?}"), &double.dw, &expected.dw, 1e-13);
        assert_close(&format!("db {s:?}"), &double.db, &expected.db, 1e-13);
        assert_close(&format!("y f32 {s:?}"), &single.y, &expected.y, 1e-5);
        assert_close(&format!("dx f32 {s:?}"), &single.dx, &expected.dx, 1e-5);
        assert_close(&format!("dw f32 {s:?}"), &single.dw, &expected.dw, 1e-5);
        assert_close(&format!("db f32 {s:?}"), &single.db, &expected.db, 1e-5);
    }
}

#[test]
fn gradients_agree_with_differences() {
    let s = shapes()[2];
    let base = inputs(s, 50);
    let out = run::<f64>(s, &base);
    let loss = |x: &[f64], w: &[f64]| {
        let probe = Inputs { x: x.to_vec(), w: w.to_vec(), b: base.b.clone(), dy: base.dy.clone() };
        dot(&run::<f64>(s, &probe).y, &base.dy)
    };
    assert_close("dw", &out.dw, &differences(&base.w, |w| loss(&base.x, w)), 1e-8);
    let of_x = differences(&base.x, |x| loss(x, &base.w));
    let of_x: Vec<f64> = of_x.chunks(s.row_stride).flat_map(|row| row[..s.groups * s.inputs].to_vec()).collect();
    assert_close("dx", &out.dx, &of_x, 1e-8);
}

#[test]
fn bits_do_not_depend_on_threads() {
    for s in [GroupedShape { rows: 333, ..shapes()[0] }, GroupedShape { rows: 333, ..shapes()[8] }] {
        let inputs = inputs(s, 60);
        assert_same_bits_on_any_threads(|| {
            let out = run::<f32>(s, &inputs);
            [out.y, out.dx, out.dw, out.db].concat()
        });
    }
}

#[test]
fn without_rows_the_gradients_are_zero() {
    for s in [GroupedShape { rows: 0, ..shapes()[0] }, GroupedShape { rows: 0, ..shapes()[7] }] {
        let out = run::<f64>(s, &inputs(s, 1));
        assert!(out.dw.iter().chain(&out.db).all(|&v| v == 0.0));
    }
}
