use super::*;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::threads;
use crate::kernels::cpu::testing::*;

/// What a layer leaves behind.
struct Outcome<T> {
    h: Vec<T>,
    gates: Vec<T>,
    c: Vec<T>,
    dgates: Vec<T>,
    dw_hh: Vec<T>,
}

#[derive(Clone)]
struct Inputs {
    gates_x: Vec<f64>,
    w_hh: Vec<f64>,
    b_hh: Vec<f64>,
    dh: Vec<f64>,
}

fn inputs(s: LstmShape, seed: u64) -> Inputs {
    let rows = s.batch * s.time * s.dirs;
    Inputs {
        gates_x: noise(rows * 4 * s.hidden, seed),
        w_hh: noise(s.dirs * 4 * s.hidden * s.hidden, seed + 1),
        b_hh: noise(s.dirs * 4 * s.hidden, seed + 2),
        dh: noise(rows * s.hidden, seed + 3),
    }
}

fn run<T: Float>(s: LstmShape, inputs: &Inputs, in_place: bool) -> Outcome<T> {
    let cells = s.batch * s.time * s.dirs * s.hidden;
    let (mut gates_x, w_hh, b_hh) = (cast::<T>(&inputs.gates_x), cast::<T>(&inputs.w_hh), cast::<T>(&inputs.b_hh));
    let (mut h, mut c, mut gates) = (poisoned(cells), poisoned(cells), poisoned(4 * cells));
    let mut scratch = poisoned(forward_scratch(s, threads()));
    let x = gates_x.as_mut_ptr();
    let io = Forward {
        gates_x: x.cast_const(),
        w_hh: w_hh.as_ptr(),
        b_hh: b_hh.as_ptr(),
        h: h.as_mut_ptr(),
        gates: if in_place { x } else { gates.as_mut_ptr() },
        c: c.as_mut_ptr(),
    };
    // SAFETY: every vector is as long as the shape says, and scratch as asked for.
    unsafe { forward(s, io, &mut scratch) };
    let gates = if in_place { gates_x } else { gates };

    let (dh, mut dw_hh) = (cast::<T>(&inputs.dh), poisoned(w_hh.len()));
    let mut dgates = if in_place { gates.clone() } else { poisoned(gates.len()) };
    let mut scratch = poisoned(backward_scratch(s, threads()));
    let d = dgates.as_mut_ptr();
    let io = Backward {
        dh: dh.as_ptr(),
        gates: if in_place { d.cast_const() } else { gates.as_ptr() },
        c: c.as_ptr(),
        h: h.as_ptr(),
        w_hh: w_hh.as_ptr(),
        dgates: d,
        dw_hh: dw_hh.as_mut_ptr(),
    };
    // SAFETY: every vector is as long as the shape says, and scratch as asked for.
    unsafe { backward(s, io, &mut scratch) };
    Outcome { h, gates, c, dgates, dw_hh }
}

/// The equations as PyTorch documents them, one number at a time; returns h.
fn naive(s: LstmShape, inputs: &Inputs) -> Vec<f64> {
    let n = s.hidden;
    let mut out = vec![0.0; s.batch * s.time * s.dirs * n];
    let squash = |x: f64| 1.0 / (1.0 + (-x).exp());
    for b in 0..s.batch {
        for d in 0..s.dirs {
            let (mut h, mut c) = (vec![0.0; n], vec![0.0; n]);
            for step in 0..s.time {
                let t = if d == 0 { step } else { s.time - 1 - step };
                let row = (b * s.time + t) * s.dirs + d;
                let sum = |gate: usize, j: usize| {
                    let unit = d * 4 * n + gate * n + j;
                    inputs.gates_x[row * 4 * n + gate * n + j]
                        + inputs.b_hh[unit]
                        + dot(&inputs.w_hh[unit * n..][..n], &h)
                };
                let next: Vec<(f64, f64)> = (0..n)
                    .map(|j| {
                        let cell = squash(sum(1, j)) * c[j] + squash(sum(0, j)) * sum(2, j).tanh();
                        (squash(sum(3, j)) * cell.tanh(), cell)
                    })
                    .collect();
                (h, c) = next.into_iter().unzip();
                out[row * n..][..n].copy_from_slice(&h);
            }
        }
    }
    out
}

const SHAPES: [LstmShape; 6] = [
    LstmShape { batch: 1, time: 1, hidden: 1, dirs: 1 },
    LstmShape { batch: 2, time: 1, hidden: 3, dirs: 2 },
    LstmShape { batch: 3, time: 4, hidden: 5, dirs: 2 },
    LstmShape { batch: 1, time: 6, hidden: 2, dirs: 2 },
    LstmShape { batch: 5, time: 2, hidden: 3, dirs: 1 },
    LstmShape { batch: 37, time: 3, hidden: 17, dirs: 2 },
];

#[test]
fn forward_follows_the_equations() {
    for (i, s) in SHAPES.into_iter().enumerate() {
        let inputs = inputs(s, 10 * i as u64);
        let expected = naive(s, &inputs);
        assert_close("h f64", &run::<f64>(s, &inputs, false).h, &expected, 1e-12);
        assert_close("h f32", &run::<f32>(s, &inputs, true).h, &expected, 1e-5);
    }
}

#[test]
fn backward_agrees_with_differences() {
    for (i, s) in SHAPES[..5].iter().copied().enumerate() {
        let base = inputs(s, 100 + 10 * i as u64);
        let out = run::<f64>(s, &base, true);
        let loss = |inputs: &Inputs| dot(&naive(s, inputs), &inputs.dh);
        let of_gates = differences(&base.gates_x, |x| loss(&Inputs { gates_x: x.to_vec(), ..base.clone() }));
        assert_close("dgates", &out.dgates, &of_gates, 1e-8);
        let of_weights = differences(&base.w_hh, |w| loss(&Inputs { w_hh: w.to_vec(), ..base.clone() }));
        assert_close("dw_hh", &out.dw_hh, &of_weights, 1e-8);
    }
}

#[test]
fn f32_agrees_with_f64_and_in_place_with_separate_memory() {
    for (i, s) in SHAPES.into_iter().enumerate() {
        let inputs = inputs(s, 200 + 10 * i as u64);
        let (exact, single) = (run::<f64>(s, &inputs, false), run::<f32>(s, &inputs, false));
        assert_close("gates", &single.gates, &exact.gates, 1e-5);
        assert_close("c", &single.c, &exact.c, 1e-5);
        assert_close("dgates", &single.dgates, &exact.dgates, 1e-5);
        assert_close("dw_hh", &single.dw_hh, &exact.dw_hh, 1e-5);
        let in_place = run::<f32>(s, &inputs, true);
        assert_eq!((in_place.h, in_place.gates), (single.h, single.gates));
        assert_eq!((in_place.dgates, in_place.dw_hh), (single.dgates, single.dw_hh));
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    let s = LstmShape { batch: 70, time: 5, hidden: 24, dirs: 2 };
    let inputs = inputs(s, 300);
    assert_same_bits_on_any_threads(|| {
        let out = run::<f32>(s, &inputs, true);
        [out.h, out.c, out.dgates, out.dw_hh].concat()
    });
}

#[test]
fn an_empty_batch_has_zero_weight_gradients() {
    let s = LstmShape { batch: 0, time: 4, hidden: 3, dirs: 2 };
    assert_eq!(run::<f64>(s, &inputs(s, 1), false).dw_hh, vec![0.0; 72]);
}

/// torch.nn.LSTM(2, 2, bidirectional, batch_first) in f64 over `ramp` numbers, batch 2, time 3.
#[test]
fn a_layer_matches_pytorch() {
    let s = LstmShape { batch: 2, time: 3, hidden: 2, dirs: 2 };
    let (x, w_ih, b_ih) = (ramp(12, 9), [ramp(16, 1), ramp(16, 5)], [ramp(8, 3), ramp(8, 7)]);
    let project =
        |row: usize, d: usize, unit: usize| b_ih[d][unit] + dot(&x[row * 2..][..2], &w_ih[d][unit * 2..][..2]);
    let gates_x = (0..96).map(|i| project(i / 16, i / 8 % 2, i % 8)).collect();
    let (w_hh, b_hh) = ([ramp(16, 2), ramp(16, 6)].concat(), [ramp(8, 4), ramp(8, 8)].concat());
    let out = run::<f64>(s, &Inputs { gates_x, w_hh, b_hh, dh: ramp(24, 11) }, true);
    let h = [
        -0.035772871,
        -0.001859217,
        0.053819854,
        0.130119262,
        -0.056699001,
        0.005472616,
        0.054058003,
        0.118911889,
        -0.164910708,
        -0.112719198,
        0.074845006,
        0.096377289,
        -0.116089587,
        -0.09366033,
        0.107108881,
        0.160269564,
        -0.18478761,
        -0.125760022,
        0.087482121,
        0.140663371,
        -0.225764555,
        -0.131193757,
        0.055455255,
        0.095919663,
    ];
    assert_close("h", &out.h, &h, 1e-8);
    let dw_hh = [
        0.007676962,
        0.004148859,
        -0.001286639,
        -0.001210952,
        0.004377678,
        0.002695612,
        -0.000779279,
        -0.0006213,
        -0.032220168,
        -0.015783591,
        0.011807324,
        0.008603465,
        0.012659648,
        0.007049785,
        -0.001935988,
        -0.001739191,
        0.000569551,
        0.000902968,
        -0.004504129,
        -0.007536114,
        0.000561075,
        0.000787444,
        -0.002709609,
        -0.004576102,
        0.0056501,
        0.00821114,
        -0.01513677,
        -0.025419341,
        0.00133874,
        0.001994561,
        -0.006490007,
        -0.011362848,
    ];
    assert_close("dw_hh", &out.dw_hh, &dw_hh, 1e-7);
    // The gradient of x = dgates · W_ih, summed over directions, checks the gates' gradients themselves.
    let dx: Vec<f64> =
        (0..12).map(|i| (0..16).map(|u| out.dgates[i / 2 * 16 + u] * w_ih[u / 8][u % 8 * 2 + i % 2]).sum()).collect();
    let expected = [
        -0.042146355,
        0.054145301,
        -0.03067293,
        -0.001408879,
        -0.044039089,
        0.074895427,
        -0.035068551,
        0.039565498,
        -0.009513097,
        -0.022629608,
        -0.034368679,
        0.072906493,
    ];
    assert_close("dx", &dx, &expected, 1e-7);
}
