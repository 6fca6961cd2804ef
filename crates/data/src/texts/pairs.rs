//! Pairs of texts for models that read one and write the other.

use super::{
    TextTokenizer,
    composition::padding_cost,
    options::{PairsOptions, with_id},
    read::{Job, Spot, text_of},
    split::hold_out,
    store::{Stream, Tokens},
};
use crate::{
    Asked, DataError, DataReport, Dataset, Element, FieldSpec, Ladder, LengthReport, Place, Reading, RowMut,
    TextsReport,
    asked::{Named, id_of},
    formats::{Cell, Columns, Row},
};
use plimsoll_base::batching::Buckets;
use std::{path::Path, sync::Arc};

/// Pairs ready for training.
#[derive(Debug)]
pub struct PairsData {
    pub train: PairedTexts,
    /// Empty when the validation fraction is 0.
    pub validation: PairedTexts,
    pub tokenizer: Arc<TextTokenizer>,
    pub report: DataReport,
}

/// Fields: `ids` and `mask` of the source; `decoder_ids`, `targets` and `weights` of the target.
#[derive(Clone, Debug)]
pub struct PairedTexts {
    shared: Arc<Shared>,
    rows: Vec<u32>,
    owner: bool,
    fields: Arc<[FieldSpec]>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    encode: Encode,
    /// Sources of about one length are brought together by it, then sorted by their targets. The same whatever lengths
    /// batches may have: those cost memory and time, and must not decide what is learned.
    rungs: Ladder,
}

#[derive(Debug)]
enum Store {
    Tokens { sources: Tokens, targets: Tokens },
    Stream(Stream),
}

/// How texts become ids.
#[derive(Clone, Debug)]
struct Encode {
    tokenizer: Arc<TextTokenizer>,
    columns: Columns,
    prefix: String,
    limits: [usize; 2],
    vocab: usize,
    eos: u32,
    decoder_start: i32,
}

/// The ids of a source and its target, each with its end.
struct Pair {
    source: Vec<u32>,
    target: Vec<u32>,
    truncated: bool,
}

impl Encode {
    fn new(options: &PairsOptions, tokenizer: Arc<TextTokenizer>) -> Self {
        Encode {
            tokenizer,
            columns: options.columns(),
            prefix: options.prefix.clone(),
            limits: [options.max_length, options.max_target_length],
            vocab: options.vocab,
            eos: options.eos,
            decoder_start: options.decoder_start,
        }
    }

    fn pair(&self, file: &Path, place: Place, cells: Vec<Cell<'_>>) -> Result<Pair, DataError> {
        let mut cells = cells.into_iter();
        let mut next =
            |at: usize| text_of(file, place, &self.columns.names()[at], cells.next().unwrap_or(Cell::Missing));
        let (source, target) = (next(0)?, next(1)?);
        let (source, cut_source) = self.text(&format!("{}{source}", self.prefix), self.limits[0])?;
        let (target, cut_target) = self.text(&target, self.limits[1])?;
        Ok(Pair { source, target, truncated: cut_source || cut_target })
    }

    /// Ids of a text that end with the end of a text, also where it was cut; whether it was.
    fn text(&self, text: &str, most: usize) -> Result<(Vec<u32>, bool), DataError> {
        let mut ids = Vec::new();
        self.tokenizer.encode_plain_into(text, self.vocab, &mut ids)?;
        let truncated = ids.len() + 1 > most;
        match self.tokenizer.cuts_left() {
            true => drop(ids.drain(..ids.len().saturating_sub(most - 1))),
            false => ids.truncate(most - 1),
        }
        ids.push(self.eos);
        Ok((ids, truncated))
    }
}

impl PairedTexts {
    /// What a sample consists of.
    pub fn sample_fields(max_length: usize, max_target_length: usize, pad: i32) -> Vec<FieldSpec> {
        vec![
            FieldSpec::variable("ids", Element::I32, 0, max_length, pad),
            FieldSpec::variable("mask", Element::I32, 0, max_length, 0),
            FieldSpec::variable("decoder_ids", Element::I32, 1, max_target_length, pad),
            FieldSpec::variable("targets", Element::I32, 1, max_target_length, 0),
            FieldSpec::variable("weights", Element::F32, 1, max_target_length, 0),
        ]
    }

    fn row(&self, sample: usize) -> usize {
        self.rows[sample] as usize
    }

    /// Tokens of source and target; unknown while texts stay in their file.
    pub fn lengths(&self, sample: usize) -> Option<[usize; 2]> {
        match &self.shared.store {
            Store::Tokens { sources, targets } => {
                let row = self.row(sample);
                Some([sources.get(row).len(), targets.get(row).len()])
            }
            Store::Stream(_) => None,
        }
    }

    /// The ids of a target, its end included.
    pub fn target(&self, sample: usize) -> Option<&[u32]> {
        match &self.shared.store {
            Store::Tokens { targets, .. } => Some(targets.get(self.row(sample))),
            Store::Stream(_) => None,
        }
    }

    fn part(&self, rows: Vec<u32>, owner: bool) -> PairedTexts {
        PairedTexts { rows, owner, ..self.clone() }
    }

    fn fill_pair(&self, row: &mut RowMut<'_>, source: &[u32], target: &[u32]) {
        row.grow_i32(0).extend(source.iter().map(|&id| id as i32));
        row.grow_i32(1).resize(source.len(), 1);
        let shifted = target.iter().take(target.len().saturating_sub(1)).map(|&id| id as i32);
        row.grow_i32(2).extend([self.shared.encode.decoder_start].into_iter().chain(shifted).take(target.len()));
        row.grow_i32(3).extend(target.iter().map(|&id| id as i32));
        row.grow_f32(4).resize(target.len(), 1.0);
    }
}

impl Dataset for PairedTexts {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let at = self.row(sample);
        match &self.shared.store {
            Store::Tokens { sources, targets } => self.fill_pair(row, sources.get(at), targets.get(at)),
            Store::Stream(stream) => {
                let (place, cells) = stream.cells(at)?;
                let pair = self.shared.encode.pair(stream.path(), place, cells)?;
                self.fill_pair(row, &pair.source, &pair.target);
            }
        }
        Ok(())
    }

    /// By the rung of the source, then by the target: both axes of a batch are then about even. Targets ascend on one
    /// rung and descend on the next, so that a batch across two rungs stays even too.
    fn size(&self, sample: usize) -> usize {
        match (&self.shared.store, self.lengths(sample)) {
            (_, Some([source, target])) => {
                let rung = self.shared.rungs.rung(source);
                let turned = if rung.is_multiple_of(2) { target } else { MOST_TARGET - target.min(MOST_TARGET) };
                rung * (MOST_TARGET + 1) + turned
            }
            (Store::Stream(stream), None) => stream.size(self.row(sample)),
            (Store::Tokens { .. }, None) => 0,
        }
    }

    fn resident_bytes(&self) -> usize {
        let shared = match &self.shared.store {
            _ if !self.owner => 0,
            Store::Tokens { sources, targets } => sources.resident_bytes() + targets.resident_bytes(),
            Store::Stream(stream) => stream.resident_bytes(),
        };
        shared + 4 * self.rows.len()
    }
}

/// No target has more tokens.
const MOST_TARGET: usize = 1 << 24;

/// Reads, checks, tokenizes and splits the files of `options`.
pub fn load_pairs(options: &PairsOptions, tokenizer: TextTokenizer) -> Result<PairsData, DataError> {
    let mut reader = options.open(&options.train, &options.columns())?;
    assemble_pairs(options, tokenizer, || reader.next_owned())
}

/// The sources of a file, in file order, as ids: what a trained model answers. `id` is the column with what rows are
/// called. Rows that cannot be used are told beside.
pub fn read_sources(
    file: &Path,
    options: &PairsOptions,
    id: Option<&str>,
    tokenizer: Arc<TextTokenizer>,
) -> Result<(Vec<Vec<i32>>, Asked), DataError> {
    let columns = with_id(vec![options.source.clone()], id);
    let encode = Encode::new(options, tokenizer);
    let mut reader = options.open(file, &columns)?;
    let job = Job { file, columns: &columns, threads: options.threads, skip: false };
    let (mut sources, mut asked) = (Vec::new(), Asked::default());
    let work = |place, mut cells: Vec<Cell<'_>>| {
        let id = if id.is_some() { cells.pop().and_then(id_of) } else { None };
        let text = text_of(file, place, &options.source, cells.pop().unwrap_or(Cell::Missing));
        let outcome = text.and_then(|text| encode.text(&format!("{}{text}", encode.prefix), encode.limits[0]));
        Ok(Named { id, outcome })
    };
    let next = || reader.next_owned();
    job.each_row(next, work, |at, _, worked| {
        asked.take(at, worked, |(ids, _)| {
            sources.push(ids.into_iter().map(|id| id as i32).collect());
            Ok(())
        })
    })?;
    Ok((sources, asked))
}

/// One source as ids.
pub fn encode_source(text: &str, options: &PairsOptions, tokenizer: Arc<TextTokenizer>) -> Result<Vec<i32>, DataError> {
    let encode = Encode::new(options, tokenizer);
    let (ids, _) = encode.text(&format!("{}{text}", encode.prefix), encode.limits[0])?;
    Ok(ids.into_iter().map(|id| id as i32).collect())
}

/// As [`load_pairs`], for training rows from anywhere.
pub(crate) fn assemble_pairs(
    options: &PairsOptions,
    tokenizer: TextTokenizer,
    mut next: impl FnMut() -> Result<Option<Row<'static>>, DataError>,
) -> Result<PairsData, DataError> {
    options.check()?;
    let tokenizer = Arc::new(tokenizer);
    let (whole, reading, truncated) = read_part(options, &options.train, &tokenizer, &mut next)?;
    let [train, validation] = match &options.validation {
        Some(file) => {
            let mut reader = options.open(file, &options.columns())?;
            let (held_out, read, _) = read_part(options, file, &tokenizer, &mut || reader.next_owned())?;
            [whole.part((0..reading.rows as u32).collect(), true), held_out.part((0..read.rows as u32).collect(), true)]
        }
        None => {
            let [train, validation] = hold_out(reading.rows, options.validation_fraction, 1, |_| 0);
            [whole.part(train, true), whole.part(validation, false)]
        }
    };
    if train.is_empty() {
        return Err(DataError::TooFewSamples { file: options.train.clone(), rows: reading.rows });
    }
    let report = report(options, &tokenizer, [&train, &validation], reading, truncated)?;
    Ok(PairsData { train, validation, tokenizer, report: DataReport::Texts(report) })
}

fn read_part(
    options: &PairsOptions,
    file: &Path,
    tokenizer: &Arc<TextTokenizer>,
    next: &mut dyn FnMut() -> Result<Option<Row<'static>>, DataError>,
) -> Result<(PairedTexts, Reading, Option<usize>), DataError> {
    let columns = options.columns();
    let encode = Encode::new(options, Arc::clone(tokenizer));
    let stream = Stream::of_large(file, options.memory_bytes, &columns, || options.open(file, &columns))?;
    let stays = stream.is_some();
    if stays {
        tokenizer.check_all(options.vocab)?;
    }
    let in_memory = || Store::Tokens { sources: Tokens::default(), targets: Tokens::default() };
    let mut store = stream.map_or_else(in_memory, Store::Stream);
    let mut truncated = 0;
    let job = Job { file, columns: &columns, threads: options.threads, skip: options.skip_bad_rows };
    let work = |place: Place, cells: Vec<Cell<'_>>| {
        if !stays {
            return encode.pair(file, place, cells);
        }
        for (column, cell) in columns.names().iter().zip(cells) {
            text_of(file, place, column, cell)?;
        }
        Ok(Pair { source: Vec::new(), target: Vec::new(), truncated: false })
    };
    let reading = job.run(next, work, |spot: Spot, pair| {
        truncated += usize::from(pair.truncated);
        match &mut store {
            Store::Stream(stream) => stream.push(spot.offset, spot.bytes),
            Store::Tokens { sources, targets } => {
                sources.push(&pair.source);
                targets.push(&pair.target);
            }
        }
        Ok(())
    })?;
    if let Store::Tokens { sources, targets } = &mut store {
        sources.shrink();
        targets.shrink();
    }
    let fields = PairedTexts::sample_fields(options.max_length, options.max_target_length, options.pad);
    let rungs = Ladder::of_fields(&fields, Buckets::Auto).swap_remove(0);
    let shared = Arc::new(Shared { store, encode, rungs });
    let texts = PairedTexts { shared, rows: Vec::new(), owner: true, fields: fields.into() };
    Ok((texts, reading, (!stays).then_some(truncated)))
}

fn report(
    options: &PairsOptions,
    tokenizer: &TextTokenizer,
    [train, validation]: [&PairedTexts; 2],
    reading: Reading,
    truncated: Option<usize>,
) -> Result<TextsReport, DataError> {
    let lengths = |sample: usize| train.lengths(sample).unwrap_or([0, 0]);
    let in_memory = truncated.is_some();
    let of_axis = |axis: usize| LengthReport::new((0..train.len()).map(|sample| lengths(sample)[axis]).collect());
    Ok(TextsReport {
        source: options.train.display().to_string(),
        tokenizer: tokenizer.name(),
        reading,
        train: train.len(),
        validation: validation.len(),
        max_length: vec![options.max_length, options.max_target_length],
        lengths: if in_memory { vec![of_axis(0), of_axis(1)] } else { Vec::new() },
        classes: Vec::new(),
        truncated,
        padding: if in_memory { Some(padding_cost(train, &options.composition, lengths)?) } else { None },
        resident_bytes: train.resident_bytes() + validation.resident_bytes(),
        best_accuracy: None,
    })
}

#[cfg(test)]
#[path = "pairs_tests.rs"]
mod tests;
