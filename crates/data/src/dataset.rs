//! A dataset writes samples straight into buffers of the caller.

use super::{DataError, FieldSpec};
use smallvec::SmallVec;

pub trait Dataset: Send + Sync {
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn fields(&self) -> &[FieldSpec];
    /// Writes sample `sample < len()`: all of every fixed field, and variable fields at their own length.
    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError>;
    /// About how long a sample is. Batches can be composed by it; only comparisons matter.
    fn size(&self, _sample: usize) -> usize {
        1
    }
    /// Host memory the samples occupy.
    fn resident_bytes(&self) -> usize;
    /// Host memory that filling takes on each worker, at most; it is not part of the batch.
    fn worker_bytes(&self) -> usize {
        0
    }
}

/// The place of one field of one sample. Vectors are empty and have room for the longest sample.
pub enum FieldMut<'a> {
    F32(&'a mut [f32]),
    I32(&'a mut [i32]),
    GrowF32(&'a mut Vec<f32>),
    GrowI32(&'a mut Vec<i32>),
}

/// The place of one sample in the buffers of a batch: one per field, in the order of `Dataset::fields`.
pub struct RowMut<'a> {
    fields: SmallVec<[FieldMut<'a>; 8]>,
}

impl<'a> RowMut<'a> {
    pub fn new(fields: impl IntoIterator<Item = FieldMut<'a>>) -> Self {
        RowMut { fields: fields.into_iter().collect() }
    }

    /// # Panics
    /// If field `field` is not fixed `f32`: a dataset knows its own fields.
    pub fn f32(&mut self, field: usize) -> &mut [f32] {
        match &mut self.fields[field] {
            FieldMut::F32(slice) => slice,
            _ => panic!("field {field} does not hold f32 of a fixed length"),
        }
    }

    /// # Panics
    /// If field `field` is not fixed `i32`: a dataset knows its own fields.
    pub fn i32(&mut self, field: usize) -> &mut [i32] {
        match &mut self.fields[field] {
            FieldMut::I32(slice) => slice,
            _ => panic!("field {field} does not hold i32 of a fixed length"),
        }
    }

    /// # Panics
    /// If field `field` is not variable `f32`: a dataset knows its own fields.
    pub fn grow_f32(&mut self, field: usize) -> &mut Vec<f32> {
        match &mut self.fields[field] {
            FieldMut::GrowF32(values) => values,
            _ => panic!("field {field} does not hold f32 of a variable length"),
        }
    }

    /// # Panics
    /// If field `field` is not variable `i32`: a dataset knows its own fields.
    pub fn grow_i32(&mut self, field: usize) -> &mut Vec<i32> {
        match &mut self.fields[field] {
            FieldMut::GrowI32(values) => values,
            _ => panic!("field {field} does not hold i32 of a variable length"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Element;

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

    /// Sample `i` has `lengths[i]` ids, all `i + 1`, with marks of the same length, and a position in them.
    pub struct Lengths {
        pub lengths: Vec<usize>,
        fields: [FieldSpec; 3],
    }

    impl Lengths {
        pub const PAD: i32 = -9;

        pub fn new(lengths: Vec<usize>, max: usize) -> Self {
            let fields = [
                FieldSpec::variable("ids", Element::I32, 0, max, Self::PAD),
                FieldSpec::variable("marks", Element::F32, 0, max, 0),
                FieldSpec::position("last", "ids"),
            ];
            Lengths { lengths, fields }
        }
    }

    impl Dataset for Lengths {
        fn len(&self) -> usize {
            self.lengths.len()
        }
        fn fields(&self) -> &[FieldSpec] {
            &self.fields
        }
        fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
            let length = self.lengths[sample];
            row.grow_i32(0).extend(std::iter::repeat_n(sample as i32 + 1, length));
            row.grow_f32(1).extend(std::iter::repeat_n(1.0, length));
            row.i32(2)[0] = length.saturating_sub(1) as i32;
            Ok(())
        }
        fn size(&self, sample: usize) -> usize {
            self.lengths[sample]
        }
        fn resident_bytes(&self) -> usize {
            0
        }
    }
}
