//! The largest batch that fits: the program itself is run with one batch after another.

use crate::card::Card;
use crate::report::Report;
use crate::run::{GhostError, Question};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// `batch=1..64`, and the name of what keeps the effective batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    pub name: String,
    pub lowest: u64,
    pub highest: u64,
    /// The name that takes `highest / batch`, rounded up.
    pub keep: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SearchError {
    #[error("--fit {text}: it is `NAME=LOWEST..HIGHEST`, such as `batch=1..64`")]
    Form { text: String },
    #[error("--fit {text}: {lowest} is above {highest}")]
    Empty { text: String, lowest: u64, highest: u64 },
    #[error("nothing in the command says {{{name}}}: it would never change")]
    Unused { name: String },
}

impl Search {
    pub fn parse(text: &str, keep: Option<&str>) -> Result<Search, SearchError> {
        let form = || SearchError::Form { text: text.into() };
        let (name, range) = text.split_once('=').ok_or_else(form)?;
        let (lowest, highest) = range.split_once("..").ok_or_else(form)?;
        let number = |text: &str| text.trim().trim_start_matches('=').parse::<u64>().ok().filter(|number| *number > 0);
        let (lowest, highest) = (number(lowest).ok_or_else(form)?, number(highest).ok_or_else(form)?);
        if name.is_empty() {
            return Err(form());
        }
        if lowest > highest {
            return Err(SearchError::Empty { text: text.into(), lowest, highest });
        }
        Ok(Search { name: name.into(), lowest, highest, keep: keep.map(String::from) })
    }

    /// The batches to choose from: with a kept effective batch only those that divide it.
    fn choices(&self) -> Choices {
        match self.keep {
            Some(_) => Choices::Listed(divisors(self.highest).into_iter().filter(|one| *one >= self.lowest).collect()),
            None => Choices::From { lowest: self.lowest, count: (self.highest - self.lowest).saturating_add(1) },
        }
    }

    /// Fewer of them, for searches that cannot halve: doubled from the lowest, or the divisors.
    fn doubling(&self) -> Vec<u64> {
        if let Choices::Listed(listed) = self.choices() {
            return listed;
        }
        let next = |batch: &u64| batch.checked_mul(2).filter(|batch| *batch <= self.highest);
        std::iter::successors(Some(self.lowest), next).collect()
    }

    fn accumulation(&self, batch: u64) -> u64 {
        self.highest / batch
    }

    /// The command with the names filled in.
    pub fn command(&self, command: &[String], batch: u64) -> Result<Vec<String>, SearchError> {
        let place = format!("{{{}}}", self.name);
        for name in std::iter::once(&self.name).chain(&self.keep) {
            if !command.iter().any(|word| word.contains(&format!("{{{name}}}"))) {
                return Err(SearchError::Unused { name: name.clone() });
            }
        }
        let filled = command.iter().map(|word| word.replace(&place, &batch.to_string()));
        let kept = self.keep.as_ref().map(|name| format!("{{{name}}}"));
        let accumulation = self.accumulation(batch).to_string();
        Ok(filled.map(|word| kept.iter().fold(word, |word, place| word.replace(place, &accumulation))).collect())
    }
}

/// Batches in rising order. A range may be too long to be listed.
#[derive(Debug, PartialEq)]
enum Choices {
    From { lowest: u64, count: u64 },
    Listed(Vec<u64>),
}

impl Choices {
    fn count(&self) -> u64 {
        match self {
            Choices::From { count, .. } => *count,
            Choices::Listed(listed) => listed.len() as u64,
        }
    }

    fn at(&self, place: u64) -> u64 {
        match self {
            Choices::From { lowest, .. } => lowest.saturating_add(place),
            Choices::Listed(listed) => listed[place as usize],
        }
    }
}

/// In rising order, by way of the prime factors: trying every number up to a large one would not end.
fn divisors(number: u64) -> Vec<u64> {
    let (mut found, mut rest, mut factor) = (vec![1], number, 2u64);
    while rest > 1 {
        if factor.saturating_mul(factor) > rest {
            factor = rest;
        }
        let (known, mut power) = (found.len(), 1);
        while rest.is_multiple_of(factor) {
            rest /= factor;
            power *= factor;
            found.extend_from_within(..known);
            let new = found.len() - known;
            found[new..].iter_mut().for_each(|divisor| *divisor *= power);
        }
        factor += 1;
    }
    found.sort_unstable();
    found
}

/// One batch that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Try {
    pub batch: u64,
    pub accumulation: Option<u64>,
    pub fits: bool,
    pub peak_allocated_bytes: u64,
    pub peak_reserved_bytes: u64,
    pub seconds: f64,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The largest batch that fits; none where not even the smallest does.
    pub batch: Option<u64>,
    pub accumulation: Option<u64>,
    pub tries: Vec<Try>,
    /// Of the best batch.
    pub report: Option<Report>,
}

#[derive(Debug, Error)]
pub enum FitError {
    #[error(transparent)]
    Search(#[from] SearchError),
    #[error(transparent)]
    Ghost(#[from] GhostError),
    #[error("with {name} = {batch} the program failed for another reason than memory{why}")]
    Failed { name: String, batch: u64, why: String },
    #[error("interrupted by Ctrl-C, SIGTERM or SIGHUP")]
    Interrupted,
}

/// Halves the range until the largest that fits is known. Memory grows with the batch, so what fits below a batch that
/// fits need not be tried.
pub fn search(question: &Question, search: &Search, stop: &AtomicBool, tell: impl Fn(&Try)) -> Result<Fit, FitError> {
    let choices = search.choices();
    let mut fit = Fit { batch: None, accumulation: None, tries: Vec::new(), report: None };
    let (mut low, mut high) = (0, choices.count());
    // The largest first: often it fits, and nothing else has to be tried.
    let mut next = high.saturating_sub(1);
    while low < high && !stop.load(Ordering::Relaxed) {
        let batch = choices.at(next);
        let report = Question { command: search.command(&question.command, batch)?, ..question.clone() }.ask(stop)?;
        let fits = judged(&report, search, batch)?;
        let accumulation = search.keep.as_ref().map(|_| search.accumulation(batch));
        fit.tries.push(tried(batch, accumulation, fits, &report));
        fit.tries.last().into_iter().for_each(&tell);
        if fits {
            low = next + 1;
            (fit.batch, fit.accumulation, fit.report) = (Some(batch), accumulation, Some(report));
        } else {
            high = next;
        }
        next = low + (high - low) / 2;
    }
    Ok(fit)
}

fn judged(report: &Report, search: &Search, batch: u64) -> Result<bool, FitError> {
    match report.exit_code() {
        0 => Ok(true),
        3 => Ok(false),
        130 => Err(FitError::Interrupted),
        _ => Err(FitError::Failed { name: search.name.clone(), batch, why: why(report) }),
    }
}

fn why(report: &Report) -> String {
    let error = report.error.as_ref();
    error.map_or_else(String::new, |error| format!(": {}: {} at {}", error.kind, error.text, error.line))
}

/// The largest batch that a card takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardFit {
    pub card: String,
    pub total_bytes: u64,
    /// None where not even the smallest fits.
    pub batch: Option<u64>,
    pub accumulation: Option<u64>,
    /// Whether the card runs the same kernels as the one that the program ran on.
    pub same_architecture: bool,
}

/// For every card at once: batch after batch without a limit, doubling or by divisors, until no card takes it.
pub fn search_cards(
    question: &Question,
    search: &Search,
    stop: &AtomicBool,
    tell: impl Fn(&Try),
) -> Result<(Vec<CardFit>, Vec<Try>), FitError> {
    let mut cards: Vec<CardFit> = question.cards.iter().map(CardFit::none).collect();
    let mut tries = Vec::new();
    for batch in search.doubling() {
        let command = search.command(&question.command, batch)?;
        let report = Question { command, limited: false, ..question.clone() }.ask(stop)?;
        judged(&report, search, batch)?;
        let accumulation = search.keep.as_ref().map(|_| search.accumulation(batch));
        let fits = report.cards.iter().any(|card| card.fits);
        tries.push(tried(batch, accumulation, fits, &report));
        tries.last().into_iter().for_each(&tell);
        for verdict in report.cards.iter().filter(|verdict| verdict.fits) {
            let found = cards.iter_mut().filter(|card| card.card == verdict.card);
            found.for_each(|card| card.raise(batch, accumulation, verdict.same_architecture));
        }
        if !fits {
            break;
        }
    }
    Ok((cards, tries))
}

impl CardFit {
    fn none(card: &Card) -> CardFit {
        let (card, total_bytes) = (card.name.clone(), card.total_bytes);
        CardFit { card, total_bytes, batch: None, accumulation: None, same_architecture: true }
    }

    fn raise(&mut self, batch: u64, accumulation: Option<u64>, same_architecture: bool) {
        (self.batch, self.accumulation, self.same_architecture) = (Some(batch), accumulation, same_architecture);
    }
}

fn tried(batch: u64, accumulation: Option<u64>, fits: bool, report: &Report) -> Try {
    Try {
        batch,
        accumulation,
        fits,
        peak_allocated_bytes: report.peak_allocated_bytes,
        peak_reserved_bytes: report.peak_reserved_bytes,
        seconds: report.seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(String::from).collect()
    }

    #[test]
    fn names_in_the_command_are_filled_in_and_the_effective_batch_is_kept() {
        let search = Search::parse("batch=1..64", Some("accum")).unwrap();
        assert_eq!(search.choices(), Choices::Listed(vec![1, 2, 4, 8, 16, 32, 64]));
        let command = search.command(&words("python t.py --b {batch} --a={accum}"), 16).unwrap();
        assert_eq!(command, words("python t.py --b 16 --a=4"));
        let plain = Search::parse("batch=3..9", None).unwrap();
        assert_eq!((plain.choices().count(), plain.doubling()), (7, vec![3, 6]));
    }

    #[test]
    fn ranges_of_any_length_are_searched_without_being_listed() {
        for text in ["batch=1..100000000000", "batch=1..18446744073709551615"] {
            let search = Search::parse(text, None).unwrap();
            let choices = search.choices();
            assert_eq!((choices.count(), choices.at(choices.count() - 1)), (search.highest, search.highest));
            assert_eq!(search.doubling().last().map(|last| last.leading_zeros()), Some(search.highest.leading_zeros()));
            let kept = Search::parse(text, Some("accum")).unwrap().doubling();
            assert!(kept.len() > 1 && kept.iter().all(|batch| search.highest.is_multiple_of(*batch)));
        }
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!(divisors(97), [1, 97]);
        let kept = Search::parse("batch=5..36", Some("accum")).unwrap();
        assert_eq!(kept.doubling(), [6, 9, 12, 18, 36]);
    }

    #[test]
    fn what_cannot_be_searched_is_said() {
        for text in ["batch", "batch=1", "batch=a..b", "=1..2", "batch=0..4"] {
            assert!(matches!(Search::parse(text, None), Err(SearchError::Form { .. })), "{text}");
        }
        assert!(matches!(Search::parse("batch=8..4", None), Err(SearchError::Empty { .. })));
        let search = Search::parse("batch=1..4", None).unwrap();
        assert!(matches!(search.command(&words("python t.py"), 2), Err(SearchError::Unused { .. })));
        let keeping = Search::parse("batch=1..4", Some("accum")).unwrap();
        let error = keeping.command(&words("python t.py {batch}"), 2).unwrap_err();
        assert_eq!(error, SearchError::Unused { name: "accum".into() });
    }
}
