use super::*;
use crate::kernels::cpu::testing::*;

const EPS: f64 = 1e-5;

struct Inputs {
    x: Vec<f64>,
    gamma: Vec<f64>,
    beta: Vec<f64>,
    dy: Vec<f64>,
    weights: Option<Vec<f64>>,
    rows_per_weight: usize,
}

struct Outcome<T> {
    y: Vec<T>,
    mean: Vec<T>,
    var: Vec<T>,
    dx: Vec<T>,
    dgamma: Vec<T>,
    dbeta: Vec<T>,
}

fn inputs(s: BatchNormShape, seed: u64, rows_per_weight: Option<usize>) -> Inputs {
    let weights = rows_per_weight.map(|each| (0..s.rows.div_ceil(each)).map(|i| (i % 3 != 1) as u8 as f64).collect());
    Inputs {
        x: noise(s.rows * s.channels, seed).iter().map(|v| v + 3.0).collect(),
        gamma: noise(s.channels, seed + 1),
        beta: noise(s.channels, seed + 2),
        dy: noise(s.rows * s.channels, seed + 3),
        weights,
        rows_per_weight: rows_per_weight.unwrap_or(1),
    }
}

fn run<T: Float>(s: BatchNormShape, i: &Inputs) -> Outcome<T> {
    let (x, gamma, beta, dy) = (cast::<T>(&i.x), cast::<T>(&i.gamma), cast::<T>(&i.beta), cast::<T>(&i.dy));
    let weights = i.weights.as_ref().map(|w| cast::<T>(w));
    let rows = Rows { weights: weights.as_deref(), rows_per_weight: i.rows_per_weight };
    let (mut y, mut dx) = (poisoned::<T>(x.len()), poisoned(x.len()));
    let [mut mean, mut var, mut rstd, mut dgamma, mut dbeta] = [0; 5].map(|_| poisoned::<T>(s.channels));
    let statistics = Statistics { mean: &mut mean, var: &mut var, rstd: &mut rstd };
    let layer = Layer { gamma: &gamma, beta: &beta, eps: T::of(EPS) };
    forward(s, &x, rows, layer, &mut y, statistics, &mut poisoned(scratch(s)));
    let saved = Saved { x: &x, rows, gamma: &gamma, mean: &mean, rstd: &rstd };
    backward(s, &dy, saved, &mut dx, &mut dgamma, &mut dbeta, &mut poisoned(scratch(s)));
    Outcome { y, mean, var, dx, dgamma, dbeta }
}

/// The definition, one channel at a time; returns y, mean and variance.
fn naive(s: BatchNormShape, i: &Inputs) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let counts = |row: usize| i.weights.as_ref().is_none_or(|w| w[row / i.rows_per_weight] != 0.0);
    let (mut y, mut means, mut vars) = (vec![0.0; i.x.len()], vec![], vec![]);
    for j in 0..s.channels {
        let at = |row: usize| row * s.channels + j;
        let rows: Vec<usize> = (0..s.rows).filter(|&row| counts(row)).collect();
        let mean = rows.iter().map(|&r| i.x[at(r)]).sum::<f64>() / rows.len() as f64;
        let var = rows.iter().map(|&r| (i.x[at(r)] - mean).powi(2)).sum::<f64>() / rows.len() as f64;
        rows.iter().for_each(|&r| y[at(r)] = (i.x[at(r)] - mean) / (var + EPS).sqrt() * i.gamma[j] + i.beta[j]);
        means.push(mean);
        vars.push(var);
    }
    (y, means, vars)
}

fn cases() -> Vec<(BatchNormShape, Option<usize>)> {
    let shape = |rows, channels| BatchNormShape { rows, channels };
    vec![
        (shape(4, 1), None),
        (shape(9, 5), None),
        (shape(9, 5), Some(2)),
        (shape(130, 3), Some(7)),
        (shape(200, 67), Some(50)),
        (shape(5000, 4), None),
    ]
}

#[test]
fn forward_matches_the_definition() {
    for (s, each) in cases() {
        let inputs = inputs(s, s.rows as u64, each);
        let (y, mean, var) = naive(s, &inputs);
        let (double, single) = (run::<f64>(s, &inputs), run::<f32>(s, &inputs));
        assert_close("y", &double.y, &y, 1e-12);
        assert_close("mean", &double.mean, &mean, 1e-13);
        assert_close("var", &double.var, &var, 1e-13);
        assert_close("y f32", &single.y, &y, 1e-5);
        assert_close("var f32", &single.var, &var, 1e-5);
    }
}

#[test]
fn backward_agrees_with_differences_and_f32_with_f64() {
    for (s, each) in &cases()[..4] {
        let base = inputs(*s, 7, *each);
        let (out, single) = (run::<f64>(*s, &base), run::<f32>(*s, &base));
        let mut probe = inputs(*s, 7, *each);
        let dx = differences(&base.x, |x| {
            probe.x.copy_from_slice(x);
            dot(&naive(*s, &probe).0, &base.dy)
        });
        assert_close("dx", &out.dx, &dx, 1e-7);
        let mut probe = inputs(*s, 7, *each);
        let dgamma = differences(&base.gamma, |gamma| {
            probe.gamma.copy_from_slice(gamma);
            dot(&naive(*s, &probe).0, &base.dy)
        });
        assert_close("dgamma", &out.dgamma, &dgamma, 1e-8);
        assert_close("dx f32", &single.dx, &out.dx, 2e-5);
        assert_close("dgamma f32", &single.dgamma, &out.dgamma, 1e-5);
        assert_close("dbeta f32", &single.dbeta, &out.dbeta, 1e-5);
    }
}

#[test]
fn rows_without_weight_are_never_read() {
    let s = BatchNormShape { rows: 12, channels: 3 };
    let clean = inputs(s, 5, Some(4));
    let mut dirty = inputs(s, 5, Some(4));
    dirty.x[4 * 3..8 * 3].fill(f64::NAN);
    dirty.dy[4 * 3..8 * 3].fill(f64::NAN);
    let (a, b) = (run::<f32>(s, &clean), run::<f32>(s, &dirty));
    assert_eq!((a.y, a.dx, a.dgamma), (b.y.clone(), b.dx.clone(), b.dgamma));
    assert!(b.y[12..24].iter().chain(&b.dx[12..24]).all(|&v| v == 0.0));
}

#[test]
fn bits_do_not_depend_on_threads() {
    let s = BatchNormShape { rows: 999, channels: 70 };
    let inputs = inputs(s, 8, Some(9));
    assert_same_bits_on_any_threads(|| {
        let out = run::<f32>(s, &inputs);
        [out.y, out.mean, out.var, out.dx, out.dgamma, out.dbeta].concat()
    });
}

#[test]
fn a_batch_without_counting_rows_is_zero() {
    let s = BatchNormShape { rows: 4, channels: 2 };
    let inputs = Inputs { weights: Some(vec![0.0]), rows_per_weight: 4, ..inputs(s, 1, None) };
    let out = run::<f64>(s, &inputs);
    assert_eq!((out.y, out.dx), (vec![0.0; 8], vec![0.0; 8]));
    assert_eq!((out.mean, out.var, out.dgamma), (vec![0.0; 2], vec![0.0; 2], vec![0.0; 2]));
}

/// torch.nn.BatchNorm1d(2) in f64 over `ramp` numbers, 4 rows, one training step and then evaluation.
#[test]
fn matches_pytorch() {
    let s = BatchNormShape { rows: 4, channels: 2 };
    let (x, gamma, beta, dy) = (ramp(8, 7), ramp(2, 5), ramp(2, 6), ramp(8, 8));
    let inputs = Inputs { x: x.clone(), gamma, beta, dy, weights: None, rows_per_weight: 1 };
    let out = run::<f64>(s, &inputs);
    let y = [-0.5552425883126, -0.4546626357259, -0.2059141961042, -0.4700389929844];
    assert_close("y", &out.y[..4], &y, 1e-11);
    let dx = [-0.446982428032, 0.0226364231204, 0.2236228090116, 0.0029789381869];
    assert_close("dx", &out.dx[..4], &dx, 1e-11);
    assert_close("dgamma", &out.dgamma, &[-0.6427642416635, -0.3536562169473], 1e-11);
    assert_close("dbeta", &out.dbeta, &[0.4375, -0.25], 1e-12);
    let (mut mean, mut var) = ([0.0; 2], [1.0; 2]);
    update_running(&out.mean, &out.var, 4, 0.1, &mut mean, &mut var);
    assert_close("running mean", &mean, &[-0.021875, 0.0109375], 1e-12);
    assert_close("running var", &var, &[0.9040690104167, 0.9134440104167], 1e-11);
    let mut y = [f64::NAN; 8];
    evaluate(s, &x, Layer { gamma: &inputs.gamma, beta: &inputs.beta, eps: EPS }, &mean, &var, &mut y);
    let first = (x[0] - mean[0]) / (var[0] + EPS).sqrt() * inputs.gamma[0] + inputs.beta[0];
    assert_close("evaluated", &y[..1], &[first], 1e-12);
}

#[test]
fn running_statistics_ignore_an_empty_batch_and_survive_one_row() {
    let (mut mean, mut var) = ([0.5], [2.0]);
    update_running(&[9.0], &[9.0], 0, 0.1, &mut mean, &mut var);
    assert_eq!((mean, var), ([0.5], [2.0]));
    update_running(&[1.5], &[0.0], 1, 0.1, &mut mean, &mut var);
    assert!((mean[0] - 0.6f64).abs() < 1e-15 && (var[0] - 1.8f64).abs() < 1e-15);
}
