//! From a recipe to what a run needs: the family, what learning sees, what is pinned, the data, the plan.

use super::choose::{Choice, ChooseError, Pins, RecomputePin, Speed, choose};
use super::shapes::Shapes;
use super::step::{StepSpec, UpdateRule};
use super::{Device, TrainError};
use crate::data::{
    self, CorpusOptions, DataReport, Dataset, GrammarOptions, LabelRule, LoaderOptions, Normalizer, RegimesOptions,
    SeriesOptions, Vocabulary, VocabularyChoice,
};
use crate::graph::DType;
use crate::models::{self, AttentionForm, Family};
use crate::ops::Target;
use crate::plan::LayoutOptions;
use crate::recipe::{
    self, Attention, BatchNormMode, Budget, Every, Kind, Label, Model, Offload, OptimizerState, Precision, Recipe,
    Rule, Source, Synthetic, Validation,
};
use std::sync::Arc;

/// The model family that a recipe asks for.
pub fn family(model: &Model) -> Box<dyn Family> {
    match model {
        Model::HybridCnnLstm(m) => Box::new(models::HybridCnnLstm {
            features: m.features,
            channels: m.channels.clone(),
            hidden: m.hidden,
            heads: m.heads,
            classes: m.classes,
            dropout: m.dropout,
        }),
        Model::MuSota(m) => Box::new(models::MuSota {
            vocab: m.vocab,
            layers: m.layers,
            blocks: m.blocks,
            block_width: m.block_width,
            block_heads: m.block_heads,
            cross_heads: m.cross_heads,
            ffn: m.ffn,
            max_length: m.max_length,
        }),
        Model::Bert(m) | Model::Roberta(m) | Model::XlmRoberta(m) | Model::DebertaV3(m) => {
            Box::new(models::Encoder { sizes: m.clone() })
        }
        Model::T5(m) => Box::new(models::T5 { sizes: m.clone() }),
        Model::Clip(m) => Box::new(models::Clip { sizes: m.clone() }),
    }
}

/// Steps of a series, or tokens of a text.
pub fn length(recipe: &Recipe) -> usize {
    match (&recipe.model, &recipe.data.kind) {
        (Model::HybridCnnLstm(m), _) => m.window,
        (_, Kind::Text(text)) => text.max_length,
        (Model::MuSota(m), _) => m.max_length,
        _ => 0,
    }
}

/// Samples evaluated at a time unless the recipe says: no more than a step sees, and never what sets the peak.
fn evaluate_batch(recipe: &Recipe) -> Option<usize> {
    let wanted = recipe.train.evaluate.batch.pinned().unwrap_or(recipe.train.effective_batch.min(AUTO_EVALUATE_BATCH));
    (recipe.train.evaluate.every != Every::Never).then_some(wanted)
}

const AUTO_EVALUATE_BATCH: usize = 32;

/// The precision that the recipe pins, or the device's own.
pub fn precision(recipe: &Recipe, device: &Device) -> Precision {
    recipe.memory.precision.pinned().unwrap_or(device.precision)
}

/// Element types of activations and of weights.
fn element_types(precision: Precision) -> (DType, DType) {
    match precision {
        Precision::F32 | Precision::Tf32 => (DType::F32, DType::F32),
        Precision::Bf16Mixed => (DType::Bf16, DType::F32),
        Precision::Fp16Mixed => (DType::F16, DType::F32),
        Precision::Bf16 => (DType::Bf16, DType::Bf16),
    }
}

/// What learning sees.
pub fn spec(recipe: &Recipe, device: &Device) -> StepSpec {
    let train = &recipe.train;
    let (float, master) = element_types(precision(recipe, device));
    StepSpec {
        effective_batch: train.effective_batch,
        length: length(recipe),
        target_length: 0,
        rule: match train.optimizer.rule {
            Rule::AdamW { betas: [beta1, beta2], eps } => UpdateRule::AdamW { beta1, beta2, eps },
            Rule::Sgd { momentum } => UpdateRule::Sgd { momentum },
            Rule::Adafactor => UpdateRule::Adafactor,
        },
        weight_decay: train.optimizer.weight_decay,
        decay_all: train.optimizer.decay_all,
        clip_norm: train.clip_norm.map(f64::from),
        evaluate_batch: evaluate_batch(recipe),
        samples_text: train.sample.as_ref().is_some_and(|s| s.length > 0),
        float,
        master,
        state: match recipe.memory.optimizer_state.pinned() {
            Some(OptimizerState::Bf16) => DType::Bf16,
            _ => DType::F32,
        },
    }
}

/// What the recipe fixes. Levers that this version does not have are refused, never ignored.
pub fn pins(recipe: &Recipe, device: &Device) -> Result<Pins, TrainError> {
    let memory = &recipe.memory;
    let refuse = |key: &str, value: String, have: &str| {
        Err(TrainError::Refused {
            cause: format!("memory.{key} = \"{value}\" is not available on {} in this version", device.name),
            hint: format!("leave it out or set it to \"{have}\""),
        })
    };
    match memory.precision.pinned() {
        None | Some(Precision::F32) => {}
        Some(_) if !device.runs => {}
        Some(other) => return refuse("precision", other.to_string(), "f32"),
    }
    match memory.optimizer_state.pinned() {
        None | Some(OptimizerState::F32) => {}
        Some(OptimizerState::Bf16) if !device.runs => {}
        Some(other) => return refuse("optimizer_state", other.to_string(), "f32"),
    }
    match memory.offload.pinned() {
        None | Some(Offload::None) => {}
        Some(other) => return refuse("offload", other.to_string(), "none"),
    }
    Ok(Pins {
        micro_batch: memory.micro_batch.pinned(),
        recompute: memory.recompute.pinned().map(|pin| match pin {
            recipe::Recompute::None => RecomputePin::None,
            recipe::Recompute::Cheap => RecomputePin::Cheap,
            recipe::Recompute::Some => RecomputePin::Some,
            recipe::Recompute::Layers => RecomputePin::Layers,
        }),
        attention: memory.attention.pinned().map(|pin| match pin {
            Attention::Materialized => AttentionForm::Materialized,
            Attention::Fused => AttentionForm::Fused,
        }),
        block_group: memory.block_group.pinned(),
        loss_chunk: memory.loss_chunk.pinned(),
        micro_statistics: matches!(&recipe.model, Model::HybridCnnLstm(m) if m.batch_norm == BatchNormMode::Micro),
        no_sharing: !memory.sharing,
    })
}

/// A plan for a device, with the budget it was made for.
pub struct Planned {
    pub choice: Choice,
    pub device: Device,
    pub budget_bytes: u64,
    pub reserve_bytes: u64,
    pub headroom_bytes: i64,
}

impl Planned {
    pub fn planned_peak_bytes(&self) -> u64 {
        self.reserve_bytes + self.choice.layout.arena_bytes as u64
    }
}

/// The phases of a plan, and those for shorter batches as they come.
pub fn shapes(recipe: &Recipe, planned: &Planned) -> Shapes {
    Shapes::new(family(&recipe.model), spec(recipe, &planned.device), &planned.choice.program)
}

/// The budget in bytes: what the user says, or 95 % of what is free.
pub fn budget_bytes(recipe: &Recipe, device: &Device) -> u64 {
    match recipe.memory.budget {
        Budget::Bytes(bytes) => bytes,
        Budget::Percent(percent) => (device.free_bytes as f64 * percent / 100.0) as u64,
        Budget::Auto => (device.free_bytes as f64 * 0.95) as u64,
    }
}

/// Chooses a plan. `DoesNotFit` carries the smallest there is.
pub fn plan(recipe: &Recipe, device: &Device) -> Result<Planned, TrainError> {
    let (family, spec, pins) = (family(&recipe.model), spec(recipe, device), pins(recipe, device)?);
    let budget = budget_bytes(recipe, device);
    let arena_budget = usize::try_from(budget.saturating_sub(device.reserve_bytes)).unwrap_or(usize::MAX);
    let options = LayoutOptions { target: Target { threads: device.threads }, sharing: true };
    let planned = |choice: Choice| Planned {
        headroom_bytes: budget as i64 - (device.reserve_bytes + choice.layout.arena_bytes as u64) as i64,
        choice,
        device: device.clone(),
        budget_bytes: budget,
        reserve_bytes: device.reserve_bytes,
    };
    match choose(family.as_ref(), &spec, &pins, options, arena_budget, Speed::of(device)) {
        Ok(choice) => Ok(planned(choice)),
        Err(ChooseError::DoesNotFit { smallest, .. }) => Err(TrainError::DoesNotFit(Box::new(planned(*smallest)))),
        Err(ChooseError::Refused { cause, hint }) => Err(TrainError::Refused { cause, hint }),
        Err(ChooseError::Plan(error)) => Err(TrainError::Plan(error)),
    }
}

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
}

/// Reads (or makes) the data that the recipe names.
pub fn load_data(recipe: &Recipe) -> Result<LoadedData, TrainError> {
    match (&recipe.model, &recipe.data.kind) {
        (Model::HybridCnnLstm(model), Kind::Series(series)) => load_series(recipe, model, series),
        (Model::MuSota(model), Kind::Text(text)) => load_text(recipe, model, text),
        _ => Err(TrainError::Refused {
            cause: "the family and the kind of data do not belong together".into(),
            hint: "series data for hybrid-cnn-lstm, text for mu-sota".into(),
        }),
    }
}

fn fraction(validation: &Validation) -> f64 {
    if let Validation::Fraction(fraction) = validation { *fraction } else { 0.0 }
}

fn optional(dataset: impl Dataset + 'static) -> Option<Arc<dyn Dataset>> {
    if dataset.is_empty() { None } else { Some(Arc::new(dataset)) }
}

fn load_series(
    recipe: &Recipe,
    model: &recipe::HybridCnnLstm,
    series: &recipe::Series,
) -> Result<LoadedData, TrainError> {
    let data = match &recipe.data.source {
        Source::Synthetic { name: Synthetic::Regimes, samples, seed } => data::regimes(&RegimesOptions {
            rows: *samples,
            features: model.features,
            seed: *seed,
            window: model.window,
            stride: series.stride,
            validation_fraction: fraction(&recipe.data.validation),
        })?,
        Source::Synthetic { name, .. } => {
            return Err(TrainError::Refused {
                cause: format!("{name} makes text, the model reads a series"),
                hint: "use source = \"synthetic:regimes\"".into(),
            });
        }
        Source::File { train, .. } => data::load_series(&SeriesOptions {
            validation: match &recipe.data.validation {
                Validation::File(file) => Some(recipe.resolve_path(file)),
                Validation::Fraction(_) => None,
            },
            features: series.columns.clone().unwrap_or_default(),
            time: series.time.clone(),
            window: model.window,
            stride: series.stride,
            validation_fraction: fraction(&recipe.data.validation),
            classes: Some(model.classes),
            ..SeriesOptions::new(recipe.resolve_path(train), label_rule(series)?)
        })?,
    };
    let width = data.normalizer.width();
    if width != model.features || data.normalizer.classes.len() > model.classes {
        return Err(TrainError::Refused {
            cause: format!(
                "the data has {width} features and {} classes, the model is built for {} and {}",
                data.normalizer.classes.len(),
                model.features,
                model.classes
            ),
            hint: format!("set model.features = {width} and model.classes, or choose columns with data.columns"),
        });
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

fn label_rule(series: &recipe::Series) -> Result<LabelRule, TrainError> {
    match &series.label {
        Some(Label::Column(column)) => Ok(LabelRule::Column(column.clone())),
        Some(Label::Derived(d)) => {
            Ok(LabelRule::Return { column: d.column.clone(), horizon: d.horizon, threshold: d.threshold })
        }
        None => Err(TrainError::Refused {
            cause: "the data has no label".into(),
            hint: "name one with data.label = \"column\"".into(),
        }),
    }
}

fn load_text(recipe: &Recipe, model: &recipe::MuSota, text: &recipe::Text) -> Result<LoadedData, TrainError> {
    let data = match &recipe.data.source {
        Source::Synthetic { name: Synthetic::Grammar, samples, seed } => data::grammar(&GrammarOptions {
            seed: *seed,
            bytes: *samples,
            max_length: text.max_length,
            vocab: model.vocab,
            validation_fraction: fraction(&recipe.data.validation),
        })?,
        Source::Synthetic { name, .. } => {
            return Err(TrainError::Refused {
                cause: format!("{name} makes a series, the model reads text"),
                hint: "use source = \"synthetic:grammar\"".into(),
            });
        }
        Source::File { train, .. } => data::load_corpus(&CorpusOptions {
            validation: match &recipe.data.validation {
                Validation::File(file) => Some(recipe.resolve_path(file)),
                Validation::Fraction(_) => None,
            },
            validation_fraction: fraction(&recipe.data.validation),
            text_field: text.text_field.clone(),
            vocabulary: match &text.tokenizer {
                Some(file) => VocabularyChoice::Tokenizer(recipe.resolve_path(file)),
                None => VocabularyChoice::Bytes,
            },
            ..CorpusOptions::new(recipe.resolve_path(train), text.max_length, model.vocab)
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
