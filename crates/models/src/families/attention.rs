//! Attention as a layer: one fused op, or the composition whose scores exist as a value.

use super::layers::{reshape, rng};
use super::{AttentionForm, Build};
use plimsoll_base::random::site;
use plimsoll_core::graph::{Component, Graph, GraphError, ValueId};
use plimsoll_core::ops::*;

/// What attention reads, and how.
#[derive(Clone, Copy, Debug)]
pub struct AttentionInputs {
    /// qkv (B, T, 3, H, D); or q (B, T, H, D), where `kv` holds the rest.
    pub q: ValueId,
    /// (B, S, 2, H, D)
    pub kv: Option<ValueId>,
    /// i32 (B, S): 0 hides a key.
    pub mask: Option<ValueId>,
    pub bias: BiasInputs,
    /// i64 (1): at which position query 0 stands, to decode with a cache. Has no gradient.
    pub position: Option<ValueId>,
    /// Probability of dropping a weight, when training.
    pub dropout: f32,
    pub scale: f64,
    pub causal: bool,
}

/// A bias with its tables.
#[derive(Clone, Copy, Debug)]
pub enum BiasInputs {
    None,
    /// (buckets, H)
    Relative {
        table: ValueId,
        bidirectional: bool,
        max_distance: usize,
    },
    /// Each (2 · span, H, D).
    Disentangled {
        pos_key: ValueId,
        pos_query: ValueId,
        buckets: usize,
        max_distance: usize,
    },
}

impl AttentionInputs {
    /// Self-attention that sees everything, scaled by 1/√D.
    pub(crate) fn packed(graph: &Graph, qkv: ValueId) -> AttentionInputs {
        let width = graph.shape(qkv).last().map_or(1, |&width| width.max(1));
        let (scale, bias) = ((width as f64).powf(-0.5), BiasInputs::None);
        AttentionInputs { q: qkv, kv: None, mask: None, bias, position: None, dropout: 0.0, scale, causal: false }
    }

    /// The same from q to other keys and values.
    pub(crate) fn across(graph: &Graph, q: ValueId, kv: ValueId) -> AttentionInputs {
        AttentionInputs { kv: Some(kv), ..AttentionInputs::packed(graph, q) }
    }

    fn tables(&self) -> (Bias, Vec<ValueId>) {
        match self.bias {
            BiasInputs::None => (Bias::None, vec![]),
            BiasInputs::Relative { table, bidirectional, max_distance } => {
                (Bias::Relative { bidirectional, max_distance }, vec![table])
            }
            BiasInputs::Disentangled { pos_key, pos_query, buckets, max_distance } => {
                (Bias::Disentangled { buckets, max_distance }, vec![pos_key, pos_query])
            }
        }
    }
}

/// Attention, giving (B, T, H, D).
pub fn attention(graph: &mut Graph, name: &str, inputs: AttentionInputs, build: &Build) -> Result<ValueId, GraphError> {
    let dropped = build.training && inputs.dropout > 0.0;
    let dropout = dropped.then(|| (inputs.dropout, site(&graph.path(name))));
    match build.attention {
        AttentionForm::Fused => fused(graph, name, inputs, dropout),
        AttentionForm::Materialized => materialized(graph, name, inputs, dropout),
    }
}

fn fused(
    graph: &mut Graph,
    name: &str,
    inputs: AttentionInputs,
    dropout: Option<(f32, u64)>,
) -> Result<ValueId, GraphError> {
    let (bias, tables) = inputs.tables();
    let op = Attention {
        scale: inputs.scale,
        causal: inputs.causal,
        key_mask: inputs.mask.is_some(),
        dropout,
        packing: if inputs.kv.is_some() { Packing::QKv } else { Packing::Qkv },
        bias,
        offset: inputs.position.is_some(),
    };
    let state = if dropout.is_some() { Some(rng(graph)?) } else { None };
    let mut values = vec![inputs.q];
    values.extend(inputs.kv);
    values.extend(tables);
    values.extend([inputs.mask, inputs.position, state].into_iter().flatten());
    Ok(graph.apply_all(name, op, &values)?[0])
}

/// Scores, softmax, dropout and mix as nodes of their own. Drops the weights that the fused form drops.
fn materialized(
    graph: &mut Graph,
    name: &str,
    inputs: AttentionInputs,
    dropout: Option<(f32, u64)>,
) -> Result<ValueId, GraphError> {
    if !matches!(inputs.bias, BiasInputs::None) || inputs.position.is_some() {
        let path = graph.path(name);
        return Err(GraphError::Broken(format!(
            "{path}: attention with a bias or at a position is only available fused; hint: memory.attention = \"fused\""
        )));
    }
    graph.scope(name, |graph| {
        let [q, k, v] = by_head(graph, inputs)?; // (1, B, H, T or S, D)
        let scores = graph.apply("scores", MatMul::TRANSPOSED, &[q, k])?;
        graph.set_component(scores, Component::AttentionScores);
        let &[_, batch, heads, time, keys] = graph.shape(scores) else {
            return Err(GraphError::Broken(format!("{name}: scores are not (1, batch, heads, time, keys)")));
        };
        let mut weights = reshape(graph, "scores.by_sample", scores, &[batch, heads, time, keys])?;
        let softmax = Softmax { scale: inputs.scale, causal: inputs.causal, scores: true };
        let seen: Vec<ValueId> = [weights].into_iter().chain(inputs.mask).collect();
        weights = graph.apply("softmax", softmax, &seen)?;
        if let Some((p, site)) = dropout {
            let state = rng(graph)?;
            weights = graph.apply("drop", AttentionDropout { p, site }, &[weights, state])?;
        }
        let weights = reshape(graph, "weights", weights, &[1, batch, heads, time, keys])?;
        let mixed = graph.apply("mix", MatMul::PLAIN, &[weights, v])?;
        let width = graph.shape(mixed)[4];
        let by_time = graph.apply("by_time", Permute { order: vec![0, 1, 3, 2, 4] }, &[mixed])?;
        reshape(graph, "out", by_time, &[batch, time, heads, width])
    })
}

/// q, k and v as (1, B, H, time, D), seen through strides.
fn by_head(graph: &mut Graph, inputs: AttentionInputs) -> Result<[ValueId; 3], GraphError> {
    let packed = |graph: &mut Graph, name: &str, value: ValueId, parts: usize| {
        let turned = graph.apply(name, Permute { order: vec![2, 0, 3, 1, 4] }, &[value])?;
        graph.apply_all(&format!("{name}.split"), Split::even(0, parts, parts), &[turned])
    };
    let Some(kv) = inputs.kv else {
        let parts = packed(graph, "parts", inputs.q, 3)?;
        return Ok([parts[0], parts[1], parts[2]]);
    };
    let shape: Vec<usize> = [1].iter().chain(graph.shape(inputs.q)).copied().collect();
    let q = reshape(graph, "q", inputs.q, &shape)?;
    let q = graph.apply("q.turned", Permute { order: vec![0, 1, 3, 2, 4] }, &[q])?;
    let parts = packed(graph, "kv", kv, 2)?;
    Ok([q, parts[0], parts[1]])
}

#[cfg(test)]
mod tests;
