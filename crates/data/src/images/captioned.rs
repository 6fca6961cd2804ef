//! Images with captions as a dataset. Captions are tokens in memory; images are decoded when a batch wants them, on
//! the loader's workers.

use super::list::{Listed, TableColumns, of_folder, of_table};
use crate::{
    Asked, CaptionTokenizer, DataError, DataReport, Dataset, Element, FieldSpec, Order, RowMut, TextTokenizer,
    asked::Named, error::ImagePlace, problems::Problems, report::CaptionReport,
};
use plimsoll_base::{batching::BadRows, formats::Format};
use plimsoll_images::{Header, ImageFault, Preparation, Studio};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// What the model says about its captions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptionSizes {
    /// Tokens of a caption, special ones included.
    pub max_length: usize,
    pub vocab: usize,
    /// `eos_token_id` of the text tower.
    pub end: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CaptionOptions {
    /// A table or a folder of images.
    pub train: PathBuf,
    /// Of the training table; `None`: as its extension says.
    pub format: Option<Format>,
    pub validation: Option<PathBuf>,
    /// A shuffled part of the training data, if there is no validation of its own.
    pub validation_fraction: f64,
    /// Columns of a table.
    pub image: String,
    pub caption: String,
    /// The caption of an image in a class folder; `{}` is the folder's name.
    pub template: String,
    pub on_bad_row: BadRows,
    /// A `tokenizer.json`.
    pub tokenizer: PathBuf,
    pub sizes: CaptionSizes,
    pub preparation: Preparation,
}

pub struct CaptionData {
    pub train: Captioned,
    pub validation: Captioned,
    pub report: DataReport,
}

/// Everything that the samples share.
struct Shared {
    table: Option<(PathBuf, String)>,
    preparation: Preparation,
    on_bad_row: BadRows,
    /// At most one for each worker that ever fills at the same time.
    studios: Mutex<Vec<Studio>>,
    /// Images that turned out to be unusable while they were decoded.
    unusable: AtomicU64,
    /// Why, for each of them.
    faults: Mutex<BTreeMap<usize, String>>,
}

struct Sample {
    /// None: there is only a caption.
    image: Option<PathBuf>,
    has_caption: bool,
    row: Option<crate::Place>,
    /// Up to the one that is read out.
    ids: Box<[i32]>,
    bytes_needed: usize,
}

pub struct Captioned {
    samples: Vec<Sample>,
    shared: Arc<Shared>,
    fields: [FieldSpec; 4],
}

/// Which of the fields is which.
pub(crate) const PIXELS: usize = 0;
pub(crate) const IDS: usize = 1;
pub(crate) const END: usize = 2;
pub(crate) const WEIGHT: usize = 3;

pub(crate) fn fields(side: usize, max_length: usize) -> [FieldSpec; 4] {
    [
        FieldSpec::new("pixels", Element::F32, &[3, side, side]),
        FieldSpec::new("ids", Element::I32, &[max_length]),
        FieldSpec::position("eos", "ids"),
        FieldSpec::new("weight", Element::F32, &[]),
    ]
}

/// Reads captions, looks at the header of every image, splits.
pub fn load_captions(options: &CaptionOptions) -> Result<CaptionData, DataError> {
    check(options)?;
    let tokenizer = tokenizer(options)?;
    let mut train = Part::read(&options.train, options, &tokenizer)?;
    let validation = match &options.validation {
        Some(file) => Part::read(file, options, &tokenizer)?,
        None => train.split(options.validation_fraction),
    };
    if train.samples.is_empty() {
        return Err(DataError::Empty { file: options.train.clone(), what: "images that can be used" });
    }
    let mut report = CaptionReport {
        source: options.train.display().to_string(),
        train: train.samples.len(),
        validation: validation.samples.len(),
        skipped: train.skipped + validation.skipped,
        truncated: train.truncated + validation.truncated,
        max_length: options.sizes.max_length,
        longest: train.longest.max(validation.longest),
        side: options.preparation.side,
        resident_bytes: 0,
        worker_bytes: 0,
        best_accuracy: None,
    };
    let (train, validation) = (train.dataset(options), validation.dataset(options));
    report.resident_bytes = train.resident_bytes() + validation.resident_bytes();
    report.worker_bytes = train.worker_bytes().max(validation.worker_bytes());
    Ok(CaptionData { train, validation, report: DataReport::Captions(report) })
}

/// All images of another table or folder, for prediction; `id` is the column with what rows are called. A table may lack
/// the column of the images or that of the captions, and images in a folder need no captions. What cannot be used is
/// told beside.
pub fn read_captions(file: &Path, options: &CaptionOptions, id: Option<&str>) -> Result<(Captioned, Asked), DataError> {
    check(options)?;
    // What turns out to be unusable when it is decoded has no answer; the others have.
    let options = CaptionOptions { on_bad_row: BadRows::Skip, ..options.clone() };
    let tokenizer = tokenizer(&options)?;
    let (listed, table) = list_asked(file, &options, id)?;
    let (mut part, mut asked) = (Part { table, ..Part::default() }, Asked::default());
    let (ids, listed): (Vec<_>, Vec<_>) =
        listed.into_iter().map(|row| (row.as_ref().ok().and_then(|l| l.id.clone()), row)).unzip();
    let results = in_parallel(listed, |row| Checked::new(row, &options, &tokenizer, Captions::Optional));
    for ((row, id), result) in ids.into_iter().enumerate().zip(results) {
        let outcome = part.located(result, &options);
        asked.take(row, Ok(Named { id, outcome }), |checked| {
            part.push(checked);
            Ok(())
        })?;
    }
    Ok((part.dataset(&options), asked))
}

/// What a file or a folder lists, and the file, where it is one.
type ListedRows = (Vec<Result<Listed, DataError>>, Option<PathBuf>);

/// The rows of a table that may lack a column, or the images of a folder.
fn list_asked(file: &Path, options: &CaptionOptions, id: Option<&str>) -> Result<ListedRows, DataError> {
    if file.is_dir() {
        return Ok((of_folder(file, &options.template)?, None));
    }
    let format = table_format(file, options);
    let names = crate::column_names(file, format)?;
    let there = |column: &'_ str| names.iter().any(|name| name == column);
    let image = Some(options.image.as_str()).filter(|column| there(column) || !there(&options.caption));
    let caption = Some(options.caption.as_str()).filter(|column| there(column));
    Ok((of_table(file, format, TableColumns { image, caption, id })?, Some(file.to_path_buf())))
}

fn table_format(file: &Path, options: &CaptionOptions) -> Option<Format> {
    Format::beside(file, &options.train, options.format.filter(|&f| f != Format::Folder))
}

fn tokenizer(options: &CaptionOptions) -> Result<CaptionTokenizer, DataError> {
    let CaptionSizes { max_length, vocab, end } = options.sizes;
    CaptionTokenizer::new(TextTokenizer::open(&options.tokenizer)?, max_length, end, vocab)
}

fn check(options: &CaptionOptions) -> Result<(), DataError> {
    crate::series::check_fraction(options.validation_fraction)?;
    if options.sizes.max_length < 2 {
        return Err(DataError::option("max_length", "a caption has at least a token and its end"));
    }
    match options.preparation.side {
        0 | 65_537.. => Err(DataError::option("image_size", "must be in 1..=65536")),
        _ => Ok(()),
    }
}

/// Whether an image needs a caption.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Captions {
    Required,
    Optional,
}

/// The usable samples of one table or folder.
#[derive(Default)]
struct Part {
    table: Option<PathBuf>,
    samples: Vec<Sample>,
    skipped: usize,
    truncated: usize,
    longest: usize,
}

impl Part {
    fn read(source: &Path, options: &CaptionOptions, tokenizer: &CaptionTokenizer) -> Result<Self, DataError> {
        let (image, caption) = (Some(options.image.as_str()), Some(options.caption.as_str()));
        let (listed, table) = match source.is_dir() {
            true => (of_folder(source, &options.template)?, None),
            false => {
                let columns = TableColumns { image, caption, id: None };
                (of_table(source, table_format(source, options), columns)?, Some(source.to_path_buf()))
            }
        };
        let (mut part, mut problems) = (Part { table, ..Part::default() }, Problems::default());
        for result in in_parallel(listed, |row| Checked::new(row, options, tokenizer, Captions::Required)) {
            match part.located(result, options) {
                Ok(checked) => part.push(checked),
                Err(_) if options.on_bad_row == BadRows::Skip => part.skipped += 1,
                Err(error) => problems.note(error)?,
            }
        }
        problems.none_of(source)?;
        if part.samples.is_empty() {
            return Err(DataError::Empty { file: source.into(), what: "images that can be used" });
        }
        Ok(part)
    }

    fn located(&self, result: Result<Checked, Refused>, options: &CaptionOptions) -> Result<Checked, DataError> {
        result.map_err(|refused| match refused {
            Refused::Image(sample, fault) => {
                let row = self.table.as_ref().zip(sample.row).map(|(t, row)| (t.clone(), row, options.image.clone()));
                DataError::Image { place: ImagePlace { image: sample.image.unwrap_or_default(), row }, fault }
            }
            Refused::NoCaption(sample) => match self.table.as_ref().zip(sample.row) {
                Some((file, place)) => {
                    DataError::MissingCell { file: file.clone(), place, column: options.caption.clone() }
                }
                None => DataError::NoCaption { file: sample.image.unwrap_or_default() },
            },
            Refused::Other(error) => error,
        })
    }

    fn push(&mut self, checked: Checked) {
        self.truncated += usize::from(checked.truncated);
        self.longest = self.longest.max(checked.sample.ids.len());
        self.samples.push(checked.sample);
    }

    /// Takes out a shuffled part, always the same.
    fn split(&mut self, fraction: f64) -> Part {
        const SPLIT_SEED: u64 = 1;
        let total = self.samples.len();
        let held_out = ((total as f64 * fraction).round() as usize).min(total.saturating_sub(1));
        let order = Order::shuffled(total.max(1), SPLIT_SEED);
        let mut chosen = vec![false; total];
        for index in 0..held_out {
            chosen[order.sample(0, index as u64)] = true;
        }
        let mut chosen = chosen.into_iter();
        let (validation, train) = self.samples.drain(..).partition(|_| chosen.next() == Some(true));
        self.samples = train;
        Part { table: self.table.clone(), samples: validation, skipped: 0, truncated: 0, longest: 0 }
    }

    fn dataset(self, options: &CaptionOptions) -> Captioned {
        let shared = Shared {
            table: self.table.map(|table| (table, options.image.clone())),
            preparation: options.preparation.clone(),
            on_bad_row: options.on_bad_row,
            studios: Mutex::default(),
            unusable: AtomicU64::new(0),
            faults: Mutex::default(),
        };
        let fields = fields(options.preparation.side, options.sizes.max_length);
        Captioned { samples: self.samples, shared: Arc::new(shared), fields }
    }
}

struct Checked {
    sample: Sample,
    truncated: bool,
}

enum Refused {
    Image(Listed, ImageFault),
    NoCaption(Listed),
    Other(DataError),
}

impl Checked {
    fn new(
        listed: Result<Listed, DataError>,
        options: &CaptionOptions,
        tokenizer: &CaptionTokenizer,
        captions: Captions,
    ) -> Result<Self, Refused> {
        let listed = listed.map_err(Refused::Other)?;
        let has_caption = !listed.caption.trim().is_empty();
        // Of a row that has neither, there is nothing to answer.
        if !has_caption && (captions == Captions::Required || listed.image.is_none()) {
            return Err(Refused::NoCaption(listed));
        }
        let mut ids = Vec::new();
        let (end, truncated) = tokenizer.encode(&listed.caption, &mut ids).map_err(Refused::Other)?;
        ids.truncate(end + 1);
        let bytes_needed = match listed.image.as_deref().map(Header::of_file) {
            Some(Ok((header, bytes))) => options.preparation.bytes_needed(&header, bytes),
            Some(Err(fault)) => return Err(Refused::Image(listed, fault)),
            None => 0,
        };
        let (image, row) = (listed.image, listed.row);
        let sample = Sample { image, has_caption, row, ids: ids.into_boxed_slice(), bytes_needed };
        Ok(Checked { sample, truncated })
    }
}

/// Results in the order of the items, worked on by as many threads as the machine has.
fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let share = items.len().div_ceil(threads).max(1);
    let mut items = items.into_iter();
    std::thread::scope(|scope| {
        let work = &work;
        let mut running = Vec::with_capacity(threads);
        loop {
            let part: Vec<T> = items.by_ref().take(share).collect();
            if part.is_empty() {
                break;
            }
            running.push(scope.spawn(move || part.into_iter().map(work).collect::<Vec<R>>()));
        }
        let joined = running.into_iter().map(|thread| thread.join());
        joined.flat_map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

impl Captioned {
    /// What a sample consists of.
    pub fn sample_fields(side: usize, max_length: usize) -> [FieldSpec; 4] {
        fields(side, max_length)
    }

    /// Images that were left out while they were decoded: their rows have weight 0.
    #[cfg(test)]
    pub(crate) fn unusable(&self) -> u64 {
        self.shared.unusable.load(Ordering::Relaxed)
    }

    /// None for a caption without an image.
    pub fn image(&self, sample: usize) -> Option<&Path> {
        self.samples[sample].image.as_deref()
    }

    pub fn has_caption(&self, sample: usize) -> bool {
        self.samples[sample].has_caption
    }

    /// What is wrong with an image that was left out while it was decoded.
    pub fn fault(&self, sample: usize) -> Option<String> {
        self.faults().get(&sample).cloned()
    }

    fn faults(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, String>> {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self, sample: &Sample, pixels: &mut [f32]) -> Result<(), DataError> {
        let Some(image) = &sample.image else {
            pixels.fill(0.0);
            return Ok(());
        };
        let lock = || self.shared.studios.lock().unwrap_or_else(PoisonError::into_inner);
        let mut studio = lock().pop().unwrap_or_default();
        let result = studio.open(image, &self.shared.preparation, pixels);
        lock().push(studio);
        result.map_err(|fault| {
            let row = self.shared.table.clone().zip(sample.row).map(|((table, column), row)| (table, row, column));
            DataError::Image { place: ImagePlace { image: image.clone(), row }, fault }
        })
    }
}

impl Dataset for Captioned {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    fn fill(&self, at: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let sample = &self.samples[at];
        let usable = self.prepare(sample, row.f32(PIXELS));
        if let Err(error) = usable {
            if self.shared.on_bad_row == BadRows::Error {
                return Err(error);
            }
            self.shared.unusable.fetch_add(1, Ordering::Relaxed);
            self.faults().insert(at, error.to_string());
            row.f32(PIXELS).fill(0.0);
            row.f32(WEIGHT)[0] = 0.0;
        } else {
            row.f32(WEIGHT)[0] = 1.0;
        }
        write_caption(&sample.ids, row);
        Ok(())
    }

    fn resident_bytes(&self) -> usize {
        let sample = |sample: &Sample| {
            size_of::<Sample>()
                + sample.image.as_ref().map_or(0, |image| image.as_os_str().len())
                + sample.ids.len() * size_of::<i32>()
        };
        self.samples.iter().map(sample).sum()
    }

    fn worker_bytes(&self) -> usize {
        self.samples.iter().map(|sample| sample.bytes_needed).max().unwrap_or(0)
    }
}

/// The last of `ids` is read out; it also stands behind them. The text tower is causal: it never looks there.
pub(crate) fn write_caption(ids: &[i32], row: &mut RowMut<'_>) {
    let (real, rest) = row.i32(IDS).split_at_mut(ids.len());
    real.copy_from_slice(ids);
    rest.fill(ids.last().copied().unwrap_or(0));
    row.i32(END)[0] = ids.len().saturating_sub(1) as i32;
}

#[cfg(test)]
#[path = "captioned_tests.rs"]
mod tests;
