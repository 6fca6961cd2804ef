//! mu-sota: a language model whose hidden state is cut into blocks. In every layer each block attends within its own
//! narrow slice, then one attention runs across all of them, then a feed-forward; pre-norm, residual.

use super::MuSota;
use crate::families::layers::*;
use crate::families::{Build, Outputs};
use plimsoll_core::graph::{Graph, GraphError, Init, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

impl MuSota {
    /// Everything up to the loss.
    pub(super) fn graph(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        let rows = build.batch * build.length;
        let x = self.body(graph, build)?; // (M, D)
        let by_text = [build.batch, build.length];
        let targets = graph.data("targets", Type::new(DType::I32, &by_text))?;
        let targets = reshape(graph, "targets.rows", targets, &[rows])?;
        let weights = graph.data("weights", Type::new(graph.float.wide(), &by_text))?;
        let weights = reshape(graph, "weights.rows", weights, &[rows])?;
        let head = graph.scope("head", |g| {
            let weight = g.parameter("weight", &[self.vocab, self.width()], fan_in(self.width()), true)?;
            chunked_head(g, x, weight, targets, weights, build.loss_chunk)
        })?;
        Ok(Outputs { loss: head.loss, correct: Some(head.correct), logits: None })
    }
}

/// How an attention reaches the tokens before.
#[derive(Clone, Copy)]
pub(super) enum Reach {
    /// They are in the batch.
    Batch,
    /// The same, and their keys and values are kept in a cache.
    Remember(ValueId),
    /// They are in the cache; the batch is one token at a position.
    Step { cache: ValueId, position: ValueId, beam: Option<ValueId> },
}

/// Those of a layer: within its blocks, and across them.
#[derive(Clone, Copy)]
pub(super) struct Reaches {
    pub blocks: Reach,
    pub cross: Reach,
}

impl MuSota {
    /// Everything up to the head: (B, T) ids → (B·T, D).
    fn body(&self, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
        let reaches = Reaches { blocks: Reach::Batch, cross: Reach::Batch };
        let x = self.embed(graph, build)?;
        self.layers_and_norm(graph, build, x, &vec![reaches; self.layers])
    }

    /// (B, T) ids → (B·T, D), from position 0.
    pub(super) fn embed(&self, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
        let (batch, time, width) = (build.batch, build.length, self.width());
        let ids = graph.data("ids", Type::new(DType::I32, &[batch, time]))?;
        let (tok, pos) = self.tables(graph)?;
        let words = graph.apply("tok", Embedding, &[tok, ids])?; // (B, T, D)
        let places = graph.apply("pos", Slice { axis: 0, start: 0, len: time }, &[pos])?; // (T, D)
        let x = graph.apply("embed", Binary::ADD, &[words, places])?;
        reshape(graph, "rows", x, &[batch * time, width])
    }

    /// Embeddings of tokens and of positions.
    pub(super) fn tables(&self, graph: &mut Graph) -> Result<(ValueId, ValueId), GraphError> {
        let tok = graph.parameter("tok.weight", &[self.vocab, self.width()], Init::Normal(1.0), true)?;
        let pos = graph.parameter("pos.weight", &[self.max_length, self.width()], Init::Normal(1.0), true)?;
        Ok((tok, pos))
    }

    pub(super) fn layers_and_norm(
        &self,
        graph: &mut Graph,
        build: &Build,
        mut x: ValueId,
        reaches: &[Reaches],
    ) -> Result<ValueId, GraphError> {
        for (i, &reach) in reaches.iter().enumerate() {
            x = graph.layer(&format!("layers.{i}"), |g| self.layer(g, build, x, reach))?;
        }
        layer_norm(graph, "norm", x)
    }

    fn layer(&self, g: &mut Graph, build: &Build, x: ValueId, reach: Reaches) -> Result<ValueId, GraphError> {
        let h = layer_norm(g, "norm1", x)?;
        let y = g.scope("blocks", |g| self.attend_blocks(g, build, h, reach.blocks))?;
        let x = g.apply("blocks.residual", Binary::ADD, &[x, y])?;
        let h = layer_norm(g, "norm2", x)?;
        let y = g.scope("cross", |g| self.attend_across(g, build, h, reach.cross))?;
        let x = g.apply("cross.residual", Binary::ADD, &[x, y])?;
        let h = layer_norm(g, "norm3", x)?;
        let y = feed_forward(g, "ffn", h, self.ffn, Activation::Gelu, build)?;
        g.apply("ffn.residual", Binary::ADD, &[x, y])
    }

    /// Every block attends within its own slice; `block_group` blocks are computed at a time.
    fn attend_blocks(&self, g: &mut Graph, build: &Build, h: ValueId, reach: Reach) -> Result<ValueId, GraphError> {
        let (n, w) = (self.blocks, self.block_width);
        let qkv_w = g.parameter("qkv.weight", &[n, 3 * w, w], fan_in(w), true)?;
        let qkv_b = g.parameter("qkv.bias", &[n, 3 * w], fan_in(w), false)?;
        let out_w = g.parameter("out.weight", &[n, w, w], fan_in(w), true)?;
        let out_b = g.parameter("out.bias", &[n, w], fan_in(w), false)?;
        if build.block_group >= n {
            return self.attend_group(g, build, h, [qkv_w, qkv_b, out_w, out_b], reach);
        }
        let groups = group_lens(n, build.block_group);
        let columns: Vec<usize> = groups.iter().map(|k| k * w).collect();
        let h = g.apply_all("h.groups", Split { axis: 1, lens: columns.clone() }, &[h])?;
        let mut parts = Vec::new();
        for value in [qkv_w, qkv_b, out_w, out_b] {
            let name = format!("{}.groups", ["qkv.weight", "qkv.bias", "out.weight", "out.bias"][parts.len()]);
            parts.push(g.apply_all(&name, Split { axis: 0, lens: groups.clone() }, &[value])?);
        }
        let mut outs = Vec::new();
        for i in 0..groups.len() {
            let weights = [parts[0][i], parts[1][i], parts[2][i], parts[3][i]];
            outs.push(g.scope(&format!("group.{i}"), |g| self.attend_group(g, build, h[i], weights, Reach::Batch))?);
        }
        g.apply("joined", Concat::of(1, columns), &outs)
    }

    /// Some blocks at once: (M, k·w) → (M, k·w).
    fn attend_group(
        &self,
        g: &mut Graph,
        build: &Build,
        h: ValueId,
        weights: [ValueId; 4],
        reach: Reach,
    ) -> Result<ValueId, GraphError> {
        let [qkv_w, qkv_b, out_w, out_b] = weights;
        let (k, w) = (g.shape(qkv_w)[0], self.block_width);
        let qkv = g.apply("qkv", GroupedLinear { parts: 3 }, &[h, qkv_w, qkv_b])?; // (M, 3, k, w)
        let y = attend(g, build, qkv, [k * self.block_heads, w / self.block_heads], reach)?;
        let y = g.apply("out", GroupedLinear { parts: 1 }, &[y, out_w, out_b])?; // (M, 1, k, w)
        reshape(g, "out.rows", y, &[build.batch * build.length, k * w])
    }

    /// One attention over the whole width.
    fn attend_across(&self, g: &mut Graph, build: &Build, h: ValueId, reach: Reach) -> Result<ValueId, GraphError> {
        let width = self.width();
        let qkv = linear(g, "qkv", h, 3 * width)?;
        let y = attend(g, build, qkv, [self.cross_heads, width / self.cross_heads], reach)?;
        linear(g, "out", y, width)
    }

    /// Logits after the token at a position that the host sets.
    pub(super) fn next_token_logits(&self, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
        let width = self.width();
        let x = self.body(graph, build)?;
        let x = reshape(graph, "by_time", x, &[build.batch, build.length, width])?;
        let position = graph.data("position", Type::new(DType::I64, &[1]))?;
        let row = graph.add("row", SelectRow, &[x, position])?[0];
        self.head(graph, row)
    }

    pub(super) fn head(&self, graph: &mut Graph, rows: ValueId) -> Result<ValueId, GraphError> {
        graph.scope("head", |g| {
            let weight = g.parameter("weight", &[self.vocab, self.width()], fan_in(self.width()), true)?;
            g.apply("logits", MatMul::TRANSPOSED, &[rows, weight])
        })
    }
}

/// q, k and v of every row, 3 · H · D numbers → (M, H · D). Each token sees itself and those before it.
fn attend(
    g: &mut Graph,
    build: &Build,
    qkv: ValueId,
    [heads, width]: [usize; 2],
    reach: Reach,
) -> Result<ValueId, GraphError> {
    let (rows, inner) = (build.batch * build.length, heads * width);
    let inputs = match reach {
        Reach::Batch => packed(g, build, qkv, heads, width)?,
        Reach::Remember(cache) => {
            let [_, kv] = q_and_kv(g, qkv, rows, inner)?;
            g.add("remember", CacheWrite { at_position: false }, &[kv, cache])?;
            packed(g, build, qkv, heads, width)?
        }
        Reach::Step { cache, position, beam } => {
            let [q, kv] = q_and_kv(g, qkv, rows, inner)?;
            let q = reshape(g, "q.heads", q, &[build.batch, build.length, heads, width])?;
            let cache = match beam {
                None => cache,
                Some(beam) => g.add("reorder", CacheReorder, &[cache, beam, position])?[0],
            };
            let kv = g.add("remember", CacheWrite { at_position: true }, &[kv, cache, position])?[0];
            AttentionInputs { position: Some(position), ..AttentionInputs::across(g, q, kv) }
        }
    };
    let y = attention(g, "attention", inputs, build)?;
    reshape(g, "attention.rows", y, &[rows, inner])
}

fn packed(
    g: &mut Graph,
    build: &Build,
    qkv: ValueId,
    heads: usize,
    width: usize,
) -> Result<AttentionInputs, GraphError> {
    let qkv = reshape(g, "qkv.heads", qkv, &[build.batch, build.length, 3, heads, width])?;
    Ok(AttentionInputs { causal: true, ..AttentionInputs::packed(g, qkv) })
}

fn q_and_kv(g: &mut Graph, qkv: ValueId, rows: usize, inner: usize) -> Result<[ValueId; 2], GraphError> {
    let flat = reshape(g, "qkv.rows", qkv, &[rows, 3 * inner])?;
    let parts = g.apply_all("qkv.parts", Split { axis: 1, lens: vec![inner, 2 * inner] }, &[flat])?;
    Ok([parts[0], parts[1]])
}
