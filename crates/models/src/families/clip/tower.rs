//! What the two towers share: pre-norm transformer layers, of which the last one computes only what is read out.

use crate::families::Build;
use crate::families::HiddenAct;
use crate::families::attention::{AttentionInputs, attention};
use crate::families::layers::*;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::ops::*;

type Built = Result<ValueId, GraphError>;

/// Sizes of one tower.
pub struct Tower {
    pub width: usize,
    pub heads: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub act: HiddenAct,
    pub eps: f64,
    pub dropout: f32,
    pub causal: bool,
}

impl Tower {
    /// All layers over `time` positions, (B·T, D) → (B, D): the rows that `pick` picks of B·T. The last layer needs the
    /// others only as keys and values, so from its attention on it goes with the picked rows alone.
    pub fn run(
        &self,
        graph: &mut Graph,
        build: &Build,
        time: usize,
        mut x: ValueId,
        pick: impl Fn(&mut Graph, &str, ValueId) -> Built,
    ) -> Built {
        for i in 0..self.layers {
            x = graph.layer(&format!("encoder.layers.{i}"), |g| {
                let h = self.norm(g, "layer_norm1", x)?;
                let h = g.scope("self_attn", |g| self.attend(g, build, time, h))?;
                let (x, h) = match i + 1 < self.layers {
                    true => (x, h),
                    false => (pick(g, "picked", x)?, pick(g, "self_attn.picked", h)?),
                };
                self.finish_layer(g, build, x, h)
            })?;
        }
        Ok(x)
    }

    /// (B·T, D) → (B·T, D), before the output projection.
    fn attend(&self, g: &mut Graph, build: &Build, time: usize, h: ValueId) -> Built {
        let (batch, width) = (build.batch, self.width);
        let qkv = dense(g, "{q_proj,k_proj,v_proj}", h, 3 * width, self.inner_start())?;
        let qkv = reshape(g, "heads", qkv, &[batch, time, 3, self.heads, width / self.heads])?;
        let (causal, dropout) = (self.causal, self.dropout);
        let inputs = AttentionInputs { causal, dropout, ..AttentionInputs::packed(g, qkv) };
        let y = attention(g, "attention", inputs, build)?;
        reshape(g, "joined", y, &[batch * time, width])
    }

    /// Output projection, residual, feed-forward, residual.
    fn finish_layer(&self, g: &mut Graph, build: &Build, x: ValueId, h: ValueId) -> Built {
        let start = Start::normal((self.width as f64).powf(-0.5));
        let h = dense(g, "self_attn.out_proj", h, self.width, start)?;
        let x = g.apply("self_attn.residual", Binary::ADD, &[x, h])?;
        let h = self.norm(g, "layer_norm2", x)?;
        let h = self.feed_forward(g, build, h)?;
        g.apply("mlp.residual", Binary::ADD, &[x, h])
    }

    fn feed_forward(&self, g: &mut Graph, build: &Build, h: ValueId) -> Built {
        let start = Start::normal((2.0 * self.width as f64).powf(-0.5));
        let act = activation(self.act);
        let h = dense_activated(g, "mlp.fc1", h, self.intermediate, start, act, build.training)?;
        dense(g, "mlp.fc2", h, self.width, self.inner_start())
    }

    pub fn norm(&self, g: &mut Graph, name: &str, x: ValueId) -> Built {
        layer_norm_with(g, name, x, self.eps)
    }

    /// How the weights start that begin attention and end the feed-forward: two branches in each layer.
    fn inner_start(&self) -> Start {
        Start::normal((2.0 * (self.width * self.layers) as f64).powf(-0.5))
    }
}
