//! Token embeddings → post-norm transformer layers → a head on the first token. Parameters have Hugging Face's names.

use super::{Encoder, EncoderKind, files};
use crate::families::Build;
use crate::families::layers::*;
use crate::families::texts::{Wanted, token_mask};
use plimsoll_core::graph::{Graph, GraphError, Init, Named, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

impl Encoder {
    /// The last layer's hidden states, (B·T, D), or (B, D) of the first tokens.
    pub(super) fn hidden(&self, graph: &mut Graph, build: &Build, wanted: Wanted) -> Result<ValueId, GraphError> {
        let root = files::root(self.kind);
        let mut x = graph.scope(&format!("{root}.embeddings"), |g| self.embeddings(g, build))?;
        let mask = token_mask(graph, build)?;
        let positions = graph.scope(&format!("{root}.encoder"), |g| self.relative_positions(g))?;
        let layers = self.num_hidden_layers;
        for i in 0..layers {
            let path = format!("{root}.encoder.layer.{i}");
            x = graph.layer(&path, |g| self.layer(g, build, x, mask, positions, wanted.of_layer(i, layers)))?;
        }
        Ok(x)
    }

    /// dropout(norm(word + position + kind of segment)), (B·T, D).
    fn embeddings(&self, g: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
        let (batch, time, width) = (build.batch, build.length, self.hidden_size);
        let ids = g.data("ids", Type::new(DType::I32, &[batch, time]))?;
        let words = self.table(g, "word_embeddings", self.vocab_size)?;
        let mut x = g.apply("words", Embedding, &[words, ids])?; // (B, T, D)
        if self.type_vocab_size > 1 {
            let types = g.data("types", Type::new(DType::I32, &[batch, time]))?;
            let kinds = self.table(g, "token_type_embeddings", self.type_vocab_size)?;
            let kinds = g.apply("kinds", Embedding, &[kinds, types])?;
            x = g.apply("words.kinds", Binary::ADD, &[x, kinds])?;
        }
        if let Some(places) = self.places(g, time)? {
            x = g.apply("sum", Binary::ADD, &[x, places])?;
        }
        let x = reshape(g, "rows", x, &[batch * time, width])?;
        let x = layer_norm_with(g, "LayerNorm", x, self.layer_norm_eps)?;
        dropout(g, "dropout", x, self.hidden_dropout_prob, batch, build.training)
    }

    /// What is added to every text alike, (T, D) or (1, D): positions, and the kind of segment if there is one only.
    fn places(&self, g: &mut Graph, time: usize) -> Result<Option<ValueId>, GraphError> {
        let kind = match self.type_vocab_size {
            1 => Some(self.table(g, "token_type_embeddings", 1)?),
            _ => None,
        };
        let start = match self.kind {
            EncoderKind::Bert => 0,
            // Padding stands on the right, so the texts' positions count up from here without a gap.
            EncoderKind::Roberta | EncoderKind::XlmRoberta => self.pad_token_id + 1,
            // Positions enter as distances, in the attention.
            EncoderKind::DebertaV3 => return Ok(kind),
        };
        let table = self.table(g, "position_embeddings", self.max_position_embeddings)?;
        let positions = g.apply("positions", Slice { axis: 0, start, len: time }, &[table])?;
        match kind {
            Some(kind) => Ok(Some(g.apply("positions.kind", Binary::ADD, &[positions, kind])?)),
            None => Ok(Some(positions)),
        }
    }

    pub(super) fn table(&self, g: &mut Graph, name: &str, rows: usize) -> Result<ValueId, GraphError> {
        let init = Init::Normal(self.initializer_range);
        g.parameter(Named(name, ".weight"), &[rows, self.hidden_size], init, true)
    }

    /// Linear layers start as transformers starts them.
    pub(super) fn start(&self) -> Start {
        Start::normal(self.initializer_range)
    }
}
