//! What was read, in numbers: for the screen and for the run's events.

mod captions;
mod texts;

pub use captions::CaptionReport;
pub use texts::{LengthReport, Reading};

use super::{Dataset, Normalizer, Windows, formats::table::Table};
use plimsoll_base::batching::Gaps;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum DataReport {
    Series(SeriesReport),
    Corpus(CorpusReport),
    Texts(TextsReport),
    Captions(CaptionReport),
}

/// Labelled texts, or pairs of texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextsReport {
    pub source: String,
    pub tokenizer: String,
    /// Of the training file.
    pub reading: Reading,
    pub train: usize,
    pub validation: usize,
    /// Tokens of a text at most; of pairs, of source and target.
    pub max_length: Vec<usize>,
    /// Of the training texts, in the same order; empty where texts stay in their file.
    pub lengths: Vec<LengthReport>,
    /// Texts that have each label; empty where labels are numbers.
    pub classes: Vec<ClassReport>,
    /// Training rows with a text that was cut; unknown where texts stay in their file.
    pub truncated: Option<usize>,
    /// Tokens computed over real tokens in the first epoch.
    pub padding: Option<f64>,
    pub resident_bytes: usize,
    pub best_accuracy: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesReport {
    pub source: String,
    /// Rows of the training file, the part split off for validation included.
    pub rows: usize,
    pub window: usize,
    pub stride: usize,
    pub features: Vec<FeatureReport>,
    pub classes: Vec<ClassReport>,
    pub train_windows: usize,
    pub validation_windows: usize,
    pub resident_bytes: usize,
    pub best_accuracy: Option<f64>,
    /// Cells without a value, and what became of their rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapReport>,
    /// Columns that are no features because they hold no numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GapReport {
    pub rule: Gaps,
    /// Of each column that has some, how many.
    pub columns: Vec<(String, usize)>,
    /// Rows with at least one.
    pub rows: usize,
}

impl GapReport {
    pub(super) fn of(table: &Table, normalizer: &Normalizer) -> Option<Self> {
        let label = normalizer.label.column().to_string();
        let names: BTreeSet<&String> = normalizer.features.iter().chain([&label]).collect();
        let counted = |name: &&String| Some((name.to_string(), table.gaps(name).len())).filter(|(_, count)| *count > 0);
        let columns: Vec<(String, usize)> = names.iter().filter_map(counted).collect();
        let rows = names.iter().flat_map(|name| table.gaps(name)).collect::<BTreeSet<_>>().len();
        (!columns.is_empty()).then_some(GapReport { rule: normalizer.gaps, columns, rows })
    }
}

impl fmt::Display for GapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.rule {
            Gaps::Forward => "filled with the value before",
            Gaps::Mean => "filled with the mean",
            Gaps::Drop => "left out",
            Gaps::Error => "refused",
        };
        const SHOWN: usize = 8;
        let columns = self.columns.iter().take(SHOWN).map(|(name, count)| format!("{count} in `{name}`"));
        write!(f, "gaps in {} rows, {done}: {}", self.rows, columns.collect::<Vec<_>>().join(", "))?;
        match self.columns.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more columns"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureReport {
    pub name: String,
    pub mean: f64,
    pub std: f64,
}

/// Windows with this label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    pub name: String,
    pub train: u64,
    pub validation: u64,
    /// How much each counts, where classes are weighed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CorpusReport {
    pub source: String,
    pub vocabulary: String,
    pub vocabulary_size: usize,
    pub documents: usize,
    pub max_length: usize,
    pub train_tokens: usize,
    pub validation_tokens: usize,
    pub train_sequences: usize,
    pub validation_sequences: usize,
    pub resident_bytes: usize,
    /// Nats per token of the best possible model, where the source knows it.
    pub best_loss: Option<f64>,
}

impl SeriesReport {
    pub(super) fn new(
        source: String,
        rows: usize,
        train: &Windows,
        validation: &Windows,
        normalizer: &Normalizer,
    ) -> Self {
        let classes = normalizer.classes.len();
        let counts = train.class_counts(classes).into_iter().zip(validation.class_counts(classes));
        let moments = normalizer.mean.iter().zip(&normalizer.std);
        SeriesReport {
            source,
            rows,
            window: normalizer.window,
            stride: normalizer.stride,
            features: (normalizer.features.iter().zip(moments))
                .map(|(name, (&mean, &std))| FeatureReport { name: name.clone(), mean, std })
                .collect(),
            classes: (normalizer.classes.iter().zip(counts))
                .map(|(name, (train, validation))| ClassReport { name: name.clone(), train, validation, weight: None })
                .collect(),
            train_windows: train.len(),
            validation_windows: validation.len(),
            resident_bytes: train.resident_bytes() + validation.resident_bytes(),
            best_accuracy: None,
            gaps: None,
            left_out: Vec::new(),
        }
    }
}

impl fmt::Display for DataReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataReport::Series(report) => report.fmt(f),
            DataReport::Corpus(report) => report.fmt(f),
            DataReport::Texts(report) => report.fmt(f),
            DataReport::Captions(report) => report.fmt(f),
        }
    }
}

impl fmt::Display for SeriesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "series {}: {} rows × {} features", self.source, self.rows, self.features.len())?;
        writeln!(
            f,
            "  windows of {} rows, stride {}: {} train, {} validation ({})",
            self.window,
            self.stride,
            self.train_windows,
            self.validation_windows,
            mebibytes(self.resident_bytes)
        )?;
        write!(f, "  classes (train/validation):")?;
        write_classes(f, &self.classes)?;
        if let Some(gaps) = &self.gaps {
            write!(f, "\n  {gaps}")?;
        }
        if !self.left_out.is_empty() {
            write!(f, "\n  no features, because they hold no numbers: {}", listed(&self.left_out))?;
        }
        const SHOWN: usize = 8;
        for feature in self.features.iter().take(SHOWN) {
            write!(f, "\n  {}: mean {:.4}, std {:.4}", feature.name, feature.mean, feature.std)?;
        }
        if self.features.len() > SHOWN {
            write!(f, "\n  … and {} more features", self.features.len() - SHOWN)?;
        }
        match self.best_accuracy {
            Some(best) => write!(f, "\n  best possible validation accuracy: {:.1} %", 100.0 * best),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CorpusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "corpus {}: {} documents, vocabulary {} of {} ids",
            self.source, self.documents, self.vocabulary, self.vocabulary_size
        )?;
        write!(
            f,
            "  sequences of {}: {} train ({} tokens), {} validation ({} tokens), {}",
            self.max_length,
            self.train_sequences,
            self.train_tokens,
            self.validation_sequences,
            self.validation_tokens,
            mebibytes(self.resident_bytes)
        )?;
        match self.best_loss {
            Some(best) => write!(f, "\n  best possible loss: {best:.4} nats per token"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for TextsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextsReport { source, reading, train, validation, resident_bytes, .. } = self;
        write!(f, "texts {source}: {} rows, {train} train, {validation} validation", reading.rows)?;
        write!(f, " ({}), tokenizer {}", mebibytes(*resident_bytes), self.tokenizer)?;
        for (lengths, name) in self.lengths.iter().zip(["texts", "targets"]) {
            write!(f, "\n  {name}: {lengths}")?;
        }
        if !self.classes.is_empty() {
            write!(f, "\n  labels (train/validation):")?;
            write_classes(f, &self.classes)?;
        }
        if let Some(cut @ 1..) = self.truncated {
            let most = self.max_length.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ");
            write!(f, "\n  {cut} rows were cut to {most} tokens")?;
        }
        if let Some(first) = &reading.first_skipped {
            write!(f, "\n  {} rows were left out; the first: {first}", reading.skipped)?;
        }
        if let Some(padding) = self.padding {
            write!(f, "\n  {padding:.3} tokens computed per real token")?;
        }
        match self.best_accuracy {
            Some(best) => write!(f, "\n  best possible accuracy: {:.1} %", 100.0 * best),
            None => Ok(()),
        }
    }
}

/// Classes with their samples, and what each counts where that is not the same.
fn write_classes(f: &mut fmt::Formatter<'_>, classes: &[ClassReport]) -> fmt::Result {
    for class in classes {
        write!(f, " {} {}/{}", class.name, class.train, class.validation)?;
        class.weight.map_or(Ok(()), |weight| write!(f, " (weight {weight:.4})"))?;
    }
    Ok(())
}

fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut text = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more", names.len() - SHOWN);
    }
    text
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}
