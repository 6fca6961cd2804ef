//! Classes of windows of a series.

use super::expect::ExpectedData;
use super::shared::{damaged, fraction, most_bytes, optional, refused, unsuited, validation_file, wrong_source};
use super::{Each, Question, Task, Trained};
use crate::RunError;
use crate::loaded::{Extras, LoadedData};
use crate::scoring::{Answer, Prediction};
use plimsoll_base::batching::Gaps;
use plimsoll_base::names::Named;
use plimsoll_data::{
    self as data, DataError, FieldSpec, LabelRule, MostNumbers, Normalizer, RegimesOptions, SeriesData, SeriesOptions,
    Windows, ask_windows, window_count,
};
use plimsoll_models::families::Input;
use plimsoll_models::recipe::{self, Label, Recipe, Source, Synthetic, Validation};
use std::fs;
use std::path::Path;
use std::sync::Arc;

pub(super) struct Series<'r> {
    pub recipe: &'r Recipe,
    pub keys: &'r recipe::Series,
}

/// In a small budget fewer numbers are kept while a file is read: at most a quarter of it.
fn most_numbers(recipe: &Recipe) -> MostNumbers {
    let usual = MostNumbers::default();
    most_bytes(recipe).map_or(usual, |bytes| MostNumbers(usual.0.min(bytes as usize / 32)))
}

/// What the model takes.
struct Sizes {
    window: usize,
    features: usize,
    classes: usize,
}

impl Task for Series<'_> {
    fn load(&self) -> Result<LoadedData, RunError> {
        let sizes = self.sizes()?;
        let data = self.read(&sizes)?;
        sizes.check(data.normalizer.width(), data.normalizer.classes.len())?;
        Ok(LoadedData {
            train: Arc::new(data.train),
            validation: optional(data.validation),
            best_accuracy: data.best_accuracy,
            best_loss: None,
            report: data.report,
            extras: Extras { normalizer: Some(data.normalizer), ..Extras::default() },
        })
    }

    fn fields(&self) -> Result<Vec<FieldSpec>, RunError> {
        let Sizes { window, features, .. } = self.sizes()?;
        Ok(Windows::sample_fields(window, features).to_vec())
    }

    /// Regimes are as many as the recipe says.
    fn expected(&self) -> Option<Result<ExpectedData, RunError>> {
        let Source::Synthetic { name: Synthetic::Regimes, samples, .. } = self.recipe.data.source else { return None };
        let Validation::Fraction(fraction) = self.recipe.data.validation else { return None };
        let sizes = self.sizes().ok()?;
        let resident_bytes = samples.checked_mul(sizes.features + 1)?.checked_mul(4)?;
        let held_out = (samples as f64 * fraction).round() as usize;
        let train_samples = window_count(samples.saturating_sub(held_out), sizes.window, self.keys.stride);
        let fits = sizes.check_rows(samples - held_out.min(samples), held_out);
        let fits = fits.and_then(|()| sizes.check(sizes.features, data::REGIMES));
        Some(fits.map(|()| ExpectedData { train_samples, resident_bytes }))
    }

    fn predict(&self, asked: &Question<'_>, model: &mut dyn Trained, each: Each<'_>) -> Result<(), RunError> {
        let normalizer = self.scales(model.folder())?;
        let used: Vec<&str> = normalizer.features.iter().chain(&normalizer.time).map(String::as_str).collect();
        let id = asked.id_column(self.recipe, &used)?;
        let format = self.recipe.data.source.format_of(asked.file);
        let found = ask_windows(asked.file, format, &normalizer, id.as_deref())?;
        let (windows, unanswered) = (&found.windows, &found.unanswered);
        let mut untold = unanswered.iter().peekable();
        let mut tell = |window: Option<usize>, row: usize, answer: Answer| {
            each(&Prediction { window, row, id: found.id(row).cloned(), image: None, answer })
        };
        model.logits(windows, &mut |sample, logits| {
            let row = windows.last_row(sample);
            while let Some(next) = untold.next_if(|next| next.row < row) {
                if !tell(next.window, next.row, Answer::none(&next.cause)) {
                    return false;
                }
            }
            tell(Some(windows.number(sample)), row, Answer::class(logits, &normalizer.classes))
        })?;
        untold.all(|rest| tell(rest.window, rest.row, Answer::none(&rest.cause)));
        Ok(())
    }

    fn leaves_out_bad_rows(&self) -> bool {
        self.keys.gaps == Gaps::Drop
    }

    fn normalizer(&self, run: &Path) -> Result<Option<Normalizer>, RunError> {
        self.scales(run).map(Some)
    }

    fn recipe(&self) -> &Recipe {
        self.recipe
    }
}

impl Series<'_> {
    fn sizes(&self) -> Result<Sizes, RunError> {
        match self.recipe.model.family().input() {
            Input::Series { features, window, classes } => Ok(Sizes { window, features, classes }),
            _ => Err(unsuited(self.recipe)),
        }
    }

    fn read(&self, sizes: &Sizes) -> Result<SeriesData, RunError> {
        let Sizes { window, features, classes } = *sizes;
        let (stride, validation_fraction) = (self.keys.stride, fraction(self.recipe));
        match &self.recipe.data.source {
            Source::Synthetic { name: Synthetic::Regimes, samples, seed } => {
                let (rows, seed) = (*samples, *seed);
                Ok(data::regimes(&RegimesOptions { rows, features, seed, window, stride, validation_fraction })?)
            }
            Source::Synthetic { name, .. } => wrong_source(*name, "synthetic:regimes"),
            Source::File { train, format } => Ok(data::load_series(&SeriesOptions {
                format: *format,
                validation: validation_file(self.recipe),
                features: self.keys.columns.clone().unwrap_or_default(),
                time: self.keys.time.clone(),
                window,
                stride,
                validation_fraction,
                classes: Some(classes),
                most_bytes: most_bytes(self.recipe),
                most_numbers: most_numbers(self.recipe),
                gaps: self.keys.gaps,
                ..SeriesOptions::new(self.recipe.resolve_path(train), self.label_rule()?)
            })?),
        }
    }

    fn label_rule(&self) -> Result<LabelRule, RunError> {
        match &self.keys.label {
            Some(Label::Column(column)) => Ok(LabelRule::Column(column.clone())),
            Some(Label::Derived(d)) => {
                Ok(LabelRule::Return { column: d.column.clone(), horizon: d.horizon, threshold: d.threshold })
            }
            None => refused("the data has no label", "name one with data.label = \"column\""),
        }
    }

    /// The run's own, or that of its data where the run ended before it wrote one.
    fn scales(&self, run: &Path) -> Result<Normalizer, RunError> {
        let path = run.join("model/normalizer.json");
        if !path.exists() {
            return self.load()?.extras.normalizer.ok_or_else(|| damaged(&path, "the data of the run is no series"));
        }
        let text = fs::read(&path).map_err(RunError::io(&path))?;
        let normalizer: Normalizer = serde_json::from_slice(&text).map_err(|e| damaged(&path, &e.to_string()))?;
        match self.sizes()?.suits(normalizer.width(), normalizer.classes.len())
            && normalizer.window == self.sizes()?.window
        {
            true => Ok(normalizer),
            false => Err(damaged(&path, "its sizes are not those of the model")),
        }
    }
}

impl Sizes {
    fn suits(&self, width: usize, classes: usize) -> bool {
        width == self.features && classes <= self.classes
    }

    /// Both parts of a series made by code must hold a window.
    fn check_rows(&self, training: usize, held_out: usize) -> Result<(), RunError> {
        let too_short = |part, rows| {
            let file = Synthetic::Regimes.name().into();
            Err(DataError::TooShort { file, part, rows, needed: self.window }.into())
        };
        match (training, held_out) {
            (rows, _) if rows < self.window => too_short("training", rows),
            (_, rows) if rows > 0 && rows < self.window => too_short("validation", rows),
            _ => Ok(()),
        }
    }

    fn check(&self, width: usize, classes: usize) -> Result<(), RunError> {
        match self.suits(width, classes) {
            true => Ok(()),
            false => refused(
                format!(
                    "the data has {width} features and {classes} classes, the model is built for {} and {}",
                    self.features, self.classes
                ),
                format!("set model.features = {width} and model.classes, or choose columns with data.columns"),
            ),
        }
    }
}
