//! Where an attention op's inputs stand, and what the kernel sees of them.

use super::*;
use crate::kernels::cpu::attention::{AttentionShape, Dropout, Options, View};
use plimsoll_base::random::Stream;
use std::ptr;

/// What both directions read.
pub(super) struct Operands<T> {
    pub shape: AttentionShape,
    pub q: View<T>,
    pub k: View<T>,
    pub v: View<T>,
    pub options: Options<T>,
}

impl Attention {
    /// How many inputs there are.
    pub(super) fn inputs(&self) -> usize {
        self.random_state() + self.dropout.is_some() as usize
    }

    pub(super) fn mask(&self) -> usize {
        self.packing.inputs() + self.bias.tables()
    }

    pub(super) fn position(&self) -> usize {
        self.mask() + self.key_mask as usize
    }

    pub(super) fn random_state(&self) -> usize {
        self.position() + self.offset as usize
    }

    /// The sizes, given the type of each input.
    pub(super) fn shape<'a>(&self, ty: impl Fn(usize) -> &'a Type) -> Result<AttentionShape, OpError> {
        let [batch, q_len, k_len, heads, head_dim] = match self.packing {
            Packing::Qkv => qkv_sizes(ty(0))?,
            Packing::QKv => q_kv_sizes(ty(0), ty(1))?,
        };
        let bias_rows = match self.bias {
            Bias::None => 0,
            _ => ty(self.packing.inputs()).shape.first().copied().unwrap_or(0),
        };
        Ok(AttentionShape { batch, q_len, k_len, heads, head_dim, causal: self.causal, bias: self.bias, bias_rows })
    }

    pub(super) fn operands<T: Float + Element>(&self, io: &CpuIo<'_>) -> Operands<T> {
        let shape = self.shape(|i| io.input_type(i)).expect("checked when the graph was built");
        let input = |i: usize| (io.input_type(i), io.input_ptr(i).cast::<T>());
        let [q, k, v] = self.packing.views([input(0), input(self.packing.inputs() - 1)]);
        let table = |n: usize| match n < self.bias.tables() {
            true => io.input::<T>(self.packing.inputs() + n).as_ptr(),
            false => ptr::null(),
        };
        let dropout = self.dropout.map(|(p, site)| {
            let state = io.input::<i64>(self.random_state());
            let stream = Stream::new(state[0] as u64, site, state[1] as u64);
            Dropout { stream, p, first_sample: state[2] as u32 }
        });
        let options = Options {
            scale: T::of(self.scale),
            tables: [table(0), table(1)],
            position: self.offset.then(|| io.input::<i64>(self.position())[0]),
            key_mask: self.key_mask.then(|| io.input::<i32>(self.mask()).as_ptr()),
            dropout,
        };
        Operands { shape, q, k, v, options }
    }
}

fn qkv_sizes(qkv: &Type) -> Result<[usize; 5], OpError> {
    match qkv.shape[..] {
        [batch, time, 3, heads, width] => Ok([batch, time, time, heads, width]),
        _ => OpError::new(format!("{qkv} is not a packed qkv (batch, time, 3, heads, width)")),
    }
}

fn q_kv_sizes(q: &Type, kv: &Type) -> Result<[usize; 5], OpError> {
    match (&q.shape[..], &kv.shape[..]) {
        (&[batch, time, heads, width], &[b, keys, 2, h, w]) if [b, h, w] == [batch, heads, width] => {
            Ok([batch, time, keys, heads, width])
        }
        _ => OpError::new(format!("{q} and {kv} are not q (batch, time, heads, width) and kv (batch, keys, 2, …)")),
    }
}

impl Packing {
    /// q, k and v, indexed (batch, time, head, dim), inside the first and the last of the packed tensors.
    pub(super) fn views<T>(self, [first, last]: [(&Type, *const T); 2]) -> [View<T>; 3] {
        match self {
            Packing::Qkv => [part(first, 0), part(first, 1), part(first, 2)],
            Packing::QKv => [View { ptr: first.1, strides: rows(first.0) }, part(last, 0), part(last, 1)],
        }
    }
}

/// Part `n` of a packed tensor (batch, time, parts, heads, width).
fn part<T>((ty, ptr): (&Type, *const T), n: usize) -> View<T> {
    let s = &ty.strides;
    View { ptr: ptr.wrapping_add(n * s[2]), strides: [s[0], s[1], s[3], s[4]] }
}

pub(super) fn rows(ty: &Type) -> [usize; 4] {
    [ty.strides[0], ty.strides[1], ty.strides[2], ty.strides[3]]
}
