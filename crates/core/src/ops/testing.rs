//! Runs one op on values given in a test, without a graph or a plan.

use super::*;
use crate::graph::AliasKind;
use crate::kernels::cpu::Tensor;
use crate::types::DType;

/// An input of a test: its type, and its bytes aligned for any element.
pub(super) struct Given {
    ty: Type,
    words: Vec<u64>,
}

macro_rules! given {
    ($name:ident, $t:ty, $dtype:expr) => {
        pub(super) fn $name(shape: &[usize], values: &[$t]) -> Given {
            let ty = Type::new($dtype, shape);
            assert_eq!(values.len(), ty.elements());
            let mut words = vec![0u64; values.len() * size_of::<$t>() / 8 + 1];
            // SAFETY: the words have room for the values.
            unsafe { words.as_mut_ptr().cast::<$t>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
            Given { ty, words }
        }
    };
}
given!(f32s, f32, DType::F32);
given!(i32s, i32, DType::I32);
given!(i64s, i64, DType::I64);

/// Output 0, in f32. Where it may overwrite an input, it is computed there too and must come out the same; where it
/// has to, it is computed there only.
pub(super) fn run(op: &dyn Op, inputs: &[Given]) -> Vec<f32> {
    let types: Vec<Type> = inputs.iter().map(|i| i.ty.clone()).collect();
    let aliases = op.aliases(&types);
    if let Some(alias) = aliases.iter().find(|a| a.output == 0 && a.kind == AliasKind::Must) {
        return run_at(op, &types, inputs, Some(alias.input), 0);
    }
    let apart = run_at(op, &types, inputs, None, 0);
    for alias in aliases.iter().filter(|a| a.output == 0) {
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let over = run_at(op, &types, inputs, Some(alias.input), 0);
        assert_eq!(bits(&apart), bits(&over), "in place over {}", alias.input);
    }
    apart
}

/// Output `index`, in f32. No output lies over an input.
pub(super) fn output_of(op: &dyn Op, inputs: &[Given], index: usize) -> Vec<f32> {
    let types: Vec<Type> = inputs.iter().map(|i| i.ty.clone()).collect();
    run_at(op, &types, inputs, None, index)
}

/// Output `index`; output 0 lies over input `over`, if any.
fn run_at(op: &dyn Op, types: &[Type], inputs: &[Given], over: Option<usize>, index: usize) -> Vec<f32> {
    let outputs = op.outputs(types).unwrap();
    let mut sources: Vec<Vec<u64>> = inputs.iter().map(|i| i.words.clone()).collect();
    let mut results: Vec<Vec<u64>> = outputs.iter().map(|ty| vec![u64::MAX; ty.span_bytes() / 8 + 1]).collect();
    let bytes = op.workspace(types, &Target::cpu(2));
    let mut workspace = vec![u64::MAX; bytes / 8 + 1];
    let tensor = |(words, ty): (&mut Vec<u64>, &Type)| Tensor { ptr: words.as_mut_ptr().cast(), ty: ty.clone() };
    let inputs: Vec<Tensor> = sources.iter_mut().zip(types).map(tensor).collect();
    let mut outputs: Vec<Tensor> = results.iter_mut().zip(&outputs).map(tensor).collect();
    if let Some(input) = over {
        outputs[0].ptr = inputs[input].ptr;
    }
    let workspace = workspace.as_mut_ptr().cast();
    op.cpu(&CpuIo { inputs: &inputs, outputs: &outputs, workspace, workspace_bytes: bytes });
    let (ptr, len) = (outputs[index].ptr.cast::<f32>(), outputs[index].ty.elements());
    // SAFETY: the output holds this many elements and its memory is still there.
    unsafe { std::slice::from_raw_parts(ptr, len).to_vec() }
}
