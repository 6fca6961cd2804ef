//! The phases that write sequences from sequences: the encoder once, then the decoder step by step, its keys and values
//! kept from step to step.

use plimsoll_core::graph::Graph;
use plimsoll_core::plan::{Phase, PlanError};
use plimsoll_core::types::DType;
use plimsoll_models::families::{Decoder, GenerationShape};

/// Phase names.
pub const ENCODE: &str = "encode";
pub const DECODE: &str = "decode";

/// The phases that generation adds to a program.
pub fn phases(
    decoder: &dyn Decoder,
    shape: &GenerationShape,
    float: DType,
    master: DType,
) -> Result<Vec<Phase>, PlanError> {
    let (mut encode, mut decode) = (Graph::mixed(ENCODE, float, master), Graph::mixed(DECODE, float, master));
    decoder.encode(&mut encode, shape)?;
    decoder.decode(&mut decode, shape)?;
    let phase = |name: &str, graph| Phase { name: name.into(), graph, repeat: 0 };
    Ok(vec![phase(ENCODE, encode), phase(DECODE, decode)])
}
