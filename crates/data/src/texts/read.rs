//! Rows in parallel: one thread reads chunks ahead, workers parse and tokenize them, results are kept in file order.

use crate::{
    DataError, Place,
    formats::{Cell, Columns, Row},
    problems::Problems,
    report::Reading,
};
use std::{borrow::Cow, path::Path};

/// Rows and bytes that are worked on at a time: bounds the memory beside what is kept.
const CHUNK: usize = 4096;
const CHUNK_BYTES: usize = 16 << 20;

/// What to read, and how to take faults.
pub(super) struct Job<'a> {
    pub file: &'a Path,
    pub columns: &'a Columns,
    pub threads: usize,
    /// Leave out rows that cannot be used.
    pub skip: bool,
}

/// Where a row was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub place: Place,
    pub offset: u64,
    pub bytes: u32,
}

/// A row's result, and where the row was.
type Worked<O> = (Spot, Result<O, DataError>);

impl Job<'_> {
    /// Passes every row that `next` gives through `work`, on worker threads, and the results to `keep`, in order. Rows that
    /// cannot be used are left out, or end the reading all together.
    pub(super) fn run<O: Send>(
        &self,
        next: impl FnMut() -> Result<Option<Row<'static>>, DataError>,
        work: impl Fn(Place, Vec<Cell<'_>>) -> Result<O, DataError> + Sync,
        mut keep: impl FnMut(Spot, O) -> Result<(), DataError>,
    ) -> Result<Reading, DataError> {
        let (mut reading, mut problems) = (Reading::default(), Problems::default());
        self.each_row(next, work, |_, spot, result| {
            match result.and_then(|output| keep(spot, output)) {
                Ok(()) => reading.rows += 1,
                Err(error) if self.skip && error.is_of_a_row() => {
                    reading.skipped += 1;
                    reading.first_skipped.get_or_insert_with(|| error.to_string());
                }
                Err(error) => problems.note(error)?,
            }
            Ok(())
        })?;
        problems.none_of(self.file)?;
        if reading.rows == 0 {
            return Err(DataError::Empty { file: self.file.into(), what: "rows that can be used" });
        }
        Ok(reading)
    }

    /// The same with nothing left out: `take` gets the number of each row, from 0, and what became of it.
    pub(super) fn each_row<O: Send>(
        &self,
        mut next: impl FnMut() -> Result<Option<Row<'static>>, DataError>,
        work: impl Fn(Place, Vec<Cell<'_>>) -> Result<O, DataError> + Sync,
        mut take: impl FnMut(usize, Spot, Result<O, DataError>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let (mut rows, mut count) = (chunk(&mut next)?, 0);
        while !rows.is_empty() {
            let (done, ahead) = self.work_while(rows, &work, || chunk(&mut next));
            for (spot, result) in done {
                take(count, spot, result)?;
                count += 1;
            }
            rows = ahead?;
        }
        Ok(())
    }

    /// Works on `rows` while the caller's thread does something else.
    fn work_while<O: Send, R>(
        &self,
        rows: Vec<Row<'static>>,
        work: &(impl Fn(Place, Vec<Cell<'_>>) -> Result<O, DataError> + Sync),
        meanwhile: impl FnOnce() -> R,
    ) -> (Vec<Worked<O>>, R) {
        let count = rows.len().div_ceil(self.threads.max(1));
        let mut rows = rows.into_iter();
        let parts: Vec<Vec<Row<'static>>> =
            (0..self.threads.max(1)).map(|_| rows.by_ref().take(count).collect()).collect();
        std::thread::scope(|scope| {
            let workers: Vec<_> = parts
                .into_iter()
                .filter(|part| !part.is_empty())
                .map(|part| {
                    let spots: Vec<Spot> = part.iter().map(spot).collect();
                    let one = move |mut row: Row<'static>| {
                        let spot = spot(&row);
                        (spot, row.cells(self.file, self.columns).and_then(|cells| work(spot.place, cells)))
                    };
                    (spots, scope.spawn(move || part.into_iter().map(one).collect::<Vec<_>>()))
                })
                .collect();
            let other = meanwhile();
            let failed = || DataError::Worker { cause: "panic while a row was read".into() };
            let join = |(spots, worker): (Vec<Spot>, std::thread::ScopedJoinHandle<'_, Vec<_>>)| {
                worker.join().unwrap_or_else(|_| spots.into_iter().map(|spot| (spot, Err(failed()))).collect())
            };
            (workers.into_iter().flat_map(join).collect(), other)
        })
    }
}

fn spot(row: &Row<'_>) -> Spot {
    Spot { place: row.place, offset: row.offset, bytes: row.bytes }
}

fn chunk(next: &mut impl FnMut() -> Result<Option<Row<'static>>, DataError>) -> Result<Vec<Row<'static>>, DataError> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while rows.len() < CHUNK
        && bytes < CHUNK_BYTES
        && let Some(row) = next()?
    {
        bytes += row.bytes as usize;
        rows.push(row);
    }
    Ok(rows)
}

/// The text of a cell, which must have some.
pub(super) fn text_of<'a>(file: &Path, place: Place, column: &str, cell: Cell<'a>) -> Result<Cow<'a, str>, DataError> {
    let (file, column) = (file.into(), column.to_string());
    match cell {
        Cell::Text(text) if text.trim().is_empty() => Err(DataError::EmptyText { file, place, column }),
        Cell::Text(text) => Ok(text),
        Cell::Number(number) => Ok(Cow::Owned(number.to_string())),
        Cell::Exact(number) => Ok(Cow::Owned(number.to_string())),
        Cell::Missing => Err(DataError::MissingCell { file, place, column }),
        other => Err(DataError::WrongCell { file, place, column, found: other.kind(), wanted: "a text".into() }),
    }
}
