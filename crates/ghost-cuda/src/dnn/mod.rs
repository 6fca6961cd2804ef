//! cuDNN: convolutions through its graphs, recurrent layers, and descriptors that nobody looks into.

mod convolutions;
pub mod descriptors;
pub mod graphs;
pub mod recurrent;
mod sizes;
