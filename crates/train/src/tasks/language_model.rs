//! The next token of a text.

use super::shared::{fraction, optional, validation_file, vocabulary_size, wrong_source};
use super::{Each, Midway, Question, Task, Trained, Written};
use crate::RunError;
use crate::loaded::{Extras, LoadedData};
use crate::writing::{GenerationOptions, Generator};
use plimsoll_data::{
    self as data, CorpusData, CorpusOptions, FieldSpec, GrammarOptions, Sequences, Vocabulary, VocabularyChoice,
};
use plimsoll_models::families::GenerationShape;
use plimsoll_models::recipe::{self, Recipe, Source, Synthetic};
use std::path::Path;
use std::sync::Arc;

pub(super) struct LanguageModel<'r> {
    pub recipe: &'r Recipe,
    pub keys: &'r recipe::Text,
}

impl Task for LanguageModel<'_> {
    fn load(&self) -> Result<LoadedData, RunError> {
        let data = self.read()?;
        Ok(LoadedData {
            train: Arc::new(data.train),
            validation: optional(data.validation),
            best_accuracy: None,
            best_loss: data.best_loss,
            report: data.report,
            extras: Extras { vocabulary: Some(data.vocabulary), ..Extras::default() },
        })
    }

    fn fields(&self) -> Result<Vec<FieldSpec>, RunError> {
        Ok(Sequences::sample_fields(self.keys.max_length).to_vec())
    }

    fn tokenizer(&self) -> Option<&Path> {
        self.keys.tokenizer.as_deref()
    }

    fn predict(&self, _: &Question<'_>, _: &mut dyn Trained, _: Each<'_>) -> Result<(), RunError> {
        Err(RunError::Refused {
            cause: format!("{} is a language model: there is nothing to predict", self.recipe.model.name()),
            hint: "let it write text with `plimsoll generate`".into(),
        })
    }

    /// What it has written is what it reads: a window of the model's length, which moves along.
    fn room(&self, _: Option<usize>, beams: usize) -> Option<GenerationShape> {
        let window = self.keys.max_length;
        Some(GenerationShape { sources: 1, beams, source_length: window, max_new_tokens: window })
    }

    fn continues(&self) -> bool {
        true
    }

    fn generate(&self, text: &str, model: &mut dyn Trained, draw: &GenerationOptions) -> Result<String, RunError> {
        let vocabulary = self.vocabulary(model.folder())?;
        let options = GenerationOptions { end: vocabulary.end_of_text(), ..*draw };
        let written = model.write(&[self.prompt(&vocabulary, text)?], &options)?;
        Ok(vocabulary.decode(&written[0])?)
    }

    fn sample(&self, run: Midway<'_>) -> Result<Option<Written>, RunError> {
        let (Some(vocabulary), Some(sample)) = (&run.data.extras.vocabulary, &self.recipe.train.sample) else {
            return Ok(None);
        };
        let Some(generator) = Generator::without_cache(run.program) else { return Ok(None) };
        let options = GenerationOptions {
            max_new_tokens: sample.length,
            temperature: sample.temperature,
            seed: self.recipe.train.seed,
            stream: run.step as u64,
            end: vocabulary.end_of_text(),
            ..GenerationOptions::default()
        };
        let written = generator.generate(run.executor, &[self.prompt(vocabulary, &sample.prompt)?], &options)?;
        Ok(Some(Written { prompt: sample.prompt.clone(), text: vocabulary.decode(&written[0])? }))
    }

    fn recipe(&self) -> &Recipe {
        self.recipe
    }
}

impl LanguageModel<'_> {
    fn read(&self) -> Result<CorpusData, RunError> {
        let (vocab, max_length) = (vocabulary_size(self.recipe)?, self.keys.max_length);
        let validation_fraction = fraction(self.recipe);
        match &self.recipe.data.source {
            Source::Synthetic { name: Synthetic::Grammar, samples, seed } => {
                let (seed, bytes) = (*seed, *samples);
                Ok(data::grammar(&GrammarOptions { seed, bytes, max_length, vocab, validation_fraction })?)
            }
            Source::Synthetic { name, .. } => wrong_source(*name, "synthetic:grammar"),
            Source::File { train, format } => Ok(data::load_corpus(&CorpusOptions {
                format: *format,
                validation: validation_file(self.recipe),
                validation_fraction,
                text_field: self.keys.text_field.clone(),
                vocabulary: match self.tokenizer() {
                    Some(file) => VocabularyChoice::Tokenizer(self.recipe.resolve_path(file)),
                    None => VocabularyChoice::Bytes,
                },
                ..CorpusOptions::new(self.recipe.resolve_path(train), max_length, vocab)
            })?),
        }
    }

    /// With the run's own tokenizer, if it has one.
    fn vocabulary(&self, run: &Path) -> Result<Vocabulary, RunError> {
        let own = run.join("model/tokenizer.json");
        Ok(Vocabulary::open(&match self.tokenizer() {
            None => VocabularyChoice::Bytes,
            Some(_) if own.exists() => VocabularyChoice::Tokenizer(own),
            Some(file) => VocabularyChoice::Tokenizer(self.recipe.resolve_path(file)),
        })?)
    }

    /// Ids that the model knows, at least one: an empty text starts behind the end of another.
    fn prompt(&self, vocabulary: &Vocabulary, text: &str) -> Result<Vec<i32>, RunError> {
        let mut ids = vocabulary.encode_prompt(text, vocabulary_size(self.recipe)?)?;
        if ids.is_empty() {
            ids.push(vocabulary.end_of_text().unwrap_or(0) as i32);
        }
        Ok(ids)
    }
}
