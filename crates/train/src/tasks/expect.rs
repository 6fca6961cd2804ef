//! What can be said about the data of a recipe without loading it: how many samples, and how much host memory.

use super::{loader_options, task};
use crate::RunError;
use crate::loaded::LoadedData;
use crate::scoring::Retrieval;
use crate::steps::{MOST_NODES, evaluation_options};
use plimsoll_base::explain::Explain;
use plimsoll_base::formats::Format;
use plimsoll_core::graph::Backend;
use plimsoll_core::plan::{Layout, Phase, Program};
use plimsoll_cuda::staging_half_bytes;
use plimsoll_data::{DataError, Ladder, LoaderOptions, check_columns};
use plimsoll_models::recipe::{Budget, DataKind, Memory, Recipe, Source, Synthetic, Train, Validation};
use plimsoll_planner::Device;
use plimsoll_planner::choose::{Choice, Planned, evaluate_batch, used_batch};

/// Files (and a corpus made by code) up to this size are read to count their samples: a few milliseconds.
const CHEAP_BYTES: u64 = 1 << 20;

/// So many texts, pairs or images are made by code in a fraction of a second.
const CHEAP_SAMPLES: usize = 8192;

/// What a look at the data gave.
pub enum Look {
    /// Training samples and the host bytes of all samples.
    Known(ExpectedData),
    /// Finding out would take long: a plan needs lengths and sizes, not the files.
    NotRead,
    /// It is not here, or cannot be used.
    Broken(RunError),
}

impl Look {
    pub fn known(&self) -> Option<ExpectedData> {
        if let Look::Known(data) = self { Some(*data) } else { None }
    }

    /// Why the data cannot be used.
    pub fn problem(&self) -> Option<String> {
        if let Look::Broken(error) = self { Some(error.message()) } else { None }
    }
}

/// Looks at the data where that is cheap.
pub fn look_at_data(recipe: &Recipe) -> Look {
    // What there is to train on does not depend on the budget, which is what a plan is asked about.
    let unbounded = Memory { budget: Budget::Auto, ..recipe.memory.clone() };
    let recipe = &Recipe { memory: unbounded, ..recipe.clone() };
    let task = task(recipe);
    if let Some(expected) = task.expected() {
        return expected.map_or_else(Look::Broken, Look::Known);
    }
    let cheap = match &recipe.data.source {
        Source::Synthetic { name: Synthetic::Grammar, samples, .. } => *samples as u64 <= CHEAP_BYTES,
        Source::Synthetic { samples, .. } if *samples > CHEAP_SAMPLES => return look_at_some(recipe, *samples),
        Source::Synthetic { .. } => true,
        Source::File { train, .. } => is_cheap(recipe, train),
    };
    match cheap.then(|| task.load()) {
        None => look_at_beginning(recipe).map_or_else(|error| Look::Broken(error.into()), |()| Look::NotRead),
        Some(Ok(data)) => Look::Known(ExpectedData::of(&data, recipe)),
        Some(Err(error)) => Look::Broken(error),
    }
}

/// Data made by code is alike from its beginning to its end: the rest takes what its first samples take, in proportion.
fn look_at_some(recipe: &Recipe, all: usize) -> Look {
    let mut some = recipe.clone();
    if let Source::Synthetic { samples, .. } = &mut some.data.source {
        *samples = CHEAP_SAMPLES;
    }
    let in_proportion = |count: usize| (count as u128 * all as u128).div_ceil(CHEAP_SAMPLES as u128) as usize;
    let held_out = if let Validation::Fraction(part) = recipe.data.validation { part } else { 0.0 };
    match look_at_data(&some) {
        Look::Known(found) => Look::Known(ExpectedData {
            train_samples: all - (all as f64 * held_out).round() as usize,
            resident_bytes: in_proportion(found.resident_bytes),
        }),
        other => other,
    }
}

/// What would be refused at once is said now: a file that is not there, a column that it does not have.
fn look_at_beginning(recipe: &Recipe) -> Result<(), DataError> {
    let Source::File { train, .. } = &recipe.data.source else { return Ok(()) };
    let held_out = if let Validation::File(file) = &recipe.data.validation { Some(file) } else { None };
    for file in [Some(train), held_out].into_iter().flatten() {
        let path = recipe.resolve_path(file);
        // Images may stand in folders on either side, whatever the other is written in.
        let is_folder = matches!(recipe.data.kind, DataKind::Captions(_)) && path.is_dir();
        let said = if is_folder { Some(Format::Folder) } else { recipe.data.source.format_of(file) };
        check_columns(&path, said, &recipe.data.columns())?;
    }
    Ok(())
}

/// The same, where it is known.
pub fn expected_data(recipe: &Recipe) -> Option<ExpectedData> {
    look_at_data(recipe).known()
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

impl ExpectedData {
    /// Of what is loaded.
    pub fn of(data: &LoadedData, recipe: &Recipe) -> ExpectedData {
        let all = [Some(&data.train), data.validation.as_ref()];
        let resident_bytes = all.iter().flatten().map(|part| part.resident_bytes()).sum();
        let decoding = all.iter().flatten().map(|part| part.worker_bytes()).max().unwrap_or(0);
        let workers = recipe.data.workers.max(1);
        let resident_bytes = decoding.saturating_mul(workers).saturating_add(resident_bytes);
        ExpectedData { train_samples: data.train.len(), resident_bytes }
    }
}

/// The same device with room for the samples of a run beside its arena. On a CPU that is the same memory, and the budget
/// covers all of it: the program, samples, batches ahead. A device that counts no memory of its own (as those of
/// tests) and a GPU, whose memory is another, stay as they are.
pub fn beside_the_run(device: &Device, data: Option<ExpectedData>) -> Device {
    if device.target.backend != Backend::Cpu || device.reserve_bytes == 0 {
        return device.clone();
    }
    let data = data.map_or(0, |data| data.resident_bytes) as u64;
    Device { reserve_bytes: device.reserve_bytes.saturating_add(data), ..device.clone() }
}

/// What batches ahead take, with the threads that prepare them: those of an evaluation come while those of the training
/// wait, and what they are compared by is kept.
pub fn loader_bytes(recipe: &Recipe) -> u64 {
    let held_out = evaluate_batch(recipe).filter(|_| !recipe.data.validation.is_none());
    let training = host_bytes_of(recipe, &loader_options(recipe));
    let evaluation = held_out.map_or(0, |rows| host_bytes_of(recipe, &evaluation_options(recipe, rows)));
    training.saturating_add(evaluation).saturating_add(compared_bytes(recipe)) as u64
}

/// The same of an evaluation by itself: no training waits beside it.
pub(crate) fn evaluation_bytes(recipe: &Recipe) -> u64 {
    host_bytes_of(recipe, &evaluation_options(recipe, used_batch(recipe))).saturating_add(compared_bytes(recipe)) as u64
}

/// Of answers: one batch after the other, filled where it is used.
pub(crate) fn answering_bytes(recipe: &Recipe) -> u64 {
    host_bytes_of(recipe, &LoaderOptions { workers: 0, ..evaluation_options(recipe, used_batch(recipe)) }) as u64
}

fn host_bytes_of(recipe: &Recipe, options: &LoaderOptions) -> usize {
    options.host_bytes(&task(recipe).fields().unwrap_or_default()).unwrap_or(0)
}

/// Embeddings of the pairs that an evaluation compares with one another.
fn compared_bytes(recipe: &Recipe) -> usize {
    let towers = recipe.model.family();
    let width = towers.contrast().map_or(0, |towers| towers.width());
    Retrieval::pool_bytes(recipe.train.effective_batch, width)
}

/// What a node of a graph takes that is ready to run on a CPU; and with its names, its place and its part of the stored plan
/// (measured: 4.2 kB a node, from 24 to 96 layers).
const READY_NODE_BYTES: usize = 1280;
const PLANNED_NODE_BYTES: usize = 4608;
/// Small graphs are part of what is counted for the program.
const USUAL_GRAPHS_BYTES: usize = 6 << 20;

/// What a plan has beside its arena in the memory of a CPU: graphs ready to run, those of shorter batches too, and what
/// is offloaded.
pub fn graph_bytes(recipe: &Recipe, program: &Program, layout: &Layout) -> u64 {
    let nodes = |phase: &Phase| phase.graph.nodes().len();
    let own: usize = program.phases.iter().map(nodes).sum();
    let ladders = Ladder::of_fields(&task(recipe).fields().unwrap_or_default(), recipe.data.batching().buckets);
    let lengths = ladders.iter().map(|ladder| ladder.lengths().len()).fold(1, usize::saturating_mul);
    let largest = program.phases.iter().map(nodes).max().unwrap_or(0);
    let shorter = own.saturating_mul(lengths - 1).min(MOST_NODES + largest);
    let graphs = own * PLANNED_NODE_BYTES + shorter * READY_NODE_BYTES;
    (graphs.saturating_sub(USUAL_GRAPHS_BYTES) + layout.host_bytes) as u64
}

/// Whether a plan counts the whole process: then nothing of it is beside the plan.
pub fn counts_process(planned: &Planned) -> bool {
    planned.device.target.backend == Backend::Cpu && planned.reserve_bytes > 0
}

/// Host memory beside the arena: the samples, the batches ahead, one tensor while loading or saving, what is offloaded,
/// and the pinned memory on the way to a GPU. Where the plan counts the process, as it does.
pub fn host_peak_bytes(recipe: &Recipe, planned: &Planned, data_bytes: usize) -> u64 {
    let Choice { program, layout, options, .. } = &planned.choice;
    if counts_process(planned) {
        return planned.reserve_bytes;
    }
    let loader = loader_bytes(recipe) as usize;
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
        let labelled = "[model]\nfamily = \"bert\"\nvocab_size = 512\nhidden_size = 32\nnum_hidden_layers = 1\n\
                        num_attention_heads = 1\nintermediate_size = 32\nnum_labels = 2\n[data]\n\
                        source = \"synthetic:sentiment\"\nsamples = 20000\nmax_length = 16\n[train]\n\
                        task = \"classify\"\neffective_batch = 8\n";
        let (expected, loaded) = (
            expected_data(&recipe(labelled)).unwrap(),
            ExpectedData::of(&load_data(&recipe(labelled)).unwrap(), &recipe(labelled)),
        );
        // Every class is divided by itself, and rounded.
        assert!(expected.train_samples.abs_diff(loaded.train_samples) <= 2, "{expected:?} {loaded:?}");
        assert!(
            expected.resident_bytes.abs_diff(loaded.resident_bytes) * 50 < loaded.resident_bytes,
            "{expected:?} {loaded:?}"
        );
        for recipe in [recipe(series), recipe(text)] {
            let (expected, loaded) = (expected_data(&recipe).unwrap(), load_data(&recipe).unwrap());
            assert_eq!(expected.train_samples, loaded.train.len());
            let validation = loaded.validation.unwrap().resident_bytes();
            assert_eq!(expected.resident_bytes, loaded.train.resident_bytes() + validation);
            assert_eq!(task(&recipe).fields().unwrap(), loaded.train.fields());
        }
    }
    /// A plan must not say that a run fits which ends before its first step.
    #[test]
    fn series_made_by_code_that_the_model_cannot_take_are_told() {
        let series = |classes: usize, samples: usize| {
            recipe(&format!(
                "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 3\nwindow = 10\nchannels = [4]\nhidden = 4\nheads = 2\n\
                 classes = {classes}\n[data]\nsource = \"synthetic:regimes\"\nsamples = {samples}\n\
                 [train]\neffective_batch = 8\n"
            ))
        };
        for (classes, samples) in [(2, 300), (3, 9), (3, 40), (3, 300), (4, 300)] {
            let recipe = series(classes, samples);
            let (told, loaded) = (look_at_data(&recipe).problem(), load_data(&recipe));
            let refused = loaded.err().map(|error| error.message());
            assert_eq!(told.is_some(), refused.is_some(), "{classes} classes, {samples} rows: {told:?}, {refused:?}");
        }
        let told = look_at_data(&series(2, 300)).problem().unwrap();
        assert!(told.contains("3 classes, the model is built for 3 and 2"), "{told}");
    }

    /// Samples that are not counted are missing in what is called enough.
    #[test]
    fn a_budget_that_holds_nothing_hides_no_samples() {
        let folder = tempfile::tempdir().unwrap();
        let rows = (0..300).map(|i| format!("{},{},{}\n", i % 7, i % 5, i % 3)).collect::<String>();
        std::fs::write(folder.path().join("a.csv"), format!("a,b,label\n{rows}")).unwrap();
        let text = "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 2\nwindow = 10\nchannels = [4]\nhidden = 4\nheads = 2\n\
                    classes = 3\n[data]\ntrain = \"a.csv\"\nlabel = \"label\"\n[train]\neffective_batch = 8\n";
        let look = |sets: &[String]| {
            let recipe = Recipe::parse(text, "case.toml", sets).unwrap();
            look_at_data(&Recipe { dir: folder.path().into(), ..recipe }).known()
        };
        let found = look(&[]).unwrap();
        assert!(found.train_samples > 200 && found.resident_bytes >= 300 * 3 * 4, "{found:?}");
        assert_eq!(look(&["memory.budget=1KiB".into()]), Some(found));
    }

    /// What a training takes is not called unusable before it.
    #[test]
    fn images_to_validate_on_may_stand_in_a_folder_beside_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // Too large to be read for a plan: its beginning is looked at.
        let rows = (0..40_000).map(|i| format!("images/a{i}.png,a text about image {i}\n")).collect::<String>();
        std::fs::write(path("pairs.csv"), format!("image,caption\n{rows}")).unwrap();
        std::fs::create_dir_all(path("held/cats")).unwrap();
        std::fs::write(path("held/cats/a.png"), "").unwrap();
        let text = "[model]\npreset = \"openai/clip-vit-base-patch32\"\n[data]\ntrain = \"pairs.csv\"\nvalidation = \"held\"\n\
                    tokenizer = \"tokenizer.json\"\n[train]\ntask = \"contrastive\"\neffective_batch = 8\n";
        let recipe = Recipe { dir: folder.path().into(), ..recipe(text) };
        assert_eq!(look_at_data(&recipe).problem(), None);
        std::fs::remove_file(path("held/cats/a.png")).unwrap();
        assert!(look_at_data(&recipe).problem().unwrap().ends_with("holds no images"));
    }
}
