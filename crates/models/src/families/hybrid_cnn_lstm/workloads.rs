//! Windows of a series: what calibration trains.

use crate::families::workloads::{Samples, Workload, Workloads};

pub(super) const WORKLOADS: Workloads = Workloads {
    cpus: &[
        SMALL,
        Workload {
            name: "hybrid, narrow",
            model: "features = 16\nwindow = 60\nchannels = [32, 64]\nhidden = 64\nheads = 4\nclasses = 3\n\
                    dropout = 0.1",
            batch: 64,
            attention: "materialized",
            ..SMALL
        },
    ],
    cards: &[
        Workload {
            model: "features = 64\nwindow = 60\nchannels = [128, 256]\nhidden = 256\nheads = 4\nclasses = 3\n\
                    dropout = 0.1",
            batch: 256,
            precision: "bf16-mixed",
            ..SMALL
        },
        Workload { name: "hybrid, narrow", batch: 64, attention: "materialized", precision: "tf32", ..SMALL },
        Workload { name: "hybrid, few", batch: 32, precision: "bf16-mixed", ..SMALL },
    ],
};

const SMALL: Workload = Workload {
    name: "hybrid",
    model: "features = 32\nwindow = 60\nchannels = [64, 128]\nhidden = 128\nheads = 4\nclasses = 3\ndropout = 0.1",
    samples: Samples::Made("synthetic:regimes"),
    batch: 16,
    ..Workload::USUAL
};
