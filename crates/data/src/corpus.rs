//! A corpus becomes one stream of token ids, cut into sequences. Inside a sequence the model predicts each id from
//! those before it, so a sequence of n ids has n − 1 targets.

use super::{
    DataError, Dataset, Element, FieldSpec, RowMut, Vocabulary, VocabularyChoice,
    formats::{self, Cell, Columns, Wanted},
    report::{CorpusReport, DataReport},
    series::check_fraction,
};
use crate::text;
use plimsoll_base::formats::Format;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Ids behind the real length of a sequence. The loss gives them no weight.
const PADDING: i32 = 0;

#[derive(Clone, Debug, PartialEq)]
pub struct CorpusOptions {
    /// Plain UTF-8 text (one document), or rows with a document each.
    pub train: PathBuf,
    /// Of the training file; `None`: as its extension says, and plain text where it says nothing.
    pub format: Option<Format>,
    /// Without it, the last `validation_fraction` of the training file.
    pub validation: Option<PathBuf>,
    pub validation_fraction: f64,
    /// The column of the text, where there are rows.
    pub text_field: String,
    pub vocabulary: VocabularyChoice,
    pub max_length: usize,
    /// Ids the model knows.
    pub vocab: usize,
}

impl CorpusOptions {
    /// Bytes as vocabulary, a tenth held out.
    pub fn new(train: impl Into<PathBuf>, max_length: usize, vocab: usize) -> Self {
        CorpusOptions {
            train: train.into(),
            format: None,
            validation: None,
            validation_fraction: 0.1,
            text_field: "text".into(),
            vocabulary: VocabularyChoice::Bytes,
            max_length,
            vocab,
        }
    }
}

/// A corpus ready for training.
#[derive(Debug)]
pub struct CorpusData {
    pub train: Sequences,
    /// Empty when the validation fraction is 0.
    pub validation: Sequences,
    pub vocabulary: Vocabulary,
    /// Nats per token of the best possible model, where the source knows it.
    pub best_loss: Option<f64>,
    pub report: DataReport,
}

/// Fields, each of max_length: `ids` (i32, padded with 0), `targets` (i32, the next id) and `weights` (f32, 1 where
/// there is a next id).
#[derive(Clone, Debug)]
pub struct Sequences {
    tokens: Vec<i32>,
    max_length: usize,
    fields: [FieldSpec; 3],
}

impl Sequences {
    pub(super) fn new(tokens: Vec<i32>, max_length: usize) -> Self {
        Sequences { tokens, max_length, fields: Sequences::sample_fields(max_length) }
    }

    /// What a sample of up to `max_length` ids consists of.
    pub fn sample_fields(max_length: usize) -> [FieldSpec; 3] {
        [("ids", Element::I32), ("targets", Element::I32), ("weights", Element::F32)]
            .map(|(name, element)| FieldSpec::new(name, element, &[max_length]))
    }

    pub fn tokens(&self) -> &[i32] {
        &self.tokens
    }
}

impl Dataset for Sequences {
    /// The tail is a shorter sequence; a tail of one id has no target and is left out.
    fn len(&self) -> usize {
        let (whole, tail) = (self.tokens.len() / self.max_length, self.tokens.len() % self.max_length);
        whole + usize::from(tail >= 2)
    }

    fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let rest = &self.tokens[sample * self.max_length..];
        let real = &rest[..self.max_length.min(rest.len())];
        copy_padded(row.i32(0), real);
        // Inside a sequence the last id has no next one.
        copy_padded(row.i32(1), &real[1..]);
        let (counted, padding) = row.f32(2).split_at_mut(real.len() - 1);
        counted.fill(1.0);
        padding.fill(0.0);
        Ok(())
    }

    fn resident_bytes(&self) -> usize {
        4 * self.tokens.len()
    }
}

fn copy_padded(to: &mut [i32], from: &[i32]) {
    let (real, padding) = to.split_at_mut(from.len());
    real.copy_from_slice(from);
    padding.fill(PADDING);
}

/// Reads, tokenizes, splits and packs the files of `options`.
pub fn load_corpus(options: &CorpusOptions) -> Result<CorpusData, DataError> {
    check(options)?;
    let vocabulary = Vocabulary::open(&options.vocabulary)?;
    let mut stream = Stream::read(&options.train, options, &vocabulary)?;
    let documents = stream.starts.len();
    let held_out = match &options.validation {
        Some(file) => Stream::read(file, options, &vocabulary)?.tokens,
        None => stream.hold_out(options.validation_fraction),
    };
    assemble(Parts { train: stream.tokens, validation: held_out, documents }, vocabulary, options, None)
}

/// Token streams of the two parts.
pub(super) struct Parts {
    pub train: Vec<i32>,
    pub validation: Vec<i32>,
    pub documents: usize,
}

/// Checks what every source of tokens must fulfil and cuts the sequences.
pub(super) fn assemble(
    parts: Parts,
    vocabulary: Vocabulary,
    options: &CorpusOptions,
    best_loss: Option<f64>,
) -> Result<CorpusData, DataError> {
    let validating = options.validation.is_some() || options.validation_fraction > 0.0;
    let validation_file = options.validation.as_deref().unwrap_or(&options.train);
    enough(&options.train, "training", &parts.train)?;
    within(&options.train, &parts.train, options.vocab)?;
    if validating {
        enough(validation_file, "validation", &parts.validation)?;
        within(validation_file, &parts.validation, options.vocab)?;
    }
    let train = Sequences::new(parts.train, options.max_length);
    let validation = Sequences::new(parts.validation, options.max_length);
    let report = DataReport::Corpus(CorpusReport {
        source: options.train.display().to_string(),
        vocabulary: vocabulary.name(),
        vocabulary_size: vocabulary.size(),
        documents: parts.documents,
        max_length: options.max_length,
        train_tokens: train.tokens.len(),
        validation_tokens: validation.tokens.len(),
        train_sequences: train.len(),
        validation_sequences: validation.len(),
        resident_bytes: train.resident_bytes() + validation.resident_bytes(),
        best_loss,
    });
    Ok(CorpusData { train, validation, vocabulary, best_loss, report })
}

pub(super) fn check(options: &CorpusOptions) -> Result<(), DataError> {
    check_fraction(options.validation_fraction)?;
    if !(2..=i32::MAX as usize).contains(&options.max_length) {
        return Err(DataError::option("max_length", format!("{} must be at least 2", options.max_length)));
    }
    Ok(())
}

fn enough(file: &Path, part: &'static str, tokens: &[i32]) -> Result<(), DataError> {
    match tokens.len() {
        0 | 1 => Err(DataError::TooFewTokens { file: file.into(), part, tokens: tokens.len() }),
        _ => Ok(()),
    }
}

fn within(file: &Path, tokens: &[i32], vocab: usize) -> Result<(), DataError> {
    match tokens.iter().max() {
        Some(&id) if id as usize >= vocab => {
            Err(DataError::IdBeyondVocabulary { file: file.into(), id: id as u32, vocab })
        }
        _ => Ok(()),
    }
}

/// Ids of all documents of a file, with where each begins.
struct Stream {
    tokens: Vec<i32>,
    starts: Vec<usize>,
}

impl Stream {
    fn read(file: &Path, options: &CorpusOptions, vocabulary: &Vocabulary) -> Result<Self, DataError> {
        let mut stream = Stream { tokens: Vec::new(), starts: Vec::new() };
        let (field, format) = (&options.text_field, Format::beside(file, &options.train, options.format));
        if let Some(opened) = formats::document(file, format)? {
            stream.read_document(file, opened, vocabulary)?;
            return stream.checked(file);
        }
        let columns = Columns::new([field.clone()]);
        let opened = formats::open(file, format, Wanted::CORPUS, &columns);
        let mut reader = opened.map_err(|error| error.named_by(&[(field, "text_field")]))?;
        let typed = reader.typed();
        while let Some(mut row) = reader.next()? {
            let place = row.place;
            match row.cells(file, &columns)?.first() {
                Some(Cell::Text(text)) => stream.push(text, vocabulary)?,
                // Without types an empty text looks like none.
                None | Some(Cell::Missing) if !typed => {}
                other => {
                    let is_there = !matches!(other, None | Some(Cell::Missing));
                    let cause =
                        if is_there { format!("`{field}` is not a string") } else { format!("there is no `{field}`") };
                    let hint = "give the record its text, or take it out of the file; data.text_field names the field";
                    return Err(DataError::Malformed { file: file.into(), place, cause, hint });
                }
            }
        }
        stream.checked(file)
    }

    fn checked(self, file: &Path) -> Result<Self, DataError> {
        if self.tokens.is_empty() {
            return Err(DataError::Empty { file: file.into(), what: "text" });
        }
        Ok(self)
    }

    /// One text, piece by piece: neither it nor what a tokenizer makes of it is ever whole in memory.
    fn read_document(&mut self, file: &Path, opened: File, vocabulary: &Vocabulary) -> Result<(), DataError> {
        self.starts.push(0);
        text::stream(file, opened, |text, is_last| {
            let end = if is_last { text.len() } else { vocabulary.whole_pieces(text) };
            vocabulary.encode_into(&text[..end], &mut self.tokens)?;
            Ok(end)
        })
    }

    /// Appends a document; the end-of-text id goes between documents.
    fn push(&mut self, text: &str, vocabulary: &Vocabulary) -> Result<(), DataError> {
        if text.is_empty() {
            return Ok(());
        }
        if let (false, Some(end)) = (self.tokens.is_empty(), vocabulary.end_of_text()) {
            self.tokens.push(end as i32);
        }
        self.starts.push(self.tokens.len());
        vocabulary.encode_into(text, &mut self.tokens)
    }

    /// Splits off about the last `fraction` of the ids: whole documents, or a part of one where no document begins near
    /// enough that this is still about the fraction.
    fn hold_out(&mut self, fraction: f64) -> Vec<i32> {
        if fraction == 0.0 {
            return Vec::new();
        }
        let held_out = (self.tokens.len() as f64 * fraction).round() as usize;
        let wanted = self.tokens.len() - held_out;
        let later = self.starts.iter().copied().skip(1);
        let nearest = later.min_by_key(|start| start.abs_diff(wanted));
        let split = nearest.filter(|start| start.abs_diff(wanted) <= held_out / 2).unwrap_or(wanted);
        self.tokens.split_off(split)
    }
}

#[cfg(test)]
#[path = "corpus_tests.rs"]
mod tests;
