//! The models that are run: every family, narrow and wide, so that each class of work is seen at several sizes.

pub(super) struct Workload {
    pub name: &'static str,
    model: &'static str,
    data: &'static str,
    batch: usize,
    /// Micro-steps of a step.
    accumulation: usize,
    optimizer: &'static str,
    attention: &'static str,
    precision: &'static str,
}

const TEXTS: &str = "train = \"none.jsonl\"\ntokenizer = \"none.json\"";

const HYBRID: Workload = Workload {
    name: "hybrid",
    model: "family = \"hybrid-cnn-lstm\"\nfeatures = 32\nwindow = 60\nchannels = [64, 128]\nhidden = 128\nheads = 4\n\
            classes = 3\ndropout = 0.1",
    data: "source = \"synthetic:regimes\"",
    batch: 16,
    accumulation: 1,
    optimizer: "adamw",
    attention: "fused",
    precision: "f32",
};

const BLOCKS: Workload = Workload {
    name: "mu-sota",
    model: "family = \"mu-sota\"\nvocab = 1000\nlayers = 2\nblocks = 16\nblock_width = 4\nblock_heads = 2\n\
            cross_heads = 8\nffn = 640\nmax_length = 128",
    data: "source = \"synthetic:grammar\"\nmax_length = 128",
    batch: 4,
    accumulation: 1,
    optimizer: "adamw",
    attention: "fused",
    precision: "f32",
};

const ENCODER: Workload = Workload {
    name: "bert",
    model: "family = \"bert\"\nvocab_size = 2000\nhidden_size = 256\nnum_hidden_layers = 2\nnum_attention_heads = 4\n\
            intermediate_size = 1024\nnum_labels = 2",
    data: "max_length = 64",
    batch: 8,
    accumulation: 1,
    optimizer: "adamw",
    attention: "fused",
    precision: "f32",
};

/// In the order of their turns.
pub(super) fn for_cpus() -> Vec<Workload> {
    vec![
        HYBRID,
        Workload {
            name: "hybrid, narrow",
            model: "family = \"hybrid-cnn-lstm\"\nfeatures = 16\nwindow = 60\nchannels = [32, 64]\nhidden = 64\n\
                    heads = 4\nclasses = 3\ndropout = 0.1",
            batch: 64,
            attention: "materialized",
            ..HYBRID
        },
        BLOCKS,
        Workload {
            name: "mu-sota, wide",
            model: "family = \"mu-sota\"\nvocab = 4000\nlayers = 1\nblocks = 8\nblock_width = 16\nblock_heads = 2\n\
                    cross_heads = 4\nffn = 512\nmax_length = 256",
            data: "source = \"synthetic:grammar\"\nmax_length = 256",
            batch: 2,
            ..BLOCKS
        },
        ENCODER,
        Workload {
            name: "bert, wide",
            model: "family = \"bert\"\nvocab_size = 4000\nhidden_size = 384\nnum_hidden_layers = 1\n\
                    num_attention_heads = 12\nintermediate_size = 1536\nnum_labels = 2",
            data: "max_length = 128",
            batch: 8,
            ..ENCODER
        },
        Workload {
            name: "bert, narrow",
            model: "family = \"bert\"\nvocab_size = 2000\nhidden_size = 128\nnum_hidden_layers = 2\n\
                    num_attention_heads = 4\nintermediate_size = 512\nnum_labels = 2",
            data: "max_length = 32",
            accumulation: 4,
            attention: "materialized",
            optimizer: "sgd",
            ..ENCODER
        },
        Workload {
            name: "deberta-v3",
            model: "family = \"deberta-v3\"\nvocab_size = 2000\nhidden_size = 256\nnum_hidden_layers = 2\n\
                    num_attention_heads = 4\nintermediate_size = 1024\nnum_labels = 2",
            ..ENCODER
        },
        Workload {
            name: "t5",
            model: "family = \"t5\"\nvocab_size = 2000\nd_model = 256\nd_kv = 64\nd_ff = 512\nnum_layers = 2\n\
                    num_heads = 4\nfeed_forward_proj = \"gated-gelu\"\ntie_word_embeddings = true\n\
                    scale_decoder_outputs = true",
            data: "max_length = 64\nmax_target_length = 64",
            batch: 4,
            optimizer: "adafactor",
            ..ENCODER
        },
        Workload {
            name: "clip",
            model: "family = \"clip\"\nprojection_dim = 128\n\
                    text_config = { hidden_size = 128, intermediate_size = 512, num_hidden_layers = 2, \
                    num_attention_heads = 4, vocab_size = 2000, max_position_embeddings = 32, eos_token_id = 1 }\n\
                    vision_config = { hidden_size = 128, intermediate_size = 512, num_hidden_layers = 2, \
                    num_attention_heads = 4, image_size = 64, patch_size = 8 }",
            data: "max_length = 32",
            batch: 8,
            ..ENCODER
        },
    ]
}

const CARD_BLOCKS: Workload = Workload {
    model: "family = \"mu-sota\"\nvocab = 20000\nlayers = 3\nblocks = 16\nblock_width = 4\nblock_heads = 2\n\
            cross_heads = 8\nffn = 6400\nmax_length = 256",
    data: "source = \"synthetic:grammar\"\nmax_length = 256",
    batch: 16,
    precision: "tf32",
    ..BLOCKS
};

/// Large enough to fill a card, and some that are not, in the precisions that cards are used with.
pub(super) fn for_cards() -> Vec<Workload> {
    vec![
        Workload {
            name: "hybrid",
            model: "family = \"hybrid-cnn-lstm\"\nfeatures = 64\nwindow = 60\nchannels = [128, 256]\nhidden = 256\n\
                    heads = 4\nclasses = 3\ndropout = 0.1",
            batch: 256,
            precision: "bf16-mixed",
            ..HYBRID
        },
        Workload { name: "hybrid, narrow", batch: 64, attention: "materialized", precision: "tf32", ..HYBRID },
        Workload { name: "hybrid, few", batch: 32, precision: "bf16-mixed", ..HYBRID },
        Workload {
            name: "mu-sota, few",
            model: "family = \"mu-sota\"\nvocab = 8000\nlayers = 2\nblocks = 16\nblock_width = 4\nblock_heads = 2\n\
                    cross_heads = 8\nffn = 6400\nmax_length = 256",
            batch: 2,
            ..CARD_BLOCKS
        },
        CARD_BLOCKS,
        Workload { name: "mu-sota, half", precision: "bf16-mixed", ..CARD_BLOCKS },
        Workload { name: "mu-sota, half, few", batch: 4, precision: "bf16-mixed", ..CARD_BLOCKS },
        Workload { name: "mu-sota, small", ..BLOCKS },
        Workload {
            name: "bert",
            model: "family = \"bert\"\nhidden_size = 768\nnum_hidden_layers = 3\nnum_attention_heads = 12\n\
                    intermediate_size = 3072\nnum_labels = 2",
            data: "max_length = 128",
            batch: 32,
            precision: "bf16-mixed",
            ..ENCODER
        },
        Workload {
            name: "bert, wide",
            model: "family = \"bert\"\nhidden_size = 1024\nnum_hidden_layers = 2\nnum_attention_heads = 16\n\
                    intermediate_size = 4096\nnum_labels = 2",
            data: "max_length = 384",
            batch: 16,
            accumulation: 2,
            precision: "bf16-mixed",
            ..ENCODER
        },
        Workload {
            name: "bert, narrow",
            batch: 32,
            accumulation: 4,
            attention: "materialized",
            optimizer: "sgd",
            precision: "tf32",
            ..ENCODER
        },
        Workload {
            name: "deberta-v3",
            model: "family = \"deberta-v3\"\nvocab_size = 30000\nhidden_size = 768\nnum_hidden_layers = 2\n\
                    num_attention_heads = 12\nintermediate_size = 3072\nnum_labels = 2",
            data: "max_length = 256",
            batch: 16,
            precision: "bf16-mixed",
            ..ENCODER
        },
        Workload {
            name: "t5",
            model: "family = \"t5\"\nd_model = 1024\nd_kv = 64\nd_ff = 2816\nnum_layers = 2\nnum_heads = 16\n\
                    feed_forward_proj = \"gated-gelu\"\ntie_word_embeddings = true\nscale_decoder_outputs = true",
            data: "max_length = 256\nmax_target_length = 128",
            batch: 8,
            precision: "bf16-mixed",
            ..ENCODER
        },
        Workload {
            name: "t5, small",
            model: "family = \"t5\"\nvocab_size = 8000\nd_model = 512\nd_kv = 64\nd_ff = 1024\nnum_layers = 2\n\
                    num_heads = 6\nfeed_forward_proj = \"gated-gelu\"\ntie_word_embeddings = true\n\
                    scale_decoder_outputs = true",
            data: "max_length = 64\nmax_target_length = 64",
            batch: 16,
            optimizer: "adafactor",
            precision: "tf32",
            ..ENCODER
        },
        Workload {
            name: "clip",
            model: "family = \"clip\"\nprojection_dim = 512\n\
                    text_config = { hidden_size = 512, intermediate_size = 2048, num_hidden_layers = 2, \
                    num_attention_heads = 8, vocab_size = 20000, max_position_embeddings = 77, eos_token_id = 1 }\n\
                    vision_config = { hidden_size = 768, intermediate_size = 3072, num_hidden_layers = 2, \
                    num_attention_heads = 12, image_size = 224, patch_size = 32 }",
            data: "max_length = 77",
            batch: 64,
            precision: "bf16-mixed",
            ..ENCODER
        },
    ]
}

impl Workload {
    /// A recipe with nothing left to choose.
    pub(super) fn recipe(&self) -> String {
        let Workload { model, data, batch, accumulation, optimizer, attention, precision, .. } = self;
        let micro_batch = batch / accumulation;
        let files = if data.starts_with("source") { "" } else { TEXTS };
        let sample = if model.contains("mu-sota") { "sample = { length = 0 }" } else { "" };
        // Only lengths matter: no file is opened.
        format!(
            "[model]\n{model}\n[data]\n{data}\n{files}\n[train]\neffective_batch = {batch}\nclip_norm = 1.0\n\
             optimizer = {{ name = \"{optimizer}\", lr = 1e-5 }}\nschedule = {{ name = \"constant\" }}\n\
             evaluate = {{ every = \"never\" }}\n{sample}\n\
             [memory]\nprecision = \"{precision}\"\nmicro_batch = {micro_batch}\nrecompute = \"none\"\nattention = \"{attention}\"\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::graph::{Class, Target};
    use plimsoll_models::recipe::Recipe;
    use plimsoll_planner::Device;
    use plimsoll_planner::cards::card;
    use plimsoll_planner::choose::plan;
    use std::collections::BTreeSet;

    fn classes(workloads: &[Workload], device: &Device, most_bytes: usize) -> BTreeSet<Class> {
        let mut seen = BTreeSet::from([Class::View]);
        for workload in workloads {
            let recipe = Recipe::parse(&workload.recipe(), workload.name, &[]).unwrap_or_else(|e| panic!("{e}"));
            let planned = plan(&recipe, device).unwrap_or_else(|e| panic!("{}: {e}", workload.name));
            assert!(planned.choice.layout.arena_bytes < most_bytes, "{}: {planned:?}", workload.name);
            let phases = planned.choice.program.phases.iter().filter(|phase| phase.repeat > 0);
            seen.extend(phases.flat_map(|phase| phase.graph.nodes().iter().map(|node| node.op.op().class())));
        }
        seen
    }

    #[test]
    fn every_class_of_work_is_in_them() {
        let profile = card("h200").unwrap().profile();
        let card = Device { target: Target::CUDA, profile, ..Device::cpu(1, 8 << 30) };
        // Processors have no use for fused feed-forwards.
        let for_cards_only = vec![Class::FeedForward, Class::FeedForwardGrad];
        for (workloads, device, most_bytes, not_there) in
            [(for_cpus(), Device::cpu(2, 8 << 30), 512 << 20, for_cards_only), (for_cards(), card, 3 << 30, vec![])]
        {
            let seen = classes(&workloads, &device, most_bytes);
            let missing: Vec<Class> = Class::ALL.into_iter().filter(|class| !seen.contains(class)).collect();
            assert_eq!(missing, not_there, "{:?}", device.target);
        }
    }
}
