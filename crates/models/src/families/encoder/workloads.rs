//! Texts with a label: what calibration trains of each kind. RoBERTa's are short, XLM-R's model is mostly its
//! vocabulary, DeBERTa's has relative positions.

use super::EncoderKind;
use crate::families::workloads::{Workload, Workloads};

pub(super) fn of(kind: EncoderKind) -> Workloads {
    match kind {
        EncoderKind::Bert => BERT,
        EncoderKind::Roberta => ROBERTA,
        EncoderKind::XlmRoberta => XLM_ROBERTA,
        EncoderKind::DebertaV3 => DEBERTA_V3,
    }
}

const SMALL: Workload = Workload {
    name: "bert",
    model: "vocab_size = 2000\nhidden_size = 256\nnum_hidden_layers = 2\nnum_attention_heads = 4\n\
            intermediate_size = 1024\nnum_labels = 2",
    lengths: "max_length = 64",
    ..Workload::USUAL
};

const BERT: Workloads = Workloads {
    cpus: &[
        SMALL,
        Workload {
            name: "bert, wide",
            model: "vocab_size = 4000\nhidden_size = 384\nnum_hidden_layers = 1\nnum_attention_heads = 12\n\
                    intermediate_size = 1536\nnum_labels = 2",
            lengths: "max_length = 128",
            ..SMALL
        },
        Workload {
            name: "bert, narrow",
            model: "vocab_size = 2000\nhidden_size = 128\nnum_hidden_layers = 2\nnum_attention_heads = 4\n\
                    intermediate_size = 512\nnum_labels = 2",
            lengths: "max_length = 32",
            accumulation: 4,
            attention: "materialized",
            optimizer: "sgd",
            ..SMALL
        },
    ],
    cards: &[
        Workload {
            model: "hidden_size = 768\nnum_hidden_layers = 3\nnum_attention_heads = 12\nintermediate_size = 3072\n\
                    num_labels = 2",
            lengths: "max_length = 128",
            batch: 32,
            precision: "bf16-mixed",
            ..SMALL
        },
        Workload {
            name: "bert, wide",
            model: "hidden_size = 1024\nnum_hidden_layers = 2\nnum_attention_heads = 16\nintermediate_size = 4096\n\
                    num_labels = 2",
            lengths: "max_length = 384",
            batch: 16,
            accumulation: 2,
            precision: "bf16-mixed",
            ..SMALL
        },
        Workload {
            name: "bert, narrow",
            batch: 32,
            accumulation: 4,
            attention: "materialized",
            optimizer: "sgd",
            precision: "tf32",
            ..SMALL
        },
    ],
};

const ROBERTA: Workloads = Workloads {
    cpus: &[Workload {
        name: "roberta",
        model: "vocab_size = 8000\nhidden_size = 192\nnum_hidden_layers = 2\nnum_attention_heads = 6\n\
                intermediate_size = 768\nnum_labels = 3",
        lengths: "max_length = 24",
        batch: 16,
        ..SMALL
    }],
    cards: &[Workload {
        name: "roberta",
        model: "hidden_size = 768\nnum_hidden_layers = 2\nnum_attention_heads = 12\nintermediate_size = 3072\n\
                num_labels = 3",
        lengths: "max_length = 64",
        batch: 64,
        precision: "bf16-mixed",
        ..SMALL
    }],
};

const XLM_ROBERTA: Workloads = Workloads {
    cpus: &[Workload {
        name: "xlm-roberta",
        model: "vocab_size = 40000\nhidden_size = 96\nnum_hidden_layers = 1\nnum_attention_heads = 4\n\
                intermediate_size = 384\nnum_labels = 2",
        batch: 4,
        ..SMALL
    }],
    cards: &[Workload {
        name: "xlm-roberta",
        model: "vocab_size = 100000\nhidden_size = 384\nnum_hidden_layers = 2\nnum_attention_heads = 12\n\
                intermediate_size = 1536\nnum_labels = 2",
        lengths: "max_length = 128",
        batch: 16,
        precision: "bf16-mixed",
        ..SMALL
    }],
};

const DEBERTA_V3: Workloads = Workloads {
    cpus: &[Workload { name: "deberta-v3", ..SMALL }],
    cards: &[Workload {
        name: "deberta-v3",
        model: "vocab_size = 30000\nhidden_size = 768\nnum_hidden_layers = 2\nnum_attention_heads = 12\n\
                intermediate_size = 3072\nnum_labels = 2",
        lengths: "max_length = 256",
        batch: 16,
        precision: "bf16-mixed",
        ..SMALL
    }],
};
