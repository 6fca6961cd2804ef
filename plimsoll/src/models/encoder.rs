//! Encoders that classify texts.

use super::{Build, Family, Outputs};
use crate::graph::{Graph, GraphError};
use crate::recipe;

#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    pub sizes: recipe::Encoder,
}

impl Family for Encoder {
    fn forward(&self, _graph: &mut Graph, _build: &Build) -> Result<Outputs, GraphError> {
        Err(GraphError::Broken("this family has no graph yet".into()))
    }

    fn layers(&self) -> usize {
        1
    }

    fn rows_per_sample(&self, _length: usize) -> usize {
        1
    }
}
