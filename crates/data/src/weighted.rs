//! Samples that count by their class: the field `weight` times a number for the sample's `label`.

use crate::{DataError, Dataset, Element, FieldSpec, RowMut};
use std::sync::Arc;

pub struct Weighted {
    samples: Arc<dyn Dataset>,
    weights: Arc<[f32]>,
    /// Where label and weight are among the fields.
    fields: Option<(usize, usize)>,
}

impl Weighted {
    /// Samples without a label or a weight stay as they are.
    pub fn new(samples: Arc<dyn Dataset>, weights: Arc<[f32]>) -> Weighted {
        let find = |name: &str, element: Element| {
            samples.fields().iter().position(|field| field.name == name && field.element == element)
        };
        let fields = find("label", Element::I32).zip(find("weight", Element::F32));
        Weighted { samples, weights, fields }
    }
}

impl Dataset for Weighted {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn fields(&self) -> &[FieldSpec] {
        self.samples.fields()
    }

    fn fill(&self, sample: usize, row: &mut RowMut<'_>) -> Result<(), DataError> {
        self.samples.fill(sample, row)?;
        if let Some((label, weight)) = self.fields {
            let class = usize::try_from(row.i32(label)[0]).unwrap_or(usize::MAX);
            row.f32(weight)[0] *= self.weights.get(class).copied().unwrap_or(1.0);
        }
        Ok(())
    }

    fn size(&self, sample: usize) -> usize {
        self.samples.size(sample)
    }

    fn resident_bytes(&self) -> usize {
        self.samples.resident_bytes()
    }

    fn worker_bytes(&self) -> usize {
        self.samples.worker_bytes()
    }
}
