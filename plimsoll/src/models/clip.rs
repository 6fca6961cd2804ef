//! clip: pictures and texts in one space.

use super::{Build, Family, Outputs};
use crate::graph::{Graph, GraphError};
use crate::recipe;

#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    pub sizes: recipe::Clip,
}

impl Family for Clip {
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
