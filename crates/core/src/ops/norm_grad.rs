//! The gradient of layer norm and RMS norm, with what stands around a norm in a residual network: gradients of one value
//! that come from two places, dropout of the branch that the residual was added to, the sum over rows that is the
//! gradient of a bias. Each of these is a pass over rows that are in registers here.

use super::cuda::{mismatch, refuse_f64};
use super::norm::{AroundNorm, Backward, put_norm_grad, workspace_bytes};
use super::*;
use crate::graph::{Aliases, Graph, NodeId};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::rows::{self, InPlace};
use crate::kernels::cpu::with_float;
use crate::types::{DType, Results};
use plimsoll_base::simd::simd;
use smallvec::smallvec;
use std::convert::identity;

/// Inputs: dy, x, gamma, the mean of a centered norm, rstd; then, as far as there are such, the second part of dy, the
/// gradient that reaches x elsewhere, and `rng`. Outputs: dx, dgamma, dbeta of a centered norm; then dx after dropout, and
/// the sum over rows of the last one, dx or that.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NormGrad {
    /// Whether rows have a mean that was taken off, and a shift: layer norm.
    pub(super) centered: bool,
    pub(super) second: bool,
    pub(super) residual: bool,
    pub(super) dropout: Option<Dropout>,
    pub(super) sums: bool,
}

impl NormGrad {
    pub(super) fn new(centered: bool, second: bool) -> NormGrad {
        NormGrad { centered, second, residual: false, dropout: None, sums: false }
    }

    pub(super) fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (centered, width) in [(true, 8 * rng.size(1, 20)), (false, rng.size(3, 70)), (true, 264), (false, 1032)] {
            for bits in [0b1111, 0b0110, 0b1011, 0b0100] {
                let (batch, rows) = (rng.size(1, 3), rng.size(1, 30));
                let dropout = (bits & 1 != 0).then_some(Dropout { p: 0.3, site: 12, samples: batch });
                let [second, residual, sums] = [8, 4, 2].map(|bit| bits & bit != 0);
                samples.push(NormGrad { centered, second, residual, dropout, sums }.sample(batch, rows, width));
            }
        }
        samples
    }

    fn sample(self, batch: usize, rows: usize, width: usize) -> Sample {
        let all = || SampleInput::float(&[batch, rows, width], Fill::Normal);
        let statistic = |fill| SampleInput::constant(&[batch, rows], fill);
        let mut inputs = vec![all(), all(), SampleInput::float(&[width], Fill::Normal)];
        inputs.extend(self.centered.then(|| statistic(Fill::Normal)));
        inputs.push(statistic(Fill::Uniform(0.5, 1.5)));
        inputs.extend((0..usize::from(self.second) + usize::from(self.residual)).map(|_| all()));
        let state = || SampleInput::new(Type::new(DType::I64, &[3]), Fill::Ids(1000));
        inputs.extend(self.dropout.is_some().then(state));
        Sample::plain(self, inputs)
    }

    /// Where the inputs and outputs are that are not always there.
    fn places(&self) -> NormGradPlaces {
        let [centered, second, residual] = [self.centered, self.second, self.residual].map(usize::from);
        let dropped = usize::from(self.dropout.is_some());
        NormGradPlaces {
            rstd: 3 + centered,
            second: self.second.then_some(4 + centered),
            residual: self.residual.then_some(4 + centered + second),
            rng: 4 + centered + second + residual,
            dropped: (dropped == 1).then_some(2 + centered),
            sums: self.sums.then_some(2 + centered + dropped),
        }
    }

    /// Sums over rows that come out of it.
    fn vectors(&self) -> usize {
        1 + usize::from(self.centered) + usize::from(self.sums)
    }
}

struct NormGradPlaces {
    rstd: usize,
    second: Option<usize>,
    residual: Option<usize>,
    rng: usize,
    dropped: Option<usize>,
    sums: Option<usize>,
}

/// Lets the node that computes `dx` also drop from it; none if it is not the gradient of a norm, or its rows are not whole
/// parts of samples.
pub(super) fn drop_within(graph: &mut Graph, dx: ValueId, dropout: &Dropout, rng: ValueId) -> Option<ValueId> {
    let (id, op) = norm_behind(graph, dx)?;
    let (elements, width) = (graph.ty(dx).elements(), *graph.shape(dx).last()?);
    let whole = (elements / dropout.samples.max(1)).is_multiple_of(width);
    let free = op.dropout.is_none() && !op.sums && graph.node(id).outputs[0] == dx && whole;
    free.then(|| graph.extend_node(id, NormGrad { dropout: Some(dropout.clone()), ..op }, &[rng]))?
}

/// Lets the node that computes `dy`, as the last thing it does, also sum it over rows.
pub(super) fn sum_within(graph: &mut Graph, dy: ValueId) -> Option<ValueId> {
    let (id, op) = norm_behind(graph, dy)?;
    let last = op.places().dropped.unwrap_or(0);
    let free = !op.sums && graph.node(id).outputs[last] == dy && graph.shape(dy).len() == 2;
    free.then(|| graph.extend_node(id, NormGrad { sums: true, ..op }, &[]))?
}

fn norm_behind(graph: &Graph, value: ValueId) -> Option<(NodeId, NormGrad)> {
    let id = graph.producer(value)?;
    Some((id, graph.node(id).op.op().downcast::<NormGrad>()?.clone()))
}

impl Op for NormGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let places = self.places();
        if inputs.len() != places.rng + usize::from(self.dropout.is_some()) {
            return OpError::new(format!("{self:?} does not have {} inputs", inputs.len()));
        }
        let (dx, vector) = (inputs[1].contiguous(), inputs[2].clone());
        if [Some(0), places.second, places.residual].into_iter().flatten().any(|i| inputs[i].shape != dx.shape) {
            return OpError::new(format!("a gradient of {dx} has another shape"));
        }
        if inputs[3..=places.rstd].iter().any(|statistic| statistic.dtype != dx.dtype.wide()) {
            return OpError::new(format!("statistics of {dx} are {}", dx.dtype.wide().name()));
        }
        let mut outputs = smallvec![dx.clone()];
        outputs.extend((0..1 + usize::from(self.centered)).map(|_| vector.clone()));
        outputs.extend(self.dropout.is_some().then_some(dx));
        outputs.extend(self.sums.then_some(vector));
        Ok(outputs)
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        let dropped = self.places().dropped.map(|output| Alias::may(output, 1));
        [Alias::may(0, 0)].into_iter().chain(dropped).collect()
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let (rows, row) = (inputs[self.places().rstd].elements(), inputs[2].elements());
        match target.backend {
            Backend::Cpu => self.vectors() * rows::stretches(rows) * row * inputs[2].dtype.wide().bytes(),
            Backend::Cuda => workspace_bytes(rows, row, self.vectors(), self.has_more()),
        }
    }
    fn class(&self) -> Class {
        Class::NormGrad
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let drawn = if self.dropout.is_some() { 12.0 } else { 0.0 };
        Cost::elementwise(inputs, outputs, if self.centered { 16.0 } else { 12.0 } + drawn)
    }
    fn plus(&self) -> Option<Box<dyn Op>> {
        let free = !self.residual && self.dropout.is_none() && !self.sums;
        free.then(|| Box::new(NormGrad { residual: true, ..self.clone() }) as Box<dyn Op>)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => match self.centered {
            true => self.run::<T, true>(io),
            false => self.run::<T, false>(io),
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (inputs, outputs, places) = (launch.inputs, launch.outputs, self.places());
        let dropped = usize::from(self.dropout.is_some());
        let complete = inputs.len() == places.rng + dropped && outputs.len() == 1 + self.vectors() + dropped;
        let ([dy, x, gamma, ..], [dx, dgamma, ..], true) = (inputs, outputs, complete) else {
            return Err(mismatch(self, launch, "dy, x, gamma and statistics for dx and dgamma"));
        };
        let of = |index: Option<usize>| index.and_then(|index| inputs.get(index));
        let around = AroundNorm {
            second: of(places.second),
            residual: of(places.residual),
            dropped: places.dropped.and_then(|index| outputs.get(index)),
            dropout: self.dropout.as_ref(),
            rng: inputs.get(places.rng),
            sums: places.sums.and_then(|index| outputs.get(index)),
        };
        let mean = self.centered.then(|| &inputs[3]);
        let dbeta = self.centered.then(|| &outputs[2]);
        let backward = Backward { dy, x, gamma, mean, rstd: &inputs[places.rstd], dx, dgamma, dbeta };
        put_norm_grad(launch, backward, around)
    }
}

impl NormGrad {
    /// Whether there is more to it than the gradient of a norm.
    fn has_more(&self) -> bool {
        self.second || self.residual || self.dropout.is_some() || self.sums
    }

    fn run<T: Float + Element, const CENTERED: bool>(&self, io: &CpuIo<'_>) {
        let places = self.places();
        let (gamma, rstds) = (io.input::<T>(2), io.input::<T>(places.rstd));
        let (count, width) = (rstds.len(), gamma.len());
        let means = if CENTERED { io.input::<T>(3) } else { &[] };
        let [second, residual] = [places.second, places.residual].map(|index| index.map(|index| io.input::<T>(index)));
        let mask = self.dropout.as_ref().map(|dropout| dropout.mask(io, places.rng, count * width));
        let dx = InPlace::<T>::new(io, 0, 0);
        let x = places.dropped.map(|output| InPlace::<T>::new(io, output, 1));
        let plain = if x.is_none() { io.input::<T>(1) } else { &[] };
        let (vectors, stretches) = (self.vectors(), rows::stretches(count));
        let partials = &mut io.workspace::<T>()[..vectors * stretches * width];
        let slots = SharedMut::new(partials.as_mut_ptr());
        parallel(stretches, |index| {
            // SAFETY: a stretch of rows and its partial sums belong to one task.
            let mut sums = RowSums::of(unsafe { slots.slice(index * vectors * width, vectors * width) }, width);
            simd(
                #[inline(always)]
                || {
                    for row in rows::stretch(count, index) {
                        let at = row * width;
                        // SAFETY: the row is one of this stretch, which no other task has; so below.
                        let dx = unsafe { dx.load(at, width) };
                        second.iter().for_each(|second| rows::add(dx, &second[at..][..width]));
                        // Where dx is dropped from, x lies where the result will.
                        // SAFETY: as above.
                        let place = x.map(|x| unsafe { x.load(at, width) });
                        let x = place.as_deref().unwrap_or_else(|| &plain[at..][..width]);
                        let mean = if CENTERED { means[row] } else { T::ZERO };
                        backward_row::<T, CENTERED>(dx, x, gamma, mean, rstds[row], &mut sums);
                        residual.iter().for_each(|residual| rows::add(dx, &residual[at..][..width]));
                        let last: &[T] = match (place, &mask) {
                            (Some(place), Some(mask)) => {
                                place.copy_from_slice(dx);
                                mask.apply(at, place);
                                place
                            }
                            _ => dx,
                        };
                        if self.sums {
                            rows::add(sums.last(), last);
                        }
                    }
                },
            );
        });
        let (partials, outputs) = (&*partials, [Some(1), CENTERED.then_some(2), places.sums]);
        for (vector, output) in outputs.into_iter().flatten().enumerate() {
            let out = io.output::<T>(output);
            out.fill(T::ZERO);
            for part in partials.chunks_exact(vectors * width) {
                simd(
                    #[inline(always)]
                    || rows::add(out, &part[vector * width..][..width]),
                );
            }
        }
    }
}

/// Sums over the rows of a stretch: of dgamma, of dbeta, of what comes last.
struct RowSums<'a, T> {
    all: &'a mut [T],
    width: usize,
}

impl<'a, T: Float> RowSums<'a, T> {
    #[inline(always)]
    fn of(all: &'a mut [T], width: usize) -> RowSums<'a, T> {
        all.fill(T::ZERO);
        RowSums { all, width }
    }

    #[inline(always)]
    fn last(&mut self) -> &mut [T] {
        let from = self.all.len() - self.width;
        &mut self.all[from..]
    }
}

/// With h = dy · gamma and x̂ the normalized row: dx = rstd · (h − mean(h) − x̂ · mean(h · x̂)), without mean(h) where rows
/// have no mean. `dx` starts as dy.
#[inline(always)]
fn backward_row<T: Float, const CENTERED: bool>(
    dx: &mut [T],
    x: &[T],
    gamma: &[T],
    mean: T,
    rstd: T,
    sums: &mut RowSums<'_, T>,
) {
    let (dgamma, others) = sums.all.split_at_mut(sums.width);
    for ((dx, x), dgamma) in dx.iter().zip(x).zip(dgamma) {
        *dgamma = dx.mul_add((*x - mean) * rstd, *dgamma);
    }
    if CENTERED {
        rows::add(&mut others[..dx.len()], dx);
    }
    for (dx, gamma) in dx.iter_mut().zip(gamma) {
        *dx *= *gamma;
    }
    let n = T::of(dx.len() as f64);
    let mean_h = if CENTERED { rows::sum(dx, identity) / n } else { T::ZERO };
    let slope = rows::sum2(
        dx,
        x,
        #[inline(always)]
        |h, x| h * ((x - mean) * rstd),
    ) / n;
    for (h, x) in dx.iter_mut().zip(x) {
        *h = rstd * (*h - mean_h - (*x - mean) * rstd * slope);
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, i64s, output_of};
    use super::*;

    const SAMPLES: usize = 2;
    const WIDTH: usize = 24;
    const SHAPE: [usize; 2] = [SAMPLES * 11, WIDTH];

    fn floats(count: usize, seed: u64) -> Vec<f32> {
        let mut rng = SampleRng::new(seed);
        (0..count).map(|_| rng.uniform() as f32 - 0.5).collect()
    }

    /// Output `index` for these gradients, the second part and the residual's being there if the op wants them.
    fn found(op: &NormGrad, dy: &[f32], index: usize) -> Vec<f32> {
        let all = |seed| f32s(&SHAPE, &floats(SHAPE[0] * WIDTH, seed));
        let statistic = |seed| f32s(&SHAPE[..1], &floats(SHAPE[0], seed));
        let mut inputs = vec![f32s(&SHAPE, dy), all(3), f32s(&[WIDTH], &floats(WIDTH, 5)), statistic(6)];
        inputs.extend(op.centered.then(|| statistic(7)));
        inputs.extend(op.second.then(|| all(2)));
        inputs.extend(op.residual.then(|| all(4)));
        inputs.extend(op.dropout.is_some().then(|| i64s(&[3], &[9, 4, 7])));
        output_of(op, &inputs, index)
    }

    fn is_near(found: &[f32], expected: &[f32]) -> bool {
        found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0))
    }

    #[test]
    fn everything_at_once_is_everything_one_after_the_other() {
        let [dy, second, residual] = [1, 2, 4].map(|seed| floats(SHAPE[0] * WIDTH, seed));
        let dropout = Dropout { p: 0.3, site: 8, samples: SAMPLES };
        for centered in [true, false] {
            let plain = NormGrad::new(centered, false);
            let more = NormGrad { residual: true, sums: true, ..NormGrad::new(centered, true) };
            let all = NormGrad { dropout: Some(dropout.clone()), ..more.clone() };
            let both: Vec<f32> = dy.iter().zip(&second).map(|(a, b)| a + b).collect();
            let total: Vec<f32> = found(&plain, &both, 0).iter().zip(&residual).map(|(a, b)| a + b).collect();
            let dropped = output_of(&dropout, &[f32s(&SHAPE, &total), i64s(&[3], &[9, 4, 7])], 0);
            let sum = |x: &[f32]| output_of(&Sum { axis: 0 }, &[f32s(&SHAPE, x)], 0);
            let vectors = 1 + usize::from(centered);
            assert!(is_near(&found(&all, &dy, 0), &total) && is_near(&found(&more, &dy, 0), &total));
            for vector in 1..=vectors {
                assert!(is_near(&found(&all, &dy, vector), &found(&plain, &both, vector)));
            }
            assert!(is_near(&found(&all, &dy, vectors + 1), &dropped));
            assert!(is_near(&found(&all, &dy, vectors + 2), &sum(&dropped)));
            assert!(is_near(&found(&more, &dy, vectors + 1), &sum(&total)));
        }
    }
}
