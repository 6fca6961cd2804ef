//! Images with captions: what calibration trains.

use crate::families::workloads::{Workload, Workloads};

pub(super) const WORKLOADS: Workloads = Workloads {
    cpus: &[Workload {
        model: "projection_dim = 128\n\
                text_config = { hidden_size = 128, intermediate_size = 512, num_hidden_layers = 2, \
                num_attention_heads = 4, vocab_size = 2000, max_position_embeddings = 32, eos_token_id = 1 }\n\
                vision_config = { hidden_size = 128, intermediate_size = 512, num_hidden_layers = 2, \
                num_attention_heads = 4, image_size = 64, patch_size = 8 }",
        lengths: "max_length = 32",
        ..CAPTIONS
    }],
    cards: &[Workload {
        model: "projection_dim = 512\n\
                text_config = { hidden_size = 512, intermediate_size = 2048, num_hidden_layers = 2, \
                num_attention_heads = 8, vocab_size = 20000, max_position_embeddings = 77, eos_token_id = 1 }\n\
                vision_config = { hidden_size = 768, intermediate_size = 3072, num_hidden_layers = 2, \
                num_attention_heads = 12, image_size = 224, patch_size = 32 }",
        lengths: "max_length = 77",
        batch: 64,
        precision: "bf16-mixed",
        ..CAPTIONS
    }],
};

const CAPTIONS: Workload = Workload { name: "clip", ..Workload::USUAL };
