//! DeBERTa's relative positions: one table of distances, projected in every layer by that layer's own query and key.

use super::{Encoder, EncoderKind};
use crate::families::Build;
use crate::families::attention::BiasInputs;
use crate::families::layers::*;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::ops::*;

/// The table of distances, normalized: (2·span, D).
pub(super) type Positions = ValueId;

impl Encoder {
    /// The furthest distance, in tokens.
    fn furthest(&self) -> usize {
        self.max_relative_positions.unwrap_or(self.max_position_embeddings)
    }

    /// Half the rows of the table: buckets, or distances where there are none.
    fn span(&self) -> usize {
        self.position_buckets.unwrap_or_else(|| self.furthest())
    }

    pub(super) fn relative_positions(&self, g: &mut Graph) -> Result<Option<Positions>, GraphError> {
        if self.kind != EncoderKind::DebertaV3 {
            return Ok(None);
        }
        let table = self.table(g, "rel_embeddings", 2 * self.span())?;
        Ok(Some(layer_norm_with(g, "LayerNorm", table, self.layer_norm_eps)?))
    }

    /// Query and key of every distance, from the packed (query, key, value) weights of a layer.
    pub(super) fn relative_bias(
        &self,
        g: &mut Graph,
        build: &Build,
        positions: Positions,
        weight: ValueId,
        bias: ValueId,
    ) -> Result<BiasInputs, GraphError> {
        let (width, heads) = (self.hidden_size, self.num_attention_heads);
        // One table for all samples: whatever their number, they see it dropped alike.
        let x = dropout(g, "pos_dropout", positions, self.hidden_dropout_prob, 0, build.training)?;
        let project = |g: &mut Graph, name: &str, index: usize| {
            let own = Slice { axis: 0, start: index * width, len: width };
            let weight = g.apply(&format!("{name}.weight"), own.clone(), &[weight])?;
            let bias = g.apply(&format!("{name}.bias"), own, &[bias])?;
            let y = g.apply(name, MatMul::LINEAR, &[x, weight, bias])?;
            reshape(g, &format!("{name}.heads"), y, &[2 * self.span(), heads, width / heads])
        };
        Ok(BiasInputs::Disentangled {
            pos_query: project(g, "pos_query", 0)?,
            pos_key: project(g, "pos_key", 1)?,
            buckets: self.position_buckets.unwrap_or(0),
            max_distance: self.furthest(),
        })
    }
}
