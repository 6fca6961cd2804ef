//! Adafactor as PyTorch computes it: for matrices the second moment is kept as one number per row and per column. A
//! parameter that packs several tensors is updated as these would be, each by itself: what a step is relative to is the
//! size of one tensor.

use super::adafactor_passes::{Passes, Sizes};
use super::cuda::refuse_f64;
use super::*;
use crate::graph::Aliases;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::elementwise::{self, clear, ranges};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel, parallel_chunks};
use crate::kernels::cpu::rows;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::DeviceTensor;
use crate::types::Results;
use plimsoll_base::simd::simd;
use std::convert::identity;
use std::ops::Range;

/// Inputs: w, its second moment (see [`Adafactor::state_shapes`]), g, learning rate, step number from 1, clip factor,
/// and `rng` if it rounds stochastically. Overwrites w and the moments, which start at zero; g too, with zeros, if it is an
/// accumulator that the next step starts from. A clip factor that is not finite skips the step: w and the moments stay
/// as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Adafactor {
    /// The second moment forgets at the rate step^beta2_decay.
    pub beta2_decay: f64,
    /// Lower limit of the root of the second moment; PyTorch's default is the float type's epsilon.
    pub eps_moment: f64,
    /// Lower limit of the root mean square of w that the step is relative to.
    pub eps_weight: f64,
    /// Root mean square that an update is cut down to.
    pub limit: f64,
    pub weight_decay: f64,
    /// Tensors of equal size that the weight packs along its first dimension.
    pub parts: usize,
    pub zero_gradient: bool,
    pub rounding: Option<Rounding>,
}

impl Adafactor {
    /// PyTorch's defaults for f32.
    pub const DEFAULT: Adafactor = Adafactor {
        beta2_decay: -0.8,
        eps_moment: f32::EPSILON as f64,
        eps_weight: 1e-3,
        limit: 1.0,
        weight_decay: 0.0,
        parts: 1,
        zero_gradient: false,
        rounding: None,
    };

    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shapes = [
            (1, vec![rng.size(1, 90)]),
            (1, vec![rng.size(1, 40), rng.size(1, 150)]),
            (1, vec![2, 3, rng.size(1, 9)]),
            (2, vec![2 * rng.size(1, 40)]),
            (3, vec![3 * rng.size(1, 20), rng.size(1, 90)]),
        ];
        let sample = |(parts, shape): (usize, Vec<usize>)| {
            let op = Adafactor { weight_decay: 0.1, parts, zero_gradient: true, ..Adafactor::DEFAULT };
            let weight = SampleInput::constant(&shape, Fill::Normal);
            let moments = Adafactor::packed_shapes(&shape, parts);
            let moments = moments.iter().map(|shape| SampleInput::constant(shape, Fill::Uniform(0.1, 2.0)));
            let scalars = [0.01, 3.0, 0.5].map(|x| SampleInput::constant(&[1], Fill::Value(x)));
            Sample::plain(op, [weight.clone()].into_iter().chain(moments).chain([weight]).chain(scalars).collect())
        };
        shapes.map(sample).into()
    }

    /// The shapes of the second moment of a weight: (…, R, 1) and (…, 1, C) for matrices, its own for a vector.
    pub fn state_shapes(weight: &[usize]) -> Vec<Vec<usize>> {
        let rank = weight.len();
        let without = |dim: usize| {
            let mut shape = weight.to_vec();
            shape[dim] = 1;
            shape
        };
        if rank > 1 { vec![without(rank - 1), without(rank - 2)] } else { vec![weight.to_vec()] }
    }

    /// The same for a weight that packs `parts` tensors: each of its matrices has columns of its own.
    pub fn packed_shapes(weight: &[usize], parts: usize) -> Vec<Vec<usize>> {
        let mut shapes = Adafactor::state_shapes(weight);
        if let (2, [_, columns]) = (weight.len(), &mut shapes[..]) {
            columns[0] = parts;
        }
        shapes
    }

    /// The type of one of the tensors that a weight packs.
    pub(super) fn part_of(&self, weight: &Type) -> Type {
        let mut shape = weight.shape.to_vec();
        if let Some(first) = shape.first_mut() {
            *first /= self.parts;
        }
        Type::new(weight.dtype, &shape)
    }

    /// The index of the gradient among the inputs, for a weight of this type.
    pub(super) fn gradient(weight: &Type) -> usize {
        if weight.rank() > 1 { 3 } else { 2 }
    }

    pub(super) fn matrices(weight: &Type) -> usize {
        weight.shape[..weight.rank().saturating_sub(2)].iter().product()
    }

    /// How many leading inputs are overwritten.
    fn overwritten(&self, weight: &Type) -> usize {
        Adafactor::gradient(weight) + self.zero_gradient as usize
    }
}

impl Op for Adafactor {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let Some(w) = inputs.first() else { return OpError::new("needs a weight") };
        let gradient = Adafactor::gradient(w);
        if self.parts == 0 || w.shape.first().is_none_or(|first| first % self.parts != 0) {
            return OpError::new(format!("{} equal parts do not make up {w}", self.parts));
        }
        let moments = Adafactor::packed_shapes(&w.shape, self.parts)
            .into_iter()
            .map(|shape| Type::new(inputs.get(1).map_or(w.dtype, |m| m.dtype), &shape));
        let expected: Vec<Type> = [w.clone()].into_iter().chain(moments).collect();
        let fits = inputs.len() >= gradient + 4 && inputs[..gradient] == expected && inputs[gradient].shape == w.shape;
        if !fits {
            return OpError::new(format!("needs {expected:?}, gradient, learning rate, step and clip factor"));
        }
        Rounding::check(self.rounding, &inputs[gradient + 4..])?;
        Ok(Results::from(&inputs[..self.overwritten(w)]))
    }
    fn aliases(&self, inputs: &[Type]) -> Aliases {
        (0..self.overwritten(&inputs[0])).map(|i| Alias::must(i, i)).collect()
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let part = self.part_of(&inputs[0]);
        match target.backend {
            Backend::Cpu => 8 * (elementwise::partial_sums(part.elements()) + Adafactor::matrices(&part)),
            Backend::Cuda => Sizes::new(&part).workspace_bytes(),
        }
    }
    fn class(&self) -> Class {
        Class::FactoredUpdate
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        // Weight and gradient are read once more each for their norms and means.
        Cost { flops: 30.0 * inputs[0].elements() as f64, bytes: 2.0 * Cost::traffic(inputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.run::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        if launch.inputs[0].ty.elements() == 0 {
            return Ok(());
        }
        (0..self.parts).try_for_each(|part| {
            let (op, inputs) = self.part_on_device(launch.inputs, part);
            Passes::new(&op, &inputs, launch.workspace).put(launch)
        })
    }
}

impl Adafactor {
    /// One of the packed tensors by itself. Its elements are rounded by words of their own.
    fn part_on_device(&self, inputs: &[DeviceTensor], part: usize) -> (Adafactor, Vec<DeviceTensor>) {
        let ty = self.part_of(&inputs[0].ty);
        let gradient = Adafactor::gradient(&ty);
        let shapes =
            [ty.shape.to_vec()].into_iter().chain(Adafactor::packed_shapes(&ty.shape, 1)).chain([ty.shape.to_vec()]);
        let cut = |(tensor, shape): (&DeviceTensor, Vec<usize>)| {
            let ty = Type::new(tensor.ty.dtype, &shape);
            DeviceTensor { address: tensor.address + (part * ty.elements() * ty.dtype.bytes()) as u64, ty }
        };
        let tensors: Vec<DeviceTensor> = inputs[..=gradient].iter().zip(shapes).map(cut).collect();
        let rounding = self.rounding.map(|r| r.starting_at(r.first + part * ty.elements().next_multiple_of(8)));
        (Adafactor { parts: 1, rounding, ..self.clone() }, [&tensors, &inputs[gradient + 1..]].concat())
    }
}

impl Adafactor {
    fn run<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let (ty, gradient) = (io.input_type(0), Adafactor::gradient(io.input_type(0)));
        let [lr, step, clip] = [1, 2, 3].map(|i| io.scalar::<T>(gradient + i).to_f64());
        let elements = ty.elements();
        if elements == 0 {
            return;
        }
        if !clip.is_finite() {
            let g = SharedMut::new(io.input_ptr(gradient) as *mut T);
            return if self.zero_gradient {
                clear(g, elements)
            };
        }
        (0..self.parts).for_each(|part| self.run_part(Part::<T>::new(self, io, part), io, [lr, step, clip]));
    }

    fn run_part<T: Float + Element>(&self, part: Part<'_, T>, io: &CpuIo<'_>, [lr, step, clip]: [f64; 3]) {
        let elements = part.ty.elements();
        let (scales, partials) = io.workspace::<f64>().split_at_mut(Adafactor::matrices(&part.ty));
        let w = part.w;
        // SAFETY: the range lies inside w, which is not written before the norm is known.
        let squares_of = |range: Range<usize>| squares(unsafe { &*w.slice(range.start, range.len()) });
        let weight_rms = root_mean_square(elements, partials, squares_of);
        let alpha = weight_rms.max(self.eps_weight) * lr.min(1.0 / step.sqrt());
        let Part { ty, g, rows, columns, .. } = part;
        update_moments(&ty, g, rows, columns, T::of(step.powf(self.beta2_decay)), T::of(clip));
        let update = Update::<T>::new(&ty, g, (rows, columns), clip, self.eps_moment, scales);
        let update_rms = root_mean_square(elements, partials, |range| update.squares(range));
        let factor = alpha / (update_rms / self.limit).max(1.0);
        update.apply(w, T::of(1.0 - lr * self.weight_decay), T::of(factor), self.zero_gradient);
    }
}

/// One of the packed tensors, with what belongs to it.
struct Part<'a, T> {
    ty: Type,
    w: SharedMut<T>,
    g: SharedMut<T>,
    /// Moments of rows; none for a vector, whose columns are its own second moment.
    rows: &'a mut [T],
    columns: &'a mut [T],
}

impl<'a, T: Float + Element> Part<'a, T> {
    fn new(op: &Adafactor, io: &CpuIo<'a>, part: usize) -> Self {
        let ty = op.part_of(io.input_type(0));
        let (gradient, first) = (Adafactor::gradient(&ty), part * ty.elements());
        let moments = |index: usize| {
            let all = io.output::<T>(index);
            let len = all.len() / op.parts;
            &mut all[part * len..][..len]
        };
        let is_matrix = gradient == 3;
        // SAFETY: parts lie one after the other inside weight and gradient.
        let [w, g] =
            [io.output_ptr(0).cast::<T>(), io.input_ptr(gradient) as *mut T].map(|start| unsafe { start.add(first) });
        Part {
            rows: if is_matrix { moments(1) } else { &mut [] },
            columns: moments(gradient - 1),
            w: SharedMut::new(w),
            g: SharedMut::new(g),
            ty,
        }
    }
}

/// Moves the moments towards the squares of the clipped gradient by `rate`.
fn update_moments<T: Float + Element>(ty: &Type, g: SharedMut<T>, rows: &mut [T], columns: &mut [T], rate: T, clip: T) {
    // SAFETY: nothing writes the gradient here.
    let g = unsafe { &*g.slice(0, ty.elements()) };
    match ty.shape[..] {
        [.., height, width] => {
            row_moments(g, width, rows, rate, clip);
            column_moments(g, height, width, columns, rate, clip);
        }
        _ => elementwise::combine(columns, g, |moment, g| lerp(moment, g * clip * (g * clip), rate)),
    }
}

#[inline(always)]
fn lerp<T: Float>(from: T, to: T, rate: T) -> T {
    rate.mul_add(to - from, from)
}

/// Σ x² of a slice.
fn squares<T: Float>(data: &[T]) -> f64 {
    simd(
        #[inline(always)]
        || {
            let mut total = 0.0;
            for block in data.chunks(1024) {
                total += rows::sum(
                    block,
                    #[inline(always)]
                    |x| x * x,
                )
                .to_f64();
            }
            total
        },
    )
}

fn root_mean_square(len: usize, partials: &mut [f64], squares: impl Fn(Range<usize>) -> f64 + Sync) -> f64 {
    (elementwise::sum(len, partials, squares) / len as f64).sqrt()
}

/// Each row's mean square over its columns.
fn row_moments<T: Float + Element>(g: &[T], columns: usize, moments: &mut [T], rate: T, clip: T) {
    let step = rows::rows_per_task(columns);
    parallel_chunks(moments, step, |task, moments| {
        let g = &g[task * step * columns..][..moments.len() * columns];
        for (moment, row) in moments.iter_mut().zip(g.chunks_exact(columns)) {
            let mean = simd(
                #[inline(always)]
                || {
                    rows::sum(
                        row,
                        #[inline(always)]
                        |x| x * clip * (x * clip),
                    )
                },
            ) / T::of(columns as f64);
            *moment = lerp(*moment, mean, rate);
        }
    });
}

/// Columns that one task sums over all rows, in registers.
const TILE: usize = 64;
/// Rows after which a tile's sums are added to the total: shorter chains of additions round less.
const TILE_ROWS: usize = 128;

/// Each column's mean square over the rows of its matrix.
fn column_moments<T: Float + Element>(g: &[T], rows: usize, columns: usize, moments: &mut [T], rate: T, clip: T) {
    let tiles = columns.div_ceil(TILE);
    let matrices = moments.len() / columns;
    let moments = SharedMut::new(moments.as_mut_ptr());
    parallel(matrices * tiles, |task| {
        let (matrix, first) = (task / tiles, task % tiles * TILE);
        let width = TILE.min(columns - first);
        let g = &g[matrix * rows * columns..][..rows * columns];
        // SAFETY: each task has its own columns.
        let moments = unsafe { moments.slice(matrix * columns + first, width) };
        let sums = simd(
            #[inline(always)]
            || tile_squares(g, columns, first, width, clip),
        );
        for (moment, sum) in moments.iter_mut().zip(sums) {
            *moment = lerp(*moment, sum / T::of(rows as f64), rate);
        }
    });
}

#[inline(always)]
fn tile_squares<T: Float>(g: &[T], columns: usize, first: usize, width: usize, clip: T) -> [T; TILE] {
    let mut totals = [T::ZERO; TILE];
    for block in g.chunks(TILE_ROWS * columns) {
        let mut sums = [T::ZERO; TILE];
        for row in block.chunks_exact(columns) {
            for (sum, x) in sums.iter_mut().zip(&row[first..first + width]) {
                *sum = (*x * clip).mul_add(*x * clip, *sum);
            }
        }
        rows::add(&mut totals, &sums);
    }
    totals
}

/// The update before it is scaled: g / √max(row · column, eps²), where rows are relative to their matrix's mean. A
/// vector is one row whose columns are its own second moment.
struct Update<'a, T> {
    /// The rows' moments, and for each matrix one over the mean of its rows' moments.
    rows: Option<(&'a [T], &'a [f64])>,
    columns: &'a [T],
    g: SharedMut<T>,
    elements: usize,
    rows_per_matrix: usize,
    width: usize,
    clip: T,
    least_moment: T,
}

impl<'a, T: Float + Element> Update<'a, T> {
    /// `scales` is scratch for one number per matrix.
    fn new(
        ty: &Type,
        g: SharedMut<T>,
        (rows, columns): (&'a [T], &'a [T]),
        clip: f64,
        eps: f64,
        scales: &'a mut [f64],
    ) -> Self {
        let matrix = ty.rank() > 1;
        let rows_per_matrix = if matrix { ty.shape[ty.rank() - 2] } else { 1 };
        for (scale, rows) in scales.iter_mut().zip(rows.chunks_exact(rows_per_matrix)) {
            let mean = rows::sum(rows, identity).to_f64() / rows_per_matrix as f64;
            *scale = 1.0 / mean.max(eps);
        }
        Update {
            rows: matrix.then_some((rows, &*scales)),
            columns,
            g,
            elements: ty.elements(),
            rows_per_matrix,
            width: ty.shape.last().copied().unwrap_or(1),
            clip: T::of(clip),
            least_moment: T::of(eps * eps),
        }
    }

    /// The parts of rows that make up a range of elements: where each starts, its row's factor, its columns' moments.
    #[inline(always)]
    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = (usize, T, &'a [T])> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at == range.end {
                return None;
            }
            let (row, column) = (at / self.width, at % self.width);
            let len = (self.width - column).min(range.end - at);
            let matrix = row / self.rows_per_matrix;
            let scale = self.rows.map_or(T::ONE, |(rows, scales)| T::of(rows[row].to_f64() * scales[matrix]));
            let part = (at, scale, &self.columns[matrix * self.width + column..][..len]);
            at += len;
            Some(part)
        })
    }

    #[inline(always)]
    fn value(&self, g: T, scale: T, column: T) -> T {
        g * self.clip / (scale * column).max(self.least_moment).sqrt()
    }

    /// Σ update² over a range of elements.
    fn squares(&self, range: Range<usize>) -> f64 {
        simd(
            #[inline(always)]
            || {
                let mut total = 0.0;
                for (at, scale, columns) in self.parts(range) {
                    total += self.part_squares(at, scale, columns);
                }
                total
            },
        )
    }

    #[inline(always)]
    fn part_squares(&self, at: usize, scale: T, columns: &[T]) -> f64 {
        // SAFETY: the part lies inside g, which nothing writes here.
        let g = unsafe { &*self.g.slice(at, columns.len()) };
        rows::sum2(
            g,
            columns,
            #[inline(always)]
            |g, column| {
                let update = self.value(g, scale, column);
                update * update
            },
        )
        .to_f64()
    }

    /// `w = w · keep − factor · update`.
    fn apply(&self, w: SharedMut<T>, keep: T, factor: T, zero_gradient: bool) {
        ranges(self.elements, |range| {
            simd(
                #[inline(always)]
                || {
                    for (at, scale, columns) in self.parts(range) {
                        // SAFETY: ranges are disjoint and inside w and g.
                        let [w, g] = [w, self.g].map(|p| unsafe { p.slice(at, columns.len()) });
                        for ((w, g), column) in w.iter_mut().zip(&*g).zip(columns) {
                            *w = *w * keep - factor * self.value(*g, scale, *column);
                        }
                        if zero_gradient {
                            g.fill(T::ZERO);
                        }
                    }
                },
            )
        });
    }
}
