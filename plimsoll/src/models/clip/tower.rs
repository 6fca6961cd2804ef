//! What the two towers share: pre-norm transformer layers, of which the last one computes only what is read out.

use crate::graph::{Graph, GraphError, Init, ValueId};
use crate::models::Build;
use crate::models::layers::{attention, norm_weights, reshape};
use crate::ops::*;
use crate::recipe::HiddenAct;

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
        let qkv = linear(g, "{q_proj,k_proj,v_proj}", h, 3 * width, self.inner_deviation())?;
        let qkv = reshape(g, "heads", qkv, &[batch, time, 3, self.heads, width / self.heads])?;
        let y = attention(g, "attention", qkv, self.causal, build.attention)?;
        reshape(g, "joined", y, &[batch * time, width])
    }

    /// Output projection, residual, feed-forward, residual.
    fn finish_layer(&self, g: &mut Graph, build: &Build, x: ValueId, h: ValueId) -> Built {
        let width = self.width as f64;
        let h = linear(g, "self_attn.out_proj", h, self.width, width.powf(-0.5))?;
        let x = g.apply("self_attn.residual", Binary::ADD, &[x, h])?;
        let h = self.norm(g, "layer_norm2", x)?;
        let h = self.feed_forward(g, build, h)?;
        g.apply("mlp.residual", Binary::ADD, &[x, h])
    }

    fn feed_forward(&self, g: &mut Graph, build: &Build, h: ValueId) -> Built {
        let act = activation(self.act);
        let (weight, bias) =
            weights(g, "mlp.fc1", self.width, self.intermediate, (2.0 * self.width as f64).powf(-0.5))?;
        let h = match build.training {
            true => {
                let h = g.apply("mlp.fc1", MatMul::LINEAR, &[h, weight, bias])?;
                g.apply("mlp.act", Activate(act), &[h])?
            }
            // Nothing has to be kept for a backward pass.
            false => g.apply("mlp.fc1", MatMul { activation: act, ..MatMul::LINEAR }, &[h, weight, bias])?,
        };
        linear(g, "mlp.fc2", h, self.width, self.inner_deviation())
    }

    pub fn norm(&self, g: &mut Graph, name: &str, x: ValueId) -> Built {
        let (weight, bias) = norm_weights(g, name, self.width)?;
        Ok(g.apply_all(name, LayerNorm { eps: self.eps }, &[x, weight, bias])?[0])
    }

    /// How weights start that each of 2 · layers residual branches ends or begins with.
    fn inner_deviation(&self) -> f64 {
        (self.width as f64).powf(-0.5) * (2.0 * self.layers as f64).powf(-0.5)
    }
}

fn linear(g: &mut Graph, name: &str, x: ValueId, to: usize, deviation: f64) -> Built {
    let (weight, bias) = weights(g, name, g.shape(x)[1], to, deviation)?;
    g.apply(name, MatMul::LINEAR, &[x, weight, bias])
}

fn weights(
    g: &mut Graph,
    name: &str,
    from: usize,
    to: usize,
    deviation: f64,
) -> Result<(ValueId, ValueId), GraphError> {
    let weight = g.parameter(&format!("{name}.weight"), &[to, from], Init::Normal(deviation), true)?;
    let bias = g.parameter(&format!("{name}.bias"), &[to], Init::Zeros, false)?;
    Ok((weight, bias))
}

fn activation(act: HiddenAct) -> Activation {
    match act {
        HiddenAct::Gelu => Activation::Gelu,
        HiddenAct::GeluNew => Activation::GeluTanh,
        HiddenAct::QuickGelu => Activation::QuickGelu,
        HiddenAct::Relu => Activation::Relu,
        HiddenAct::Silu => Activation::Silu,
        HiddenAct::Tanh => Activation::Tanh,
    }
}
