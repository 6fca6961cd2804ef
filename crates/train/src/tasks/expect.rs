//! What can be said about the data of a recipe without loading it: how many samples, and how much host memory.

use super::{Task, loader_options, task};
use plimsoll_core::graph::Backend;
use plimsoll_cuda::staging_half_bytes;
use plimsoll_models::recipe::{Recipe, Source, Train, Validation};
use plimsoll_planner::choose::Choice;

/// Files (and texts made by code) up to this size are read to count their samples: a few milliseconds.
const CHEAP_BYTES: u64 = 1 << 20;

/// Training samples and the host bytes of all samples, where finding out is cheap; `None` where it is not, and where
/// the data is not here or not sound: that is for training to say.
pub fn expected_data(recipe: &Recipe) -> Option<ExpectedData> {
    let task = task(recipe);
    let counted = || counted(task.as_ref());
    task.expected().or_else(|| match &recipe.data.source {
        Source::Synthetic { samples, .. } => (*samples as u64 <= CHEAP_BYTES).then(counted).flatten(),
        Source::File { train, .. } => is_cheap(recipe, train).then(counted).flatten(),
    })
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
    // A corpus with a tokenizer takes longer than its bytes say.
    let tokenizer = task(recipe).continues() && task(recipe).tokenizer().is_some();
    let validation = match &recipe.data.validation {
        Validation::File(file) => small(file),
        Validation::Fraction(_) => true,
    };
    small(train) && validation && !tokenizer
}

fn counted(task: &dyn Task) -> Option<ExpectedData> {
    let data = task.load().ok()?;
    let validation = data.validation.as_ref().map_or(0, |v| v.resident_bytes());
    Some(ExpectedData { train_samples: data.train.len(), resident_bytes: data.train.resident_bytes() + validation })
}

/// Host memory beside the arena: the samples, the batches ahead, one tensor while loading or saving, what is offloaded,
/// and the pinned memory on the way to a GPU.
pub fn host_peak_bytes(recipe: &Recipe, choice: &Choice, data_bytes: usize) -> u64 {
    let Choice { program, layout, options, .. } = choice;
    let loader = loader_options(recipe).host_bytes(&task(recipe).fields().unwrap_or_default()).unwrap_or(0);
    let largest = program.residents.iter().map(|r| r.ty.span_bytes()).max().unwrap_or(0);
    let pinned = if options.target.backend == Backend::Cuda { 2 * staging_half_bytes(program) } else { 0 };
    [loader, data_bytes, largest, layout.host_bytes, pinned].into_iter().fold(0, usize::saturating_add) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::load_data;

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
            assert_eq!(task(&recipe).fields().unwrap(), loaded.train.fields());
        }
    }
}
