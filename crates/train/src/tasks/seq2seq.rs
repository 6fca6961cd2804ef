//! A text in answer to a text.

use super::asking::{Answering, Question};
use super::shared::{
    composition, decoder, file, fraction, optional, refused, tokenizer, tokenizer_of_run, validation_file, wrong_source,
};
use super::{Each, Midway, Task, Trained, Written};
use crate::RunError;
use crate::loaded::{Extras, LoadedData};
use crate::scoring::{Answer, WrittenTexts};
use crate::writing::{GenerationOptions, Generator};
use plimsoll_base::batching::BadRows;
use plimsoll_data::{
    self as data, Batch, Dataset, FieldSpec, PairedTexts, PairsData, PairsOptions, encode_source, read_sources,
};
use plimsoll_models::families::GenerationShape;
use plimsoll_models::recipe::{Pairs, Recipe, Source, Synthetic};
use std::path::Path;
use std::sync::Arc;

/// Sources answered at a time.
const SOURCES: usize = 4;

pub(super) struct Seq2seq<'r> {
    pub recipe: &'r Recipe,
    pub keys: &'r Pairs,
}

impl Task for Seq2seq<'_> {
    fn load(&self) -> Result<LoadedData, RunError> {
        let data = self.read()?;
        Ok(LoadedData {
            train: Arc::new(data.train),
            validation: optional(data.validation),
            best_accuracy: None,
            best_loss: None,
            report: data.report,
            extras: Extras { tokenizer: Some(data.tokenizer), ..Extras::default() },
        })
    }

    fn fields(&self) -> Result<Vec<FieldSpec>, RunError> {
        let padding = decoder(self.recipe)?.tokens().padding as i32;
        Ok(PairedTexts::sample_fields(self.keys.max_length, self.keys.max_target_length, padding))
    }

    fn tokenizer(&self) -> Option<&Path> {
        self.keys.tokenizer.as_deref()
    }

    fn predict(&self, asked: &Question<'_>, model: &mut dyn Trained, each: Each<'_>) -> Result<(), RunError> {
        let (options, tokenizer) = (self.options()?, Arc::new(tokenizer_of_run(self, model.folder())?));
        let id = asked.id_column(self.recipe, &[&options.source])?;
        let (sources, asked) = read_sources(asked.file, &options, id.as_deref(), tokenizer.clone())?;
        let mut answering = Answering::new(&asked, each);
        for (group, sources) in sources.chunks(SOURCES).enumerate() {
            let written = model.write(sources, &GenerationOptions::AS_PLANNED)?;
            for (i, ids) in written.iter().enumerate() {
                let answer = Answer::Text { text: tokenizer.decode(ids)? };
                if !answering.answer(group * SOURCES + i, None, answer) {
                    return Ok(());
                }
            }
        }
        answering.finish();
        Ok(())
    }

    fn leaves_out_bad_rows(&self) -> bool {
        self.keys.columns.as_ref().is_some_and(|columns| columns.on_bad_row == BadRows::Skip)
    }

    fn judge(&self, run: Midway<'_>, most: usize) -> Result<Option<WrittenTexts>, RunError> {
        let (Some(tokenizer), Some(held_out)) = (&run.data.extras.tokenizer, &run.data.validation) else {
            return Ok(None);
        };
        let Some(generator) = Generator::find(run.program, decoder(self.recipe)?) else { return Ok(None) };
        let (count, group) = (held_out.len().min(most), generator.shape().sources.max(1));
        let (mut batch, mut texts) = (Batch::new(held_out.fields(), group)?, WrittenTexts::default());
        for first in (0..count).step_by(group) {
            batch.fill(held_out.as_ref(), first..count.min(first + group))?;
            let sources: Vec<Vec<i32>> = (0..batch.len()).map(|row| source(&batch, row)).collect();
            let written = generator.generate(run.executor, &sources, &GenerationOptions::AS_PLANNED)?;
            for (row, written) in written.iter().enumerate() {
                texts.add(&tokenizer.decode(written)?, &tokenizer.decode(&target(&batch, row))?);
            }
        }
        Ok(Some(texts))
    }

    fn room(&self, tokens: Option<usize>, beams: usize) -> Option<GenerationShape> {
        let max_new_tokens = tokens.unwrap_or(self.keys.max_target_length).max(1);
        Some(GenerationShape { sources: SOURCES, beams, source_length: self.keys.max_length, max_new_tokens })
    }

    fn generate(&self, text: &str, model: &mut dyn Trained, draw: &GenerationOptions) -> Result<String, RunError> {
        let tokenizer = Arc::new(tokenizer_of_run(self, model.folder())?);
        let source = encode_source(text, &self.options()?, tokenizer.clone())?;
        let written = model.write(&[source], draw)?;
        Ok(tokenizer.decode(&written[0])?)
    }

    /// The answer to the recipe's prompt, or else to the first source held out.
    fn sample(&self, run: Midway<'_>) -> Result<Option<Written>, RunError> {
        let (Some(tokenizer), Some(sample)) = (&run.data.extras.tokenizer, &self.recipe.train.sample) else {
            return Ok(None);
        };
        // There may be room to write for evaluations alone.
        let found = Generator::find(run.program, decoder(self.recipe)?).filter(|_| sample.length > 0);
        let Some(generator) = found else { return Ok(None) };
        let source = match (sample.prompt.is_empty(), &run.data.validation) {
            (true, Some(held_out)) => first_source(held_out.as_ref())?,
            _ => encode_source(&sample.prompt, &self.options()?, tokenizer.clone())?,
        };
        let options = GenerationOptions {
            max_new_tokens: sample.length,
            beams: sample.beams,
            temperature: sample.temperature,
            seed: self.recipe.train.seed.wrapping_add(run.step as u64),
            ..GenerationOptions::default()
        };
        let prompt = format!("{} → ", tokenizer.decode(&source)?);
        let written = generator.generate(run.executor, &[source], &options)?;
        Ok(Some(Written { prompt, text: tokenizer.decode(&written[0])? }))
    }

    fn recipe(&self) -> &Recipe {
        self.recipe
    }
}

impl Seq2seq<'_> {
    /// What is said about the pairs, whatever file they come from.
    fn options(&self) -> Result<PairsOptions, RunError> {
        let tokens = decoder(self.recipe)?.tokens();
        let (train, format) = file(self.recipe);
        let (source, target) = (self.keys.max_length, self.keys.max_target_length);
        let options = PairsOptions::new(train, source, target, tokens.vocabulary, composition(self.recipe));
        let columns = self.keys.columns.as_ref();
        Ok(PairsOptions {
            format,
            validation: validation_file(self.recipe),
            validation_fraction: fraction(self.recipe),
            source: columns.map_or(options.source, |c| c.text.clone()),
            target: columns.map_or(options.target, |c| c.target.clone()),
            prefix: self.keys.prefix.clone(),
            pad: tokens.padding as i32,
            eos: tokens.end as u32,
            decoder_start: tokens.start as i32,
            skip_bad_rows: columns.is_some_and(|c| c.on_bad_row == BadRows::Skip),
            ..options
        })
    }

    fn read(&self) -> Result<PairsData, RunError> {
        let (options, tokenizer) = (self.options()?, tokenizer(self)?);
        match (&self.recipe.data.source, tokenizer) {
            (Source::Synthetic { name: Synthetic::Recipes, samples, seed }, tokenizer) => {
                Ok(data::recipes(*samples, *seed, &options, tokenizer)?)
            }
            (Source::File { .. }, Some(tokenizer)) => Ok(data::load_pairs(&options, tokenizer)?),
            (Source::Synthetic { name, .. }, _) => wrong_source(*name, "synthetic:recipes"),
            (Source::File { .. }, None) => refused("no tokenizer", "name one with data.tokenizer"),
        }
    }
}

/// The ids of the first source of a dataset.
fn first_source(dataset: &dyn Dataset) -> Result<Vec<i32>, RunError> {
    let mut batch = Batch::new(dataset.fields(), 1)?;
    batch.fill(dataset, 0..1)?;
    Ok(source(&batch, 0))
}

/// The ids of a row's source, without what fills it up.
fn source(batch: &Batch, row: usize) -> Vec<i32> {
    let (Some(ids), Some(mask)) = (batch.field("ids"), batch.field("mask")) else { return Vec::new() };
    let rows = row..row + 1;
    let real = batch.i32(ids, rows.clone()).iter().zip(batch.i32(mask, rows)).filter(|(_, mask)| **mask != 0);
    real.map(|(&id, _)| id).collect()
}

/// The same of what was to be written.
fn target(batch: &Batch, row: usize) -> Vec<i32> {
    let (Some(ids), Some(weights)) = (batch.field("targets"), batch.field("weights")) else { return Vec::new() };
    let rows = row..row + 1;
    let real = batch.i32(ids, rows.clone()).iter().zip(batch.f32(weights, rows)).filter(|(_, weight)| **weight > 0.0);
    real.map(|(&id, _)| id).collect()
}
