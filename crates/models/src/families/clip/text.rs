//! The text tower: causal, read out at the row of each text's last token. What follows that token cannot reach it, so
//! padding needs no mask.

use super::ClipText;
use super::tower::Tower;
use crate::families::Build;
use crate::families::layers::reshape;
use plimsoll_core::graph::{Graph, GraphError, Init, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

/// Transformers' initializer_range.
const DEVIATION: f64 = 0.02;

/// `ids` (B, T) and `eos` (B), the rows of B · T that are read out → (B, D), normed.
pub fn pooled(sizes: &ClipText, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
    let (batch, time, width) = (build.batch, build.length, sizes.hidden_size);
    let eos = graph.data("eos", Type::new(DType::I32, &[batch]))?;
    let tower = tower(sizes);
    let x = graph.scope("embeddings", |g| embeddings(sizes, g, batch, time))?; // (B, T, D)
    let x = reshape(graph, "rows", x, &[batch * time, width])?;
    let x = tower.run(graph, build, time, x, |g, name, x| g.apply(name, Embedding, &[x, eos]))?;
    tower.norm(graph, "final_layer_norm", x)
}

fn tower(sizes: &ClipText) -> Tower {
    Tower {
        width: sizes.hidden_size,
        heads: sizes.num_attention_heads,
        intermediate: sizes.intermediate_size,
        layers: sizes.num_hidden_layers,
        act: sizes.hidden_act,
        eps: sizes.layer_norm_eps,
        dropout: sizes.attention_dropout,
        causal: true,
    }
}

fn embeddings(sizes: &ClipText, g: &mut Graph, batch: usize, time: usize) -> Result<ValueId, GraphError> {
    let (width, init) = (sizes.hidden_size, Init::Normal(DEVIATION));
    let ids = g.data("ids", Type::new(DType::I32, &[batch, time]))?;
    let words = g.parameter("token_embedding.weight", &[sizes.vocab_size, width], init, true)?;
    let places = g.parameter("position_embedding.weight", &[sizes.max_position_embeddings, width], init, true)?;
    let words = g.apply("words", Embedding, &[words, ids])?; // (B, T, D)
    let places = g.apply("places", Slice { axis: 0, start: 0, len: time }, &[places])?; // (T, D)
    g.apply("sum", Binary::ADD, &[words, places])
}
