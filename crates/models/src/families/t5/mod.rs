//! t5: an encoder and a decoder with relative position bias, as Hugging Face's `T5ForConditionalGeneration`.

mod generation;
mod stack;
#[cfg(test)]
mod tests;

pub use generation::GenerationShape;
pub use generation::names;

use super::layers::{Head, chunked_head, reshape};
use super::{Build, Family, HuggingFace, Outputs};
use crate::recipe;
use plimsoll_core::graph::{Graph, GraphError, Init, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};
use stack::Stack;

type Built = Result<ValueId, GraphError>;

#[derive(Clone, Debug, PartialEq)]
pub struct T5 {
    pub sizes: recipe::T5,
}

impl Family for T5 {
    fn has_attention_forms(&self) -> bool {
        false
    }

    fn writer(&self) -> Option<&T5> {
        Some(self)
    }

    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        let (source, target) = ([build.batch, build.length], [build.batch, build.target_length]);
        let ids = graph.data("ids", Type::new(DType::I32, &source))?;
        let mask = graph.data("mask", Type::new(DType::I32, &source))?;
        let memory = self.encoder(graph, self.stack(*build), ids, mask)?;
        let decoder_ids = graph.data("decoder_ids", Type::new(DType::I32, &target))?;
        let x = self.decoder(graph, build, decoder_ids, memory, mask)?;
        let head = self.loss(graph, build, x)?;
        Ok(Outputs { loss: head.loss, correct: Some(head.correct), logits: None })
    }

    fn hugging_face(&self) -> Option<HuggingFace> {
        const EMBEDDINGS: [(&str, &str); 3] = [
            ("encoder.embed_tokens.weight", "shared.weight"),
            ("decoder.embed_tokens.weight", "shared.weight"),
            ("lm_head.weight", "shared.weight"),
        ];
        Some(HuggingFace {
            architecture: "T5ForConditionalGeneration",
            model_type: "t5",
            prefix: "",
            aliases: if self.sizes.tie_word_embeddings { &EMBEDDINGS } else { &EMBEDDINGS[..2] },
            // Old checkpoints carry a table here that is never read.
            ignored: &["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."],
            fresh: &[],
        })
    }

    fn layers(&self) -> usize {
        self.sizes.num_layers + self.sizes.num_decoder_layers
    }

    fn rows_per_sample(&self, length: usize) -> usize {
        length
    }

    fn has_loss_chunks(&self) -> bool {
        true
    }
}

impl T5 {
    fn stack(&self, build: Build) -> Stack<'_> {
        Stack { sizes: &self.sizes, build }
    }

    /// (B, S) ids → (B·S, D).
    fn encoder(&self, graph: &mut Graph, stack: Stack<'_>, ids: ValueId, mask: ValueId) -> Built {
        let mut x = self.embed(graph, &stack, "encoder", ids)?;
        let table = self.relative_table(graph, "encoder")?;
        for i in 0..self.sizes.num_layers {
            x = graph.layer(&format!("encoder.block.{i}"), |g| {
                let x = stack.self_attention(g, x, table, Some(mask))?;
                stack.feed_forward(g, "layer.1", x)
            })?;
        }
        graph.scope("encoder", |g| stack.end(g, x))
    }

    /// (B, T) ids, with teacher forcing → (B·T, D), ready for the head.
    fn decoder(&self, graph: &mut Graph, build: &Build, ids: ValueId, memory: ValueId, mask: ValueId) -> Built {
        let stack = self.stack(Build { length: build.target_length, ..*build });
        let mut x = self.embed(graph, &stack, "decoder", ids)?;
        let table = self.relative_table(graph, "decoder")?;
        for i in 0..self.sizes.num_decoder_layers {
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

    fn embed(&self, graph: &mut Graph, stack: &Stack<'_>, side: &str, ids: ValueId) -> Built {
        let shared = self.shared(graph)?;
        graph.scope(side, |g| {
            let words = g.apply("embed", Embedding, &[shared, ids])?; // (B, T, D)
            let x = reshape(g, "rows", words, &[stack.rows(), self.sizes.d_model])?;
            stack.drop(g, "dropout", x)
        })
    }

    fn shared(&self, graph: &mut Graph) -> Built {
        let shape = [self.sizes.vocab_size, self.sizes.d_model];
        graph.parameter("shared.weight", &shape, Init::Normal(self.sizes.initializer_factor), true)
    }

    /// Block 0 owns the table of a stack; every block adds it.
    fn relative_table(&self, graph: &mut Graph, side: &str) -> Built {
        let name = format!("{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        let deviation = self.sizes.initializer_factor * (self.sizes.d_model as f64).powf(-0.5);
        let shape = [self.sizes.relative_attention_num_buckets, self.sizes.num_heads];
        graph.parameter(&name, &shape, Init::Normal(deviation), true)
    }

    fn scale_outputs(&self, graph: &mut Graph, x: ValueId) -> Built {
        match self.sizes.scale_decoder_outputs {
            true => graph.apply("decoder.scaled", Scale((self.sizes.d_model as f64).powf(-0.5)), &[x]),
            false => Ok(x),
        }
    }

    /// The head's weight (V, D): the embedding itself where they are tied.
    fn head_weight(&self, graph: &mut Graph) -> Built {
        if self.sizes.tie_word_embeddings {
            return self.shared(graph);
        }
        let shape = [self.sizes.vocab_size, self.sizes.d_model];
        graph.parameter("lm_head.weight", &shape, Init::Normal(self.sizes.initializer_factor), true)
    }

    fn loss(&self, graph: &mut Graph, build: &Build, x: ValueId) -> Result<Head, GraphError> {
        let (shape, rows) = ([build.batch, build.target_length], [build.batch * build.target_length]);
        let targets = graph.data("targets", Type::new(DType::I32, &shape))?;
        let weights = graph.data("weights", Type::new(graph.float.wide(), &shape))?;
        let targets = reshape(graph, "targets.rows", targets, &rows)?;
        let weights = reshape(graph, "weights.rows", weights, &rows)?;
        let weight = self.head_weight(graph)?;
        graph.scope("head", |g| chunked_head(g, x, weight, targets, weights, build.loss_chunk))
    }
}
