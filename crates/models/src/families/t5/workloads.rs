//! Pairs of texts: what calibration trains.

use crate::families::workloads::{Workload, Workloads};

pub(super) const WORKLOADS: Workloads = Workloads {
    cpus: &[Workload {
        model: "vocab_size = 2000\nd_model = 256\nd_kv = 64\nd_ff = 512\nnum_layers = 2\nnum_heads = 4\n\
                feed_forward_proj = \"gated-gelu\"\ntie_word_embeddings = true\nscale_decoder_outputs = true",
        batch: 4,
        optimizer: "adafactor",
        ..PAIRS
    }],
    cards: &[
        Workload {
            model: "d_model = 1024\nd_kv = 64\nd_ff = 2816\nnum_layers = 2\nnum_heads = 16\n\
                    feed_forward_proj = \"gated-gelu\"\ntie_word_embeddings = true\nscale_decoder_outputs = true",
            lengths: "max_length = 256\nmax_target_length = 128",
            precision: "bf16-mixed",
            ..PAIRS
        },
        Workload {
            name: "t5, small",
            model: "vocab_size = 8000\nd_model = 512\nd_kv = 64\nd_ff = 1024\nnum_layers = 2\nnum_heads = 6\n\
                    feed_forward_proj = \"gated-gelu\"\ntie_word_embeddings = true\nscale_decoder_outputs = true",
            batch: 16,
            optimizer: "adafactor",
            precision: "tf32",
            ..PAIRS
        },
    ],
};

const PAIRS: Workload =
    Workload { name: "t5", lengths: "max_length = 64\nmax_target_length = 64", batch: 8, ..Workload::USUAL };
