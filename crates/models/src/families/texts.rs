//! What encoders of texts share: attention over packed projections, first tokens, the mean over tokens.

use super::layers::reshape;
use super::{AttentionInputs, Build};
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

/// Which tokens a layer computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// The first of each text: what the head reads of the last layer. The others are read as keys and values only, and
    /// dropout falls on the same elements, so the outcome is that of a whole layer.
    First,
}

impl Wanted {
    /// What layer `i` of `layers` computes, where this is wanted of the last.
    pub(super) fn of_layer(self, i: usize, layers: usize) -> Wanted {
        if i + 1 == layers { self } else { Wanted::All }
    }
}

/// The projections to query, key and value, packed in this order: weight (3·D, D) and bias (3·D).
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    pub weight: ValueId,
    pub bias: ValueId,
    pub heads: usize,
}

impl Packed {
    /// Of (B·T, D): queries of the wanted tokens, keys and values of all; and the wanted rows.
    pub(super) fn project(
        self,
        g: &mut Graph,
        build: &Build,
        x: ValueId,
        wanted: Wanted,
    ) -> Result<(AttentionInputs, ValueId), GraphError> {
        match wanted {
            Wanted::All => Ok((self.all(g, build, x)?, x)),
            Wanted::First => {
                let first = first_tokens(g, build, x)?;
                Ok((self.first(g, build, x, first)?, first))
            }
        }
    }

    /// Query, key and value of all tokens in one product.
    fn all(self, g: &mut Graph, build: &Build, x: ValueId) -> Result<AttentionInputs, GraphError> {
        let shape = self.by_head(g.shape(x)[1], build.batch, build.length, Some(3));
        let qkv = g.apply("qkv", MatMul::LINEAR, &[x, self.weight, self.bias])?;
        let qkv = reshape(g, "qkv.heads", qkv, &shape)?;
        Ok(AttentionInputs::packed(g, qkv))
    }

    /// Queries of the first tokens, keys and values of all.
    fn first(self, g: &mut Graph, build: &Build, x: ValueId, first: ValueId) -> Result<AttentionInputs, GraphError> {
        let width = g.shape(x)[1];
        let parts = Split { axis: 0, lens: vec![width, 2 * width] };
        let weights = g.apply_all("weight.parts", parts.clone(), &[self.weight])?;
        let biases = g.apply_all("bias.parts", parts, &[self.bias])?;
        let q = g.apply("q", MatMul::LINEAR, &[first, weights[0], biases[0]])?;
        let kv = g.apply("kv", MatMul::LINEAR, &[x, weights[1], biases[1]])?;
        let q = reshape(g, "q.heads", q, &self.by_head(width, build.batch, 1, None))?;
        let kv = reshape(g, "kv.heads", kv, &self.by_head(width, build.batch, build.length, Some(2)))?;
        Ok(AttentionInputs::across(g, q, kv))
    }

    /// (batch, time, packed, heads, width of a head), the third only where several are packed.
    fn by_head(self, width: usize, batch: usize, time: usize, packed: Option<usize>) -> Vec<usize> {
        let sizes = [Some(batch), Some(time), packed, Some(self.heads), Some(width / self.heads)];
        sizes.into_iter().flatten().collect()
    }
}

/// The input `mask` (B, T): 1 for a token, 0 for padding.
pub(super) fn token_mask(g: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
    g.data("mask", Type::new(DType::I32, &[build.batch, build.length]))
}

/// (B·T, D) → (B, D).
pub(super) fn first_tokens(g: &mut Graph, build: &Build, x: ValueId) -> Result<ValueId, GraphError> {
    let (batch, width) = (build.batch, g.shape(x)[1]);
    let tokens = reshape(g, "tokens", x, &[batch, build.length, width])?;
    let first = g.apply("first", Slice { axis: 1, start: 0, len: 1 }, &[tokens])?;
    reshape(g, "first.rows", first, &[batch, width])
}

/// The mean of hidden states (B·T, D) over real tokens, (B, D).
pub(super) fn mean_of_tokens(g: &mut Graph, build: &Build, x: ValueId) -> Result<ValueId, GraphError> {
    let width = g.shape(x)[1];
    let hidden = reshape(g, "tokens", x, &[build.batch, build.length, width])?;
    let mask = token_mask(g, build)?;
    g.apply("embedding", MaskedMean, &[hidden, mask])
}
