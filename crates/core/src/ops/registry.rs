//! Every op with its samples: what the conformance tests iterate.

use super::*;

pub(super) type Samples = fn(&mut SampleRng) -> Vec<Sample>;

/// Name and samples of each op.
pub fn registry() -> Vec<(&'static str, Samples)> {
    vec![
        ("accumulate", Accumulate::samples),
        ("accumulate_stochastic", AccumulateStochastic::samples),
        ("activation", Activate::samples),
        ("adafactor", Adafactor::samples),
        ("adamw", AdamW::samples),
        ("attention", Attention::samples),
        ("attention_dropout", AttentionDropout::samples),
        ("batch_norm", BatchNorm::samples),
        ("batch_norm_fixed", BatchNormFixed::samples),
        ("batch_norm_running", BatchNormRunning::samples),
        ("binary", Binary::samples),
        ("cache_reorder", CacheReorder::samples),
        ("cache_write", CacheWrite::samples),
        ("cast", Cast::samples),
        ("clip_norm", ClipNorm::samples),
        ("concat", Concat::samples),
        ("contrastive", Contrastive::samples),
        ("conv1d", Conv1d::samples),
        ("copy", Copy::samples),
        ("count_correct", CountCorrect::samples),
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
        ("norm_grad", NormGrad::samples),
        ("normalize_rows", NormalizeRows::samples),
        ("permute", Permute::samples),
        ("read_rows", ReadRows::samples),
        ("reduce", Sum::samples),
        ("reshape", Reshape::samples),
        ("residual_norm", ResidualNorm::samples),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    /// The Rust files of a folder and of the folders in it.
    fn sources(dir: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let (dirs, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
        let rust = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
        rust.chain(dirs.iter().flat_map(|dir| sources(dir))).collect()
    }

    /// The types that the sources of this crate implement `Op` for.
    fn implemented() -> BTreeSet<String> {
        let marker = ["impl Op", " for "].concat();
        let texts = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let texts = texts.into_iter().map(|path| std::fs::read_to_string(path).unwrap());
        let name = |line: &str| line.strip_prefix(&marker).map(|rest| rest.trim_end_matches(" {").to_string());
        texts.flat_map(|text| text.lines().filter_map(name).collect::<Vec<_>>()).collect()
    }

    fn last(path: &'static str) -> &'static str {
        path.rsplit("::").next().unwrap_or(path)
    }

    #[test]
    fn every_op_and_every_gradient_is_reached_by_a_sample() {
        let mut rng = SampleRng::new(1);
        let samples: Vec<Sample> = registry().into_iter().flat_map(|(_, of)| of(&mut rng)).collect();
        let graphs = samples.iter().map(|sample| dry_run::graph_of(sample, DType::F32, DType::F32).unwrap());
        let ops =
            |graph: crate::graph::Graph| graph.nodes().iter().map(|n| last(n.op.op().type_name())).collect::<Vec<_>>();
        let reached: BTreeSet<String> = graphs.flat_map(ops).map(String::from).collect();
        let implemented = implemented();
        assert!(implemented.len() > 60, "{implemented:?}");
        assert_eq!(implemented.difference(&reached).collect::<Vec<_>>(), Vec::<&String>::new(), "without a sample");
    }

    #[test]
    fn an_entry_has_samples_of_one_op_and_an_op_has_one_entry() {
        let (mut rng, mut seen) = (SampleRng::new(1), BTreeSet::new());
        for (name, of) in registry() {
            let types: BTreeSet<&str> = of(&mut rng).iter().map(|sample| sample.op.op().type_name()).collect();
            assert_eq!(types.len(), 1, "{name}: {types:?}");
            assert!(seen.insert(types), "{name}: an op has two entries");
        }
    }
}
