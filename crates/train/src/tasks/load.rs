//! From a recipe to the data of a run: files are read, or samples made by code, as the family takes them.

use crate::RunError;
use plimsoll_base::batching::BadRows;
use plimsoll_base::formats::Format;
use plimsoll_data as data;
use plimsoll_data::images::{self, CaptionOptions, CaptionSizes, Preparation};
use plimsoll_data::{
    Composition, CorpusOptions, DataError, DataReport, Dataset, GrammarOptions, LabelKind, LabelRule, LabelledOptions,
    LoaderOptions, Normalizer, PairsOptions, RegimesOptions, SeriesOptions, ShapesOptions, TextTokenizer, Vocabulary,
    VocabularyChoice,
};
use plimsoll_models::families::{Classifier, Contrast, Decoder, Input, ProblemType};
use plimsoll_models::recipe::{self, Captions, Kind, Label, Labelled, Pairs, Recipe, Source, Synthetic, Validation};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The data of a run.
pub struct LoadedData {
    pub train: Arc<dyn Dataset>,
    pub validation: Option<Arc<dyn Dataset>>,
    pub best_accuracy: Option<f64>,
    pub best_loss: Option<f64>,
    pub report: DataReport,
    pub extras: Extras,
}

/// What predictions need beside the weights.
pub enum Extras {
    Series(Normalizer),
    Text(Vocabulary),
    /// Names of the classes, in the order of the model's outputs.
    Labelled {
        classes: Vec<String>,
        tokenizer: Arc<TextTokenizer>,
    },
    Pairs {
        tokenizer: Arc<TextTokenizer>,
    },
    /// A tokenizer made by code; captions of files have a tokenizer of their own.
    Captions {
        tokenizer: Option<String>,
    },
}

/// Reads (or makes) the data that the recipe names.
pub fn load_data(recipe: &Recipe) -> Result<LoadedData, RunError> {
    match &recipe.data.kind {
        Kind::Series(series) => load_series(recipe, series),
        Kind::Text(text) => load_text(recipe, text),
        Kind::Labelled(texts) => load_labelled(recipe, texts),
        Kind::Pairs(pairs) => load_pairs(recipe, pairs),
        Kind::Captions(captions) => load_captions(recipe, captions),
    }
}

/// How batches come: shuffled by the recipe's seed, a bounded number ahead.
pub fn loader_options(recipe: &Recipe) -> LoaderOptions {
    LoaderOptions {
        batch: recipe.train.effective_batch,
        workers: recipe.data.workers,
        prefetch: recipe.data.prefetch,
        shuffle: Some(recipe.train.seed),
        epochs: None,
        compose: recipe.data.batching().compose,
        buckets: recipe.data.batching().buckets,
    }
}

fn refused<T>(cause: impl Into<String>, hint: impl Into<String>) -> Result<T, RunError> {
    Err(RunError::Refused { cause: cause.into(), hint: hint.into() })
}

fn fraction(recipe: &Recipe) -> f64 {
    if let Validation::Fraction(fraction) = recipe.data.validation { fraction } else { 0.0 }
}

fn validation_file(recipe: &Recipe) -> Option<PathBuf> {
    match &recipe.data.validation {
        Validation::File(file) => Some(recipe.resolve_path(file)),
        Validation::Fraction(_) => None,
    }
}

fn optional(dataset: impl Dataset + 'static) -> Option<Arc<dyn Dataset>> {
    if dataset.is_empty() { None } else { Some(Arc::new(dataset)) }
}

/// A source of another kind than the model reads.
fn wrong_source<T>(name: Synthetic, use_instead: &str) -> Result<T, RunError> {
    refused(format!("{name} is not what this model reads"), format!("use source = \"{use_instead}\""))
}

/// A family that cannot do what the data is for.
pub fn unsuited(recipe: &Recipe) -> RunError {
    RunError::Refused {
        cause: format!("{} does not learn from this kind of data", recipe.model.name()),
        hint:
            "series for hybrid-cnn-lstm, text for mu-sota, labelled texts for encoders, pairs for t5, images for clip"
                .into(),
    }
}

/// Rows of a sample, numbers in a row, and classes.
pub fn series_sizes(recipe: &Recipe) -> Result<[usize; 3], RunError> {
    match recipe.model.family().input() {
        Input::Series { features, window, classes } => Ok([window, features, classes]),
        _ => Err(unsuited(recipe)),
    }
}

pub fn classifier(recipe: &Recipe) -> Result<Classifier, RunError> {
    recipe.model.family().classifier().ok_or_else(|| unsuited(recipe))
}

pub fn decoder(recipe: &Recipe) -> Result<&dyn Decoder, RunError> {
    recipe.model.family().decoder().ok_or_else(|| unsuited(recipe))
}

pub fn towers(recipe: &Recipe) -> Result<&dyn Contrast, RunError> {
    recipe.model.family().contrast().ok_or_else(|| unsuited(recipe))
}

fn vocabulary_size(recipe: &Recipe) -> Result<usize, RunError> {
    match recipe.model.family().input() {
        Input::Tokens { vocab, .. } => Ok(vocab),
        _ => Err(unsuited(recipe)),
    }
}

fn load_series(recipe: &Recipe, series: &recipe::Series) -> Result<LoadedData, RunError> {
    let [window, features, most_classes] = series_sizes(recipe)?;
    let data = match &recipe.data.source {
        Source::Synthetic { name: Synthetic::Regimes, samples, seed } => data::regimes(&RegimesOptions {
            rows: *samples,
            features,
            seed: *seed,
            window,
            stride: series.stride,
            validation_fraction: fraction(recipe),
        })?,
        Source::Synthetic { name, .. } => return wrong_source(*name, "synthetic:regimes"),
        Source::File { train, format } => data::load_series(&SeriesOptions {
            format: Some(*format),
            validation: validation_file(recipe),
            features: series.columns.clone().unwrap_or_default(),
            time: series.time.clone(),
            window,
            stride: series.stride,
            validation_fraction: fraction(recipe),
            classes: Some(most_classes),
            ..SeriesOptions::new(recipe.resolve_path(train), label_rule(series)?)
        })?,
    };
    let width = data.normalizer.width();
    if width != features || data.normalizer.classes.len() > most_classes {
        let classes = data.normalizer.classes.len();
        return refused(
            format!(
                "the data has {width} features and {classes} classes, the model is built for {features} and {most_classes}"
            ),
            format!("set model.features = {width} and model.classes, or choose columns with data.columns"),
        );
    }
    Ok(LoadedData {
        train: Arc::new(data.train),
        validation: optional(data.validation),
        best_accuracy: data.best_accuracy,
        best_loss: None,
        report: data.report,
        extras: Extras::Series(data.normalizer),
    })
}

fn label_rule(series: &recipe::Series) -> Result<LabelRule, RunError> {
    match &series.label {
        Some(Label::Column(column)) => Ok(LabelRule::Column(column.clone())),
        Some(Label::Derived(d)) => {
            Ok(LabelRule::Return { column: d.column.clone(), horizon: d.horizon, threshold: d.threshold })
        }
        None => refused("the data has no label", "name one with data.label = \"column\""),
    }
}

fn load_text(recipe: &Recipe, text: &recipe::Text) -> Result<LoadedData, RunError> {
    let vocab = vocabulary_size(recipe)?;
    let data = match &recipe.data.source {
        Source::Synthetic { name: Synthetic::Grammar, samples, seed } => data::grammar(&GrammarOptions {
            seed: *seed,
            bytes: *samples,
            max_length: text.max_length,
            vocab,
            validation_fraction: fraction(recipe),
        })?,
        Source::Synthetic { name, .. } => return wrong_source(*name, "synthetic:grammar"),
        Source::File { train, format } => data::load_corpus(&CorpusOptions {
            format: Some(*format),
            validation: validation_file(recipe),
            validation_fraction: fraction(recipe),
            text_field: text.text_field.clone(),
            vocabulary: match &text.tokenizer {
                Some(file) => VocabularyChoice::Tokenizer(recipe.resolve_path(file)),
                None => VocabularyChoice::Bytes,
            },
            ..CorpusOptions::new(recipe.resolve_path(train), text.max_length, vocab)
        })?,
    };
    Ok(LoadedData {
        train: Arc::new(data.train),
        validation: optional(data.validation),
        best_accuracy: None,
        best_loss: data.best_loss,
        report: data.report,
        extras: Extras::Text(data.vocabulary),
    })
}

/// Where the tokenizer of a recipe is: what it names, or what its checkpoint brings.
pub(super) fn tokenizer_file(recipe: &Recipe, named: Option<&Path>) -> Result<PathBuf, RunError> {
    if let Some(file) = named {
        return Ok(recipe.resolve_path(file));
    }
    let checkpoint = recipe.model.origin().and_then(|origin| origin.checkpoint.as_ref());
    match checkpoint {
        Some(folder) => Ok(recipe.resolve_path(folder).join("tokenizer.json")),
        None => Err(DataError::NoTokenizer {
            cause: "the recipe names neither data.tokenizer nor a checkpoint that brings one".into(),
        }
        .into()),
    }
}

/// None for data made by code, unless the recipe names one: its words make their own.
fn tokenizer(recipe: &Recipe, named: Option<&Path>) -> Result<Option<TextTokenizer>, RunError> {
    match (&recipe.data.source, named) {
        (Source::Synthetic { .. }, None) => Ok(None),
        _ => Ok(Some(TextTokenizer::open(&tokenizer_file(recipe, named)?)?)),
    }
}

fn composition(recipe: &Recipe) -> Composition {
    Composition { batch: recipe.train.effective_batch, seed: recipe.train.seed, batching: recipe.data.batching() }
}

/// The training file and its format; neither for data made by code.
fn file(recipe: &Recipe) -> (PathBuf, Option<Format>) {
    match &recipe.data.source {
        Source::File { train, format } => (recipe.resolve_path(train), Some(*format)),
        Source::Synthetic { .. } => (PathBuf::new(), None),
    }
}

/// What is said about labelled texts, whatever file they come from.
pub fn labelled_options(recipe: &Recipe, texts: &Labelled) -> Result<LabelledOptions, RunError> {
    let (classifier, vocab) = (classifier(recipe)?, vocabulary_size(recipe)?);
    let (train, format) = file(recipe);
    let options = LabelledOptions::new(train, classifier.labels, texts.max_length, vocab, composition(recipe));
    let columns = texts.columns.as_ref();
    Ok(LabelledOptions {
        format,
        validation: validation_file(recipe),
        validation_fraction: fraction(recipe),
        text: columns.map_or(options.text, |c| c.text.clone()),
        text_pair: columns.and_then(|c| c.text_pair.clone()),
        label: columns.map_or(options.label, |c| c.label.names().to_vec()),
        labels: columns.and_then(|c| c.labels.clone()),
        kind: match classifier.problem {
            ProblemType::Single => LabelKind::Single,
            ProblemType::Multi => LabelKind::Multi,
            ProblemType::Regression => LabelKind::Regression,
        },
        pad: classifier.padding as i32,
        types: classifier.segments > 1,
        skip_bad_rows: columns.is_some_and(|c| c.on_bad_row == BadRows::Skip),
        ..options
    })
}

fn load_labelled(recipe: &Recipe, texts: &Labelled) -> Result<LoadedData, RunError> {
    let (options, tokenizer) = (labelled_options(recipe, texts)?, tokenizer(recipe, texts.tokenizer.as_deref())?);
    let data = match (&recipe.data.source, tokenizer) {
        (Source::Synthetic { name: Synthetic::Sentiment, samples, seed }, tokenizer) => {
            data::sentiment(*samples, *seed, &options, tokenizer)?
        }
        (Source::File { .. }, Some(tokenizer)) => data::load_labelled(&options, tokenizer)?,
        (Source::Synthetic { name, .. }, _) => return wrong_source(*name, "synthetic:sentiment"),
        (Source::File { .. }, None) => return refused("no tokenizer", "name one with data.tokenizer"),
    };
    Ok(LoadedData {
        train: Arc::new(data.train),
        validation: optional(data.validation),
        best_accuracy: data.best_accuracy,
        best_loss: None,
        report: data.report,
        extras: Extras::Labelled { classes: data.classes, tokenizer: data.tokenizer },
    })
}

/// What is said about pairs, whatever file they come from.
pub fn pairs_options(recipe: &Recipe, pairs: &Pairs) -> Result<PairsOptions, RunError> {
    let tokens = decoder(recipe)?.tokens();
    let (train, format) = file(recipe);
    let (source, target) = (pairs.max_length, pairs.max_target_length);
    let options = PairsOptions::new(train, source, target, tokens.vocabulary, composition(recipe));
    let columns = pairs.columns.as_ref();
    Ok(PairsOptions {
        format,
        validation: validation_file(recipe),
        validation_fraction: fraction(recipe),
        source: columns.map_or(options.source, |c| c.text.clone()),
        target: columns.map_or(options.target, |c| c.target.clone()),
        prefix: pairs.prefix.clone(),
        pad: tokens.padding as i32,
        eos: tokens.end as u32,
        decoder_start: tokens.start as i32,
        skip_bad_rows: columns.is_some_and(|c| c.on_bad_row == BadRows::Skip),
        ..options
    })
}

fn load_pairs(recipe: &Recipe, pairs: &Pairs) -> Result<LoadedData, RunError> {
    let (options, tokenizer) = (pairs_options(recipe, pairs)?, tokenizer(recipe, pairs.tokenizer.as_deref())?);
    let data = match (&recipe.data.source, tokenizer) {
        (Source::Synthetic { name: Synthetic::Recipes, samples, seed }, tokenizer) => {
            data::recipes(*samples, *seed, &options, tokenizer)?
        }
        (Source::File { .. }, Some(tokenizer)) => data::load_pairs(&options, tokenizer)?,
        (Source::Synthetic { name, .. }, _) => return wrong_source(*name, "synthetic:recipes"),
        (Source::File { .. }, None) => return refused("no tokenizer", "name one with data.tokenizer"),
    };
    Ok(LoadedData {
        train: Arc::new(data.train),
        validation: optional(data.validation),
        best_accuracy: None,
        best_loss: None,
        report: data.report,
        extras: Extras::Pairs { tokenizer: data.tokenizer },
    })
}

/// How images are brought to the model's size: as its checkpoint says, or as CLIP does.
fn preparation(recipe: &Recipe, side: usize) -> Result<Preparation, RunError> {
    let checkpoint = recipe.model.origin().and_then(|origin| origin.checkpoint.as_ref());
    match checkpoint {
        Some(folder) => Ok(Preparation::of_checkpoint(&recipe.resolve_path(folder), side)?),
        None => Ok(Preparation::clip(side)),
    }
}

/// What is said about images with captions, whatever file they come from.
pub fn caption_options(recipe: &Recipe, captions: &Captions, tokenizer: PathBuf) -> Result<CaptionOptions, RunError> {
    let (train, format) = file(recipe);
    let images = towers(recipe)?.images();
    Ok(CaptionOptions {
        train,
        format,
        validation: validation_file(recipe),
        validation_fraction: fraction(recipe),
        image: captions.image.clone(),
        caption: captions.caption.clone(),
        template: captions.template.clone(),
        on_bad_row: captions.on_bad_row,
        tokenizer,
        sizes: CaptionSizes { max_length: captions.max_length, vocab: images.vocab, end: images.end },
        preparation: preparation(recipe, images.side)?,
    })
}

fn load_captions(recipe: &Recipe, captions: &Captions) -> Result<LoadedData, RunError> {
    let images = towers(recipe)?.images();
    if images.channels != 3 {
        let cause = format!("images have 3 channels, the model takes {}", images.channels);
        return refused(cause, "set model.vision_config.num_channels = 3");
    }
    match &recipe.data.source {
        Source::Synthetic { name: Synthetic::Shapes, samples, seed } => {
            let data = data::shapes(&ShapesOptions {
                seed: *seed,
                samples: *samples,
                validation_fraction: fraction(recipe),
                max_length: captions.max_length,
                vocab: images.vocab,
                preparation: preparation(recipe, images.side)?,
                batch: plimsoll_planner::choose::evaluate_batch(recipe).unwrap_or(1),
            })?;
            let best_accuracy = match &data.report {
                DataReport::Captions(report) => report.best_accuracy,
                _ => None,
            };
            Ok(LoadedData {
                train: Arc::new(data.train),
                validation: optional(data.validation),
                best_accuracy,
                best_loss: None,
                report: data.report,
                extras: Extras::Captions { tokenizer: Some(data::shapes_tokenizer()?.json().to_string()) },
            })
        }
        Source::Synthetic { name, .. } => wrong_source(*name, "synthetic:shapes"),
        Source::File { .. } => {
            let tokenizer = tokenizer_file(recipe, captions.tokenizer.as_deref())?;
            let data = images::load_captions(&caption_options(recipe, captions, tokenizer)?)?;
            Ok(LoadedData {
                train: Arc::new(data.train),
                validation: optional(data.validation),
                best_accuracy: None,
                best_loss: None,
                report: data.report,
                extras: Extras::Captions { tokenizer: None },
            })
        }
    }
}
