//! Images with captions as a dataset. Captions are tokens in memory; images are decoded when a batch wants them, on
//! the loader's workers.

use super::{
    fault::ImageFault,
    header::Header,
    list::{ImagePlace, Listed, of_folder, of_table},
    prepare::{Preparation, Studio},
};
use crate::{CaptionTokenizer, DataError, DataReport, Dataset, Element, FieldSpec, Order, RowMut, TextTokenizer};
use plimsoll_base::{batching::BadRows, formats::Format};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptionReport {
    pub source: String,
    pub train: usize,
    pub validation: usize,
    /// Images left out because they cannot be used.
    pub skipped: usize,
    /// Captions that lost their tail.
    pub truncated: usize,
    pub max_length: usize,
    /// Tokens of the longest caption, cut or not.
    pub longest: usize,
    pub side: usize,
    pub resident_bytes: usize,
    /// What decoding takes on each worker, at most.
    pub worker_bytes: usize,
    /// Retrieval at the first place that a perfect model reaches on the validation part, where it is known.
    pub best_accuracy: Option<f64>,
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
}

struct Sample {
    image: PathBuf,
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

/// All images of another table or folder, for evaluation.
pub fn read_captions(file: &Path, options: &CaptionOptions) -> Result<Captioned, DataError> {
    check(options)?;
    let tokenizer = tokenizer(options)?;
    Ok(Part::read(file, options, &tokenizer)?.dataset(options))
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

/// The usable samples of one table or folder.
struct Part {
    table: Option<PathBuf>,
    samples: Vec<Sample>,
    skipped: usize,
    truncated: usize,
    longest: usize,
}

impl Part {
    fn read(source: &Path, options: &CaptionOptions, tokenizer: &CaptionTokenizer) -> Result<Self, DataError> {
        let (listed, table) = match source.is_dir() {
            true => (of_folder(source, &options.template)?, None),
            false => {
                let format = Format::beside(source, &options.train, options.format.filter(|&f| f != Format::Folder));
                (of_table(source, format, &options.image, &options.caption)?, Some(source.to_path_buf()))
            }
        };
        let mut part = Part { table, samples: Vec::with_capacity(listed.len()), skipped: 0, truncated: 0, longest: 0 };
        for result in in_parallel(listed, |listed| Checked::new(listed, options, tokenizer)) {
            match part.located(result, options) {
                Ok(checked) => part.push(checked),
                Err(_) if options.on_bad_row == BadRows::Skip => part.skipped += 1,
                Err(error) => return Err(error),
            }
        }
        if part.samples.is_empty() {
            return Err(DataError::Empty { file: source.into(), what: "images that can be used" });
        }
        Ok(part)
    }

    fn located(&self, result: Result<Checked, Refused>, options: &CaptionOptions) -> Result<Checked, DataError> {
        result.map_err(|refused| match refused {
            Refused::Image(sample, fault) => {
                let row = self.table.as_ref().zip(sample.row).map(|(t, row)| (t.clone(), row, options.image.clone()));
                DataError::Image { place: ImagePlace { image: sample.image, row }, fault }
            }
            Refused::NoCaption(sample) => match self.table.as_ref().zip(sample.row) {
                Some((file, place)) => {
                    DataError::MissingValue { file: file.clone(), place, column: options.caption.clone() }
                }
                None => DataError::NoCaption { file: sample.image },
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
    fn new(listed: Listed, options: &CaptionOptions, tokenizer: &CaptionTokenizer) -> Result<Self, Refused> {
        if listed.caption.trim().is_empty() {
            return Err(Refused::NoCaption(listed));
        }
        let mut ids = Vec::new();
        let (end, truncated) = tokenizer.encode(&listed.caption, &mut ids).map_err(Refused::Other)?;
        ids.truncate(end + 1);
        let bytes_needed = match Header::of_file(&listed.image) {
            Ok((header, bytes)) => options.preparation.bytes_needed(&header, bytes),
            Err(fault) => return Err(Refused::Image(listed, fault)),
        };
        let sample = Sample { image: listed.image, row: listed.row, ids: ids.into_boxed_slice(), bytes_needed };
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

    pub fn image(&self, sample: usize) -> &Path {
        &self.samples[sample].image
    }

    fn prepare(&self, sample: &Sample, pixels: &mut [f32]) -> Result<(), DataError> {
        let lock = || self.shared.studios.lock().unwrap_or_else(PoisonError::into_inner);
        let mut studio = lock().pop().unwrap_or_default();
        let result = studio.open(&sample.image, &self.shared.preparation, pixels);
        lock().push(studio);
        result.map_err(|fault| {
            let row = self.shared.table.clone().zip(sample.row).map(|((table, column), row)| (table, row, column));
            DataError::Image { place: ImagePlace { image: sample.image.clone(), row }, fault }
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

    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        let sample = &self.samples[sample];
        let usable = self.prepare(sample, row.f32(PIXELS));
        if let Err(error) = usable {
            if self.shared.on_bad_row == BadRows::Error {
                return Err(error);
            }
            self.shared.unusable.fetch_add(1, Ordering::Relaxed);
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
            size_of::<Sample>() + sample.image.as_os_str().len() + sample.ids.len() * size_of::<i32>()
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

impl fmt::Display for CaptionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaptionReport { source, train, validation, side, max_length, longest, .. } = self;
        writeln!(f, "images {source}: {train} train, {validation} validation, read at {side} × {side}")?;
        write!(f, "  captions of up to {max_length} tokens (longest {longest}), {} cut", self.truncated)?;
        if self.skipped > 0 {
            write!(f, "; {} images left out as unusable", self.skipped)?;
        }
        let mebibytes = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        let (resident, worker) = (mebibytes(self.resident_bytes), mebibytes(self.worker_bytes));
        write!(f, "\n  host memory: {resident:.1} MiB, and up to {worker:.1} MiB on each worker while decoding")?;
        match self.best_accuracy {
            Some(best) => write!(f, "\n  best possible retrieval on validation: {:.1} %", 100.0 * best),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "captioned_tests.rs"]
mod tests;
