//! t5: encoder and decoder with relative position bias.

use super::{Build, Family, Outputs};
use crate::graph::{Graph, GraphError};
use crate::recipe;

#[derive(Clone, Debug, PartialEq)]
pub struct T5 {
    pub sizes: recipe::T5,
}

impl Family for T5 {
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
