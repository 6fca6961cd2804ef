//! What calibration trains of a family: small models in training, narrow and wide, so that each class of work is seen at
//! several sizes.

use super::FamilyName;
use plimsoll_base::names::Named;
use plimsoll_core::graph::Backend;

/// A small model in training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Of all families' its own.
    pub name: &'static str,
    /// Keys of `[model]`, beside the family.
    pub(super) model: &'static str,
    pub(super) samples: Samples,
    /// Keys of `[data]` that say how long a sample is, where the model does not.
    pub(super) lengths: &'static str,
    pub(super) batch: usize,
    /// Micro-steps of a step.
    pub(super) accumulation: usize,
    pub(super) optimizer: &'static str,
    /// More keys of `[train]`.
    pub(super) train: &'static str,
    pub(super) attention: &'static str,
    pub(super) precision: &'static str,
}

/// Where samples would come from. Only lengths matter: no file is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Samples {
    Files,
    Made(&'static str),
}

/// Those of a family, in the order of their turns.
#[derive(Clone, Copy)]
pub(crate) struct Workloads {
    pub cpus: &'static [Workload],
    /// Large enough to fill a card, and some that are not, in the precisions that cards are used with.
    pub cards: &'static [Workload],
}

impl FamilyName {
    /// What calibration trains of the family on such a device.
    pub fn workloads(self, backend: Backend) -> &'static [Workload] {
        let Workloads { cpus, cards } = self.all_workloads();
        match backend {
            Backend::Cpu => cpus,
            Backend::Cuda => cards,
        }
    }
}

impl Workload {
    /// What most have in common.
    pub(super) const USUAL: Workload = Workload {
        name: "",
        model: "",
        samples: Samples::Files,
        lengths: "",
        batch: 8,
        accumulation: 1,
        optimizer: "adamw",
        train: "",
        attention: "fused",
        precision: "f32",
    };

    /// A recipe with nothing left to choose.
    pub fn recipe(&self, family: FamilyName) -> String {
        let Workload { model, lengths, batch, accumulation, optimizer, train, attention, precision, .. } = self;
        let (family, samples, micro_batch) = (family.name(), self.samples.keys(), batch / accumulation);
        format!(
            "[model]\nfamily = \"{family}\"\n{model}\n[data]\n{samples}\n{lengths}\n\
             [train]\neffective_batch = {batch}\nclip_norm = 1.0\noptimizer = {{ name = \"{optimizer}\", lr = 1e-5 }}\n\
             schedule = {{ name = \"constant\" }}\nevaluate = {{ every = \"never\" }}\n{train}\n\
             [memory]\nprecision = \"{precision}\"\nmicro_batch = {micro_batch}\nrecompute = \"none\"\n\
             attention = \"{attention}\"\n"
        )
    }
}

impl Samples {
    fn keys(self) -> String {
        match self {
            Samples::Files => "train = \"none.jsonl\"\ntokenizer = \"none.json\"".into(),
            Samples::Made(source) => format!("source = \"{source}\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_family_has_some_for_every_device_under_names_of_their_own() {
        for backend in [Backend::Cpu, Backend::Cuda] {
            let mut names = BTreeSet::new();
            for &family in FamilyName::ALL {
                let own = family.workloads(backend);
                assert!(!own.is_empty(), "nothing is known of what {} takes on {backend:?}", family.name());
                own.iter()
                    .for_each(|workload| assert!(names.insert(workload.name), "two are called {}", workload.name));
            }
        }
    }

    #[test]
    fn batches_are_made_of_whole_micro_batches() {
        let all = FamilyName::ALL.iter().map(|family| family.all_workloads());
        for workload in all.flat_map(|Workloads { cpus, cards }| cpus.iter().chain(cards)) {
            assert_eq!(workload.batch % workload.accumulation, 0, "{}", workload.name);
        }
    }
}
