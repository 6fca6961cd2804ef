//! Tasks: which heads a slot of scratch computes, and by which path.

use std::ops::Range;

use super::head::{Head, HeadGradients};
use super::{Gradients, Job, lanes, wide};
use crate::kernels::cpu::float::Float;

/// The forward tasks of one slot: each is one of the `cuts` of a head's queries.
pub(super) struct Forward<'a, T> {
    pub job: &'a Job<T>,
    pub tasks: Range<usize>,
    pub cuts: usize,
    pub cut_len: usize,
    pub scratch: &'a mut [T],
}

impl<T: Float> Forward<'_, T> {
    pub fn run(self) {
        let arch = pulp::Arch::new();
        match lanes::fits(self.job.shape).then_some(self.job.shape.head_dim) {
            Some(0..=2) => arch.dispatch(NarrowForward::<T, 2>(self)),
            Some(3..=4) => arch.dispatch(NarrowForward::<T, 4>(self)),
            Some(5..=8) => arch.dispatch(NarrowForward::<T, 8>(self)),
            Some(_) => arch.dispatch(NarrowForward::<T, 16>(self)),
            // SAFETY: the caller of `forward` promises valid operands; tasks lie inside the shape.
            None => self.each(|head, queries, scratch| unsafe { wide::forward(head, queries, scratch) }),
        }
    }

    #[inline(always)]
    fn each(self, task: impl Fn(&Head<T>, Range<usize>, &mut [T])) {
        for index in self.tasks {
            let first = (index % self.cuts * self.cut_len).min(self.job.shape.q_len);
            let queries = first..(first + self.cut_len).min(self.job.shape.q_len);
            // SAFETY: the task lies inside the shape.
            let head = unsafe { Head::new(self.job, index / self.cuts) };
            task(&head, queries, self.scratch);
        }
    }
}

/// Narrow heads are compiled for each size and instruction set on their own: in one function with the others the
/// compiler loses sight of the registers.
struct NarrowForward<'a, T, const D: usize>(Forward<'a, T>);

impl<T: Float, const D: usize> pulp::WithSimd for NarrowForward<'_, T, D> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        self.0.each(
            #[inline(always)]
            // SAFETY: as above.
            |head, queries, scratch| unsafe { lanes::forward::<T, D>(head, queries, scratch) },
        );
    }
}

/// The backward tasks of one slot: pairs of batch and head, or all pairs of a head in order.
pub(super) struct Backward<'a, T> {
    pub job: &'a Job<T>,
    pub gradients: &'a Gradients<T>,
    pub tasks: Range<usize>,
    pub by_head: bool,
    pub scratch: &'a mut [T],
}

impl<T: Float> Backward<'_, T> {
    pub fn run(self) {
        let arch = pulp::Arch::new();
        match lanes::fits(self.job.shape).then_some(self.job.shape.head_dim) {
            Some(0..=2) => arch.dispatch(NarrowBackward::<T, 2>(self)),
            Some(3..=4) => arch.dispatch(NarrowBackward::<T, 4>(self)),
            Some(5..=8) => arch.dispatch(NarrowBackward::<T, 8>(self)),
            Some(_) => arch.dispatch(NarrowBackward::<T, 16>(self)),
            // SAFETY: as in the forward pass.
            None => self.each(|head, gradients, scratch| unsafe { wide::backward(head, gradients, scratch) }),
        }
    }

    #[inline(always)]
    fn each(self, run: impl Fn(&Head<T>, &HeadGradients<T>, &mut [T])) {
        let shape = self.job.shape;
        for task in self.tasks {
            let pairs = match self.by_head {
                true => (task..shape.batch * shape.heads).step_by(shape.heads),
                false => (task..task + 1).step_by(shape.heads),
            };
            for pair in pairs {
                // SAFETY: the pair lies inside the shape.
                let (head, gradients) = unsafe {
                    let head = Head::new(self.job, pair);
                    let gradients = head.gradients(self.gradients, self.job, pair);
                    (head, gradients)
                };
                run(&head, &gradients, self.scratch);
            }
        }
    }
}

struct NarrowBackward<'a, T, const D: usize>(Backward<'a, T>);

impl<T: Float, const D: usize> pulp::WithSimd for NarrowBackward<'_, T, D> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        self.0.each(
            #[inline(always)]
            // SAFETY: as above.
            |head, gradients, scratch| unsafe { lanes::backward::<T, D>(head, gradients, scratch) },
        );
    }
}
