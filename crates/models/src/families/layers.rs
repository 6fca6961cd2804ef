//! Layers as plain functions that compose ops. Initial values are those of PyTorch's modules.

named! {
    /// Activations by the names that config.json uses.
    pub enum HiddenAct {
        Gelu = "gelu",
        GeluNew = "gelu_new",
        QuickGelu = "quick_gelu",
        Relu = "relu",
        Silu = "silu",
        Tanh = "tanh",
    }
}

pub use super::{AttentionInputs, attention};
use super::{Build, FeedForwardForm};
use plimsoll_base::named;
use plimsoll_base::random::site;
use plimsoll_core::graph::{Component, Graph, GraphError, Init, Named, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

type Built = Result<ValueId, GraphError>;

/// (seed, step, index of the batch's first sample in the effective batch): what dropout is a function of.
pub fn rng(graph: &mut Graph) -> Built {
    graph.resident("rng", Type::new(DType::I64, &[3]), Component::Inputs, Init::Zeros)
}

pub(crate) fn reshape(graph: &mut Graph, name: &str, x: ValueId, shape: &[usize]) -> Built {
    graph.apply(name, Reshape { shape: shape.into() }, &[x])
}

/// `x · Wᵀ + b` over rows: (M, from) → (M, to).
pub(crate) fn linear(graph: &mut Graph, name: &str, x: ValueId, to: usize) -> Built {
    dense(graph, name, x, to, Start::uniform(graph.shape(x)[1]))
}

/// The same with other initial values.
pub(crate) fn dense(graph: &mut Graph, name: &str, x: ValueId, to: usize, start: Start) -> Built {
    let (weight, bias) = linear_weights(graph, name, graph.shape(x)[1], to, start)?;
    graph.apply(name, MatMul::LINEAR, &[x, weight, bias])
}

/// `act(x · Wᵀ + b)`: as one node where nothing has to be kept for a backward pass.
pub(crate) fn linear_activated(
    graph: &mut Graph,
    name: &str,
    x: ValueId,
    to: usize,
    act: Activation,
    training: bool,
) -> Built {
    let start = Start::uniform(graph.shape(x)[1]);
    dense_activated(graph, name, x, to, start, act, training)
}

/// The same with other initial values.
pub(crate) fn dense_activated(
    graph: &mut Graph,
    name: &str,
    x: ValueId,
    to: usize,
    start: Start,
    act: Activation,
    training: bool,
) -> Built {
    let (weight, bias) = linear_weights(graph, name, graph.shape(x)[1], to, start)?;
    if !training {
        return graph.apply(name, MatMul { activation: act, ..MatMul::LINEAR }, &[x, weight, bias]);
    }
    let y = graph.apply(name, MatMul::LINEAR, &[x, weight, bias])?;
    graph.apply(&format!("{name}.act"), Activate(act), &[y])
}

/// Two linear layers, `name.up` and `name.down`, with a function between them: (M, D) → (M, hidden) → (M, D).
pub fn feed_forward(graph: &mut Graph, name: &str, x: ValueId, hidden: usize, act: Activation, build: &Build) -> Built {
    let (width, [up, down]) = (graph.shape(x)[1], ["up", "down"].map(|part| format!("{name}.{part}")));
    if build.feed_forward == FeedForwardForm::Plain {
        let y = linear_activated(graph, &up, x, hidden, act, build.training)?;
        return linear(graph, &down, y, width);
    }
    let (up_weight, up_bias) = linear_weights(graph, &up, width, hidden, Start::uniform(width))?;
    let (down_weight, down_bias) = linear_weights(graph, &down, hidden, width, Start::uniform(hidden))?;
    graph.apply(name, FeedForward { activation: act }, &[x, up_weight, up_bias, down_weight, down_bias])
}

/// The function behind a name in config.json.
pub(crate) fn activation(act: HiddenAct) -> Activation {
    match act {
        HiddenAct::Gelu => Activation::Gelu,
        HiddenAct::GeluNew => Activation::GeluTanh,
        HiddenAct::QuickGelu => Activation::QuickGelu,
        HiddenAct::Relu => Activation::Relu,
        HiddenAct::Silu => Activation::Silu,
        HiddenAct::Tanh => Activation::Tanh,
    }
}

/// How the weight and bias of a linear layer start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    pub weight: Init,
    pub bias: Init,
}

impl Start {
    /// As PyTorch's own layers.
    pub(crate) fn uniform(from: usize) -> Start {
        Start { weight: fan_in(from), bias: fan_in(from) }
    }

    /// As Hugging Face's models: normal with their `initializer_range`, no bias.
    pub fn normal(deviation: f64) -> Start {
        Start { weight: Init::Normal(deviation), bias: Init::Zeros }
    }
}

/// The weight (to, from) and bias (to) of a linear layer.
pub(crate) fn linear_weights(
    graph: &mut Graph,
    name: &str,
    from: usize,
    to: usize,
    start: Start,
) -> Result<(ValueId, ValueId), GraphError> {
    let weight = graph.parameter(Named(name, ".weight"), &[to, from], start.weight, true)?;
    let bias = graph.parameter(Named(name, ".bias"), &[to], start.bias, false)?;
    Ok((weight, bias))
}

/// Uniform in ±1/√n, as PyTorch starts linear and convolution layers.
pub(crate) fn fan_in(n: usize) -> Init {
    Init::Uniform(1.0 / (n.max(1) as f64).sqrt())
}

pub(crate) fn layer_norm(graph: &mut Graph, name: &str, x: ValueId) -> Built {
    layer_norm_with(graph, name, x, 1e-5)
}

pub(crate) fn layer_norm_with(graph: &mut Graph, name: &str, x: ValueId, eps: f64) -> Built {
    let width = *graph.shape(x).last().unwrap_or(&1);
    let (weight, bias) = norm_weights(graph, name, width)?;
    Ok(graph.apply_all(name, LayerNorm { eps }, &[x, weight, bias])?[0])
}

pub(crate) fn norm_weights(graph: &mut Graph, name: &str, width: usize) -> Result<(ValueId, ValueId), GraphError> {
    let weight = graph.parameter(Named(name, ".weight"), &[width], Init::Ones, false)?;
    let bias = graph.parameter(Named(name, ".bias"), &[width], Init::Zeros, false)?;
    Ok((weight, bias))
}

/// Dropout over values whose leading dimension counts `samples` equal parts; 0 for one value that all samples share.
pub fn dropout(graph: &mut Graph, name: &str, x: ValueId, p: f32, samples: usize, training: bool) -> Built {
    if !training || p == 0.0 {
        return Ok(x);
    }
    let rng = rng(graph)?;
    let op = Dropout { p: p.into(), site: site(&graph.path(name)), samples };
    graph.apply(name, op, &[x, rng])
}

/// The two results of a loss head.
pub struct Head {
    pub loss: ValueId,
    pub correct: ValueId,
}

/// Cross-entropy and right answers of (M, V) logits.
pub(crate) fn classify(
    graph: &mut Graph,
    logits: ValueId,
    targets: ValueId,
    weights: ValueId,
) -> Result<Head, GraphError> {
    let loss = graph.apply_all("loss", CrossEntropy, &[logits, targets, weights])?[0];
    let correct = graph.add("correct", CountCorrect, &[logits, targets, weights])?[0];
    Ok(Head { loss, correct })
}

/// Logits over the rows of `weight` (V, D) and their loss, for `chunk` rows of `x` at a time: a chunk is differentiated
/// before the next one is computed, so only one chunk of logits exists.
pub(crate) fn chunked_head(
    g: &mut Graph,
    x: ValueId,
    weight: ValueId,
    targets: ValueId,
    weights: ValueId,
    chunk: usize,
) -> Result<Head, GraphError> {
    let rows = g.shape(x)[0];
    if chunk >= rows {
        let logits = g.apply("logits", MatMul::TRANSPOSED, &[x, weight])?;
        return classify(g, logits, targets, weights);
    }
    let lens = group_lens(rows, chunk);
    let x = g.apply_all("x.chunks", Split { axis: 0, lens: lens.clone() }, &[x])?;
    let targets = g.apply_all("targets.chunks", Split { axis: 0, lens: lens.clone() }, &[targets])?;
    let weights = g.apply_all("weights.chunks", Split { axis: 0, lens: lens.clone() }, &[weights])?;
    let mut total: Option<Head> = None;
    for i in 0..lens.len() {
        let part = g.scope(&format!("chunk.{i}"), |g| {
            let logits = g.apply("logits", MatMul::TRANSPOSED, &[x[i], weight])?;
            classify(g, logits, targets[i], weights[i])
        })?;
        total = Some(match total {
            None => part,
            Some(sum) => Head {
                loss: g.apply("loss.sum", Binary::ADD, &[sum.loss, part.loss])?,
                correct: g.add("correct.sum", Binary::ADD, &[sum.correct, part.correct])?[0],
            },
        });
    }
    total.ok_or_else(|| GraphError::Broken("a batch without rows".into()))
}

/// `n` cut into pieces of `size`, the last one shorter.
pub(crate) fn group_lens(n: usize, size: usize) -> Vec<usize> {
    let size = size.clamp(1, n);
    (0..n.div_ceil(size)).map(|i| size.min(n - i * size)).collect()
}
