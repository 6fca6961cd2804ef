//! Token and position embeddings → post-norm transformer layers → a head on the first token. Parameters have Hugging
//! Face's names.

use super::DistilBert;
use crate::families::layers::*;
use crate::families::texts::{Packed, Wanted, token_mask};
use crate::families::{AttentionInputs, Build, attention};
use plimsoll_core::graph::{Graph, GraphError, Init, Named, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

/// No config.json has another.
const NORM_EPS: f64 = 1e-12;

type Built = Result<ValueId, GraphError>;

impl DistilBert {
    /// The last layer's hidden states, (B·T, D), or (B, D) of the first tokens.
    pub(super) fn hidden(&self, graph: &mut Graph, build: &Build, wanted: Wanted) -> Built {
        let mut x = graph.scope("distilbert.embeddings", |g| self.embeddings(g, build))?;
        let mask = token_mask(graph, build)?;
        for i in 0..self.n_layers {
            let path = format!("distilbert.transformer.layer.{i}");
            let wanted = wanted.of_layer(i, self.n_layers);
            x = graph.layer(&path, |g| self.layer(g, build, x, mask, wanted))?;
        }
        Ok(x)
    }

    /// (B, D) → (B, labels).
    pub(super) fn logits(&self, g: &mut Graph, build: &Build, x: ValueId) -> Built {
        let start = self.start();
        let x = dense_activated(g, "pre_classifier", x, self.dim, start, Activation::Relu, build.training)?;
        let x = dropout(g, "dropout", x, self.seq_classif_dropout, build.batch, build.training)?;
        dense(g, "classifier", x, self.num_labels, start)
    }

    /// dropout(norm(word + position)), (B·T, D).
    fn embeddings(&self, g: &mut Graph, build: &Build) -> Built {
        let (batch, time) = (build.batch, build.length);
        let ids = g.data("ids", Type::new(DType::I32, &[batch, time]))?;
        let words = self.table(g, "word_embeddings", self.vocab_size)?;
        let places = self.table(g, "position_embeddings", self.max_position_embeddings)?;
        let x = g.apply("words", Embedding, &[words, ids])?; // (B, T, D)
        let places = g.apply("positions", Slice { axis: 0, start: 0, len: time }, &[places])?;
        let x = g.apply("sum", Binary::ADD, &[x, places])?;
        let x = reshape(g, "rows", x, &[batch * time, self.dim])?;
        let x = layer_norm_with(g, "LayerNorm", x, NORM_EPS)?;
        dropout(g, "dropout", x, self.dropout, batch, build.training)
    }

    /// (B·T, D) → (B·T, D), or (B, D) where only the first tokens are wanted.
    fn layer(&self, g: &mut Graph, build: &Build, x: ValueId, mask: ValueId, wanted: Wanted) -> Built {
        let (y, x) = g.scope("attention", |g| self.attend(g, build, x, mask, wanted))?;
        let sum = g.apply("attention.residual", Binary::ADD, &[y, x])?;
        let x = layer_norm_with(g, "sa_layer_norm", sum, NORM_EPS)?;
        let y = g.scope("ffn", |g| self.feed_forward(g, build, x))?;
        let sum = g.apply("ffn.residual", Binary::ADD, &[y, x])?;
        layer_norm_with(g, "output_layer_norm", sum, NORM_EPS)
    }

    /// Attention of the wanted tokens over all real ones; the result, and the wanted rows of `x`. Only its weights are
    /// dropped, not what comes out of it.
    fn attend(
        &self,
        g: &mut Graph,
        build: &Build,
        x: ValueId,
        mask: ValueId,
        wanted: Wanted,
    ) -> Result<(ValueId, ValueId), GraphError> {
        let (width, heads) = (self.dim, self.n_heads);
        let (weight, bias) = linear_weights(g, "{q_lin,k_lin,v_lin}", width, 3 * width, self.start())?;
        let (inputs, x) = Packed { weight, bias, heads }.project(g, build, x, wanted)?;
        let inputs = AttentionInputs { mask: Some(mask), dropout: self.attention_dropout, ..inputs };
        let y = attention(g, "attention", inputs, build)?;
        let rows = g.shape(x)[0];
        let y = reshape(g, "joined", y, &[rows, width])?;
        Ok((dense(g, "out_lin", y, width, self.start())?, x))
    }

    fn feed_forward(&self, g: &mut Graph, build: &Build, x: ValueId) -> Built {
        let act = activation(self.activation);
        let y = dense_activated(g, "lin1", x, self.hidden_dim, self.start(), act, build.training)?;
        let y = dense(g, "lin2", y, self.dim, self.start())?;
        dropout(g, "dropout", y, self.dropout, build.batch, build.training)
    }

    fn table(&self, g: &mut Graph, name: &str, rows: usize) -> Built {
        let init = Init::Normal(self.initializer_range);
        g.parameter(Named(name, ".weight"), &[rows, self.dim], init, true)
    }

    fn start(&self) -> Start {
        Start::normal(self.initializer_range)
    }
}
