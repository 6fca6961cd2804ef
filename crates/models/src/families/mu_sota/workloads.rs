//! Windows of a text: what calibration trains.

use crate::families::workloads::{Samples, Workload, Workloads};

pub(super) const WORKLOADS: Workloads = Workloads {
    cpus: &[
        SMALL,
        Workload {
            name: "mu-sota, wide",
            model: "vocab = 4000\nlayers = 1\nblocks = 8\nblock_width = 16\nblock_heads = 2\ncross_heads = 4\n\
                    ffn = 512\nmax_length = 256",
            lengths: "max_length = 256",
            batch: 2,
            ..SMALL
        },
    ],
    cards: &[
        Workload {
            name: "mu-sota, few",
            model: "vocab = 8000\nlayers = 2\nblocks = 16\nblock_width = 4\nblock_heads = 2\ncross_heads = 8\n\
                    ffn = 6400\nmax_length = 256",
            batch: 2,
            ..LARGE
        },
        LARGE,
        Workload { name: "mu-sota, half", precision: "bf16-mixed", ..LARGE },
        Workload { name: "mu-sota, half, few", batch: 4, precision: "bf16-mixed", ..LARGE },
        Workload { name: "mu-sota, small", ..SMALL },
    ],
};

const SMALL: Workload = Workload {
    name: "mu-sota",
    model: "vocab = 1000\nlayers = 2\nblocks = 16\nblock_width = 4\nblock_heads = 2\ncross_heads = 8\nffn = 640\n\
            max_length = 128",
    samples: Samples::Made("synthetic:grammar"),
    lengths: "max_length = 128",
    batch: 4,
    // No text is written: only steps are timed.
    train: "sample = { length = 0 }",
    ..Workload::USUAL
};

const LARGE: Workload = Workload {
    model: "vocab = 20000\nlayers = 3\nblocks = 16\nblock_width = 4\nblock_heads = 2\ncross_heads = 8\nffn = 6400\n\
            max_length = 256",
    lengths: "max_length = 256",
    batch: 16,
    precision: "tf32",
    ..SMALL
};
