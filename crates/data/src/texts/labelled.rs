//! Labelled texts: tokens, a mask over padding, segments where the model has them, and one class or several numbers.

use super::{
    LabelKind, TextTokenizer,
    composition::padding_cost,
    options::LabelledOptions,
    read::{Job, Spot, text_of},
    split::hold_out,
    store::{Stream, Tokens},
    targets::{At, Label, LabelSet, Targets},
    tokenizer::Encoded,
};
use crate::{
    Asked, ClassReport, DataError, DataReport, Dataset, Element, FieldSpec, LengthReport, Place, Reading, RowMut,
    TextsReport,
    asked::{Named, id_of},
    formats::{Cell, Columns, Row},
};
use plimsoll_base::formats::Format;
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
    columns: Columns,
    pair: bool,
    vocab: usize,
    /// The token that no text may hold, where there is one.
    no_place: Option<u32>,
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
                self.shared.encode.refuse_padding(stream.path(), place, &ids)?;
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
        let no_place = u32::try_from(options.pad).ok().filter(|_| options.pad_has_no_place);
        let (columns, pair, vocab) = (options.columns(), options.text_pair.is_some(), options.vocab);
        Encode { tokenizer, columns, pair, vocab, no_place }
    }

    /// Texts that spell out the padding token: behind it every position would be off by one.
    fn refuse_padding(&self, file: &Path, place: Place, ids: &[u32]) -> Result<(), DataError> {
        match self.no_place.filter(|pad| ids.contains(pad)) {
            None => Ok(()),
            Some(_) => {
                let cause = "the text spells out the padding token, which the model cannot read as a word".into();
                let hint = "take the token out of the text, or leave such rows out with data.on_bad_row = \"skip\"";
                Err(DataError::Malformed { file: file.into(), place, cause, hint })
            }
        }
    }

    /// Appends the ids of a row's texts.
    fn row(&self, file: &Path, place: Place, cells: Vec<Cell<'_>>, ids: &mut Vec<u32>) -> Result<Encoded, DataError> {
        let mut cells = cells.into_iter();
        let mut next =
            |at: usize| text_of(file, place, &self.columns.names()[at], cells.next().unwrap_or(Cell::Missing));
        let text = next(0)?;
        let second = if self.pair { Some(next(1)?) } else { None };
        self.tokenizer.encode_into(&text, second.as_deref(), self.vocab, ids)
    }
}

/// Reads, checks, tokenizes and splits the files of `options`.
pub fn load_labelled(options: &LabelledOptions, tokenizer: TextTokenizer) -> Result<LabelledData, DataError> {
    let mut reader = options.open(&options.train)?;
    assemble_labelled(options, tokenizer, || reader.next_owned(), None)
}

/// The texts of a file without labels, in file order, for prediction; `id` is the column with what rows are called. Rows
/// that cannot be used are told beside.
pub fn read_texts(
    file: &Path,
    options: &LabelledOptions,
    id: Option<&str>,
    tokenizer: Arc<TextTokenizer>,
) -> Result<(Texts, Asked), DataError> {
    let format = Format::beside(file, &options.train, options.format);
    let options = LabelledOptions { train: file.into(), format, label: Vec::new(), ..options.clone() };
    let columns = options.asked_columns(id);
    let mut reader = options.open_for(file, &columns)?;
    let mut part = Building::new(&options, file, &tokenizer, Some(&[]))?;
    let (row, mut asked) = (part.rows(), Asked::default());
    let job = Job { file, columns: &columns, threads: options.threads, skip: false };
    let work = |place: Place, mut cells: Vec<Cell<'_>>| {
        let id = if id.is_some() { cells.pop().and_then(id_of) } else { None };
        Ok(Named { id, outcome: row.read(place, cells) })
    };
    let next = || reader.next_owned();
    job.each_row(next, work, |at, spot, worked| asked.take(at, worked, |read| part.keep(spot, read)))?;
    let part = part.finish(Reading::default())?;
    let rows = (0..part.targets.rows() as u32).collect();
    Ok((part.texts(&options, tokenizer).part(rows, true), asked))
}

/// As [`load_labelled`], for training rows from anywhere.
pub(crate) fn assemble_labelled(
    options: &LabelledOptions,
    mut tokenizer: TextTokenizer,
    mut next: impl FnMut() -> Result<Option<Row<'static>>, DataError>,
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
            let mut reader = options.open(file)?;
            let held_out = read_part(options, file, &tokenizer, Some(&classes), &mut || reader.next_owned())?;
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
        return Err(DataError::TooFewSamples { file: options.train.clone(), rows: reading.rows });
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
    next: &mut dyn FnMut() -> Result<Option<Row<'static>>, DataError>,
) -> Result<Part, DataError> {
    let columns = options.columns();
    let mut part = Building::new(options, file, tokenizer, names)?;
    let rows = part.rows();
    let job = Job { file, columns: &columns, threads: options.threads, skip: options.skip_bad_rows };
    let reading = job.run(next, |place, cells| rows.read(place, cells), |spot, read| part.keep(spot, read))?;
    part.finish(reading)
}

/// A file on its way to a [`Part`].
struct Building<'a> {
    options: &'a LabelledOptions,
    file: &'a Path,
    encode: Arc<Encode>,
    store: Store,
    labels: LabelSet,
    truncated: usize,
}

/// What workers need to read a row.
struct Rows<'a> {
    options: &'a LabelledOptions,
    file: &'a Path,
    encode: Arc<Encode>,
    /// Texts stay in their file.
    stays: bool,
}

impl<'a> Building<'a> {
    fn new(
        options: &'a LabelledOptions,
        file: &'a Path,
        tokenizer: &Arc<TextTokenizer>,
        names: Option<&[String]>,
    ) -> Result<Self, DataError> {
        let stream = Stream::of_large(file, options.memory_bytes, &options.columns(), || options.open(file))?;
        if stream.is_some() {
            tokenizer.check_all(options.vocab)?;
        }
        let in_memory = || Store::Tokens { tokens: Tokens::default(), splits: Vec::new() };
        Ok(Building {
            options,
            file,
            encode: Arc::new(Encode::new(options, Arc::clone(tokenizer))),
            store: stream.map_or_else(in_memory, Store::Stream),
            labels: LabelSet::new(options.kind, options.num_labels, names).preferring(options.known_labels.as_deref()),
            truncated: 0,
        })
    }

    fn stays(&self) -> bool {
        matches!(self.store, Store::Stream(_))
    }

    fn rows(&self) -> Rows<'a> {
        Rows { options: self.options, file: self.file, encode: Arc::clone(&self.encode), stays: self.stays() }
    }

    fn keep(&mut self, spot: Spot, (label, ids, encoded): (Label, Vec<u32>, Encoded)) -> Result<(), DataError> {
        let at = At { file: self.file, place: spot.place, columns: &self.options.label };
        self.labels.push(label, &at)?;
        self.truncated += usize::from(encoded.truncated);
        match &mut self.store {
            Store::Stream(stream) => stream.push(spot.offset, spot.bytes),
            Store::Tokens { tokens, splits } => {
                tokens.push(&ids);
                if self.options.types && self.options.text_pair.is_some() {
                    splits.push(encoded.split as u32);
                }
            }
        }
        Ok(())
    }

    fn finish(mut self, reading: Reading) -> Result<Part, DataError> {
        if let Store::Tokens { tokens, .. } = &mut self.store {
            tokens.shrink();
        }
        let truncated = (!self.stays()).then_some(self.truncated);
        let (targets, classes) = self.labels.finish(self.file, &self.options.label)?;
        Ok(Part { store: self.store, targets, classes, reading, truncated })
    }
}

impl Rows<'_> {
    /// The label and the tokens of a row; of texts that stay in their file it is only made sure that they are there.
    fn read(&self, place: Place, mut cells: Vec<Cell<'_>>) -> Result<(Label, Vec<u32>, Encoded), DataError> {
        let texts = if self.options.text_pair.is_some() { 2 } else { 1 };
        let labels = cells.split_off(texts.min(cells.len()));
        let label = At { file: self.file, place, columns: &self.options.label }.label(self.options.kind, &labels)?;
        let mut ids = Vec::new();
        if self.stays {
            for (column, cell) in self.encode.columns.names().iter().zip(cells) {
                text_of(self.file, place, column, cell)?;
            }
            return Ok((label, ids, Encoded { length: 0, split: 0, truncated: false }));
        }
        let encoded = self.encode.row(self.file, place, cells, &mut ids)?;
        self.encode.refuse_padding(self.file, place, &ids)?;
        Ok((label, ids, encoded))
    }
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
        weight: None,
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
