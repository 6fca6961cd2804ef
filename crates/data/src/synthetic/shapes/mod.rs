//! `shapes`: images of one or two coloured shapes, drawn by code, with captions that say exactly what is seen: "a
//! small red circle left of a large blue star on a dark background". Scene and caption are functions of (seed, sample).
//! An image has exactly one true caption, so a perfect model fails only where two samples of a batch share a caption.

mod draw;
mod scene;
mod vocabulary;

use super::super::images::{
    Preparation,
    captioned::{PIXELS, WEIGHT, fields, write_caption},
};
use crate::series::check_fraction;
use crate::{CaptionReport, DataError, DataReport, Dataset, FieldSpec, RowMut};
use scene::Scene;
use std::{collections::HashSet, ops::Range};
pub(crate) use vocabulary::SHAPES_LONGEST;
pub use vocabulary::{SHAPES_END, SHAPES_VOCABULARY, shapes_tokenizer};

#[derive(Clone, Debug, PartialEq)]
pub struct ShapesOptions {
    pub seed: u64,
    pub samples: usize,
    pub validation_fraction: f64,
    /// Tokens of a caption; at least [`SHAPES_LONGEST`].
    pub max_length: usize,
    /// Ids the model knows; at least [`SHAPES_VOCABULARY`].
    pub vocab: usize,
    pub preparation: Preparation,
    /// Samples that are told apart at once in an evaluation: what the best accuracy is stated for.
    pub batch: usize,
}

pub struct ShapesData {
    pub train: Shapes,
    pub validation: Shapes,
    pub report: DataReport,
}

/// Scenes of one seed, drawn when a batch wants them.
pub struct Shapes {
    seed: u64,
    scenes: Range<usize>,
    preparation: Preparation,
    fields: [FieldSpec; 4],
}

pub fn shapes(options: &ShapesOptions) -> Result<ShapesData, DataError> {
    check(options)?;
    let held_out = (options.samples as f64 * options.validation_fraction).round() as usize;
    let train = Shapes::new(options, 0..options.samples - held_out);
    let validation = Shapes::new(options, options.samples - held_out..options.samples);
    let report = CaptionReport {
        source: "synthetic:shapes".into(),
        train: train.len(),
        validation: validation.len(),
        skipped: 0,
        truncated: 0,
        max_length: options.max_length,
        longest: SHAPES_LONGEST,
        side: options.preparation.side,
        resident_bytes: 0,
        worker_bytes: 0,
        best_accuracy: validation.best_accuracy(options.batch),
    };
    Ok(ShapesData { train, validation, report: DataReport::Captions(report) })
}

fn check(options: &ShapesOptions) -> Result<(), DataError> {
    check_fraction(options.validation_fraction)?;
    let refuse = |name, cause: String| Err(DataError::option(name, cause));
    if options.samples == 0 || options.samples > u32::MAX as usize {
        return refuse("samples", format!("{} must be at least 1 and below 2³²", options.samples));
    }
    if options.max_length < SHAPES_LONGEST {
        return refuse("max_length", format!("{} is below the longest caption, {SHAPES_LONGEST}", options.max_length));
    }
    if options.vocab < SHAPES_VOCABULARY {
        return refuse("vocab_size", format!("{} is below the words of captions, {SHAPES_VOCABULARY}", options.vocab));
    }
    match options.preparation.side {
        0 | 65_537.. => refuse("image_size", "must be in 1..=65536".into()),
        _ => Ok(()),
    }
}

impl Shapes {
    fn new(options: &ShapesOptions, scenes: Range<usize>) -> Self {
        Shapes {
            seed: options.seed,
            scenes,
            preparation: options.preparation.clone(),
            fields: fields(options.preparation.side, options.max_length),
        }
    }

    fn scene(&self, sample: usize) -> Scene {
        Scene::new(self.seed, self.scenes.start + sample)
    }

    #[cfg(test)]
    fn caption(&self, sample: usize) -> String {
        self.scene(sample).caption()
    }

    /// The part of samples whose own caption a perfect model finds first among those of its batch, when samples come in
    /// order in batches of `batch`. It can score equal captions only equally, and the first of them wins: of each set of
    /// equal captions in a batch exactly one image finds its own. So the best is distinct captions ÷ samples.
    pub(crate) fn best_accuracy(&self, batch: usize) -> Option<f64> {
        if self.is_empty() {
            return None;
        }
        let mut distinct = 0;
        let mut seen = HashSet::new();
        for sample in 0..self.len() {
            if sample.is_multiple_of(batch.max(1)) {
                seen.clear();
            }
            distinct += usize::from(seen.insert(self.scene(sample).words()));
        }
        Some(distinct as f64 / self.len() as f64)
    }
}

impl Dataset for Shapes {
    fn len(&self) -> usize {
        self.scenes.len()
    }

    fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let scene = self.scene(sample);
        draw::draw(&scene, &self.preparation, row.f32(PIXELS));
        row.f32(WEIGHT)[0] = 1.0;
        write_caption(&vocabulary::ids(&scene.words()), row);
        Ok(())
    }

    fn resident_bytes(&self) -> usize {
        0
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
