//! One transformer layer: attention, then a feed-forward; each is added to its input, and the sum normalized.

use super::relative::Positions;
use super::*;
use crate::models::attention::{AttentionInputs, BiasInputs, attention};

impl Encoder {
    /// (B·T, D) → (B·T, D).
    pub(super) fn layer(
        &self,
        g: &mut Graph,
        build: &Build,
        x: ValueId,
        mask: ValueId,
        positions: Option<Positions>,
    ) -> Result<ValueId, GraphError> {
        let y = self.attend(g, build, x, mask, positions)?;
        let x = g.scope("attention.output", |g| self.settle(g, build, y, x))?;
        let act = activation(self.sizes.hidden_act);
        let up = self.sizes.intermediate_size;
        let y = dense_activated(g, "intermediate.dense", x, up, self.start(), act, build.training)?;
        g.scope("output", |g| self.settle(g, build, y, x))
    }

    /// norm(x + dropout(dense(y)))
    fn settle(&self, g: &mut Graph, build: &Build, y: ValueId, x: ValueId) -> Result<ValueId, GraphError> {
        let y = dense(g, "dense", y, self.sizes.hidden_size, self.start())?;
        let y = dropout(g, "dropout", y, self.sizes.hidden_dropout_prob, build.batch, build.training)?;
        let sum = g.apply("residual", Binary::ADD, &[y, x])?;
        layer_norm_with(g, "LayerNorm", sum, self.sizes.layer_norm_eps)
    }

    /// Self-attention over real tokens; query, key and value in one product.
    fn attend(
        &self,
        g: &mut Graph,
        build: &Build,
        x: ValueId,
        mask: ValueId,
        positions: Option<Positions>,
    ) -> Result<ValueId, GraphError> {
        let (batch, time, width, heads) =
            (build.batch, build.length, self.sizes.hidden_size, self.sizes.num_attention_heads);
        g.scope("attention.self", |g| {
            let names = files::projections(self.sizes.kind);
            let (weight, bias) = linear_weights(g, names, width, 3 * width, self.start())?;
            let qkv = g.apply("qkv", MatMul::LINEAR, &[x, weight, bias])?;
            let qkv = reshape(g, "qkv.heads", qkv, &[batch, time, 3, heads, width / heads])?;
            let bias = match positions {
                Some(positions) => self.relative_bias(g, build, positions, weight, bias)?,
                None => BiasInputs::None,
            };
            // Scores are sums of as many products as the bias has, and one.
            let terms = if positions.is_some() { 3.0 } else { 1.0 };
            let inputs = AttentionInputs {
                mask: Some(mask),
                bias,
                dropout: self.sizes.attention_probs_dropout_prob,
                scale: (terms * (width / heads) as f64).powf(-0.5),
                ..AttentionInputs::packed(g, qkv)
            };
            let y = attention(g, "attention", inputs, build)?;
            reshape(g, "joined", y, &[batch * time, width])
        })
    }
}
