//! Fused attention: the scores are never stored, in either direction.

mod backward;
mod banded;
mod cuda;
mod form;
mod grad;
mod groups;
mod heads;
mod operands;
mod products;
mod samples;
mod space;
#[cfg(test)]
mod tests;

use super::*;
use crate::kernels::cpu::Element;
pub use crate::kernels::cpu::attention::Bias;
use crate::kernels::cpu::attention::{self as kernel, ViewMut};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::with_float;
use crate::types::{DType, Results};
use operands::Operands;
use smallvec::smallvec;

/// Inputs: qkv (B, T, 3, H, D), or q (B, T, H, D) and kv (B, S, 2, H, D); then the tables of the bias; then a key mask
/// i32 (B, S), 0 for padding, if there is one; then the position i64 (1), if there is an offset; then the random state
/// i64 (3), if weights are dropped. Outputs: (B, T, H, D), and log Σ exp of each row of scores (B, H, T), at least f32.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    pub scale: f64,
    /// A position sees itself and what lies before it; queries are the last ones of the keys' positions.
    pub causal: bool,
    pub key_mask: bool,
    /// Dropout of the attention weights: probability and site.
    pub dropout: Option<(f32, u64)>,
    pub packing: Packing,
    pub bias: Bias,
    /// Decoding: an input says at which position query 0 stands, distances count from there, and a query sees the keys
    /// up to its own position. Has no gradient.
    pub offset: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// One input (B, T, 3, H, D): self-attention.
    Qkv,
    /// Inputs (B, T, H, D) and (B, S, 2, H, D): cross-attention, or keys and values out of a cache.
    QKv,
}

impl Packing {
    /// How many inputs hold queries, keys and values.
    fn inputs(self) -> usize {
        match self {
            Packing::Qkv => 1,
            Packing::QKv => 2,
        }
    }
}

impl Attention {
    /// Self-attention over a packed qkv that sees everything, with nothing added and nothing dropped.
    pub fn plain(scale: f64) -> Attention {
        let (packing, bias) = (Packing::Qkv, Bias::None);
        Attention { scale, causal: false, key_mask: false, dropout: None, packing, bias, offset: false }
    }

    fn check(&self, inputs: &[Type]) -> Result<kernel::AttentionShape, OpError> {
        if inputs.len() != self.inputs() {
            return OpError::new(format!("{} inputs instead of {}", inputs.len(), self.inputs()));
        }
        let shape = self.shape(|i| &inputs[i])?;
        for which in 0..self.bias.tables() {
            self.check_table(which, &inputs[self.packing.inputs() + which], &shape)?;
        }
        if self.key_mask {
            let mask = &inputs[self.mask()];
            if mask.dtype != DType::I32 || mask.shape[..] != [shape.batch, shape.k_len] {
                return OpError::new(format!("{mask} is not a key mask i32[{},{}]", shape.batch, shape.k_len));
            }
        }
        self.check_state(inputs, &shape)?;
        Ok(shape)
    }

    fn check_table(&self, which: usize, table: &Type, shape: &kernel::AttentionShape) -> Result<(), OpError> {
        let own = [shape.bias_rows, shape.heads, shape.head_dim];
        let own = if let Bias::Relative { .. } = self.bias { &own[..2] } else { &own[..] };
        if table.shape[..] != *own {
            return OpError::new(format!("table {which} of the bias is {table} instead of {own:?}"));
        }
        self.bias.refusal(shape.bias_rows).map_or(Ok(()), OpError::new)
    }

    fn check_state(&self, inputs: &[Type], shape: &kernel::AttentionShape) -> Result<(), OpError> {
        if self.offset {
            let position = &inputs[self.position()];
            if position.dtype != DType::I64 || position.shape[..] != [1] {
                return OpError::new(format!("{position} is not a position i64[1]"));
            }
            if self.is_disentangled() {
                return OpError::new("a disentangled bias needs positions that are known beforehand, not an offset");
            }
        }
        let Some((p, _)) = self.dropout else { return Ok(()) };
        let state = &inputs[self.random_state()];
        if state.dtype != DType::I64 || state.shape[..] != [3] {
            return OpError::new(format!("{state} is not (seed, step, first sample) as i64[3]"));
        }
        if !(0.0..1.0).contains(&p) {
            return OpError::new(format!("cannot drop with probability {p}: it must lie in [0, 1)"));
        }
        match shape.q_len.max(shape.heads) > kernel::LIMIT {
            true => OpError::beyond(format!("attention dropout counts up to {} positions and heads", kernel::LIMIT)),
            false => Ok(()),
        }
    }

    fn is_disentangled(&self) -> bool {
        matches!(self.bias, Bias::Disentangled { .. })
    }

    fn scratch_bytes(
        &self,
        inputs: &[Type],
        target: &Target,
        need: fn(kernel::AttentionShape, usize) -> usize,
    ) -> usize {
        let elements = self.shape(|i| &inputs[i]).map_or(0, |shape| need(shape, target.threads));
        elements * compute_type(inputs[0].dtype).bytes()
    }
}

/// What sums and statistics are kept in: half-precision inputs give f32.
fn compute_type(dtype: DType) -> DType {
    if dtype.bytes() < 4 { DType::F32 } else { dtype }
}

impl Op for Attention {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let s = self.check(inputs)?;
        let lse = Type::new(compute_type(inputs[0].dtype), &[s.batch, s.heads, s.q_len]);
        Ok(smallvec![inputs[0].with_shape(&[s.batch, s.q_len, s.heads, s.head_dim]), lse])
    }
    fn class(&self) -> Class {
        if self.is_disentangled() { Class::Disentangled } else { Class::Attention }
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: self.flops(inputs).iter().sum(), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        match target.backend {
            Backend::Cpu => self.scratch_bytes(inputs, target, kernel::forward_scratch),
            Backend::Cuda => self.cuda_workspace(inputs, false),
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.forward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        self.cuda_forward(launch)
    }
}

/// Operations besides the products, as measured: the exponential of a score, a random number where weights are dropped,
/// the statistics of a row, and each element of queries and keys that is packed.
const SCORE_FLOPS: f64 = 16.0;
const DRAW_FLOPS: f64 = 17.0;
const ROW_FLOPS: f64 = 1000.0;
const PACK_FLOPS: f64 = 34.0;

impl Attention {
    fn forward<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let Operands { shape, q, k, v, options } = self.operands::<T>(io);
        let out = ViewMut { ptr: io.output_ptr(0).cast(), strides: operands::rows(io.output_type(0)) };
        let lse = io.output::<T>(1).as_mut_ptr();
        // SAFETY: the views cover the tensors, whose slots are apart.
        unsafe { kernel::forward(shape, q, k, v, options, out, lse, io.workspace()) }
    }

    /// Operations of the forward pass: those of its products, and all others. A disentangled bias multiplies queries and
    /// keys with its tables too.
    fn flops(&self, inputs: &[Type]) -> [f64; 2] {
        let Ok(s) = self.shape(|i| &inputs[i]) else { return [0.0; 2] };
        let pairs = (s.batch * s.heads) as f64;
        let seen = if self.causal { 0.5 } else { 1.0 } * pairs * s.q_len as f64 * s.k_len as f64;
        let (width, rows) = (s.head_dim as f64, s.bias_rows.min(s.q_len + s.k_len) as f64);
        let elements = pairs * (s.q_len + s.k_len) as f64 * width;
        let (extra, tables) = match self.bias {
            Bias::None => (0.0, 0.0),
            Bias::Relative { .. } => (1.0, 0.0),
            Bias::Disentangled { .. } => (8.0, 2.0 * elements * rows),
        };
        let drawn = if self.dropout.is_some() { DRAW_FLOPS } else { 0.0 };
        let others = seen * (SCORE_FLOPS + extra + drawn) + pairs * s.q_len as f64 * ROW_FLOPS + elements * PACK_FLOPS;
        [4.0 * seen * width + tables, others]
    }
}
