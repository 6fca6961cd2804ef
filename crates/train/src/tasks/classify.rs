//! Classes, labels or numbers of texts.

use super::asking::{Answering, Question};
use super::shared::{
    composition, damaged, file, fraction, optional, refused, tokenizer, tokenizer_of_run, unsuited, validation_file,
    vocabulary_size, wrong_source,
};
use super::{Each, Task, Trained};
use crate::RunError;
use crate::loaded::{Extras, LoadedData};
use crate::scoring::Answer;
use plimsoll_base::batching::BadRows;
use plimsoll_data::{self as data, FieldSpec, LabelKind, LabelledData, LabelledOptions, Texts, read_texts};
use plimsoll_models::families::{Classifier, ProblemType};
use plimsoll_models::hf::Config;
use plimsoll_models::recipe::{Labelled, Recipe, Source, Synthetic};
use std::fs;
use std::path::Path;
use std::sync::Arc;

pub(super) struct Classify<'r> {
    pub recipe: &'r Recipe,
    pub keys: &'r Labelled,
}

impl Task for Classify<'_> {
    fn load(&self) -> Result<LoadedData, RunError> {
        let data = self.read()?;
        Ok(LoadedData {
            train: Arc::new(data.train),
            validation: optional(data.validation),
            best_accuracy: data.best_accuracy,
            best_loss: None,
            report: data.report,
            extras: Extras { classes: data.classes, tokenizer: Some(data.tokenizer), ..Extras::default() },
        })
    }

    fn fields(&self) -> Result<Vec<FieldSpec>, RunError> {
        let o = self.options()?;
        Ok(Texts::sample_fields(o.max_length, o.pad, o.types, o.kind, o.num_labels))
    }

    fn tokenizer(&self) -> Option<&Path> {
        self.keys.tokenizer.as_deref()
    }

    fn predict(&self, asked: &Question<'_>, model: &mut dyn Trained, each: Each<'_>) -> Result<(), RunError> {
        let mut options = self.options()?;
        if self.keys.columns.is_none() {
            options.text = "text".into();
        }
        let mut tokenizer = tokenizer_of_run(self, model.folder())?;
        tokenizer.limit(options.max_length, options.text_pair.is_some())?;
        let used: Vec<&str> = [&options.text].into_iter().chain(&options.text_pair).map(String::as_str).collect();
        let id = asked.id_column(self.recipe, &used)?;
        let (rows, asked) = read_texts(asked.file, &options, id.as_deref(), Arc::new(tokenizer))?;
        let Classifier { labels, problem, .. } = self.classifier()?;
        let classes = self.classes(model.folder(), labels)?;
        let mut answering = Answering::new(&asked, each);
        model.logits(&rows, &mut |sample, logits| {
            answering.answer(sample, None, Answer::of(problem, logits, &classes))
        })?;
        answering.finish();
        Ok(())
    }

    fn leaves_out_bad_rows(&self) -> bool {
        self.keys.columns.as_ref().is_some_and(|columns| columns.on_bad_row == BadRows::Skip)
    }

    fn recipe(&self) -> &Recipe {
        self.recipe
    }
}

impl Classify<'_> {
    fn classifier(&self) -> Result<Classifier, RunError> {
        self.recipe.model.family().classifier().ok_or_else(|| unsuited(self.recipe))
    }

    /// What is said about the texts, whatever file they come from.
    fn options(&self) -> Result<LabelledOptions, RunError> {
        let (classifier, vocab) = (self.classifier()?, vocabulary_size(self.recipe)?);
        let (train, format) = file(self.recipe);
        let composition = composition(self.recipe);
        let options = LabelledOptions::new(train, classifier.labels, self.keys.max_length, vocab, composition);
        let columns = self.keys.columns.as_ref();
        Ok(LabelledOptions {
            format,
            validation: validation_file(self.recipe),
            validation_fraction: fraction(self.recipe),
            text: columns.map_or(options.text, |c| c.text.clone()),
            text_pair: columns.and_then(|c| c.text_pair.clone()),
            label: columns.map_or(options.label, |c| c.label.names().to_vec()),
            labels: columns.and_then(|c| c.labels.clone()),
            known_labels: self.names_of_checkpoint(classifier.labels),
            pad_has_no_place: !classifier.padding_has_a_place,
            kind: kind(classifier.problem),
            pad: classifier.padding as i32,
            types: classifier.segments > 1,
            skip_bad_rows: columns.is_some_and(|c| c.on_bad_row == BadRows::Skip),
            ..options
        })
    }

    /// What the checkpoint calls its classes, where these are as many as the model has and have names at all: its head
    /// answers in this order.
    fn names_of_checkpoint(&self, labels: usize) -> Option<Vec<String>> {
        let folder = self.recipe.model.origin()?.checkpoint.as_ref()?;
        let config = Config::open(&self.recipe.resolve_path(folder)).ok()?;
        let listed = config.keys().get("id2label")?.as_object().filter(|listed| listed.len() == labels)?;
        let name = |class: usize| Some(listed.get(&class.to_string())?.as_str()?.to_string());
        let names: Vec<String> = (0..labels).map(name).collect::<Option<_>>()?;
        let is_given = names.iter().enumerate().any(|(class, name)| *name != format!("LABEL_{class}"));
        is_given.then_some(names)
    }

    fn read(&self) -> Result<LabelledData, RunError> {
        let (options, tokenizer) = (self.options()?, tokenizer(self)?);
        match (&self.recipe.data.source, tokenizer) {
            (Source::Synthetic { name: Synthetic::Sentiment, samples, seed }, tokenizer) => {
                Ok(data::sentiment(*samples, *seed, &options, tokenizer)?)
            }
            (Source::File { .. }, Some(tokenizer)) => Ok(data::load_labelled(&options, tokenizer)?),
            (Source::Synthetic { name, .. }, _) => wrong_source(*name, "synthetic:sentiment"),
            (Source::File { .. }, None) => refused("no tokenizer", "name one with data.tokenizer"),
        }
    }

    /// Names of the classes: those of the exported config.json, or of the data.
    fn classes(&self, run: &Path, labels: usize) -> Result<Vec<String>, RunError> {
        let path = run.join("model/config.json");
        let Ok(text) = fs::read(&path) else { return Ok(self.load()?.extras.classes) };
        let config: serde_json::Value = serde_json::from_slice(&text).map_err(|e| damaged(&path, &e.to_string()))?;
        let name = |i: usize| config["id2label"][i.to_string()].as_str().map_or(format!("LABEL_{i}"), String::from);
        Ok((0..labels).map(name).collect())
    }
}

fn kind(problem: ProblemType) -> LabelKind {
    match problem {
        ProblemType::Single => LabelKind::Single,
        ProblemType::Multi => LabelKind::Multi,
        ProblemType::Regression => LabelKind::Regression,
    }
}
