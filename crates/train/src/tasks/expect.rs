//! What can be said about the data of a recipe without loading it: how many samples, and how much host memory.

use crate::RunError;
use crate::tasks::{decoder, labelled_options, load_data, loader_options, series_sizes, towers};
use plimsoll_core::graph::Backend;
use plimsoll_cuda::staging_half_bytes;
use plimsoll_data::images::Captioned;
use plimsoll_data::{FieldSpec, PairedTexts, Sequences, Texts, Windows, window_count};
use plimsoll_models::recipe::{Kind, Recipe, Source, Synthetic, Train, Validation};
use plimsoll_planner::choose::Choice;
use plimsoll_planner::choose::length;

/// Files (and texts made by code) up to this size are read to count their samples: a few milliseconds.
const CHEAP_BYTES: u64 = 1 << 20;

/// Training samples and the host bytes of all samples, where finding out is cheap; `None` where it is not, and where
/// the data is not here or not sound: that is for training to say.
pub fn expected_data(recipe: &Recipe) -> Option<ExpectedData> {
    match (&recipe.data.source, &recipe.data.kind) {
        (Source::Synthetic { name: Synthetic::Regimes, samples, .. }, Kind::Series(series)) => {
            let Validation::Fraction(fraction) = recipe.data.validation else { return None };
            let [window, features, _] = series_sizes(recipe).ok()?;
            let held_out = (*samples as f64 * fraction).round() as usize;
            let train_samples = window_count(samples.saturating_sub(held_out), window, series.stride);
            Some(ExpectedData { train_samples, resident_bytes: samples.checked_mul(features + 1)?.checked_mul(4)? })
        }
        (Source::Synthetic { samples, .. }, ..) => (*samples as u64 <= CHEAP_BYTES).then(|| counted(recipe)).flatten(),
        (Source::File { train, .. }, ..) => is_cheap(recipe, train).then(|| counted(recipe)).flatten(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedData {
    pub train_samples: usize,
    pub resident_bytes: usize,
}

/// Updates of an epoch and of the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedSteps {
    pub per_epoch: usize,
    pub run: usize,
}

impl ExpectedData {
    pub fn steps(&self, train: &Train) -> ExpectedSteps {
        let per_epoch = self.train_samples.div_ceil(train.effective_batch).max(1);
        let by_epochs = per_epoch.saturating_mul(train.epochs);
        ExpectedSteps { per_epoch, run: train.steps.map_or(by_epochs, |steps| by_epochs.min(steps)) }
    }
}

fn is_cheap(recipe: &Recipe, train: &std::path::Path) -> bool {
    let small = |path: &std::path::Path| {
        std::fs::metadata(recipe.resolve_path(path)).is_ok_and(|m| m.is_file() && m.len() <= CHEAP_BYTES)
    };
    let tokenizer = matches!(&recipe.data.kind, Kind::Text(text) if text.tokenizer.is_some());
    let validation = match &recipe.data.validation {
        Validation::File(file) => small(file),
        Validation::Fraction(_) => true,
    };
    small(train) && validation && !tokenizer
}

fn counted(recipe: &Recipe) -> Option<ExpectedData> {
    let data = load_data(recipe).ok()?;
    let validation = data.validation.as_ref().map_or(0, |v| v.resident_bytes());
    Some(ExpectedData { train_samples: data.train.len(), resident_bytes: data.train.resident_bytes() + validation })
}

/// Host memory beside the arena: the samples, the batches ahead, one tensor while loading or saving, what is offloaded,
/// and the pinned memory on the way to a GPU.
pub fn host_peak_bytes(recipe: &Recipe, choice: &Choice, data_bytes: usize) -> u64 {
    let Choice { program, layout, options, .. } = choice;
    let loader = loader_options(recipe).host_bytes(&sample_fields(recipe)).unwrap_or(0);
    let largest = program.residents.iter().map(|r| r.ty.span_bytes()).max().unwrap_or(0);
    let pinned = if options.target.backend == Backend::Cuda { 2 * staging_half_bytes(program) } else { 0 };
    [loader, data_bytes, largest, layout.host_bytes, pinned].into_iter().fold(0, usize::saturating_add) as u64
}

/// The fields of one sample.
fn sample_fields(recipe: &Recipe) -> Vec<FieldSpec> {
    let fields = || -> Result<Vec<FieldSpec>, RunError> {
        Ok(match &recipe.data.kind {
            Kind::Series(_) => {
                let [window, features, _] = series_sizes(recipe)?;
                Windows::sample_fields(window, features).to_vec()
            }
            Kind::Text(_) => Sequences::sample_fields(length(recipe)).to_vec(),
            Kind::Labelled(texts) => {
                let options = labelled_options(recipe, texts)?;
                Texts::sample_fields(options.max_length, options.pad, options.types, options.kind, options.num_labels)
            }
            Kind::Pairs(pairs) => {
                let padding = decoder(recipe)?.tokens().padding as i32;
                PairedTexts::sample_fields(pairs.max_length, pairs.max_target_length, padding)
            }
            Kind::Captions(captions) => {
                Captioned::sample_fields(towers(recipe)?.images().side, captions.max_length).to_vec()
            }
        })
    };
    fields().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(text: &str) -> Recipe {
        Recipe::parse(text, "case.toml", &[]).unwrap()
    }

    #[test]
    fn expected_is_what_loading_gives() {
        let series = "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 3\nwindow = 10\nchannels = [4]\nhidden = 4\nheads = 2\n\
                      classes = 3\n[data]\nsource = \"synthetic:regimes\"\nsamples = 333\nstride = 4\n\
                      [train]\neffective_batch = 8\n";
        let text = "[model]\nfamily = \"mu-sota\"\nvocab = 257\nlayers = 1\nblocks = 2\nblock_width = 4\nblock_heads = 2\n\
                    cross_heads = 2\nffn = 8\nmax_length = 16\n[data]\nsource = \"synthetic:grammar\"\nsamples = 2000\n\
                    [train]\neffective_batch = 8\n";
        for recipe in [recipe(series), recipe(text)] {
            let (expected, loaded) = (expected_data(&recipe).unwrap(), load_data(&recipe).unwrap());
            assert_eq!(expected.train_samples, loaded.train.len());
            let validation = loaded.validation.unwrap().resident_bytes();
            assert_eq!(expected.resident_bytes, loaded.train.resident_bytes() + validation);
            assert_eq!(sample_fields(&recipe), loaded.train.fields());
        }
    }
}
