//! An optimizer's update of a stretch of a weight, for which only the moments of that stretch have to be there.

use super::*;
use crate::graph::Aliases;
use crate::kernels::cpu::Tensor;
use crate::kernels::cuda::DeviceTensor;
use crate::types::Results;
use smallvec::SmallVec;
use std::sync::Arc;

/// Runs `op`, which treats every element alike, on `first..first + len` of input 0 and of all that has its shape (the
/// gradient). The other inputs are those of the stretch, as they are.
#[derive(Debug, Clone)]
pub struct Window {
    pub op: Arc<dyn Op>,
    pub first: usize,
    pub len: usize,
}

/// As many as AdamW reads where it rounds stochastically: nothing is allocated while an update runs.
type Few<T> = SmallVec<[T; 9]>;

impl Window {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (rows, width) = (rng.size(2, 20), rng.size(2, 20));
        let len = rng.size(1, rows * width - 1);
        let first = rng.size(0, rows * width - len);
        let op = Arc::new(Sgd { momentum: 0.9, weight_decay: 0.1, zero_gradient: true, rounding: None });
        let tensors = [&[rows, width][..], &[len], &[rows, width]].map(|s| SampleInput::constant(s, Fill::Normal));
        let scalars = [0.1, 0.5].map(|x| SampleInput::constant(&[1], Fill::Value(x)));
        vec![Sample::plain(Window { op, first, len }, tensors.into_iter().chain(scalars).collect())]
    }

    fn seen(&self, ty: &Type, whole: &Type) -> Type {
        if ty.shape == whole.shape { ty.with_shape(&[self.len]) } else { ty.clone() }
    }

    /// The types as `op` sees them.
    fn all_seen(&self, types: &[Type], whole: &Type) -> Vec<Type> {
        types.iter().map(|ty| self.seen(ty, whole)).collect()
    }

    /// Bytes in front of the stretch; none in what is as it is.
    fn skipped(&self, ty: &Type, whole: &Type) -> usize {
        if ty.shape == whole.shape { self.first * ty.dtype.bytes() } else { 0 }
    }
}

impl Op for Window {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let Some(whole) = inputs.first() else { return OpError::new("needs a weight") };
        if self.first.checked_add(self.len).is_none_or(|end| end > whole.elements()) {
            return OpError::new(format!("{} elements from {} on are outside {whole}", self.len, self.first));
        }
        let seen = self.all_seen(inputs, whole);
        let mut outputs = self.op.outputs(&seen)?;
        for alias in self.op.aliases(&seen) {
            outputs[alias.output] = inputs[alias.input].clone();
        }
        Ok(outputs)
    }
    fn aliases(&self, inputs: &[Type]) -> Aliases {
        self.op.aliases(&self.all_seen(inputs, &inputs[0]))
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        self.op.workspace(&self.all_seen(inputs, &inputs[0]), target)
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        self.op.cost(&self.all_seen(inputs, &inputs[0]), &self.all_seen(outputs, &inputs[0]))
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let whole = io.input_type(0);
        let cut =
            |t: &Tensor| Tensor { ptr: t.ptr.wrapping_add(self.skipped(&t.ty, whole)), ty: self.seen(&t.ty, whole) };
        let (inputs, outputs): (Few<Tensor>, Few<Tensor>) =
            (io.inputs.iter().map(cut).collect(), io.outputs.iter().map(cut).collect());
        self.op.cpu(&CpuIo { inputs: &inputs, outputs: &outputs, ..*io });
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let whole = &launch.inputs[0].ty;
        let cut = |t: &DeviceTensor| DeviceTensor {
            address: t.address + self.skipped(&t.ty, whole) as u64,
            ty: self.seen(&t.ty, whole),
        };
        let (inputs, outputs): (Few<DeviceTensor>, Few<DeviceTensor>) =
            (launch.inputs.iter().map(cut).collect(), launch.outputs.iter().map(cut).collect());
        self.op.cuda(&mut Launch {
            inputs: &inputs,
            outputs: &outputs,
            workspace: launch.workspace,
            workspace_bytes: launch.workspace_bytes,
            tf32: launch.tf32,
            queue: &mut *launch.queue,
        })
    }
}
