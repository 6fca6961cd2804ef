//! Tasks: which heads a slot of scratch computes, and by which path.

use std::ops::Range;

use super::head::{Head, HeadGradients};
use super::{Gradients, Job, lanes, wide};
use crate::kernels::cpu::float::Float;
use plimsoll_base::simd::simd;

/// The forward tasks of one slot: each is one of the `cuts` of a head's queries.
pub(super) struct Forward<'a, T> {
    pub job: &'a Job<T>,
    pub tasks: Range<usize>,
    pub cuts: usize,
    pub cut_len: usize,
    pub scratch: &'a mut [T],
}

impl<T: Float> Forward<'_, T> {
    pub(super) fn run(self) {
        match lanes::fits(self.job.shape).then_some(self.job.shape.head_dim) {
            Some(0..=2) => self.narrow::<2>(),
            Some(3..=4) => self.narrow::<4>(),
            Some(5..=8) => self.narrow::<8>(),
            Some(_) => self.narrow::<16>(),
            // SAFETY: the caller of `forward` promises valid operands; tasks lie inside the shape.
            None => self.each(|head, queries, scratch| unsafe { wide::forward(head, queries, scratch) }),
        }
    }

    /// Narrow heads are compiled for each size and instruction set on their own: in one function with the others the
    /// compiler loses sight of the registers.
    fn narrow<const D: usize>(self) {
        simd(
            #[inline(always)]
            || {
                self.each(
                    #[inline(always)]
                    // SAFETY: as above.
                    |head, queries, scratch| unsafe { lanes::forward::<T, D>(head, queries, scratch) },
                )
            },
        );
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

/// The backward tasks of one slot: pairs of batch and head, or all pairs of a head in order.
pub(super) struct Backward<'a, T> {
    pub job: &'a Job<T>,
    pub gradients: &'a Gradients<T>,
    pub tasks: Range<usize>,
    pub by_head: bool,
    pub scratch: &'a mut [T],
}

impl<T: Float> Backward<'_, T> {
    pub(super) fn run(self) {
        match lanes::fits(self.job.shape).then_some(self.job.shape.head_dim) {
            Some(0..=2) => self.narrow::<2>(),
            Some(3..=4) => self.narrow::<4>(),
            Some(5..=8) => self.narrow::<8>(),
            Some(_) => self.narrow::<16>(),
            // SAFETY: as in the forward pass.
            None => self.each(|head, gradients, scratch| unsafe { wide::backward(head, gradients, scratch) }),
        }
    }

    /// As in the forward pass.
    fn narrow<const D: usize>(self) {
        simd(
            #[inline(always)]
            || {
                self.each(
                    #[inline(always)]
                    // SAFETY: as above.
                    |head, gradients, scratch| unsafe { lanes::backward::<T, D>(head, gradients, scratch) },
                )
            },
        );
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
