//! One transformer layer: attention, then a feed-forward; each is added to its input, and the sum normalized.

use super::relative::Positions;
use super::{Encoder, files};
use crate::families::Build;
use crate::families::attention::{AttentionInputs, BiasInputs, attention};
use crate::families::layers::*;
use crate::families::texts::{Packed, Wanted};
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::ops::*;

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
        let (inputs, x) = Packed { weight, bias, heads }.project(g, build, x, wanted)?;
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
}
