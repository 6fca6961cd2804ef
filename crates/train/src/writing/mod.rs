//! Texts token by token, inside the arena: greedy, drawn or by beams, for every family that writes.

mod beam;
mod generator;
mod line;
mod options;
mod pick;
mod search;

pub use generator::Generator;
pub use options::GenerationOptions;
