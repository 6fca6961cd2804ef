//! The profile of a card that is not here, from what is published about it and the share of that which kernels reach.

use super::Card;
use plimsoll_core::graph::Class;
use plimsoll_core::plan::{Amount, Amounts, Grain, Profile, Speedups};
use std::collections::BTreeMap;

/// Shares of the published rates that were reached on an H200: products 680–790 of 989 TFLOP/s in bf16 and 324–350 of
/// 495 in tf32, copies 4.26 of 4.8 TB/s.
const REACHED_TENSOR: f64 = 0.72;
const REACHED_VECTOR: f64 = 0.8;
const REACHED_BANDWIDTH: f64 = 0.88;
const REACHED_PCIE: f64 = 0.85;
/// What is still in the card's cache comes this much faster.
const CACHE_SPEEDUP: f64 = 1.5;
/// From one kernel of a captured graph to the next, the ends of its blocks included: empty ones replay in 1 µs each.
const SECONDS_PER_KERNEL: f64 = 2e-6;
/// One step through time of a recurrence in one direction: a product and the gates. A guess.
const SECONDS_PER_TIME_STEP: f64 = 4e-6;
/// The same where a whole recurrence is one launch. The hybrid's LSTMs take 1.1 µs forward and 1.4 µs backward on an H200.
const SECONDS_PER_HOPPER_TIME_STEP: f64 = 1.2e-6;
const SECONDS_PER_PHASE: f64 = 20e-6;

impl Card {
    /// What its rates say about times, where nobody measured it.
    pub fn profile(&self) -> Profile {
        let vector = self.f32_tflops * 1e12 * REACHED_VECTOR;
        let speedup = |tflops: f64| match tflops > self.f32_tflops {
            true => tflops * REACHED_TENSOR / (self.f32_tflops * REACHED_VECTOR),
            false => 1.0,
        };
        Profile {
            grain: Grain {
                tile: [64, 64],
                depth: usize::MAX,
                near_bytes: (self.cache_mib * (1 << 20) as f64) as usize,
                units: self.multiprocessors,
            },
            seconds: Class::ALL.into_iter().map(|class| (class, self.seconds(class, vector))).collect(),
            half_seconds: BTreeMap::new(),
            overlaps: true,
            hides_inputs: true,
            speedups: Speedups {
                tf32: speedup(self.tf32_tflops).max(1.0),
                f16: speedup(self.f16_tflops).max(1.0),
                bf16: speedup(self.bf16_tflops).max(1.0),
            },
            tf32: false,
            phase_s: SECONDS_PER_PHASE,
        }
    }

    fn seconds(&self, class: Class, flops_per_s: f64) -> Amounts {
        let bytes_per_s = self.bandwidth_gb_per_s * 1e9 * REACHED_BANDWIDTH * share_of_copies(class);
        let per_product = match class {
            Class::Recurrent | Class::RecurrentGrad if self.compute_capability == HOPPER => {
                SECONDS_PER_HOPPER_TIME_STEP
            }
            Class::Recurrent | Class::RecurrentGrad => SECONDS_PER_TIME_STEP,
            _ => 0.0,
        };
        Amounts::default()
            .with(Amount::Node, SECONDS_PER_KERNEL)
            .with(Amount::Flops, 1.0 / (flops_per_s * share(class, self.compute_capability)))
            .with(Amount::NearBytes, 1.0 / (bytes_per_s * CACHE_SPEEDUP))
            .with(Amount::FarBytes, 1.0 / bytes_per_s)
            .with(Amount::Products, per_product)
            .with(Amount::HostBytes, 1.0 / (self.pcie_gb_per_s * 1e9 * REACHED_PCIE))
    }
}

/// Where attention and LSTMs have kernels of their own, for groups of warps and for clusters of blocks.
const HOPPER: (u32, u32) = (9, 0);

/// Of the speed of a large product. Attention's are those of bert-large, CLIP and FLAN-T5-XL on an H200, with the kernels
/// that Hopper alone has and with those of all cards, DeBERTa's those of its own layers there. Those of fused feed-forwards
/// lie between what a small and a large step of mu-sota would want; the others are guesses.
fn share(class: Class, capability: (u32, u32)) -> f64 {
    match class {
        Class::Product => 1.0,
        // The softmax between its products, and the random words of dropout, keep the tensor cores waiting.
        Class::Attention if capability == HOPPER => 0.33,
        Class::AttentionGrad if capability == HOPPER => 0.47,
        Class::Attention => 0.15,
        Class::AttentionGrad => 0.19,
        Class::FeedForward => 0.17,
        Class::FeedForwardGrad => 0.21,
        Class::Disentangled => 0.17,
        Class::DisentangledGrad => 0.17,
        Class::Convolution | Class::ConvolutionGrad => 0.6,
        Class::Recurrent | Class::RecurrentGrad => 0.3,
        _ => 0.5,
    }
}

/// Of the speed of a large copy, measured alike.
fn share_of_copies(class: Class) -> f64 {
    match class {
        Class::Reduction | Class::Scatter => 0.4,
        Class::Random | Class::Norm | Class::NormGrad | Class::Loss => 0.5,
        Class::Function | Class::Softmax => 0.7,
        Class::Elementwise => 0.75,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::card;
    use super::*;
    use crate::Device;
    use crate::choose::plan;
    use plimsoll_core::graph::Graph;
    use plimsoll_core::ops::MatMul;
    use plimsoll_core::types::{DType, Type};
    use plimsoll_models::recipe::Recipe;
    use std::path::Path;

    /// TFLOP/s that a product of this type is predicted to reach.
    fn reached(profile: &Profile, dtype: DType, [m, n, k]: [usize; 3]) -> f64 {
        let mut graph = Graph::new("product", dtype);
        let a = graph.data("a", Type::new(dtype, &[m, k])).unwrap();
        let b = graph.data("b", Type::new(dtype, &[k, n])).unwrap();
        graph.apply("c", MatMul::PLAIN, &[a, b]).unwrap();
        let seconds: f64 = graph.node_ids().map(|id| profile.node_seconds(&graph, id)).sum();
        2e-12 * (m * n * k) as f64 / seconds
    }

    #[test]
    fn products_on_an_h200_run_as_measured() {
        let h200 = card("h200").unwrap().profile();
        let measured = [
            ([6144, 4096, 1024], 714.0, 334.0),
            ([6144, 1024, 4096], 739.0, 346.0),
            ([6144, 3072, 1024], 683.0, 324.0),
            ([2048, 5120, 2048], 736.0, 339.0),
            ([8192, 8192, 8192], 792.0, 350.0),
        ];
        for (sizes, bf16, tf32) in measured {
            let found = reached(&h200, DType::Bf16, sizes);
            assert!((found / bf16 - 1.0).abs() < 0.15, "{sizes:?} in bf16: {found} instead of {bf16}");
            let found = reached(&h200.clone().with_tf32(true), DType::F32, sizes);
            assert!((found / tf32 - 1.0).abs() < 0.15, "{sizes:?} in tf32: {found} instead of {tf32}");
        }
    }

    /// Recipe, batch, other settings, and the milliseconds of a step there (`benches/runs`).
    const STEPS: [(&str, usize, &str, f64); 12] = [
        ("encoder", 16, "preset=bert-large-uncased max_length=384", 26.8),
        ("encoder", 192, "preset=bert-large-uncased max_length=480 budget=24GiB", 375.2),
        ("encoder", 64, "preset=bert-large-uncased max_length=128 budget=24GiB", 31.9),
        ("encoder", 64, "preset=bert-base-uncased max_length=128 budget=24GiB", 10.4),
        ("encoder", 64, "preset=bert-base-uncased max_length=512 budget=24GiB", 40.5),
        ("encoder", 64, "preset=roberta-large max_length=256 budget=12GiB", 66.9),
        ("encoder", 64, "preset=deberta-v3-base max_length=512 budget=24GiB", 71.9),
        ("hybrid", 256, "budget=auto", 2.73),
        ("mu-sota", 4, "max_length=256 precision=tf32", 7.12),
        ("mu-sota", 32, "max_length=512 precision=tf32 budget=6GiB", 53.9),
        ("clip", 128, "budget=auto", 15.5),
        ("flan-t5-xl", 8, "max_length=256 precision=bf16 optimizer_state=f32", 80.6),
    ];

    fn setting(word: &str) -> String {
        match word.split('=').next() {
            Some("preset") => format!("model.{word}"),
            Some("max_length") => format!("data.{word}"),
            _ => format!("memory.{word}"),
        }
    }

    /// A card is chosen by these times: what is a quarter off still tells it from the next one in the catalog.
    #[test]
    fn steps_on_an_h200_take_about_as_long_as_measured() {
        let device = Device::from_name("h200").unwrap();
        for (name, batch, words, measured) in STEPS {
            let usual = [format!("train.effective_batch={batch}"), setting("precision=bf16-mixed")];
            let settings = usual.into_iter().chain(words.split(' ').map(setting)).collect::<Vec<_>>();
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../recipes/{name}.toml"));
            let recipe = Recipe::load(&path, &settings).unwrap();
            let predicted = plan(&recipe, &device).unwrap().choice.predicted_step_ms;
            let is_near = (0.8..=1.25).contains(&(predicted / measured));
            assert!(is_near, "{name}, {settings:?}: {predicted} ms instead of {measured}");
        }
    }

    #[test]
    fn a_type_without_tensor_cores_is_as_fast_as_f32() {
        let turing = card("t4").unwrap().profile();
        let sizes = [2048, 2048, 2048];
        let [f32, f16, bf16] = [DType::F32, DType::F16, DType::Bf16].map(|dtype| reached(&turing, dtype, sizes));
        assert!(f16 > 4.0 * f32 && bf16 < 1.2 * f32, "{f32} {f16} {bf16}");
    }

    #[test]
    fn small_products_are_slower_per_operation() {
        let h200 = card("h200").unwrap().profile();
        let [small, large] = [64, 4096].map(|m| reached(&h200, DType::Bf16, [m, 1024, 1024]));
        assert!(small < 0.2 * large, "{small} against {large}");
    }
}
