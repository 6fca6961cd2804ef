//! Copies between strided layouts, by runs of contiguous elements, in parallel over the leading dimension.

use super::parallel::{SharedMut, parallel};
use crate::types::Type;

/// Bytes a task should move for the fork to pay.
const TASK_BYTES: usize = 64 << 10;

/// # Safety
/// Both pointers are valid for their types' spans, the shapes are equal and the memories disjoint.
pub unsafe fn copy(from: &Type, source: *const u8, to: &Type, target: *mut u8) {
    let (source, target) = (SharedMut::new(source as *mut u8), SharedMut::new(target));
    // SAFETY: as promised by the caller; pieces are disjoint.
    each_piece(to, |outer| unsafe { copy_piece(from, source.ptr(), to, target.ptr(), outer) });
}

/// # Safety
/// The pointer is valid for the type's span.
pub(crate) unsafe fn zero(to: &Type, target: *mut u8) {
    let target = SharedMut::new(target);
    // SAFETY: as promised by the caller; pieces are disjoint.
    each_piece(to, |outer| unsafe {
        let size = to.dtype.bytes();
        runs(to, to, outer, |_, at, len, step| {
            for i in 0..len {
                std::ptr::write_bytes(target.ptr().add((at + i * step.1) * size), 0, size);
            }
        });
    });
}

/// Calls `piece` with ranges of the first dimension.
fn each_piece(ty: &Type, piece: impl Fn(std::ops::Range<usize>) + Sync) {
    if ty.elements() == 0 {
        return;
    }
    let outer = ty.shape.first().copied().unwrap_or(1);
    let bytes_per_row = ty.elements() * ty.dtype.bytes() / outer;
    let rows = (TASK_BYTES / bytes_per_row.max(1)).max(1);
    parallel(outer.div_ceil(rows), |i| piece(i * rows..((i + 1) * rows).min(outer)));
}

/// # Safety
/// Both types cover memory of their own, and nobody else writes this piece.
unsafe fn copy_piece(from: &Type, source: *const u8, to: &Type, target: *mut u8, outer: std::ops::Range<usize>) {
    let size = to.dtype.bytes();
    // SAFETY: runs lie inside both tensors, and pieces write disjoint elements.
    runs(from, to, outer, |a, b, len, step| unsafe {
        let (a, b) = (source.add(a * size), target.add(b * size));
        match (step, size) {
            ((1, 1), _) => std::ptr::copy_nonoverlapping(a, b, len * size),
            (_, 4) => copy_elements::<u32>(a.cast(), b.cast(), len, step),
            (_, 8) => copy_elements::<u64>(a.cast(), b.cast(), len, step),
            (_, 2) => copy_elements::<u16>(a.cast(), b.cast(), len, step),
            _ => copy_elements::<u8>(a, b, len, step),
        }
    });
}

/// # Safety
/// Source and target have `len` elements at these steps, apart from each other.
unsafe fn copy_elements<T: Copy>(source: *const T, target: *mut T, len: usize, step: (usize, usize)) {
    for i in 0..len {
        // SAFETY: `len` elements of both, at their steps.
        unsafe { *target.add(i * step.1) = *source.add(i * step.0) };
    }
}

/// Walks two equal shapes in order and calls `run(offset a, offset b, length, (step a, step b))` for stretches along
/// the innermost dimensions, which are merged as long as both sides step evenly through them.
fn runs(a: &Type, b: &Type, outer: std::ops::Range<usize>, mut run: impl FnMut(usize, usize, usize, (usize, usize))) {
    let rank = a.rank();
    if rank == 0 {
        return run(0, 0, 1, (1, 1));
    }
    let dim = |i: usize| if i == 0 { outer.len() } else { a.shape[i] };
    let (mut inner, mut len) = (rank - 1, dim(rank - 1));
    let step = (a.strides[rank - 1], b.strides[rank - 1]);
    while inner > 0 && a.strides[inner - 1] == step.0 * len && b.strides[inner - 1] == step.1 * len {
        inner -= 1;
        len *= dim(inner);
    }
    let start = (outer.start * a.strides[0], outer.start * b.strides[0]);
    let count: usize = (0..inner).map(dim).product();
    for index in 0..count {
        let (mut rest, mut at) = (index, start);
        for i in (0..inner).rev() {
            let here = rest % dim(i);
            rest /= dim(i);
            at = (at.0 + here * a.strides[i], at.1 + here * b.strides[i]);
        }
        run(at.0, at.1, len, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;

    #[test]
    fn transposes_and_windows_land_where_they_should() {
        let mut view = Type::new(DType::F32, &[3, 4]);
        view.shape.swap(0, 1);
        view.strides.swap(0, 1);
        let source: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut target = vec![0f32; 12];
        // SAFETY: both vectors are as long as their types' spans.
        unsafe { copy(&view, source.as_ptr().cast(), &view.contiguous(), target.as_mut_ptr().cast()) };
        assert_eq!(target, [0., 4., 8., 1., 5., 9., 2., 6., 10., 3., 7., 11.]);
    }

    #[test]
    fn zeroing_a_window_leaves_the_rest() {
        let mut window = Type::new(DType::F32, &[2, 4]);
        window.shape[1] = 2;
        let mut target = vec![1f32; 8];
        // SAFETY: the vector is as long as the window's span.
        unsafe { zero(&window, target.as_mut_ptr().cast()) };
        assert_eq!(target, [0., 0., 1., 1., 0., 0., 1., 1.]);
    }
}
