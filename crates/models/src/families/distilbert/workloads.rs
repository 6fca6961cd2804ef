//! Texts with a label: what calibration trains.

use crate::families::workloads::{Workload, Workloads};

pub(super) const WORKLOADS: Workloads = Workloads {
    cpus: &[Workload {
        model: "vocab_size = 2000\ndim = 192\nn_layers = 2\nn_heads = 3\nhidden_dim = 768\nnum_labels = 2",
        ..TEXTS
    }],
    cards: &[Workload {
        model: "dim = 768\nn_layers = 2\nn_heads = 12\nhidden_dim = 3072\nnum_labels = 2",
        lengths: "max_length = 192",
        batch: 24,
        precision: "tf32",
        ..TEXTS
    }],
};

const TEXTS: Workload = Workload { name: "distilbert", lengths: "max_length = 96", batch: 8, ..Workload::USUAL };
