//! The encoder and the decoder with teacher forcing.

use super::stack::Stack;
use super::{Built, T5};
use crate::families::Build;
use crate::families::layers::{Head, chunked_head, reshape};
use plimsoll_core::graph::{Graph, GraphError, Init, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

impl T5 {
    pub(super) fn stack(&self, build: Build) -> Stack<'_> {
        Stack { sizes: self, build }
    }

    /// (B, S) ids → (B·S, D).
    pub(super) fn encoder(&self, graph: &mut Graph, stack: Stack<'_>, ids: ValueId, mask: ValueId) -> Built {
        let mut x = self.embed(graph, &stack, "encoder", ids)?;
        let table = self.relative_table(graph, "encoder")?;
        for i in 0..self.num_layers {
            x = graph.layer(&format!("encoder.block.{i}"), |g| {
                let x = stack.self_attention(g, x, table, Some(mask))?;
                stack.feed_forward(g, "layer.1", x)
            })?;
        }
        graph.scope("encoder", |g| stack.end(g, x))
    }

    /// (B, T) ids, with teacher forcing → (B·T, D), ready for the head.
    pub(super) fn decoder_stack(
        &self,
        graph: &mut Graph,
        build: &Build,
        ids: ValueId,
        memory: ValueId,
        mask: ValueId,
    ) -> Built {
        let stack = self.stack(Build { length: build.target_length, ..*build });
        let mut x = self.embed(graph, &stack, "decoder", ids)?;
        let table = self.relative_table(graph, "decoder")?;
        for i in 0..self.num_decoder_layers {
            x = graph.layer(&format!("decoder.block.{i}"), |g| {
                let x = stack.self_attention(g, x, table, None)?;
                let kv = stack.cross_keys(g, memory, build.length)?;
                let x = stack.cross_attention(g, x, kv, mask)?;
                stack.feed_forward(g, "layer.2", x)
            })?;
        }
        let x = graph.scope("decoder", |g| stack.end(g, x))?;
        self.scale_outputs(graph, x)
    }

    pub(super) fn embed(&self, graph: &mut Graph, stack: &Stack<'_>, side: &str, ids: ValueId) -> Built {
        let shared = self.shared(graph)?;
        graph.scope(side, |g| {
            let words = g.apply("embed", Embedding, &[shared, ids])?; // (B, T, D)
            let x = reshape(g, "rows", words, &[stack.rows(), self.d_model])?;
            stack.drop(g, "dropout", x)
        })
    }

    fn shared(&self, graph: &mut Graph) -> Built {
        let shape = [self.vocab_size, self.d_model];
        graph.parameter("shared.weight", &shape, Init::Normal(self.initializer_factor), true)
    }

    /// Block 0 owns the table of a stack; every block adds it.
    pub(super) fn relative_table(&self, graph: &mut Graph, side: &str) -> Built {
        let name = format!("{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        let deviation = self.initializer_factor * (self.d_model as f64).powf(-0.5);
        let shape = [self.relative_attention_num_buckets, self.num_heads];
        graph.parameter(&name, &shape, Init::Normal(deviation), true)
    }

    pub(super) fn scale_outputs(&self, graph: &mut Graph, x: ValueId) -> Built {
        match self.scale_decoder_outputs {
            true => graph.apply("decoder.scaled", Scale((self.d_model as f64).powf(-0.5)), &[x]),
            false => Ok(x),
        }
    }

    /// The head's weight (V, D): the embedding itself where they are tied.
    pub(super) fn head_weight(&self, graph: &mut Graph) -> Built {
        if self.tie_word_embeddings {
            return self.shared(graph);
        }
        let shape = [self.vocab_size, self.d_model];
        graph.parameter("lm_head.weight", &shape, Init::Normal(self.initializer_factor), true)
    }

    pub(super) fn loss(&self, graph: &mut Graph, build: &Build, x: ValueId) -> Result<Head, GraphError> {
        let (shape, rows) = ([build.batch, build.target_length], [build.batch * build.target_length]);
        let targets = graph.data("targets", Type::new(DType::I32, &shape))?;
        let weights = graph.data("weights", Type::new(graph.float.wide(), &shape))?;
        let targets = reshape(graph, "targets.rows", targets, &rows)?;
        let weights = reshape(graph, "weights.rows", weights, &rows)?;
        let weight = self.head_weight(graph)?;
        graph.scope("head", |g| chunked_head(g, x, weight, targets, weights, build.loss_chunk))
    }
}
