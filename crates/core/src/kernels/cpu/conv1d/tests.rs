use super::*;
use crate::kernels::cpu::parallel::threads;
use crate::kernels::cpu::testing::*;

fn shape(
    batch: usize,
    time: usize,
    channels: (usize, usize),
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Conv1dShape {
    Conv1dShape { batch, time, channels_in: channels.0, channels_out: channels.1, kernel, stride, padding }
}

fn shapes() -> Vec<Conv1dShape> {
    vec![
        shape(2, 5, (2, 3), 3, 1, 1),
        shape(3, 7, (1, 1), 1, 1, 0),
        shape(2, 9, (3, 5), 3, 2, 1),
        shape(1, 8, (2, 2), 2, 3, 0),
        shape(2, 6, (3, 2), 5, 2, 4),
        shape(1, 4, (2, 3), 3, 4, 5),
        shape(2, 3, (2, 2), 9, 1, 2),
        shape(2, 101, (2, 3), 4, 1, 2),
    ]
}

struct Outcome<T> {
    y: Vec<T>,
    dx: Vec<T>,
    dw: Vec<T>,
}

struct Inputs {
    x: Vec<f64>,
    w: Vec<f64>,
    bias: Vec<f64>,
    dy: Vec<f64>,
}

fn inputs(s: Conv1dShape, seed: u64) -> Inputs {
    Inputs {
        x: noise(s.batch * s.time * s.channels_in, seed),
        w: noise(s.weights(), seed + 1),
        bias: noise(s.channels_out, seed + 2),
        dy: noise(s.batch * s.time_out() * s.channels_out, seed + 3),
    }
}

fn run<T: Float>(s: Conv1dShape, inputs: &Inputs) -> Outcome<T> {
    let (x, w, bias, dy) = (cast(&inputs.x), cast(&inputs.w), cast(&inputs.bias), cast(&inputs.dy));
    let (mut y, mut dx, mut dw) = (poisoned::<T>(dy.len()), poisoned(x.len()), poisoned(w.len()));
    let threads = threads();
    // SAFETY: every vector is as long as the shape says, and scratch as asked for.
    unsafe {
        let mut scratch = poisoned(forward_scratch(s, threads));
        forward(s, x.as_ptr(), w.as_ptr(), Some(bias.as_ptr()), y.as_mut_ptr(), &mut scratch);
        let mut scratch = poisoned(backward_input_scratch(s, threads));
        backward_input(s, dy.as_ptr(), w.as_ptr(), dx.as_mut_ptr(), &mut scratch);
        let mut scratch = poisoned(backward_weight_scratch(s, threads));
        backward_weight(s, x.as_ptr(), dy.as_ptr(), dw.as_mut_ptr(), &mut scratch);
    }
    Outcome { y, dx, dw }
}

/// Calls `visit(y index, x index, w index)` for every product in the convolution's definition.
fn products(s: Conv1dShape, mut visit: impl FnMut(usize, usize, usize)) {
    for b in 0..s.batch {
        for t in 0..s.time_out() {
            for (o, tap) in (0..s.channels_out).flat_map(|o| (0..s.kernel).map(move |k| (o, k))) {
                let row = (t * s.stride + tap).wrapping_sub(s.padding);
                for c in (0..s.channels_in).filter(|_| row < s.time) {
                    visit(
                        (b * s.time_out() + t) * s.channels_out + o,
                        (b * s.time + row) * s.channels_in + c,
                        (o * s.channels_in + c) * s.kernel + tap,
                    );
                }
            }
        }
    }
}

/// The convolution and its gradients straight from the definition, which is linear in x and in w.
fn naive(s: Conv1dShape, i: &Inputs) -> Outcome<f64> {
    let mut y: Vec<f64> = (0..i.dy.len()).map(|k| i.bias[k % s.channels_out]).collect();
    let (mut dx, mut dw) = (vec![0.0; i.x.len()], vec![0.0; i.w.len()]);
    products(s, |to, from, weight| {
        y[to] += i.x[from] * i.w[weight];
        dx[from] += i.dy[to] * i.w[weight];
        dw[weight] += i.dy[to] * i.x[from];
    });
    Outcome { y, dx, dw }
}

#[test]
fn matches_the_definition_in_both_precisions() {
    for (i, s) in shapes().into_iter().enumerate() {
        let inputs = inputs(s, 10 * i as u64);
        let (expected, double, single) = (naive(s, &inputs), run::<f64>(s, &inputs), run::<f32>(s, &inputs));
        assert_close(&format!("y {s:?}"), &double.y, &expected.y, 1e-13);
        assert_close(&format!("dx {s:?}"), &double.dx, &expected.dx, 1e-13);
        assert_close(&format!("dw {s:?}"), &double.dw, &expected.dw, 1e-13);
        assert_close(&format!("y f32 {s:?}"), &single.y, &expected.y, 1e-5);
        assert_close(&format!("dx f32 {s:?}"), &single.dx, &expected.dx, 1e-5);
        assert_close(&format!("dw f32 {s:?}"), &single.dw, &expected.dw, 1e-5);
    }
}

#[test]
fn gradients_agree_with_differences() {
    for s in &shapes()[..7] {
        let base = inputs(*s, 77);
        let out = run::<f64>(*s, &base);
        let clone = || Inputs { x: base.x.clone(), w: base.w.clone(), bias: base.bias.clone(), dy: base.dy.clone() };
        let loss = |i: &Inputs| dot(&run::<f64>(*s, i).y, &i.dy);
        let of_x = differences(&base.x, |x| loss(&Inputs { x: x.to_vec(), ..clone() }));
        assert_close("dx", &out.dx, &of_x, 1e-8);
        let of_w = differences(&base.w, |w| loss(&Inputs { w: w.to_vec(), ..clone() }));
        assert_close("dw", &out.dw, &of_w, 1e-8);
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    let s = shape(9, 120, (5, 7), 3, 1, 1);
    let inputs = inputs(s, 5);
    assert_same_bits_on_any_threads(|| {
        let out = run::<f32>(s, &inputs);
        [out.y, out.dx, out.dw].concat()
    });
}

#[test]
fn an_input_shorter_than_the_kernel_has_no_output() {
    let s = shape(1, 2, (2, 2), 5, 1, 1);
    let out = run::<f64>(s, &inputs(s, 1));
    assert_eq!((s.time_out(), out.y.len()), (0, 0));
    assert_eq!((out.dx, out.dw), (vec![0.0; 4], vec![0.0; 20]));
}

/// torch.nn.Conv1d(2, 3, 3, stride=2, padding=1) in f64 over `ramp` numbers, batch 2, time 5.
#[test]
fn matches_pytorch() {
    let s = shape(2, 5, (2, 3), 3, 2, 1);
    let out = run::<f64>(s, &Inputs { x: ramp(20, 3), w: ramp(18, 1), bias: ramp(3, 2), dy: ramp(18, 4) });
    let y = [
        -0.405029297,
        0.160400391,
        -0.274169922,
        -0.181152344,
        0.185546875,
        -0.025878906,
        -0.200439453,
        0.368896484,
        -0.061767578,
        -0.459716797,
        0.133056641,
        -0.274169922,
        -0.321289062,
        0.023925781,
        -0.208984375,
        -0.108642578,
        -0.043212891,
        0.022216797,
    ];
    assert_close("y", &out.y, &y, 1e-8);
    let dx = [
        0.125976562,
        -0.138427734,
        -0.261962891,
        0.374023438,
        0.291992188,
        -0.291992188,
        -0.101806641,
        -0.104980469,
        -0.291992188,
        0.273193359,
        -0.125976562,
        0.119628906,
        -0.015869141,
        -0.031738281,
        0.165039062,
        -0.174560547,
        -0.168212891,
        0.176757812,
        -0.012695312,
        0.0625,
    ];
    assert_close("dx", &out.dx, &dx, 1e-8);
    let dw = [
        -0.068847656,
        -0.134033203,
        -0.057128906,
        0.186035156,
        0.224609375,
        -0.141113281,
        0.177246094,
        0.133544922,
        0.204589844,
        -0.121582031,
        0.028808594,
        0.145019531,
        -0.436035156,
        0.166748047,
        0.060058594,
        0.133300781,
        0.020507812,
        -0.131347656,
    ];
    assert_close("dw", &out.dw, &dw, 1e-8);
}
