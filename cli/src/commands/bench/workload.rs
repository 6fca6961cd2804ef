//! The reference workloads as recipes, and a batch of random samples for them.

use crate::failure::Failure;
use plimsoll::data::{Batch, DataError, Dataset, Element, FieldSpec, RowMut, Sequences, Windows};
use plimsoll::exec::cpu::random::{Stream, site};
use plimsoll::recipe::{Input, Recipe};
use plimsoll::train::length;

pub struct Workload {
    pub name: &'static str,
    kind: Kind,
}

enum Kind {
    Series { attention: &'static str },
    Text { vocab: usize, layers: usize, ffn: usize },
}

const FULL: Kind = Kind::Text { vocab: 50257, layers: 24, ffn: 6400 };
const SMALL: Kind = Kind::Text { vocab: 1000, layers: 4, ffn: 640 };

/// The `-batched` names are how PyTorch writes the same model differently; here that is a decision of the plan.
pub const WORKLOADS: [Workload; 6] = [
    Workload { name: "hybrid", kind: Kind::Series { attention: "auto" } },
    Workload { name: "hybrid-materialized", kind: Kind::Series { attention: "materialized" } },
    Workload { name: "mu-sota", kind: FULL },
    Workload { name: "mu-sota-small", kind: SMALL },
    Workload { name: "mu-sota-batched", kind: FULL },
    Workload { name: "mu-sota-small-batched", kind: SMALL },
];

/// Rows of a window of the series workloads.
const WINDOW: usize = 60;
/// Tokens of a text unless the command says.
const TOKENS: usize = 128;
/// Positions that the language models know.
const MAX_LENGTH: usize = 512;
/// Ids that random texts are drawn from.
const IDS: usize = 1000;

impl Workload {
    pub fn find(name: &str) -> Result<&'static Workload, Failure> {
        let names = WORKLOADS.map(|w| w.name).join(", ");
        let unknown = || Failure::bad_input(format!("no workload is called `{name}`"), format!("one of {names}"));
        WORKLOADS.iter().find(|w| w.name == name).ok_or_else(unknown)
    }

    /// The length asked for, if the workload has it.
    pub fn length(&self, asked: Option<usize>) -> Result<usize, Failure> {
        match (&self.kind, asked) {
            (Kind::Series { .. }, None | Some(WINDOW)) => Ok(WINDOW),
            (Kind::Series { .. }, Some(_)) => {
                Err(Failure::bad_input(format!("{} has windows of {WINDOW} rows", self.name), "leave --seq out"))
            }
            (Kind::Text { .. }, None) => Ok(TOKENS),
            (Kind::Text { .. }, Some(tokens @ 2..=MAX_LENGTH)) => Ok(tokens),
            (Kind::Text { .. }, Some(_)) => {
                Err(Failure::bad_input(format!("{} has texts of 2 to {MAX_LENGTH} tokens", self.name), "change --seq"))
            }
        }
    }

    pub fn recipe(&self, batch: usize, seq: usize) -> String {
        let (model, source, attention) = match self.kind {
            Kind::Series { attention } => (
                format!(
                    "family = \"hybrid-cnn-lstm\"\nfeatures = 64\nwindow = {seq}\nchannels = [128, 256]\nhidden = 256\n\
                     heads = 4\nclasses = 3\ndropout = 0.1"
                ),
                "source = \"synthetic:regimes\"".to_string(),
                attention,
            ),
            Kind::Text { vocab, layers, ffn } => (
                format!(
                    "family = \"mu-sota\"\nvocab = {vocab}\nlayers = {layers}\nblocks = 16\nblock_width = 4\n\
                     block_heads = 2\ncross_heads = 8\nffn = {ffn}\nmax_length = {MAX_LENGTH}"
                ),
                format!("source = \"synthetic:grammar\"\nmax_length = {seq}"),
                "auto",
            ),
        };
        // Text is not sampled: only steps are measured.
        let sample = if let Kind::Text { .. } = self.kind { "sample = { length = 0 }" } else { "" };
        format!(
            "[model]\n{model}\n[data]\n{source}\n[train]\neffective_batch = {batch}\nclip_norm = 1.0\n\
             optimizer = {{ name = \"adamw\", lr = 1e-5, weight_decay = 0.01, decay_all = true }}\n\
             schedule = {{ name = \"constant\" }}\nevaluate = {{ every = \"never\" }}\n{sample}\n\
             [memory]\nattention = \"{attention}\"\n"
        )
    }
}

/// As many samples as a batch holds: normal numbers with random classes, or random ids.
pub struct RandomSamples {
    count: usize,
    classes: u32,
    fields: [FieldSpec; 3],
}

impl RandomSamples {
    pub fn new(recipe: &Recipe, count: usize) -> RandomSamples {
        match recipe.model.family().input() {
            Input::Series { features, window, classes } => {
                RandomSamples { count, classes: classes as u32, fields: Windows::sample_fields(window, features) }
            }
            Input::Tokens { vocab, .. } | Input::Pictures { vocab, .. } => RandomSamples {
                count,
                classes: vocab.min(IDS) as u32,
                fields: Sequences::sample_fields(length(recipe)),
            },
        }
    }

    pub fn batch(&self) -> Result<Batch, Failure> {
        let mut batch = Batch::new(&self.fields, self.count)?;
        batch.fill(self, 0..self.count)?;
        Ok(batch)
    }

    fn is_text(&self) -> bool {
        self.fields[0].element == Element::I32
    }
}

impl Dataset for RandomSamples {
    fn len(&self) -> usize {
        self.count
    }

    fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let stream = Stream::new(1, site("bench"), 0);
        let word = |i: usize, draw: u32| stream.word(sample as u32, draw, i as u32);
        if self.is_text() {
            let id = |i: usize| (word(i, 0) % self.classes) as i32;
            row.i32(0).iter_mut().enumerate().for_each(|(i, to)| *to = id(i));
            // The last id has no next one.
            let counted = self.fields[0].shape[0] - 1;
            row.i32(1)[..counted].iter_mut().enumerate().for_each(|(i, to)| *to = id(i + 1));
            row.f32(2)[..counted].fill(1.0);
        } else {
            let x = row.f32(0);
            x.iter_mut().enumerate().for_each(|(i, x)| *x = normal(word(i, 0), word(i, 1)));
            row.i32(1)[0] = (word(0, 2) % self.classes) as i32;
            row.f32(2)[0] = 1.0;
        }
        Ok(())
    }

    fn resident_bytes(&self) -> usize {
        0
    }
}

/// Box–Muller.
fn normal(a: u32, b: u32) -> f32 {
    let unit = |word: u32| (f64::from(word) + 0.5) / 4_294_967_296.0;
    ((-2.0 * unit(a).ln()).sqrt() * (std::f64::consts::TAU * unit(b)).cos()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_a_sound_recipe() {
        for workload in &WORKLOADS {
            let seq = workload.length(None).unwrap();
            let recipe = Recipe::parse(&workload.recipe(4, seq), "bench.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(length(&recipe), seq, "{}", workload.name);
            let batch = RandomSamples::new(&recipe, 4).batch().unwrap();
            assert_eq!(batch.len(), 4);
        }
    }

    /// The numbers of parameters that PyTorch counts for the same names.
    #[test]
    fn sizes_are_those_of_the_reference() {
        let expected = [5_907_587, 5_907_587, 26_721_024, 564_608, 26_721_024, 564_608];
        for (workload, expected) in WORKLOADS.iter().zip(expected) {
            let text = workload.recipe(1, workload.length(None).unwrap());
            let recipe = Recipe::parse(&text, "bench.toml", &[]).unwrap();
            assert_eq!(recipe.model.family().parameters(), Some(expected), "{}", workload.name);
        }
    }

    #[test]
    fn lengths_that_are_not_measured_are_refused() {
        assert!(Workload::find("hybrid").unwrap().length(Some(128)).is_err());
        assert!(Workload::find("mu-sota").unwrap().length(Some(513)).is_err());
        assert_eq!(Workload::find("mu-sota").unwrap().length(Some(512)).unwrap(), 512);
    }
}
