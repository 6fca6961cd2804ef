//! The tensors of a sample.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    F32,
    I32,
}

/// One tensor of a sample; its name is that of the graph input it feeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldSpec {
    pub name: String,
    pub element: Element,
    /// The shape of a single sample, empty for a scalar; of a variable field, that of the longest.
    pub shape: Vec<usize>,
    /// Samples differ in length: a batch pads them to the length of this axis.
    pub padding: Option<Padding>,
    /// The values are positions inside a row of the field named here. What feeds a graph adds to each where its row
    /// begins: (row in the micro-batch) · (values per row of that field).
    pub position_in: Option<String>,
}

/// How a variable field is padded. Fields of one axis have one length in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Padding {
    pub axis: usize,
    /// What stands behind the sample's own values.
    pub value: i32,
}

impl FieldSpec {
    /// A field that has the same shape in every sample.
    pub fn new(name: &str, element: Element, shape: &[usize]) -> Self {
        FieldSpec { name: name.into(), element, shape: shape.into(), padding: None, position_in: None }
    }

    /// A field of up to `max` values, padded with `pad` to the length that axis `axis` has in the batch.
    pub fn variable(name: &str, element: Element, axis: usize, max: usize, pad: i32) -> Self {
        FieldSpec { padding: Some(Padding { axis, value: pad }), ..FieldSpec::new(name, element, &[max]) }
    }

    /// An integer per sample: a position inside the sample's row of field `field`.
    pub fn position(name: &str, field: &str) -> Self {
        FieldSpec { position_in: Some(field.into()), ..FieldSpec::new(name, Element::I32, &[]) }
    }

    /// Elements of one (the longest) sample; `None` if the product overflows.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n))
    }

    /// Bytes of one (the longest) sample; `None` if the product overflows.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(4)
    }
}

/// The longest sample on each axis.
pub(crate) fn axis_maxima(fields: &[FieldSpec]) -> Vec<usize> {
    let mut maxima = Vec::new();
    for field in fields {
        if let Some(Padding { axis, .. }) = field.padding {
            maxima.resize(maxima.len().max(axis + 1), 0);
            maxima[axis] = maxima[axis].max(field.elements().unwrap_or(usize::MAX));
        }
    }
    maxima
}
