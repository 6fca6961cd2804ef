//! Static types: an element type, a shape, and the strides through which a value sees its buffer.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;

/// Sizes or strides of one value, in elements.
pub type Dims = SmallVec<[usize; 6]>;

/// What the inputs, or the outputs, of a node are.
pub type Types = SmallVec<[Type; 4]>;

/// The types of what an op gives.
pub type Results = SmallVec<[Type; 2]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    F32,
    /// Only for gradient tests.
    F64,
    Bf16,
    F16,
    I32,
    I64,
    Bool,
}

impl DType {
    pub fn bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::Bf16 | DType::F16 => 2,
            DType::Bool => 1,
        }
    }

    /// What sums and statistics over values of this type are kept in.
    pub fn wide(self) -> DType {
        match self {
            DType::Bf16 | DType::F16 => DType::F32,
            other => other,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::Bf16 | DType::F16)
    }

    /// A float of 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, DType::Bf16 | DType::F16)
    }

    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::Bf16 => "bf16",
            DType::F16 => "f16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::Bool => "bool",
        }
    }
}

/// What a value is: `dtype[shape]`, seen through `strides` (row-major unless it is a view).
#[derive(PartialEq, Eq, Hash)]
pub struct Type {
    pub dtype: DType,
    pub shape: Dims,
    pub strides: Dims,
}

impl Clone for Type {
    #[inline]
    fn clone(&self) -> Type {
        Type { dtype: self.dtype, shape: copied(&self.shape), strides: copied(&self.strides) }
    }
}

/// Planning does hardly anything more often: as many bytes are copied whatever the rank, without asking for it.
#[inline]
fn copied(dims: &Dims) -> Dims {
    match dims.spilled() {
        true => Dims::from_slice(dims),
        // SAFETY: the numbers lie in the value itself, and neither they nor it have anything to drop.
        false => unsafe { std::ptr::read(dims) },
    }
}

impl Type {
    /// A row-major type.
    pub fn new(dtype: DType, shape: &[usize]) -> Self {
        Type { dtype, shape: Dims::from_slice(shape), strides: row_major(shape) }
    }

    pub fn scalar(dtype: DType) -> Self {
        Type::new(dtype, &[1])
    }

    /// The same element type in another, row-major shape.
    pub(crate) fn with_shape(&self, shape: &[usize]) -> Self {
        Type::new(self.dtype, shape)
    }

    /// The same type laid out row-major.
    pub fn contiguous(&self) -> Self {
        Type::new(self.dtype, &self.shape)
    }

    /// A sum or statistic over values of this type, in another, row-major shape.
    pub(crate) fn wide_shape(&self, shape: &[usize]) -> Self {
        Type::new(self.dtype.wide(), shape)
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Elements as long as they and their bytes can be counted at all.
    pub(crate) fn checked_bytes(&self) -> Option<usize> {
        let elements = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        elements.checked_mul(self.dtype.bytes()).filter(|&bytes| bytes <= isize::MAX as usize)
    }

    /// Bytes from the first to one past the last element seen; equal to the data's size for a row-major type.
    pub fn span_bytes(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        let last: usize = self.shape.iter().zip(&self.strides).map(|(&d, &s)| (d - 1) * s).sum();
        (last + 1) * self.dtype.bytes()
    }

    /// Row-major without gaps. Strides of dimensions of size 1 do not matter.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&d, &s) in self.shape.iter().zip(&self.strides).rev() {
            if d != 1 && s != expected {
                return false;
            }
            expected *= d;
        }
        true
    }

    /// Rows are row-major inside, but may lie `row stride` apart: the shape of a slice of columns.
    pub(crate) fn is_row_strided(&self) -> bool {
        let Some(split) = self.rank().checked_sub(1) else { return true };
        let leading =
            Type { dtype: self.dtype, shape: self.shape[..split].into(), strides: row_major(&self.shape[..split]) };
        let Some(&step) = self.strides[..split].last() else {
            return self.shape[split] == 1 || self.strides[split] == 1;
        };
        (self.shape[split] == 1 || self.strides[split] == 1)
            && (0..split).all(|i| self.shape[i] == 1 || self.strides[i] == leading.strides[i] * step)
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |dims: &Dims| dims.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        write!(f, "{}[{}]", self.dtype.name(), join(&self.shape))?;
        if !self.is_contiguous() {
            write!(f, "/[{}]", join(&self.strides))?;
        }
        Ok(())
    }
}

/// The strides of a row-major array.
pub(crate) fn row_major(shape: &[usize]) -> Dims {
    let mut strides = Dims::from_elem(1, shape.len());
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i]);
    }
    strides
}

/// The first element that is infinite or no number: weights with one make every answer worthless. Integers have none.
pub fn first_not_finite(dtype: DType, data: &[u8]) -> Option<usize> {
    // All bits of the exponent are set.
    match dtype {
        DType::F64 => position(data, |bytes| u64::from_le_bytes(bytes) >> 52 & 0x7ff == 0x7ff),
        DType::F32 => position(data, |bytes| u32::from_le_bytes(bytes) >> 23 & 0xff == 0xff),
        DType::Bf16 => position(data, |bytes| u16::from_le_bytes(bytes) >> 7 & 0xff == 0xff),
        DType::F16 => position(data, |bytes| u16::from_le_bytes(bytes) >> 10 & 0x1f == 0x1f),
        DType::I32 | DType::I64 | DType::Bool => None,
    }
}

fn position<const BYTES: usize>(data: &[u8], is_bad: impl Fn([u8; BYTES]) -> bool) -> Option<usize> {
    data.as_chunks::<BYTES>().0.iter().position(|&bytes| is_bad(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn contiguity_ignores_unit_dimensions() {
        let mut t = Type::new(DType::F32, &[3, 1, 4]);
        t.strides[1] = 99;
        assert!(t.is_contiguous());
        t.strides[0] = 8;
        assert!(!t.is_contiguous());
        assert!(t.is_row_strided() || t.shape[1] == 1);
    }

    #[test]
    fn spans_count_gaps() {
        let t = Type { dtype: DType::F32, shape: [2, 3].into_iter().collect(), strides: [10, 1].into_iter().collect() };
        assert_eq!(t.span_bytes(), (10 + 2 + 1) * 4);
        assert!(t.is_row_strided());
        assert_eq!(t.to_string(), "f32[2,3]/[10,1]");
    }

    #[test]
    fn absurd_sizes_are_seen() {
        assert_eq!(Type::new(DType::F32, &[usize::MAX, 2]).checked_bytes(), None);
    }

    #[test]
    fn what_is_not_finite_is_found() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![0.0, -1.5, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45];
            let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
            let halves =
                |values: &[f32]| values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect::<Vec<u8>>();
            let shorts =
                |values: &[f32]| values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect::<Vec<u8>>();
            let doubles = |values: &[f32]| values.iter().flat_map(|&x| f64::from(x).to_le_bytes()).collect::<Vec<u8>>();
            assert_eq!(first_not_finite(DType::F32, &bytes(&values)), None);
            values.insert(4, bad);
            assert_eq!(first_not_finite(DType::F32, &bytes(&values)), Some(4));
            assert_eq!(first_not_finite(DType::F64, &doubles(&values)), Some(4));
            values.splice(2..4, [1.0, 65504.0]);
            assert_eq!(first_not_finite(DType::F16, &halves(&values)), Some(4));
            assert_eq!(first_not_finite(DType::Bf16, &shorts(&values)), Some(4));
            assert_eq!(first_not_finite(DType::I32, &bytes(&values)), None);
        }
    }
}
