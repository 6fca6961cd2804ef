//! Against a naive f64 implementation, finite differences, and itself on other numbers of threads.

use super::*;
use plimsoll_base::random::{Dropping, site};

/// One call's operands; q, k and v are slices of a packed (batch, time, 3, heads, dim) tensor when lengths allow.
struct Case {
    shape: AttentionShape,
    mask: Option<Vec<i32>>,
    drop: Option<f32>,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    dout: Vec<f64>,
    tables: [Vec<f64>; 2],
    position: Option<i64>,
}

fn noise(seed: u64, len: usize) -> Vec<f64> {
    let stream = Stream::new(seed, 1, 0);
    (0..len).map(|i| stream.word(0, 0, i as u32) as f64 / 2f64.powi(31) - 1.0).collect()
}

fn contiguous(shape: AttentionShape, len: usize) -> [usize; 4] {
    [len * shape.heads * shape.head_dim, shape.heads * shape.head_dim, shape.head_dim, 1]
}

impl Case {
    fn new([batch, q_len, k_len, heads, head_dim]: [usize; 5], causal: bool) -> Self {
        let shape = AttentionShape { batch, q_len, k_len, heads, head_dim, causal, bias: Bias::None, bias_rows: 0 };
        let (qs, ks) = (batch * q_len * heads * head_dim, batch * k_len * heads * head_dim);
        let (q, k, v, dout) = (noise(1, qs), noise(2, ks), noise(3, ks), noise(4, qs));
        Case { shape, mask: None, drop: None, q, k, v, dout, tables: [vec![], vec![]], position: None }
    }

    fn biased(mut self, bias: Bias, rows: usize) -> Self {
        let width = if let Bias::Disentangled { .. } = bias { self.shape.head_dim } else { 1 };
        let table = |n: usize| noise(5 + n as u64, if n < bias.tables() { rows * self.shape.heads * width } else { 0 });
        self.tables = [table(0), table(1)];
        self.shape = AttentionShape { bias, bias_rows: rows, ..self.shape };
        self
    }

    /// Hides every third key and all keys of the last batch row's first half.
    fn masked(mut self) -> Self {
        let keys = self.shape.k_len;
        let last = (self.shape.batch - 1) * keys;
        let hidden = |n: usize| n % 3 == 1 || (n >= last && n < last + keys / 2);
        self.mask = Some((0..self.shape.batch * keys).map(|n| !hidden(n) as i32).collect());
        self
    }

    fn dropped(mut self, p: f32) -> Self {
        self.drop = Some(p);
        self
    }

    fn scale(&self) -> f64 {
        1.0 / (self.shape.head_dim as f64).sqrt()
    }

    fn dropout(&self) -> Option<Dropout> {
        self.drop.map(|p| Dropout { stream: Stream::new(9, site("attn"), 2), p, first_sample: 5 })
    }

    /// Probabilities after dropout, and whether anything was visible, for one query.
    fn weights(&self, [q, k, _, key, query]: [&[f64]; 5], b: usize, h: usize, i: usize) -> Vec<f64> {
        let AttentionShape { q_len, k_len, heads, head_dim, causal, bias, bias_rows, .. } = self.shape;
        let first = self.position.unwrap_or(if causal { k_len as i64 - q_len as i64 } else { 0 });
        let relative = |j: usize| j as i64 - first - i as i64;
        let visible = |j: usize| {
            let past = !causal && self.position.is_none() || relative(j) <= 0;
            past && self.mask.as_ref().is_none_or(|mask| mask[b * k_len + j] != 0)
        };
        let score = |j: usize| -> f64 {
            let at = |len: usize, t: usize, d: usize| ((b * len + t) * heads + h) * head_dim + d;
            let row = bias.row(relative(j), bias_rows) * heads + h;
            let term = |d: usize| {
                let (q, k) = (q[at(q_len, i, d)], k[at(k_len, j, d)]);
                let positions = match bias {
                    Bias::Disentangled { .. } => q * key[row * head_dim + d] + k * query[row * head_dim + d],
                    _ => 0.0,
                };
                q * k + positions
            };
            let scaled = (0..head_dim).map(term).sum::<f64>() * self.scale();
            if let Bias::Relative { .. } = bias { scaled + key[row] } else { scaled }
        };
        let exps: Vec<f64> = (0..k_len).map(|j| if visible(j) { score(j).exp() } else { 0.0 }).collect();
        let sum: f64 = exps.iter().sum();
        let factor = |j: usize| match self.dropout() {
            Some(d) => {
                let (row, dropping) = ((h * 65536 + i / 16 * 8 + i % 8) as u32, Dropping::new(d.p.into()));
                let word = d.stream.eight(5 + b as u32, row, j as u32 / 4)[j % 4];
                let falls = if i % 16 < 8 { dropping.drops_lower(word) } else { dropping.drops_upper(word) };
                if falls { 0.0 } else { dropping.keep }
            }
            None => 1.0,
        };
        exps.iter().enumerate().map(|(j, e)| if sum > 0.0 { e / sum * factor(j) } else { 0.0 }).collect()
    }

    fn operands(&self) -> [&[f64]; 5] {
        [&self.q, &self.k, &self.v, &self.tables[0], &self.tables[1]]
    }

    fn naive(&self, operands: [&[f64]; 5]) -> Vec<f64> {
        let AttentionShape { batch, q_len, k_len, heads, head_dim, .. } = self.shape;
        let (mut out, v) = (vec![0.0; operands[0].len()], operands[2]);
        for n in 0..batch * q_len * heads {
            let (b, i, h) = (n / heads / q_len, n / heads % q_len, n % heads);
            for (j, weight) in self.weights(operands, b, h, i).into_iter().enumerate() {
                for d in 0..head_dim {
                    out[n * head_dim + d] += weight * v[((b * k_len + j) * heads + h) * head_dim + d];
                }
            }
        }
        out
    }

    fn options<T: Float>(&self, tables: [*const T; 2]) -> Options<T> {
        Options {
            scale: T::of(self.scale()),
            tables,
            position: self.position,
            key_mask: self.mask.as_ref().map(|mask| mask.as_ptr()),
            dropout: self.dropout(),
        }
    }

    /// (out, lse, then the gradients of q, k, v and the tables), with NaN in all outputs and scratch beforehand.
    fn run<T: Float>(&self, threads: usize) -> [Vec<T>; 7] {
        let shape = self.shape;
        let cast = |x: &[f64]| x.iter().map(|&x| T::of(x)).collect::<Vec<T>>();
        let nan = |len: usize| vec![T::of(f64::NAN); len];
        let (q, k, v, dout) = (cast(&self.q), cast(&self.k), cast(&self.v), cast(&self.dout));
        let (mut out, mut lse) = (nan(q.len()), nan(shape.batch * shape.heads * shape.q_len));
        let (mut dq, mut dk, mut dv) = (nan(q.len()), nan(k.len()), nan(v.len()));
        let tables = [cast(&self.tables[0]), cast(&self.tables[1])];
        let mut dtables = [nan(tables[0].len()), nan(tables[1].len())];
        let options = self.options([tables[0].as_ptr(), tables[1].as_ptr()]);
        let (by_query, by_key) = (contiguous(shape, shape.q_len), contiguous(shape, shape.k_len));
        let read = |x: &[T], strides| View { ptr: x.as_ptr(), strides };
        let write = |x: &mut [T], strides| ViewMut { ptr: x.as_mut_ptr(), strides };
        let (q, k, v) = (read(&q, by_query), read(&k, by_key), read(&v, by_key));
        // SAFETY: all views are contiguous over vectors of exactly their size.
        unsafe {
            let mut scratch = nan(forward_scratch(shape, threads));
            let target = write(&mut out, by_query);
            forward(shape, q, k, v, options, target, lse.as_mut_ptr(), &mut scratch);
            if self.position.is_some() {
                return [out, lse, vec![], vec![], vec![], vec![], vec![]];
            }
            let mut scratch = nan(backward_scratch(shape, threads));
            let (out, dout) = (read(&out, by_query), read(&dout, by_query));
            let (dq, dk, dv) = (write(&mut dq, by_query), write(&mut dk, by_key), write(&mut dv, by_key));
            let to = Targets { q: dq, k: dk, v: dv, tables: dtables.each_mut().map(|t| t.as_mut_ptr()) };
            backward(shape, q, k, v, out, lse.as_ptr(), dout, options, to, &mut scratch);
        }
        let [dkey, dquery] = dtables;
        [out, lse, dq, dk, dv, dkey, dquery]
    }

    /// Σ out · dout of the naive implementation.
    fn loss(&self, operands: [&[f64]; 5]) -> f64 {
        self.naive(operands).iter().zip(&self.dout).map(|(a, b)| a * b).sum()
    }

    /// Central differences of the loss in up to 40 places of operand `which`.
    fn check_gradient(&self, which: usize, gradient: &[f64]) {
        let stride = (gradient.len() / 40).max(1);
        for n in (0..gradient.len()).step_by(stride) {
            let moved = |by: f64| {
                let (mut operands, mut changed) = (self.operands(), self.operands()[which].to_vec());
                changed[n] += by;
                operands[which] = &changed;
                self.loss(operands)
            };
            let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let error = (gradient[n] - expected).abs();
            assert!(
                error < 1e-7 * (1.0 + expected.abs()),
                "d{} [{n}] {} {expected}",
                ["q", "k", "v", "key", "query"][which],
                gradient[n]
            );
        }
    }

    fn check(&self) {
        let exact = self.run::<f64>(1);
        assert_close(&exact[0], &self.naive(self.operands()), 1e-12);
        exact[2..].iter().enumerate().for_each(|(which, g)| self.check_gradient(which, g));
        let single = self.run::<f32>(1);
        for (narrow, full) in single.iter().zip(&exact) {
            assert_close(&narrow.iter().map(|&x| x as f64).collect::<Vec<_>>(), full, 5e-6);
        }
        for threads in [2, 7] {
            let bits = |all: [Vec<f32>; 7]| all.map(|x| x.into_iter().map(f32::to_bits).collect::<Vec<_>>());
            assert!(bits(self.run::<f32>(threads)) == bits(single.clone()), "{threads} threads give other bits");
        }
    }
}

fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64) {
    for (n, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        assert!(a == e || (a - e).abs() <= tolerance * (1.0 + e.abs()), "[{n}] {a} instead of {e}");
    }
}

#[test]
fn narrow_heads_match_the_naive_computation() {
    for dim in [1, 2, 3, 8, 16] {
        Case::new([2, 19, 19, 2, dim], false).check();
        Case::new([1, 37, 37, 3, dim], true).check();
    }
}

#[test]
fn wide_heads_match_the_naive_computation() {
    for dim in [17, 32, 50, 128] {
        Case::new([1, 35, 35, 2, dim], false).check();
        Case::new([1, 70, 70, 1, dim], true).check();
    }
}

#[test]
fn causal_queries_are_the_last_ones_of_longer_keys() {
    for dim in [2, 24] {
        Case::new([1, 5, 41, 2, dim], true).check();
        Case::new([1, 1, 33, 2, dim], true).check();
    }
}

/// More causal queries than keys: the first ones see nothing.
#[test]
fn rows_without_a_visible_key_give_zero() {
    for dim in [2, 24] {
        let case = Case::new([1, 40, 3, 1, dim], true);
        case.check();
        let [out, lse, dq, ..] = case.run::<f32>(1);
        assert!(out[..37 * dim].iter().chain(&dq[..37 * dim]).all(|&x| x == 0.0));
        assert!(lse[..37].iter().all(|&x| x == f32::NEG_INFINITY) && lse[37].is_finite());
    }
}

#[test]
fn hidden_keys_get_no_weight_and_no_gradient() {
    for dim in [2, 8, 40] {
        Case::new([2, 21, 21, 2, dim], false).masked().check();
        let case = Case::new([2, 21, 21, 2, dim], true).masked();
        case.check();
        let [_, _, _, dk, dv, ..] = case.run::<f32>(1);
        assert!(dk[2 * dim..4 * dim].iter().chain(&dv[2 * dim..4 * dim]).all(|&x| x == 0.0));
    }
}

#[test]
fn dropout_is_the_same_function_of_coordinates_in_both_passes() {
    for dim in [2, 8, 40] {
        Case::new([2, 18, 18, 2, dim], true).dropped(0.3).check();
        Case::new([2, 18, 35, 2, dim], false).masked().dropped(0.5).check();
    }
}

#[test]
fn large_scores_neither_overflow_nor_become_nan() {
    for dim in [2, 64] {
        let mut case = Case::new([1, 33, 33, 1, dim], true);
        case.q.iter_mut().for_each(|x| *x *= 3e4);
        assert!(case.run::<f32>(2).iter().flatten().all(|x| x.is_finite()));
    }
}

/// q, k and v as slices of one packed (batch, time, 3, heads, dim) tensor, and a dimension stride other than 1.
#[test]
fn strides_are_followed() {
    for dim in [2, 20] {
        let case = Case::new([2, 9, 9, 3, dim], true);
        let AttentionShape { q_len, heads, .. } = case.shape;
        let row = heads * dim;
        let mut packed = vec![f32::NAN; 3 * case.q.len()];
        for (n, row3) in packed.chunks_mut(3 * row).enumerate() {
            for (part, source) in row3.chunks_mut(row).zip([&case.q, &case.k, &case.v]) {
                part.iter_mut().zip(&source[n * row..]).for_each(|(to, from)| *to = *from as f32);
            }
        }
        let strides = [q_len * 3 * row, 3 * row, dim, 1];
        let view = |part: usize| View { ptr: packed[part * row..].as_ptr(), strides };
        let (mut out, mut lse) = (vec![f32::NAN; case.q.len()], vec![f32::NAN; 2 * heads * q_len]);
        // The output as (batch, time, dim, head).
        let target = ViewMut { ptr: out.as_mut_ptr(), strides: [q_len * row, row, 1, heads] };
        let mut scratch = vec![f32::NAN; forward_scratch(case.shape, 1)];
        // SAFETY: the strides describe the vectors above.
        unsafe {
            forward(
                case.shape,
                view(0),
                view(1),
                view(2),
                case.options([std::ptr::null(); 2]),
                target,
                lse.as_mut_ptr(),
                &mut scratch,
            )
        };
        let [expected, ..] = case.run::<f32>(1);
        for (n, value) in expected.iter().enumerate() {
            assert_eq!(out[n / row * row + n % dim * heads + n / dim % heads], *value);
        }
    }
}

const BOTH_WAYS: Bias = Bias::Relative { bidirectional: true, max_distance: 20 };
const PAST: Bias = Bias::Relative { bidirectional: false, max_distance: 20 };

#[test]
fn a_relative_bias_is_added_by_distance() {
    for dim in [2, 24] {
        Case::new([2, 19, 19, 2, dim], false).biased(BOTH_WAYS, 12).check();
        Case::new([3, 9, 9, 3, dim], true).biased(PAST, 7).masked().dropped(0.2).check();
        Case::new([1, 5, 41, 2, dim], true).biased(PAST, 9).check();
        Case::new([1, 66, 3, 1, dim], true).biased(PAST, 9).check();
        Case::new([1, 66, 66, 1, 2], false).biased(BOTH_WAYS, 12).check();
    }
}

#[test]
fn positions_count_in_a_disentangled_bias() {
    let log = Bias::Disentangled { buckets: 12, max_distance: 30 };
    let plain = Bias::Disentangled { buckets: 0, max_distance: 9 };
    for dim in [2, 24] {
        Case::new([2, 19, 19, 2, dim], false).biased(log, 24).masked().check();
        Case::new([3, 9, 9, 3, dim], false).biased(log, 24).dropped(0.2).check();
        Case::new([1, 66, 66, 1, 2], false).biased(log, 24).masked().check();
        Case::new([2, 20, 20, 1, dim], true).biased(plain, 18).masked().check();
        Case::new([1, 4, 11, 2, dim], false).biased(plain, 18).check();
    }
}

/// Decoding: the position of the first query is known at run time only.
#[test]
fn queries_at_a_position_see_the_keys_up_to_it() {
    for (dim, bias, rows) in [(2, Bias::None, 0), (24, Bias::None, 0), (24, PAST, 9), (3, BOTH_WAYS, 12)] {
        for position in [0, 7, 29] {
            let case = Case::new([2, 2, 30, 2, dim], false).biased(bias, rows).masked();
            let case = Case { position: Some(position), ..case };
            let [out, ..] = case.run::<f64>(2);
            assert_close(&out, &case.naive(case.operands()), 1e-12);
        }
    }
}
