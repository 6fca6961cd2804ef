//! Images and the texts that belong to them.

use super::asking::{Answering, Question};
use super::shared::{file, fraction, optional, refused, tokenizer_file, unsuited, validation_file, wrong_source};
use super::{Each, Task, Trained};
use crate::RunError;
use crate::loaded::{Extras, LoadedData};
use crate::scoring::Answer;
use plimsoll_base::batching::BadRows;
use plimsoll_data::images::{self, CaptionOptions, CaptionSizes, Captioned, Preparation, read_captions};
use plimsoll_data::{self as data, DataReport, FieldSpec, ShapesOptions};
use plimsoll_models::families::{Contrast, Images};
use plimsoll_models::recipe::{Captions, Recipe, Source, Synthetic};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) struct Contrastive<'r> {
    pub recipe: &'r Recipe,
    pub keys: &'r Captions,
}

impl Task for Contrastive<'_> {
    fn load(&self) -> Result<LoadedData, RunError> {
        let images = self.towers()?.images();
        if images.channels != 3 {
            let cause = format!("images have 3 channels, the model takes {}", images.channels);
            return refused(cause, "set model.vision_config.num_channels = 3");
        }
        match &self.recipe.data.source {
            Source::Synthetic { name: Synthetic::Shapes, samples, seed } => self.draw(&images, *samples, *seed),
            Source::Synthetic { name, .. } => wrong_source(*name, "synthetic:shapes"),
            Source::File { .. } => self.read(),
        }
    }

    fn fields(&self) -> Result<Vec<FieldSpec>, RunError> {
        Ok(Captioned::sample_fields(self.towers()?.images().side, self.keys.max_length).to_vec())
    }

    fn tokenizer(&self) -> Option<&Path> {
        self.keys.tokenizer.as_deref()
    }

    fn predict(&self, asked: &Question<'_>, model: &mut dyn Trained, each: Each<'_>) -> Result<(), RunError> {
        let options = self.options(model.folder().join("model/tokenizer.json"))?;
        let id = asked.id_column(self.recipe, &[&options.image, &options.caption])?;
        let folder = if asked.file.is_dir() { Some(asked.file) } else { asked.file.parent() };
        let (images, asked) = read_captions(asked.file, &options, id.as_deref())?;
        let mut answering = Answering::new(&asked, each);
        model.embeddings(&images, &mut |sample, [image, text]| {
            let name = images.image(sample).map(|path| {
                let below = folder.and_then(|folder| path.strip_prefix(folder).ok()).unwrap_or(path);
                below.display().to_string()
            });
            let answer = match images.fault(sample) {
                Some(fault) => Answer::none(fault),
                None => {
                    let image = Some(image).filter(|_| name.is_some());
                    Answer::embeddings(image, Some(text).filter(|_| images.has_caption(sample)))
                }
            };
            answering.answer(sample, name, answer)
        })?;
        answering.finish();
        Ok(())
    }

    fn leaves_out_bad_rows(&self) -> bool {
        self.keys.on_bad_row == BadRows::Skip
    }

    fn recipe(&self) -> &Recipe {
        self.recipe
    }
}

impl Contrastive<'_> {
    fn towers(&self) -> Result<&dyn Contrast, RunError> {
        self.recipe.model.family().contrast().ok_or_else(|| unsuited(self.recipe))
    }

    /// How images are brought to the model's size: as its checkpoint says, or as CLIP does.
    fn preparation(&self, side: usize) -> Result<Preparation, RunError> {
        let checkpoint = self.recipe.model.origin().and_then(|origin| origin.checkpoint.as_ref());
        match checkpoint {
            Some(folder) => Ok(images::preparation_of(&self.recipe.resolve_path(folder), side)?),
            None => Ok(Preparation::clip(side)),
        }
    }

    /// What is said about the images and their captions, whatever file they come from.
    fn options(&self, tokenizer: PathBuf) -> Result<CaptionOptions, RunError> {
        let (train, format) = file(self.recipe);
        let images = self.towers()?.images();
        Ok(CaptionOptions {
            train,
            format,
            validation: validation_file(self.recipe),
            validation_fraction: fraction(self.recipe),
            image: self.keys.image.clone(),
            caption: self.keys.caption.clone(),
            template: self.keys.template.clone(),
            on_bad_row: self.keys.on_bad_row,
            tokenizer,
            sizes: CaptionSizes { max_length: self.keys.max_length, vocab: images.vocab, end: images.end },
            preparation: self.preparation(images.side)?,
        })
    }

    fn draw(&self, images: &Images, samples: usize, seed: u64) -> Result<LoadedData, RunError> {
        let data = data::shapes(&ShapesOptions {
            seed,
            samples,
            validation_fraction: fraction(self.recipe),
            max_length: self.keys.max_length,
            vocab: images.vocab,
            preparation: self.preparation(images.side)?,
            batch: self.recipe.train.effective_batch,
        })?;
        let best_accuracy = match &data.report {
            DataReport::Captions(report) => report.best_accuracy,
            _ => None,
        };
        let made_tokenizer = Some(data::shapes_tokenizer()?.json().to_string());
        Ok(LoadedData {
            train: Arc::new(data.train),
            validation: optional(data.validation),
            best_accuracy,
            best_loss: None,
            report: data.report,
            extras: Extras { made_tokenizer, differs_by_machine: true, ..Extras::default() },
        })
    }

    fn read(&self) -> Result<LoadedData, RunError> {
        let data = images::load_captions(&self.options(tokenizer_file(self)?)?)?;
        Ok(LoadedData {
            train: Arc::new(data.train),
            validation: optional(data.validation),
            best_accuracy: None,
            best_loss: None,
            report: data.report,
            extras: Extras { differs_by_machine: true, ..Extras::default() },
        })
    }
}
