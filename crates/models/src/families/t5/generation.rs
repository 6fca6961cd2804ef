//! Text token by token: the encoder once, then one step of the decoder at a time over a key/value cache that lives in
//! the arena.
//!
//! A source has one row of k and v of the encoder's output per block, which all of its beams read: they are the queries
//! of one attention. Of the decoder's own k and v every beam has its row, written at the position that the host sets.

use super::stack::Stack;
use super::{Built, T5};
use crate::families::attention::AttentionInputs;
use crate::families::layers::reshape;
use crate::families::{
    AttentionForm, Build, Decoder, FeedForwardForm, GenerationShape, Tokens, generation_names as names,
};
use plimsoll_core::graph::{Component, Graph, GraphError, Init, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

impl Decoder for T5 {
    /// The encoder, and the keys and values of its output for every block of the decoder.
    fn encode(&self, graph: &mut Graph, shape: &GenerationShape) -> Result<(), GraphError> {
        let (sources, length) = (shape.sources, shape.source_length);
        let ids = graph.data(names::IDS, Type::new(DType::I32, &[sources, length]))?;
        let mask = source_mask(graph, shape)?;
        let memory = self.encoder(graph, self.stack(inference(sources, length)), ids, mask)?;
        let stack = self.stack(inference(sources, 1));
        for i in 0..self.num_decoder_layers {
            let cache = self.cross_cache(graph, shape, i)?;
            graph.scope(&format!("decoder.block.{i}"), |g| {
                let kv = stack.cross_keys(g, memory, length)?;
                let kv = reshape(g, "kv.rows", kv, &[sources * length, 2 * stack.inner()])?;
                g.add("remember", CacheWrite { at_position: false }, &[kv, cache])
            })?;
        }
        Ok(())
    }

    /// One step of the decoder for every beam of every source. The logits are kept for the host.
    fn decode(&self, graph: &mut Graph, shape: &GenerationShape) -> Result<(), GraphError> {
        let ids = graph.data(names::IDS, Type::new(DType::I32, &[shape.rows(), 1]))?;
        let step = Step {
            stack: self.stack(inference(shape.rows(), 1)),
            table: self.relative_table(graph, "decoder")?,
            position: graph.data(names::POSITION, Type::new(DType::I64, &[1]))?,
            beam: match shape.beams {
                1 => None,
                _ => Some(graph.data(names::BEAM, Type::new(DType::I32, &[shape.rows()]))?),
            },
        };
        let across = self.stack(inference(shape.sources, shape.beams));
        let mask = source_mask(graph, shape)?;
        let mut x = self.embed(graph, &step.stack, "decoder", ids)?;
        for i in 0..self.num_decoder_layers {
            let (own, cross) = (self.own_cache(graph, shape, i)?, self.cross_cache(graph, shape, i)?);
            x = graph.scope(&format!("decoder.block.{i}"), |g| {
                let x = step.self_attention(g, x, own)?;
                let x = across.cross_attention(g, x, cross, mask)?;
                step.stack.feed_forward(g, "layer.2", x)
            })?;
        }
        let x = graph.scope("decoder", |g| step.stack.end(g, x))?;
        let x = self.scale_outputs(graph, x)?;
        let weight = self.head_weight(graph)?;
        let logits = graph.apply(names::LOGITS, MatMul::TRANSPOSED, &[x, weight])?;
        graph.keep(logits);
        Ok(())
    }

    fn tokens(&self) -> Tokens {
        let (vocabulary, start) = (self.vocab_size, self.decoder_start_token_id);
        Tokens { vocabulary, start, end: self.eos_token_id, padding: self.pad_token_id }
    }
}

impl T5 {
    fn own_cache(&self, graph: &mut Graph, shape: &GenerationShape, block: usize) -> Built {
        self.cache(graph, &format!("cache.{block}.self"), shape.rows(), shape.max_new_tokens)
    }

    fn cross_cache(&self, graph: &mut Graph, shape: &GenerationShape, block: usize) -> Built {
        self.cache(graph, &format!("cache.{block}.cross"), shape.sources, shape.source_length)
    }

    fn cache(&self, graph: &mut Graph, name: &str, rows: usize, steps: usize) -> Built {
        let ty = Type::new(graph.float, &[rows, steps, 2, self.num_heads, self.d_kv]);
        graph.resident(name, ty, Component::Activations, Init::Zeros)
    }
}

fn inference(batch: usize, length: usize) -> Build {
    let (attention, loss_chunk, feed_forward) = (AttentionForm::Fused, usize::MAX, FeedForwardForm::Plain);
    Build { batch, length, target_length: 0, training: false, attention, block_group: 1, loss_chunk, feed_forward }
}

/// 1 for a source's tokens, 0 for what fills its row; a resident, because every step reads it.
fn source_mask(graph: &mut Graph, shape: &GenerationShape) -> Built {
    let ty = Type::new(DType::I32, &[shape.sources, shape.source_length]);
    graph.resident(names::MASK, ty, Component::Inputs, Init::Zeros)
}

/// What the self-attention of every block shares in one step.
struct Step<'a> {
    stack: Stack<'a>,
    table: ValueId,
    position: ValueId,
    beam: Option<ValueId>,
}

impl Step<'_> {
    /// x + attention of this step to itself and to those before it.
    fn self_attention(&self, g: &mut Graph, x: ValueId, cache: ValueId) -> Built {
        let (rows, inner, sizes) = (self.stack.rows(), self.stack.inner(), self.stack.sizes);
        g.scope("layer.0", |g| {
            let qkv = self.stack.qkv(g, x)?;
            let parts = g.apply_all("qkv.parts", Split { axis: 1, lens: vec![inner, 2 * inner] }, &[qkv])?;
            let q = reshape(g, "q.heads", parts[0], &[rows, 1, sizes.num_heads, sizes.d_kv])?;
            let cache = match self.beam {
                None => cache,
                Some(beam) => g.add("reorder", CacheReorder, &[cache, beam, self.position])?[0],
            };
            let kv = g.add("remember", CacheWrite { at_position: true }, &[parts[1], cache, self.position])?[0];
            let (bias, position) = (self.stack.relative(self.table, false), Some(self.position));
            let inputs = AttentionInputs { bias, position, ..AttentionInputs::across(g, q, kv) };
            let y = self.stack.attend(g, "SelfAttention", inputs)?;
            self.stack.residual(g, "SelfAttention.o", x, y)
        })
    }
}
