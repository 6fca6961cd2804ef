//! Every op with its samples: what the conformance tests iterate.

use super::*;

pub type Samples = fn(&mut SampleRng) -> Vec<Sample>;

/// Name and samples of each op.
pub fn registry() -> Vec<(&'static str, Samples)> {
    vec![
        ("accumulate_by_chance", AccumulateByChance::samples),
        ("activation", Activate::samples),
        ("adafactor", Adafactor::samples),
        ("attention", Attention::samples),
        ("attention_dropout", AttentionDropout::samples),
        ("batch_norm", BatchNorm::samples),
        ("batch_norm_fixed", BatchNormFixed::samples),
        ("binary", Binary::samples),
        ("cache_reorder", CacheReorder::samples),
        ("cache_write", CacheWrite::samples),
        ("concat", Concat::samples),
        ("contrastive", Contrastive::samples),
        ("conv1d", Conv1d::samples),
        ("copy", Copy::samples),
        ("correct", Correct::samples),
        ("cross_entropy", CrossEntropy::samples),
        ("dropout", Dropout::samples),
        ("embedding", Embedding::samples),
        ("exp", Exp::samples),
        ("feed_forward", FeedForward::samples),
        ("from_host", FromHost::samples),
        ("gated", Gated::samples),
        ("grouped_linear", GroupedLinear::samples),
        ("label_loss", LabelLoss::samples),
        ("layer_norm", LayerNorm::samples),
        ("loss_scale", LossScale::samples),
        ("lstm", Lstm::samples),
        ("masked_mean", MaskedMean::samples),
        ("matmul", MatMul::samples),
        ("normalize_rows", NormalizeRows::samples),
        ("permute", Permute::samples),
        ("read_rows", ReadRows::samples),
        ("reduce", Sum::samples),
        ("reshape", Reshape::samples),
        ("rms_norm", RmsNorm::samples),
        ("scale", Scale::samples),
        ("select_row", SelectRow::samples),
        ("sgd", Sgd::samples),
        ("slice", Slice::samples),
        ("softmax", Softmax::samples),
        ("split", Split::samples),
        ("store_to_host", StoreToHost::samples),
        ("to_host", ToHost::samples),
        ("window", Window::samples),
        ("write_rows", WriteRows::samples),
    ]
}
