//! Labelled texts: tokens, a mask over padding, segments where the model has them, and one class or several numbers.

use super::{
    LabelKind, LengthReport, Reading, TextTokenizer,
    composition::padding_cost,
    options::LabelledOptions,
    read::{Job, Spot, text_of},
    rows::{Cell, Row, RowReader},
    split::hold_out,
    store::{Stream, Tokens},
    targets::{At, Label, LabelSet, Targets},
    tokenizer::Encoded,
};
use crate::{ClassReport, DataError, DataReport, Dataset, Element, FieldSpec, Place, RowMut, TextsReport};
use std::{path::Path, sync::Arc};

/// Labelled texts ready for training.
#[derive(Debug)]
pub struct LabelledData {
    pub train: Texts,
    /// Empty when the validation fraction is 0.
    pub validation: Texts,
    /// Names of the classes in the order of the model's outputs.
    pub classes: Vec<String>,
    pub tokenizer: Arc<TextTokenizer>,
    /// Accuracy of the best possible model, where the source knows it.
    pub best_accuracy: Option<f64>,
    pub report: DataReport,
}

/// Fields: `ids`, `mask` and, where the model has segments, `types`, all of the text's own length; `label`, or `labels`
/// (outputs); `weight`.
#[derive(Clone, Debug)]
pub struct Texts {
    shared: Arc<Shared>,
    /// Which texts of the file.
    rows: Vec<u32>,
    /// Whether the texts count as this part's memory: parts of one file share them.
    owner: bool,
    fields: Arc<[FieldSpec]>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    targets: Targets,
    encode: Encode,
    types: bool,
    /// 0 for texts whose label is not known.
    weight: f32,
}

/// How texts become ids.
#[derive(Debug)]
struct Encode {
    tokenizer: Arc<TextTokenizer>,
    /// Of the texts, then of the label.
    columns: Vec<String>,
    pair: bool,
    vocab: usize,
}

#[derive(Debug)]
enum Store {
    Tokens { tokens: Tokens, splits: Vec<u32> },
    Stream(Stream),
}

impl Texts {
    /// What a sample consists of.
    pub fn sample_fields(max_length: usize, pad: i32, types: bool, kind: LabelKind, outputs: usize) -> Vec<FieldSpec> {
        let mut fields = vec![
            FieldSpec::variable("ids", Element::I32, 0, max_length, pad),
            FieldSpec::variable("mask", Element::I32, 0, max_length, 0),
        ];
        if types {
            fields.push(FieldSpec::variable("types", Element::I32, 0, max_length, 0));
        }
        fields.push(match kind {
            LabelKind::Single => FieldSpec::new("label", Element::I32, &[]),
            _ => FieldSpec::new("labels", Element::F32, &[outputs]),
        });
        fields.push(FieldSpec::new("weight", Element::F32, &[]));
        fields
    }

    fn row(&self, sample: usize) -> usize {
        self.rows[sample] as usize
    }

    /// The row of the file that a sample is, from 0, rows left out not counted.
    pub fn file_row(&self, sample: usize) -> usize {
        self.row(sample)
    }

    /// The class of a sample, of those that have one.
    pub fn class(&self, sample: usize) -> Option<usize> {
        match &self.shared.targets {
            Targets::Classes(classes) => Some(classes[self.row(sample)] as usize),
            Targets::Values { .. } => None,
        }
    }

    /// The labels of a sample as numbers, of those that are no class.
    pub fn values(&self, sample: usize) -> Option<&[f32]> {
        match &self.shared.targets {
            Targets::Classes(_) => None,
            Targets::Values { width, values } => Some(&values[self.row(sample) * width..][..*width]),
        }
    }

    /// Tokens of a sample; unknown while texts stay in their file.
    pub fn length(&self, sample: usize) -> Option<usize> {
        match &self.shared.store {
            Store::Tokens { tokens, .. } => Some(tokens.get(self.row(sample)).len()),
            Store::Stream(_) => None,
        }
    }

    fn fill_tokens(&self, row: &mut RowMut<'_>, ids: &[u32], split: usize) {
        row.grow_i32(0).extend(ids.iter().map(|&id| id as i32));
        row.grow_i32(1).resize(ids.len(), 1);
        if self.shared.types {
            row.grow_i32(2).resize(split.min(ids.len()), 0);
            row.grow_i32(2).resize(ids.len(), 1);
        }
    }
}

impl Dataset for Texts {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let at = self.row(sample);
        match &self.shared.store {
            Store::Tokens { tokens, splits } => {
                self.fill_tokens(row, tokens.get(at), splits.get(at).map_or(usize::MAX, |&split| split as usize));
            }
            Store::Stream(stream) => {
                let (place, cells) = stream.cells(at)?;
                let mut ids = Vec::new();
                let encoded = self.shared.encode.row(stream.path(), place, cells, &mut ids)?;
                self.fill_tokens(row, &ids, encoded.split);
            }
        }
        let label = if self.shared.types { 3 } else { 2 };
        match &self.shared.targets {
            Targets::Classes(classes) => row.i32(label)[0] = classes[at] as i32,
            Targets::Values { width, values } => row.f32(label).copy_from_slice(&values[at * width..][..*width]),
        }
        row.f32(label + 1)[0] = self.shared.weight;
        Ok(())
    }

    /// Tokens, or bytes of texts that stay in their file.
    fn size(&self, sample: usize) -> usize {
        match &self.shared.store {
            Store::Tokens { tokens, .. } => tokens.get(self.row(sample)).len(),
            Store::Stream(stream) => stream.size(self.row(sample)),
        }
    }

    fn resident_bytes(&self) -> usize {
        let store = match &self.shared.store {
            Store::Tokens { tokens, splits } => tokens.resident_bytes() + 4 * splits.len(),
            Store::Stream(stream) => stream.resident_bytes(),
        };
        let shared = if self.owner { store + self.shared.targets.resident_bytes() } else { 0 };
        shared + 4 * self.rows.len()
    }
}

impl Encode {
    fn new(options: &LabelledOptions, tokenizer: Arc<TextTokenizer>) -> Self {
        Encode { tokenizer, columns: options.columns(), pair: options.text_pair.is_some(), vocab: options.vocab }
    }

    /// Appends the ids of a row's texts.
    fn row(&self, file: &Path, place: Place, cells: Vec<Cell>, ids: &mut Vec<u32>) -> Result<Encoded, DataError> {
        let mut cells = cells.into_iter();
        let mut next = |at: usize| text_of(file, place, &self.columns[at], cells.next().unwrap_or(Cell::Missing));
        let text = next(0)?;
        let second = if self.pair { Some(next(1)?) } else { None };
        self.tokenizer.encode_into(&text, second.as_deref(), self.vocab, ids)
    }
}

/// Reads, checks, tokenizes and splits the files of `options`.
pub fn load_labelled(options: &LabelledOptions, tokenizer: TextTokenizer) -> Result<LabelledData, DataError> {
    let mut reader = RowReader::open(&options.train, &options.columns())?;
    assemble_labelled(options, tokenizer, || reader.next(), None)
}

/// The texts of a file without labels, in file order, for prediction.
pub fn read_texts(file: &Path, options: &LabelledOptions, tokenizer: Arc<TextTokenizer>) -> Result<Texts, DataError> {
    let options = LabelledOptions { train: file.into(), label: Vec::new(), ..options.clone() };
    let mut reader = RowReader::open(file, &options.columns())?;
    let names = Some(Vec::new());
    let part = read_part(&options, file, &tokenizer, names.as_deref(), &mut || reader.next())?;
    let rows = (0..part.reading.rows as u32).collect();
    Ok(part.texts(&options, tokenizer).part(rows, true))
}

/// As [`load_labelled`], for training rows from anywhere.
pub(crate) fn assemble_labelled(
    options: &LabelledOptions,
    mut tokenizer: TextTokenizer,
    mut next: impl FnMut() -> Result<Option<Row>, DataError>,
    best_accuracy: Option<f64>,
) -> Result<LabelledData, DataError> {
    options.check()?;
    tokenizer.limit(options.max_length, options.text_pair.is_some())?;
    let tokenizer = Arc::new(tokenizer);
    let part = read_part(options, &options.train, &tokenizer, options.labels.as_deref(), &mut next)?;
    let (classes, reading, truncated) = (part.classes.clone(), part.reading.clone(), part.truncated);
    let whole = part.texts(options, Arc::clone(&tokenizer));
    let [train, validation] = match &options.validation {
        Some(file) => {
            let all = (0..reading.rows as u32).collect();
            let mut reader = RowReader::open(file, &options.columns())?;
            let held_out = read_part(options, file, &tokenizer, Some(&classes), &mut || reader.next())?;
            let rows = (0..held_out.reading.rows as u32).collect();
            [whole.part(all, true), held_out.texts(options, Arc::clone(&tokenizer)).part(rows, true)]
        }
        None => {
            let class = |row: usize| match &whole.shared.targets {
                Targets::Classes(classes) => classes[row] as usize,
                Targets::Values { .. } => 0,
            };
            let [train, validation] = hold_out(reading.rows, options.validation_fraction, classes.len(), class);
            [whole.part(train, true), whole.part(validation, false)]
        }
    };
    if train.is_empty() {
        let (file, part) = (options.train.clone(), "training");
        return Err(DataError::TooShort { file, part, rows: reading.rows, needed: 2 });
    }
    let report = report(options, &tokenizer, &classes, [&train, &validation], reading, truncated, best_accuracy)?;
    Ok(LabelledData { train, validation, classes, tokenizer, best_accuracy, report: DataReport::Texts(report) })
}

/// One file, read.
struct Part {
    store: Store,
    targets: Targets,
    classes: Vec<String>,
    reading: Reading,
    truncated: Option<usize>,
}

impl Part {
    fn texts(self, options: &LabelledOptions, tokenizer: Arc<TextTokenizer>) -> Texts {
        let LabelledOptions { max_length, pad, types, kind, num_labels, .. } = *options;
        Texts {
            fields: Texts::sample_fields(max_length, pad, types, kind, num_labels).into(),
            shared: Arc::new(Shared {
                store: self.store,
                targets: self.targets,
                encode: Encode::new(options, tokenizer),
                types,
                weight: if options.label.is_empty() { 0.0 } else { 1.0 },
            }),
            rows: Vec::new(),
            owner: true,
        }
    }
}

impl Texts {
    fn part(&self, rows: Vec<u32>, owner: bool) -> Texts {
        Texts { rows, owner, ..self.clone() }
    }
}

fn read_part(
    options: &LabelledOptions,
    file: &Path,
    tokenizer: &Arc<TextTokenizer>,
    names: Option<&[String]>,
    next: &mut dyn FnMut() -> Result<Option<Row>, DataError>,
) -> Result<Part, DataError> {
    let columns = options.columns();
    let to_ids = Encode::new(options, Arc::clone(tokenizer));
    let texts = columns.len() - options.label.len();
    let stays = Stream::suits(file, options.memory_bytes).unwrap_or(false);
    let mut store = match stays {
        true => Store::Stream(Stream::open(file, &columns)?),
        false => Store::Tokens { tokens: Tokens::default(), splits: Vec::new() },
    };
    let mut labels = LabelSet::new(options.kind, options.num_labels, names);
    let mut truncated = 0;
    let job = Job { file, columns: &columns, threads: options.threads, skip: options.skip_bad_rows };
    let at = |place| At { file, place, columns: &columns[texts..] };
    let work = |place: Place, mut cells: Vec<Cell>| -> Result<(Label, Vec<u32>, Encoded), DataError> {
        let label = at(place).label(options.kind, &cells.split_off(texts))?;
        let mut ids = Vec::new();
        if stays {
            for (column, cell) in columns.iter().zip(cells) {
                text_of(file, place, column, cell)?;
            }
            return Ok((label, ids, Encoded { length: 0, split: 0, truncated: false }));
        }
        let encoded = to_ids.row(file, place, cells, &mut ids)?;
        Ok((label, ids, encoded))
    };
    let reading = job.run(next, work, |spot: Spot, (label, ids, encoded)| {
        labels.push(label, &at(spot.place))?;
        truncated += usize::from(encoded.truncated);
        match &mut store {
            Store::Stream(stream) => stream.push(spot.offset, spot.bytes),
            Store::Tokens { tokens, splits } => {
                tokens.push(&ids);
                if options.types && texts > 1 {
                    splits.push(encoded.split as u32);
                }
            }
        }
        Ok(())
    })?;
    if let Store::Tokens { tokens, .. } = &mut store {
        tokens.shrink();
    }
    let (targets, classes) = labels.finish(file, &columns[texts..])?;
    Ok(Part { store, targets, classes, reading, truncated: (!stays).then_some(truncated) })
}

fn report(
    options: &LabelledOptions,
    tokenizer: &TextTokenizer,
    classes: &[String],
    [train, validation]: [&Texts; 2],
    reading: Reading,
    truncated: Option<usize>,
    best_accuracy: Option<f64>,
) -> Result<TextsReport, DataError> {
    let in_memory = train.len() > 0 && train.length(0).is_some();
    let length = |sample: usize| train.length(sample).unwrap_or(0);
    let has = |texts: &Texts, sample: usize, class: usize| match texts.values(sample) {
        Some(values) => values.get(class).is_some_and(|&value| value >= 0.5),
        None => texts.class(sample) == Some(class),
    };
    let count = |texts: &Texts, class: usize| (0..texts.len()).filter(|&s| has(texts, s, class)).count() as u64;
    let counted = |(class, name): (usize, &String)| ClassReport {
        name: name.clone(),
        train: count(train, class),
        validation: count(validation, class),
    };
    Ok(TextsReport {
        source: options.train.display().to_string(),
        tokenizer: tokenizer.name(),
        reading,
        train: train.len(),
        validation: validation.len(),
        max_length: vec![options.max_length],
        lengths: if in_memory { vec![LengthReport::new((0..train.len()).map(length).collect())] } else { Vec::new() },
        classes: match options.kind {
            LabelKind::Regression => Vec::new(),
            _ => classes.iter().enumerate().map(counted).collect(),
        },
        truncated,
        padding: match in_memory {
            true => Some(padding_cost(train, &options.composition, |sample| [length(sample), 0])?),
            false => None,
        },
        resident_bytes: train.resident_bytes() + validation.resident_bytes(),
        best_accuracy,
    })
}

#[cfg(test)]
#[path = "labelled_tests.rs"]
mod tests;
