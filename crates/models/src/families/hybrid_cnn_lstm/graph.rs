//! hybrid-cnn-lstm: Conv1d stack → 2-layer bidirectional LSTM → one pre-norm attention block → mean pool → classifier.

use super::HybridCnnLstm;
use crate::families::layers::*;
use crate::families::{Build, Outputs};
use plimsoll_core::graph::{Component, Graph, GraphError, Init, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

/// Stacked LSTM layers and directions, as the reference has them.
pub(super) const LSTM_LAYERS: usize = 2;
const DIRECTIONS: usize = 2;
const KERNEL: usize = 3;

impl HybridCnnLstm {
    /// Everything up to the loss.
    pub(super) fn graph(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        let (batch, time, float) = (build.batch, build.length, graph.float);
        let x = graph.data("x", Type::new(float, &[batch, time, self.features]))?;
        let label = graph.data("label", Type::new(DType::I32, &[batch]))?;
        let weight = graph.data("weight", Type::new(float.wide(), &[batch]))?;
        let mut x = x; // (B, T, features)
        for (i, &out) in self.channels.iter().enumerate() {
            x = graph.layer(&format!("conv.{i}"), |g| self.convolve(g, build, x, weight, out))?; // (B, T, out)
        }
        for i in 0..LSTM_LAYERS {
            x = graph.layer(&format!("lstm.{i}"), |g| self.recur(g, build, x, i + 1 < LSTM_LAYERS))?; // (B, T, 2H)
        }
        let width = DIRECTIONS * self.hidden;
        let x = reshape(graph, "rows", x, &[batch * time, width])?;
        let x = graph.layer("attn", |g| self.attend(g, build, x))?;
        let x = graph.layer("ffn", |g| self.feed_forward(g, build, x))?;
        let x = reshape(graph, "series", x, &[batch, time, width])?;
        let x = graph.apply("pool", Sum { axis: 1 }, &[x])?; // (B, 2H)
        let x = graph.apply("mean", Scale(1.0 / time as f64), &[x])?;
        let logits = linear(graph, "head", x, self.classes)?;
        let head = classify(graph, logits, label, weight)?;
        Ok(Outputs { loss: head.loss, correct: Some(head.correct), logits: Some(logits) })
    }
}

impl HybridCnnLstm {
    /// Convolution → batch norm → GELU → dropout.
    fn convolve(
        &self,
        g: &mut Graph,
        build: &Build,
        x: ValueId,
        weight: ValueId,
        out: usize,
    ) -> Result<ValueId, GraphError> {
        let from = g.shape(x)[2];
        let init = fan_in(from * KERNEL);
        let kernel = g.parameter("weight", &[out, from, KERNEL], init, true)?;
        let bias = g.parameter("bias", &[out], init, false)?;
        let y = g.apply("conv", Conv1d { stride: 1, padding: KERNEL / 2 }, &[x, kernel, bias])?;
        let y = batch_norm(g, "norm", y, weight, build.training)?;
        let y = g.apply("act", Activate(Activation::Gelu), &[y])?;
        dropout(g, "drop", y, self.dropout, build.batch, build.training)
    }

    /// One bidirectional LSTM layer; dropout after all but the last.
    fn recur(&self, g: &mut Graph, build: &Build, x: ValueId, drop: bool) -> Result<ValueId, GraphError> {
        let (batch, time, from, hidden) = (build.batch, build.length, g.shape(x)[2], self.hidden);
        let init = Init::Uniform(1.0 / (hidden as f64).sqrt());
        let w_ih = g.parameter("w_ih", &[DIRECTIONS, 4 * hidden, from], init, true)?;
        let w_hh = g.parameter("w_hh", &[DIRECTIONS, 4 * hidden, hidden], init, true)?;
        let b_ih = g.parameter("b_ih", &[DIRECTIONS, 4 * hidden], init, false)?;
        let b_hh = g.parameter("b_hh", &[DIRECTIONS, 4 * hidden], init, false)?;
        let all = DIRECTIONS * 4 * hidden;
        let rows = reshape(g, "rows", x, &[batch * time, from])?;
        let w_ih = reshape(g, "w_ih.flat", w_ih, &[all, from])?;
        let b_ih = reshape(g, "b_ih.flat", b_ih, &[all])?;
        let gates = g.apply("gates", MatMul::LINEAR, &[rows, w_ih, b_ih])?;
        let gates = reshape(g, "gates.by_time", gates, &[batch, time, DIRECTIONS, 4 * hidden])?;
        let y = g.apply_all("scan", Lstm, &[gates, w_hh, b_hh])?[0];
        let p = if drop { self.dropout } else { 0.0 };
        dropout(g, "drop", y, p, batch, build.training)
    }

    /// x + proj(attention(norm(x)))
    fn attend(&self, g: &mut Graph, build: &Build, x: ValueId) -> Result<ValueId, GraphError> {
        let width = g.shape(x)[1];
        let y = layer_norm(g, "norm", x)?;
        let qkv = linear(g, "qkv", y, 3 * width)?;
        let split = [build.batch, build.length, 3, self.heads, width / self.heads];
        let qkv = reshape(g, "qkv.heads", qkv, &split)?;
        let y = attention(g, "attention", AttentionInputs::packed(g, qkv), build)?;
        let y = reshape(g, "joined", y, &[build.batch * build.length, width])?;
        let y = linear(g, "proj", y, width)?;
        g.apply("residual", Binary::ADD, &[x, y])
    }

    /// x + down(dropout(gelu(up(norm(x)))))
    fn feed_forward(&self, g: &mut Graph, build: &Build, x: ValueId) -> Result<ValueId, GraphError> {
        let width = g.shape(x)[1];
        let y = layer_norm(g, "norm", x)?;
        let y = linear_activated(g, "up", y, 4 * width, Activation::Gelu, build.training)?;
        let y = dropout(g, "drop", y, self.dropout, build.batch, build.training)?;
        let y = linear(g, "down", y, width)?;
        g.apply("residual", Binary::ADD, &[x, y])
    }
}

/// Batch norm over (B, T) with the samples' weights, so that padded rows do not count; running statistics are kept
/// beside the weights, in f32 whatever the activations are, and used when not training.
fn batch_norm(g: &mut Graph, name: &str, x: ValueId, weight: ValueId, training: bool) -> Result<ValueId, GraphError> {
    let width = g.shape(x)[2];
    let (gamma, beta) = norm_weights(g, name, width)?;
    let ty = Type::new(g.float.wide(), &[width]);
    let (mean_name, var_name) = (g.path(&format!("{name}.running_mean")), g.path(&format!("{name}.running_var")));
    let running_mean = g.resident(&mean_name, ty.clone(), Component::Weights, Init::Zeros)?;
    let running_var = g.resident(&var_name, ty, Component::Weights, Init::Ones)?;
    if !training {
        let op = BatchNormFixed { eps: 1e-5 };
        return Ok(g.add(name, op, &[x, gamma, beta, running_mean, running_var])?[0]);
    }
    let outputs = g.apply_all(name, BatchNorm { eps: 1e-5 }, &[x, gamma, beta, weight])?;
    let statistics = [outputs[1], outputs[2], weight, running_mean, running_var];
    let running = BatchNormRunning { momentum: 0.1, rows_per_sample: g.shape(x)[1] };
    g.add(&format!("{name}.running"), running, &statistics)?;
    Ok(outputs[0])
}
