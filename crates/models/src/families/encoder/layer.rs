//! One transformer layer: attention, then a feed-forward; each is added to its input, and the sum normalized.

use super::relative::Positions;
use super::{Encoder, files};
use crate::families::Build;
use crate::families::attention::{AttentionInputs, BiasInputs, attention};
use crate::families::layers::*;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::ops::*;

/// Which tokens a layer computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// The first of each text: what the head reads of the last layer. The others are read as keys and values only, and
    /// dropout falls on the same elements, so the outcome is that of a whole layer.
    First,
}

impl Encoder {
    /// (B·T, D) → (B·T, D), or (B, D) where only the first tokens are wanted.
    pub(super) fn layer(
        &self,
        g: &mut Graph,
        build: &Build,
        x: ValueId,
        mask: ValueId,
        positions: Option<Positions>,
        wanted: Wanted,
    ) -> Result<ValueId, GraphError> {
        let (y, x) = g.scope("attention.self", |g| self.attend(g, build, x, mask, positions, wanted))?;
        let x = g.scope("attention.output", |g| self.settle(g, build, y, x))?;
        let act = activation(self.hidden_act);
        let up = self.intermediate_size;
        let y = dense_activated(g, "intermediate.dense", x, up, self.start(), act, build.training)?;
        g.scope("output", |g| self.settle(g, build, y, x))
    }

    /// norm(x + dropout(dense(y)))
    fn settle(&self, g: &mut Graph, build: &Build, y: ValueId, x: ValueId) -> Result<ValueId, GraphError> {
        let y = dense(g, "dense", y, self.hidden_size, self.start())?;
        let y = dropout(g, "dropout", y, self.hidden_dropout_prob, build.batch, build.training)?;
        let sum = g.apply("residual", Binary::ADD, &[y, x])?;
        layer_norm_with(g, "LayerNorm", sum, self.layer_norm_eps)
    }

    /// Attention of the wanted tokens over all real ones; the result, and the wanted rows of `x`.
    fn attend(
        &self,
        g: &mut Graph,
        build: &Build,
        x: ValueId,
        mask: ValueId,
        positions: Option<Positions>,
        wanted: Wanted,
    ) -> Result<(ValueId, ValueId), GraphError> {
        let (width, heads) = (self.hidden_size, self.num_attention_heads);
        let names = files::projections(self.kind);
        let (weight, bias) = linear_weights(g, names, width, 3 * width, self.start())?;
        let (inputs, x) = match wanted {
            Wanted::All => (self.all_queries(g, build, x, weight, bias)?, x),
            Wanted::First => {
                let first = self.first_tokens(g, build, x)?;
                (self.first_queries(g, build, x, first, weight, bias)?, first)
            }
        };
        let bias = match positions {
            Some(positions) => self.relative_bias(g, build, positions, weight, bias)?,
            None => BiasInputs::None,
        };
        // Scores are sums of three products with relative positions, of one without.
        let terms = if positions.is_some() { 3.0 } else { 1.0 };
        let inputs = AttentionInputs {
            mask: Some(mask),
            bias,
            dropout: self.attention_probs_dropout_prob,
            scale: (terms * (width / heads) as f64).powf(-0.5),
            ..inputs
        };
        let y = attention(g, "attention", inputs, build)?;
        let rows = g.shape(x)[0];
        Ok((reshape(g, "joined", y, &[rows, width])?, x))
    }

    /// Query, key and value of all tokens in one product.
    fn all_queries(
        &self,
        g: &mut Graph,
        build: &Build,
        x: ValueId,
        weight: ValueId,
        bias: ValueId,
    ) -> Result<AttentionInputs, GraphError> {
        let qkv = g.apply("qkv", MatMul::LINEAR, &[x, weight, bias])?;
        let qkv = reshape(g, "qkv.heads", qkv, &self.by_head(build.batch, build.length, Some(3)))?;
        Ok(AttentionInputs::packed(g, qkv))
    }

    /// Queries of the first tokens, keys and values of all.
    fn first_queries(
        &self,
        g: &mut Graph,
        build: &Build,
        x: ValueId,
        first: ValueId,
        weight: ValueId,
        bias: ValueId,
    ) -> Result<AttentionInputs, GraphError> {
        let width = self.hidden_size;
        let parts = Split { axis: 0, lens: vec![width, 2 * width] };
        let weights = g.apply_all("weight.parts", parts.clone(), &[weight])?;
        let biases = g.apply_all("bias.parts", parts, &[bias])?;
        let q = g.apply("q", MatMul::LINEAR, &[first, weights[0], biases[0]])?;
        let kv = g.apply("kv", MatMul::LINEAR, &[x, weights[1], biases[1]])?;
        let q = reshape(g, "q.heads", q, &self.by_head(build.batch, 1, None))?;
        let kv = reshape(g, "kv.heads", kv, &self.by_head(build.batch, build.length, Some(2)))?;
        Ok(AttentionInputs::across(g, q, kv))
    }

    /// (batch, time, packed, heads, width of a head), the third only where several are packed.
    fn by_head(&self, batch: usize, time: usize, packed: Option<usize>) -> Vec<usize> {
        let heads = self.num_attention_heads;
        let sizes = [Some(batch), Some(time), packed, Some(heads), Some(self.hidden_size / heads)];
        sizes.into_iter().flatten().collect()
    }

    /// (B·T, D) → (B, D).
    pub(super) fn first_tokens(&self, g: &mut Graph, build: &Build, x: ValueId) -> Result<ValueId, GraphError> {
        let (batch, width) = (build.batch, self.hidden_size);
        let tokens = reshape(g, "tokens", x, &[batch, build.length, width])?;
        let first = g.apply("first", Slice { axis: 1, start: 0, len: 1 }, &[tokens])?;
        reshape(g, "first.rows", first, &[batch, width])
    }
}
