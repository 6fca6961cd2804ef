//! A [`Batch`] is a set of buffers, made once and filled many times.

use super::{
    DataError, Dataset, Element, FieldSpec, Position,
    compose::Composer,
    dataset::{FieldMut, RowMut},
    fields::Padding,
    ladder::Ladder,
};
use plimsoll_base::batching::Buckets;
use std::ops::Range;

/// Up to `capacity` samples. Rows from `samples().len()` on are zero.
#[derive(Clone, Debug)]
pub struct Batch {
    fields: Vec<FieldSpec>,
    buffers: Vec<Buffer>,
    ladders: Vec<Ladder>,
    /// Length of each axis.
    lengths: Vec<usize>,
    /// Values before padding on each axis.
    real: Vec<usize>,
    capacity: usize,
    samples: Vec<usize>,
    /// Samples to take, while a batch is composed.
    chosen: Vec<usize>,
    pub(super) start: Position,
    pub(super) end: Position,
}

#[derive(Clone, Debug)]
enum Buffer {
    F32(Values<f32>),
    I32(Values<i32>),
}

/// Rows of one field. While a batch is filled, row `r` begins at `r · most`; then rows move together to `r · size`.
#[derive(Clone, Debug)]
struct Values<T> {
    data: Vec<T>,
    most: usize,
    size: usize,
    /// Padding, for a variable field; and the scratch that a sample is written to.
    pad: Option<T>,
    scratch: Vec<T>,
    /// How long each sample is, in a variable field.
    natural: Vec<usize>,
}

impl<T: Copy + Default> Values<T> {
    fn new(most: usize, capacity: usize, pad: Option<T>) -> Result<Self, DataError> {
        let rows = if pad.is_some() { capacity } else { 0 };
        Ok(Values {
            data: zeros(most * capacity)?,
            most,
            size: most,
            pad,
            scratch: reserved(if pad.is_some() { most } else { 0 })?,
            natural: reserved(rows)?,
        })
    }

    fn rows(&self, rows: Range<usize>) -> &[T] {
        &self.data[rows.start * self.size..rows.end * self.size]
    }

    /// Copies the sample in the scratch to its row; how long it is.
    fn keep(&mut self, row: usize) -> Result<usize, (usize, usize)> {
        let (length, at) = (self.scratch.len(), row * self.most);
        if length > self.most {
            return Err((length, self.most));
        }
        self.data[at..at + length].copy_from_slice(&self.scratch);
        self.natural.push(length);
        Ok(length)
    }

    /// Moves rows together and pads them to `size`. Rows only move towards the front, so none is overwritten.
    fn pad(&mut self, size: usize, pad: T) {
        for (row, &length) in self.natural.iter().enumerate() {
            let (from, to) = (row * self.most, row * size);
            self.data.copy_within(from..from + length, to);
            self.data[to + length..to + size].fill(pad);
        }
        self.size = size;
    }

    fn clear_rows(&mut self, rows: Range<usize>) {
        self.data[rows.start * self.size..rows.end * self.size].fill(T::default());
    }
}

impl Buffer {
    fn new(field: &FieldSpec, capacity: usize) -> Result<Self, DataError> {
        let (most, pad) = (field.elements().unwrap_or(0), field.padding.map(|p| p.value));
        Ok(match field.element {
            Element::F32 => Buffer::F32(Values::new(most, capacity, pad.map(|p| p as f32))?),
            Element::I32 => Buffer::I32(Values::new(most, capacity, pad)?),
        })
    }

    fn begin(&mut self) {
        match self {
            Buffer::F32(values) => values.natural.clear(),
            Buffer::I32(values) => values.natural.clear(),
        }
    }

    fn row(&mut self, row: usize) -> FieldMut<'_> {
        match self {
            Buffer::F32(Values { pad: Some(_), scratch, .. }) => {
                scratch.clear();
                FieldMut::GrowF32(scratch)
            }
            Buffer::I32(Values { pad: Some(_), scratch, .. }) => {
                scratch.clear();
                FieldMut::GrowI32(scratch)
            }
            Buffer::F32(Values { data, most, .. }) => FieldMut::F32(&mut data[row * *most..(row + 1) * *most]),
            Buffer::I32(Values { data, most, .. }) => FieldMut::I32(&mut data[row * *most..(row + 1) * *most]),
        }
    }

    fn keep(&mut self, row: usize) -> Result<usize, (usize, usize)> {
        match self {
            Buffer::F32(values) => values.keep(row),
            Buffer::I32(values) => values.keep(row),
        }
    }

    fn pad(&mut self, size: usize, pad: i32) {
        match self {
            Buffer::F32(values) => values.pad(size, pad as f32),
            Buffer::I32(values) => values.pad(size, pad),
        }
    }

    fn size(&self) -> usize {
        match self {
            Buffer::F32(values) => values.size,
            Buffer::I32(values) => values.size,
        }
    }
}

/// Equal are batches that feed alike; what lies behind the rows and in scratch is no content.
impl PartialEq for Batch {
    fn eq(&self, other: &Batch) -> bool {
        self.fields == other.fields
            && (self.capacity, self.start, self.end) == (other.capacity, other.start, other.end)
            && (&self.samples, &self.lengths, &self.real) == (&other.samples, &other.lengths, &other.real)
            && (0..self.fields.len())
                .all(|field| self.bytes(field, 0..self.capacity) == other.bytes(field, 0..self.capacity))
    }
}

impl Batch {
    /// Variable fields are padded to the usual lengths.
    pub fn new(fields: &[FieldSpec], capacity: usize) -> Result<Self, DataError> {
        Batch::bucketed(fields, capacity, Buckets::Auto)
    }

    /// Variable fields are padded to the lengths that `buckets` says.
    pub fn bucketed(fields: &[FieldSpec], capacity: usize, buckets: Buckets) -> Result<Self, DataError> {
        batch_bytes(fields, capacity)?;
        let ladders = Ladder::of_fields(fields, buckets);
        Ok(Batch {
            fields: fields.to_vec(),
            buffers: fields.iter().map(|field| Buffer::new(field, capacity)).collect::<Result<_, _>>()?,
            lengths: ladders.iter().map(|ladder| ladder.round(usize::MAX)).collect(),
            real: vec![0; ladders.len()],
            ladders,
            capacity,
            samples: reserved(capacity)?,
            chosen: reserved(capacity)?,
            start: Position::default(),
            end: Position::default(),
        })
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
    pub fn capacity(&self) -> usize {
        self.capacity
    }
    /// Which samples of the dataset the rows are.
    pub fn samples(&self) -> &[usize] {
        &self.samples
    }
    /// The position before this batch.
    pub fn start(&self) -> Position {
        self.start
    }
    /// The position once this batch is consumed: what a checkpoint stores.
    pub fn end(&self) -> Position {
        self.end
    }
    /// The length of each axis: that of the longest sample, rounded up by the ladder.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }
    /// Values before padding on each axis: with `len() · lengths()` it says what padding costs.
    pub fn real(&self) -> &[usize] {
        &self.real
    }
    /// Tokens of all its texts, padding left out; `None` where it has no texts.
    pub fn tokens(&self) -> Option<usize> {
        let ids = self.fields.iter().filter(|field| matches!(&*field.name, "ids" | "decoder_ids"));
        ids.map(|field| match field.padding {
            Some(Padding { axis, .. }) => self.real[axis],
            None => self.len() * field.elements().unwrap_or(0),
        })
        .reduce(|source, target| source + target)
    }
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }
    pub fn spec(&self, field: usize) -> &FieldSpec {
        &self.fields[field]
    }
    /// Values per row of a field.
    pub fn row_elements(&self, field: usize) -> usize {
        self.buffers[field].size()
    }

    /// The values of field `field` in rows `rows ⊆ 0..capacity`, row after row.
    ///
    /// # Panics
    /// If the field holds another type or the rows lie outside.
    pub fn f32(&self, field: usize, rows: Range<usize>) -> &[f32] {
        match &self.buffers[field] {
            Buffer::F32(values) => values.rows(rows),
            Buffer::I32(_) => panic!("field {field} holds i32"),
        }
    }

    /// As [`Batch::f32`], for integer fields.
    ///
    /// # Panics
    /// If the field holds another type or the rows lie outside.
    pub fn i32(&self, field: usize, rows: Range<usize>) -> &[i32] {
        match &self.buffers[field] {
            Buffer::I32(values) => values.rows(rows),
            Buffer::F32(_) => panic!("field {field} holds f32"),
        }
    }

    /// As [`Batch::f32`], the raw bytes of a field of either type.
    ///
    /// # Panics
    /// If the rows lie outside.
    pub fn bytes(&self, field: usize, rows: Range<usize>) -> &[u8] {
        match &self.buffers[field] {
            Buffer::F32(values) => bytemuck::cast_slice(values.rows(rows)),
            Buffer::I32(values) => bytemuck::cast_slice(values.rows(rows)),
        }
    }

    /// Replaces the contents by `samples` (at most `capacity` of them); rows left over become zero.
    pub fn fill(&mut self, dataset: &dyn Dataset, samples: impl Iterator<Item = usize>) -> Result<(), DataError> {
        self.begin();
        for sample in samples.take(self.capacity) {
            self.take(dataset, sample)?;
        }
        self.finish();
        Ok(())
    }

    /// Replaces the contents by the samples from `start` to `end`.
    pub(super) fn compose(&mut self, dataset: &dyn Dataset, composer: &Composer) -> Result<(), DataError> {
        // Their numbers lie in a buffer of this batch, so that nothing is allocated.
        let mut chosen = std::mem::take(&mut self.chosen);
        composer.samples(dataset, self.start, self.end, &mut chosen);
        let filled = self.fill(dataset, chosen.iter().copied());
        self.chosen = chosen;
        filled
    }

    fn begin(&mut self) {
        self.samples.clear();
        self.buffers.iter_mut().for_each(Buffer::begin);
        self.lengths.fill(0);
        self.real.fill(0);
    }

    fn take(&mut self, dataset: &dyn Dataset, sample: usize) -> Result<(), DataError> {
        let row = self.samples.len();
        dataset.fill(sample, &mut RowMut::new(self.buffers.iter_mut().map(|buffer| buffer.row(row))))?;
        for (field, buffer) in self.fields.iter().zip(&mut self.buffers) {
            if let Some(Padding { axis, .. }) = field.padding {
                let too_long = |(length, most)| DataError::Worker {
                    cause: format!("sample {sample} has {length} values in `{}`, at most {most} fit", field.name),
                };
                let length = buffer.keep(row).map_err(too_long)?;
                self.lengths[axis] = self.lengths[axis].max(length);
            }
        }
        self.samples.push(sample);
        Ok(())
    }

    /// Rounds the lengths up, pads, and clears the rows without a sample.
    fn finish(&mut self) {
        for (length, ladder) in self.lengths.iter_mut().zip(&self.ladders) {
            *length = ladder.round(*length);
        }
        let empty = self.samples.len()..self.capacity;
        for (field, buffer) in self.fields.iter().zip(&mut self.buffers) {
            if let Some(Padding { axis, value }) = field.padding {
                buffer.pad(self.lengths[axis], value);
                let natural = match buffer {
                    Buffer::F32(values) => &values.natural,
                    Buffer::I32(values) => &values.natural,
                };
                self.real[axis] = self.real[axis].max(natural.iter().sum());
            }
            match buffer {
                Buffer::F32(values) => values.clear_rows(empty.clone()),
                Buffer::I32(values) => values.clear_rows(empty.clone()),
            }
        }
    }
}

/// Memory that is not there is an error of the options, not the end of the process.
fn reserved<T>(count: usize) -> Result<Vec<T>, DataError> {
    let mut data = Vec::new();
    data.try_reserve_exact(count)
        .map_err(|error| DataError::option("batch", format!("a buffer of {count} values: {error}")))?;
    Ok(data)
}

fn zeros<T: Copy + Default>(count: usize) -> Result<Vec<T>, DataError> {
    let mut data = reserved(count)?;
    data.resize(count, T::default());
    Ok(data)
}

/// Bytes of the buffers of one batch, sample numbers and lengths included.
pub(crate) fn batch_bytes(fields: &[FieldSpec], capacity: usize) -> Result<usize, DataError> {
    let sum = |of: &dyn Fn(&FieldSpec) -> Option<usize>| {
        fields.iter().try_fold(0usize, |sum, field| sum.checked_add(of(field)?))
    };
    let lengths = |field: &FieldSpec| Some(if field.padding.is_some() { size_of::<usize>() } else { 0 });
    let scratch = |field: &FieldSpec| if field.padding.is_some() { field.bytes() } else { Some(0) };
    let sample = sum(&|field| field.bytes()?.checked_add(lengths(field)?));
    sample
        .and_then(|bytes| bytes.checked_add(2 * size_of::<usize>())?.checked_mul(capacity)?.checked_add(sum(&scratch)?))
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or_else(|| DataError::option("batch", format!("{capacity} samples overflow the address space")))
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
