//! Every op with its samples: what the conformance tests iterate.

use super::*;

pub type Samples = fn(&mut SampleRng) -> Vec<Sample>;

/// Name and samples of each op.
pub fn registry() -> Vec<(&'static str, Samples)> {
    vec![
        ("activation", Activate::samples),
        ("binary", Binary::samples),
        ("cross_entropy", CrossEntropy::samples),
        ("dropout", Dropout::samples),
        ("embedding", Embedding::samples),
        ("layer_norm", LayerNorm::samples),
        ("matmul", MatMul::samples),
        ("reduce", Sum::samples),
        ("rms_norm", RmsNorm::samples),
        ("scale", Scale::samples),
        ("softmax", Softmax::samples),
    ]
}
