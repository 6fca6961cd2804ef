//! A dataset writes samples straight into buffers of the caller; a [`Batch`] is a set of such buffers, made once and
//! filled many times.

use super::DataError;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    F32,
    I32,
}

/// One tensor of a sample. `shape` is that of a single sample; empty for a scalar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldSpec {
    pub name: String,
    pub element: Element,
    pub shape: Vec<usize>,
}

impl FieldSpec {
    pub fn new(name: &str, element: Element, shape: &[usize]) -> Self {
        FieldSpec { name: name.into(), element, shape: shape.into() }
    }

    /// Elements of one sample; `None` if the product overflows.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n))
    }

    /// Bytes of one sample; `None` if the product overflows.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(4)
    }
}

pub trait Dataset: Send + Sync {
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn fields(&self) -> &[FieldSpec];
    /// Writes sample `sample < len()`, all of every field. Must not allocate.
    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError>;
    /// Host memory the samples occupy.
    fn resident_bytes(&self) -> usize;
}

pub enum FieldMut<'a> {
    F32(&'a mut [f32]),
    I32(&'a mut [i32]),
}

/// The place of one sample in the buffers of a batch: one slice per field, in the order of `Dataset::fields`.
pub struct RowMut<'a> {
    fields: SmallVec<[FieldMut<'a>; 8]>,
}

impl<'a> RowMut<'a> {
    pub fn new(fields: impl IntoIterator<Item = FieldMut<'a>>) -> Self {
        RowMut { fields: fields.into_iter().collect() }
    }

    /// # Panics
    /// If field `field` does not hold `f32`: a dataset knows its own fields.
    pub fn f32(&mut self, field: usize) -> &mut [f32] {
        match &mut self.fields[field] {
            FieldMut::F32(slice) => slice,
            FieldMut::I32(_) => panic!("field {field} holds i32"),
        }
    }

    /// # Panics
    /// If field `field` does not hold `i32`: a dataset knows its own fields.
    pub fn i32(&mut self, field: usize) -> &mut [i32] {
        match &mut self.fields[field] {
            FieldMut::I32(slice) => slice,
            FieldMut::F32(_) => panic!("field {field} holds f32"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Buffer {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl Buffer {
    fn row(&mut self, row: Range<usize>) -> FieldMut<'_> {
        match self {
            Buffer::F32(data) => FieldMut::F32(&mut data[row]),
            Buffer::I32(data) => FieldMut::I32(&mut data[row]),
        }
    }
}

/// Where a stream of samples stands: `index` samples of epoch `epoch` are consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub epoch: u64,
    pub index: u64,
}

/// Up to `capacity` samples. Rows from `samples().len()` on are zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    names: Vec<String>,
    sizes: Vec<usize>,
    buffers: Vec<Buffer>,
    capacity: usize,
    samples: Vec<usize>,
    pub(super) start: Position,
    pub(super) end: Position,
}

impl Batch {
    pub fn new(fields: &[FieldSpec], capacity: usize) -> Result<Self, DataError> {
        batch_bytes(fields, capacity)?;
        let sizes: Vec<usize> = fields.iter().map(|field| field.elements().unwrap_or(0)).collect();
        let mut buffers = Vec::with_capacity(fields.len());
        for (field, size) in fields.iter().zip(&sizes) {
            buffers.push(match field.element {
                Element::F32 => Buffer::F32(zeros(size * capacity)?),
                Element::I32 => Buffer::I32(zeros(size * capacity)?),
            });
        }
        Ok(Batch {
            names: fields.iter().map(|field| field.name.clone()).collect(),
            buffers,
            sizes,
            capacity,
            samples: Vec::with_capacity(capacity),
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
    pub fn field(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|field| field == name)
    }

    /// The values of field `field` in rows `rows ⊆ 0..capacity`, row after row.
    ///
    /// # Panics
    /// If the field holds another type or the rows lie outside.
    pub fn f32(&self, field: usize, rows: Range<usize>) -> &[f32] {
        let size = self.sizes[field];
        match &self.buffers[field] {
            Buffer::F32(data) => &data[rows.start * size..rows.end * size],
            Buffer::I32(_) => panic!("field {field} holds i32"),
        }
    }

    /// As [`Batch::f32`], for integer fields.
    ///
    /// # Panics
    /// If the field holds another type or the rows lie outside.
    pub fn i32(&self, field: usize, rows: Range<usize>) -> &[i32] {
        let size = self.sizes[field];
        match &self.buffers[field] {
            Buffer::I32(data) => &data[rows.start * size..rows.end * size],
            Buffer::F32(_) => panic!("field {field} holds f32"),
        }
    }

    /// Replaces the contents by `samples` (at most `capacity` of them); rows left over become zero.
    pub fn fill(&mut self, dataset: &dyn Dataset, samples: impl Iterator<Item = usize>) -> Result<(), DataError> {
        self.samples.clear();
        for sample in samples.take(self.capacity) {
            let row = self.samples.len();
            dataset.fill(sample, &mut self.row(row))?;
            self.samples.push(sample);
        }
        self.clear_rows(self.samples.len());
        Ok(())
    }

    fn row(&mut self, row: usize) -> RowMut<'_> {
        let fields = self.buffers.iter_mut().zip(&self.sizes);
        RowMut::new(fields.map(|(buffer, size)| buffer.row(row * size..(row + 1) * size)))
    }

    fn clear_rows(&mut self, first: usize) {
        for (buffer, size) in self.buffers.iter_mut().zip(&self.sizes) {
            match buffer {
                Buffer::F32(data) => data[first * size..].fill(0.0),
                Buffer::I32(data) => data[first * size..].fill(0),
            }
        }
    }
}

/// Memory that is not there is an error of the options, not the end of the process.
fn zeros<T: Copy + Default>(count: usize) -> Result<Vec<T>, DataError> {
    let mut data = Vec::new();
    data.try_reserve_exact(count)
        .map_err(|error| DataError::option("batch", format!("a buffer of {count} values: {error}")))?;
    data.resize(count, T::default());
    Ok(data)
}

/// Bytes of the buffers of one batch, sample numbers included.
pub fn batch_bytes(fields: &[FieldSpec], capacity: usize) -> Result<usize, DataError> {
    let sample = fields.iter().try_fold(size_of::<usize>(), |sum, field| sum.checked_add(field.bytes()?));
    sample
        .and_then(|bytes| bytes.checked_mul(capacity))
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or_else(|| DataError::option("batch", format!("{capacity} samples overflow the address space")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Sample `i` is `x = [i, i + 0.5]`, `label = -i`; sample `broken` fails.
    pub struct Counting {
        pub len: usize,
        pub broken: Option<usize>,
        fields: [FieldSpec; 2],
    }

    impl Counting {
        pub fn new(len: usize, broken: Option<usize>) -> Self {
            let fields = [FieldSpec::new("x", Element::F32, &[2]), FieldSpec::new("label", Element::I32, &[])];
            Counting { len, broken, fields }
        }
    }

    impl Dataset for Counting {
        fn len(&self) -> usize {
            self.len
        }
        fn fields(&self) -> &[FieldSpec] {
            &self.fields
        }
        fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
            if Some(sample) == self.broken {
                return Err(DataError::option("broken", format!("sample {sample}")));
            }
            row.f32(0).copy_from_slice(&[sample as f32, sample as f32 + 0.5]);
            row.i32(1)[0] = -(sample as i32);
            Ok(())
        }
        fn resident_bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn ragged_batches_are_zero_behind_their_samples() {
        let data = Counting::new(9, None);
        let mut batch = Batch::new(data.fields(), 3).unwrap();
        batch.fill(&data, [4, 5, 6].into_iter()).unwrap();
        batch.fill(&data, [7].into_iter()).unwrap();
        assert_eq!(batch.samples(), [7]);
        assert_eq!(batch.f32(0, 0..3), [7.0, 7.5, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(batch.i32(1, 0..3), [-7, 0, 0]);
        assert_eq!(batch.field("label"), Some(1));
    }

    #[test]
    fn absurd_batches_are_refused_before_allocating() {
        let huge = [FieldSpec::new("x", Element::F32, &[usize::MAX / 2, 3])];
        assert!(matches!(Batch::new(&huge, 1), Err(DataError::BadOption { .. })));
        let field = [FieldSpec::new("x", Element::F32, &[1 << 20])];
        for capacity in [1 << 60, 1 << 36] {
            assert!(matches!(Batch::new(&field, capacity), Err(DataError::BadOption { .. })), "{capacity}");
        }
    }
}
