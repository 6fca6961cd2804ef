//! The layers of T5: pre-norm, without biases, scores not scaled.

use super::Built;
use super::{FeedForward, T5};
use crate::families::Build;
use crate::families::attention::{AttentionInputs, BiasInputs, attention};
use crate::families::layers::{dropout, reshape};
use plimsoll_core::graph::{Graph, Init, Named, ValueId};
use plimsoll_core::ops::*;

/// The layers of one side.
pub(super) struct Stack<'a> {
    pub sizes: &'a T5,
    /// Its `length` is that of this side.
    pub build: Build,
}

impl Stack<'_> {
    /// Heads times their width.
    pub(super) fn inner(&self) -> usize {
        self.sizes.num_heads * self.sizes.d_kv
    }

    pub(super) fn rows(&self) -> usize {
        self.build.batch * self.build.length
    }

    /// x + attention of x to itself. The mask hides padding; without one, what lies ahead is hidden.
    pub(super) fn self_attention(&self, g: &mut Graph, x: ValueId, table: ValueId, mask: Option<ValueId>) -> Built {
        g.scope("layer.0", |g| {
            let qkv = self.qkv(g, x)?;
            let shape = [self.build.batch, self.build.length, 3, self.sizes.num_heads, self.sizes.d_kv];
            let qkv = reshape(g, "qkv.heads", qkv, &shape)?;
            let (causal, bias) = (mask.is_none(), self.relative(table, mask.is_some()));
            let inputs = AttentionInputs { mask, bias, causal, ..AttentionInputs::packed(g, qkv) };
            let y = self.attend(g, "SelfAttention", inputs)?;
            self.residual(g, "SelfAttention.o", x, y)
        })
    }

    /// (M, D) → (M, 3·inner), after the norm.
    pub(super) fn qkv(&self, g: &mut Graph, x: ValueId) -> Built {
        let h = self.norm(g, "layer_norm", x)?;
        let (q, kv) = ((self.sizes.d_model * self.sizes.d_kv) as f64, self.sizes.d_model as f64);
        let deviations = [q, kv, kv].map(|n| self.deviation(n));
        self.product(g, "SelfAttention.{q,k,v}", h, 3 * self.inner(), Init::NormalThirds(deviations))
    }

    /// x + attention of x to the encoder's keys and values, (B, S, 2, H, D).
    pub(super) fn cross_attention(&self, g: &mut Graph, x: ValueId, kv: ValueId, mask: ValueId) -> Built {
        g.scope("layer.1", |g| {
            let h = self.norm(g, "layer_norm", x)?;
            let deviation = self.deviation((self.sizes.d_model * self.sizes.d_kv) as f64);
            let q = self.product(g, "EncDecAttention.q", h, self.inner(), Init::Normal(deviation))?;
            let shape = [self.build.batch, self.build.length, self.sizes.num_heads, self.sizes.d_kv];
            let q = reshape(g, "q.heads", q, &shape)?;
            let inputs = AttentionInputs { mask: Some(mask), ..AttentionInputs::across(g, q, kv) };
            let y = self.attend(g, "EncDecAttention", inputs)?;
            self.residual(g, "EncDecAttention.o", x, y)
        })
    }

    /// Keys and values of the encoder's output (B·S, D) for one block of the decoder: (B, S, 2, H, D).
    pub(super) fn cross_keys(&self, g: &mut Graph, memory: ValueId, source_length: usize) -> Built {
        let shape = [self.build.batch, source_length, 2, self.sizes.num_heads, self.sizes.d_kv];
        g.scope("layer.1", |g| {
            let deviation = self.deviation(self.sizes.d_model as f64);
            let kv = self.product(g, "EncDecAttention.{k,v}", memory, 2 * self.inner(), Init::Normal(deviation))?;
            reshape(g, "kv.heads", kv, &shape)
        })
    }

    /// The stack's table as a bias.
    pub(super) fn relative(&self, table: ValueId, bidirectional: bool) -> BiasInputs {
        BiasInputs::Relative { table, bidirectional, max_distance: self.sizes.relative_attention_max_distance }
    }

    /// Attention with T5's own scale, which is none: (M, inner).
    pub(super) fn attend(&self, g: &mut Graph, name: &str, inputs: AttentionInputs) -> Built {
        let inputs = AttentionInputs { scale: 1.0, dropout: self.sizes.dropout_rate, ..inputs };
        let y = attention(g, name, inputs, &self.build)?;
        reshape(g, &format!("{name}.rows"), y, &[self.rows(), self.inner()])
    }

    /// x + dropout(y · Wᵀ)
    pub(super) fn residual(&self, g: &mut Graph, name: &str, x: ValueId, y: ValueId) -> Built {
        let from = g.shape(y)[1] as f64;
        let y = self.product(g, name, y, self.sizes.d_model, Init::Normal(self.deviation(from)))?;
        let y = self.drop(g, "dropout", y)?;
        g.apply("residual", Binary::ADD, &[x, y])
    }

    /// x + feed-forward of x.
    pub(super) fn feed_forward(&self, g: &mut Graph, layer: &str, x: ValueId) -> Built {
        g.scope(layer, |g| {
            let h = self.norm(g, "layer_norm", x)?;
            let h = match self.sizes.feed_forward_proj {
                FeedForward::Relu => self.plain_up(g, h)?,
                FeedForward::GatedGelu => self.gated_up(g, h, Activation::GeluTanh)?,
                FeedForward::GatedSilu => self.gated_up(g, h, Activation::Silu)?,
            };
            let h = self.drop(g, "DenseReluDense.dropout", h)?;
            self.residual(g, "DenseReluDense.wo", x, h)
        })
    }

    fn plain_up(&self, g: &mut Graph, h: ValueId) -> Built {
        let (name, act) = ("DenseReluDense.wi", Activation::Relu);
        let weight = self.weight(g, name, self.sizes.d_model, self.sizes.d_ff, self.up_init())?;
        if !self.build.training {
            return g.apply(name, MatMul { activation: act, ..MatMul::TRANSPOSED }, &[h, weight]);
        }
        let h = g.apply(name, MatMul::TRANSPOSED, &[h, weight])?;
        g.apply("DenseReluDense.act", Activate(act), &[h])
    }

    fn gated_up(&self, g: &mut Graph, h: ValueId, act: Activation) -> Built {
        let h = self.product(g, "DenseReluDense.{wi_0,wi_1}", h, 2 * self.sizes.d_ff, self.up_init())?;
        g.apply("DenseReluDense.act", Gated(act), &[h])
    }

    fn up_init(&self) -> Init {
        Init::Normal(self.deviation(self.sizes.d_model as f64))
    }

    /// The norm and dropout that a stack ends with.
    pub(super) fn end(&self, g: &mut Graph, x: ValueId) -> Built {
        let x = self.norm(g, "final_layer_norm", x)?;
        self.drop(g, "end.dropout", x)
    }

    fn norm(&self, g: &mut Graph, name: &str, x: ValueId) -> Built {
        let init = Init::Constant(self.sizes.initializer_factor);
        let weight = g.parameter(Named(name, ".weight"), &[self.sizes.d_model], init, false)?;
        Ok(g.apply_all(name, RmsNorm { eps: self.sizes.layer_norm_epsilon }, &[x, weight])?[0])
    }

    /// x · Wᵀ
    fn product(&self, g: &mut Graph, name: &str, x: ValueId, to: usize, init: Init) -> Built {
        let weight = self.weight(g, name, g.shape(x)[1], to, init)?;
        g.apply(name, MatMul::TRANSPOSED, &[x, weight])
    }

    fn weight(&self, g: &mut Graph, name: &str, from: usize, to: usize, init: Init) -> Built {
        g.parameter(Named(name, ".weight"), &[to, from], init, true)
    }

    /// The standard deviation of a weight that sums over `n` values.
    fn deviation(&self, n: f64) -> f64 {
        self.sizes.initializer_factor * n.powf(-0.5)
    }

    pub(super) fn drop(&self, g: &mut Graph, name: &str, x: ValueId) -> Built {
        dropout(g, name, x, self.sizes.dropout_rate, self.build.batch, self.build.training)
    }
}
