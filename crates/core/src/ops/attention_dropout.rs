//! Dropout of attention weights that exist as a value: the same weights fall as in the fused op.

use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::attention::{LIMIT, drop_weights};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::parallel;
use crate::kernels::cpu::rows::{InPlace, rows_per_task};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Kernel, Source};
use crate::types::{DType, Results};
use device::{int, refuse_f64, run_over};
use plimsoll_base::random::{Dropping, Stream};
use smallvec::smallvec;

const SOURCE: Source = Source { name: "attention_dropout", text: include_str!("attention_dropout.cu") };

/// Inputs: weights (B, H, Tq, Tk), and `rng` i64[3] = (seed, step, index of the first sample). The gradient is the same
/// op applied to dy.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionDropout {
    pub p: f32,
    /// The hash of the layer path.
    pub site: u64,
}

impl AttentionDropout {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = [rng.size(1, 3), rng.size(1, 3), rng.size(1, 9), rng.size(1, 150)];
        let inputs = vec![
            SampleInput::float(&shape, Fill::Normal),
            SampleInput::new(Type::new(DType::I64, &[3]), Fill::Ids(1000)),
        ];
        vec![Sample::new(AttentionDropout { p: 0.3, site: 7 }, inputs)]
    }
}

impl Op for AttentionDropout {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [weights, rng] = inputs else { return OpError::new("needs weights and rng") };
        let [_, heads, queries, _] = weights.shape[..] else {
            return OpError::new(format!("{weights} is not (batch, heads, queries, keys)"));
        };
        if heads.max(queries) > LIMIT {
            return OpError::beyond(format!("attention dropout counts up to {LIMIT} positions and heads"));
        }
        if !(0.0..1.0).contains(&self.p) {
            return OpError::new(format!("cannot drop with probability {}: it must lie in [0, 1)", self.p));
        }
        match rng.dtype == DType::I64 && rng.shape[..] == [3] {
            true => Ok(smallvec![weights.contiguous()]),
            false => OpError::new(format!("{rng} is not (seed, step, first sample) as i64[3]")),
        }
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Random
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 25.0)
    }
    fn component(&self, _: usize) -> Option<Component> {
        Some(Component::AttentionScores)
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.run::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (x, state) = (&launch.inputs[0], &launch.inputs[1]);
        refuse_f64(self, &x.ty)?;
        let [batch, heads, queries, keys] = [0, 1, 2, 3].map(|n| x.ty.shape[n]);
        let (rows, dropping) = (batch * heads * queries, Dropping::new(self.p.into()));
        let args = [
            Arg::from(x),
            Arg::from(&launch.outputs[0]),
            rows.into(),
            int(queries),
            int(heads),
            int(keys),
            Arg::from(state),
            Arg::U64(self.site),
            Arg::U32(dropping.threshold),
            Arg::F32(dropping.keep as f32),
        ];
        let kernel = Kernel::new(SOURCE, "attention_dropout").dtype("T", x.ty.dtype);
        run_over(launch, &kernel, rows * keys.div_ceil(4), &args)
    }
}

impl Differentiable for AttentionDropout {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (rng, dy) = (cx.input(1), cx.grad0());
        Ok(smallvec![Some(cx.add1(self.clone(), &[dy, rng])?), None])
    }
}

impl AttentionDropout {
    fn run<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let &[batch, heads, queries, keys] = &io.output_type(0).shape[..] else { return };
        let &[seed, step, first] = io.input::<i64>(1) else { return };
        let stream = Stream::new(seed as u64, self.site, step as u64);
        let (data, count, step) = (InPlace::<T>::new(io, 0, 0), batch * heads * queries, rows_per_task(keys));
        parallel(count.div_ceil(step), |task| {
            for row in task * step..((task + 1) * step).min(count) {
                let sample = (first as u32).wrapping_add((row / queries / heads) as u32);
                let (head, query) = (row / queries % heads, row % queries);
                // SAFETY: a row belongs to one task.
                drop_weights(stream, self.p, sample, head, query, unsafe { data.load(row * keys, keys) });
            }
        });
    }
}
